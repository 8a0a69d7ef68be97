//! What a file says, each thing only if it does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sumlink_engine::SelectorConfig;
use sumlink_proxy::{ClassRule, Forward};
use sumlink_settings::session::SessionOptions;
use sumlink_transport::config::{
    AuthorizedClient, Carriers, ClientLimits, HalfOpenLimits, LinkConfig, SessionConfig,
};
use sumlink_transport::egress::EgressRule;
use sumlink_transport::{Class, Early, PublicKey};

use super::{Problem, memory};
use crate::exit::CliError;

/// What a client may be told, each thing only if it was.
#[derive(Debug, Default)]
pub(crate) struct ClientSettings {
    pub(crate) server: Option<String>,
    pub(crate) server_key: Option<PublicKey>,
    pub(crate) key: Option<PathBuf>,
    /// `Some` and empty is `auto`, said aloud.
    pub(crate) links: Option<Vec<LinkConfig>>,
    pub(crate) congestion: Option<String>,
    pub(crate) coupled: Option<String>,
    pub(crate) carriers: Option<Carriers>,
    pub(crate) early: Option<Early>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) socks: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) forward: Vec<Forward>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) classes: Vec<ClassRule>,
    pub(crate) control: Option<PathBuf>,
    pub(crate) session: SessionSettings,
    pub(crate) lines: Lines,
}

/// What a server may be told, each thing only if it was.
#[derive(Debug, Default)]
pub(crate) struct ServerSettings {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) authorized: Vec<AuthorizedClient>,
    pub(crate) egress: Vec<EgressRule>,
    pub(crate) limits: ClientLimits,
    pub(crate) half_open: HalfOpenLimits,
    pub(crate) congestion: Option<String>,
    pub(crate) coupled: Option<String>,
    pub(crate) control: Option<PathBuf>,
    pub(crate) session: SessionSettings,
    pub(crate) lines: Lines,
}

/// The lines of what a file says, for mistakes that show only when all of it is put together.
#[derive(Debug, Default)]
pub struct Lines {
    /// Of the keys at the top of the file, with right values or wrong ones.
    pub keys: BTreeMap<String, usize>,
    /// Of the links, in the order of the settings.
    pub links: Vec<usize>,
    /// Of the forwards, in the order of the settings.
    pub forwards: Vec<usize>,
}

impl Lines {
    /// The line of a key, or the first one where it is not there.
    pub fn of(&self, key: &str) -> usize {
        self.keys.get(key).copied().unwrap_or(1)
    }
}

/// `[session]`, each thing only if it was said.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    pub(crate) scheduler: Option<String>,
    pub(crate) class_schedulers: BTreeMap<Class, String>,
    pub(crate) selector: Option<SelectorConfig>,
    pub(crate) memory: Option<u64>,
    pub(crate) stream_memory: Option<u64>,
    pub(crate) max_streams: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    /// Budget, windows, races and coupling.
    pub(crate) options: SessionOptions,
    /// The lines on which these are said, by key.
    pub(crate) lines: BTreeMap<String, usize>,
}

impl SessionSettings {
    /// With the defaults for what was not said.
    pub(crate) fn config(&self) -> SessionConfig {
        let default = SessionConfig::default();
        let memory = self.memory.unwrap_or_else(memory::of_session);
        SessionConfig {
            scheduler: self.scheduler.clone().unwrap_or(default.scheduler),
            class_schedulers: self.class_schedulers.clone(),
            selector: self.selector.clone().unwrap_or(default.selector),
            memory,
            stream_memory: self.stream_memory.unwrap_or(memory / 2),
            max_streams: self.max_streams.unwrap_or(default.max_streams),
            session_timeout: self.timeout.unwrap_or(default.session_timeout),
            redundancy: self.options.redundancy,
            fbdt: self.options.fbdt.clone(),
            ..default
        }
    }

    /// With what flags say instead. A scheduler of a class replaces the file's for that class only.
    pub(super) fn with_flags(
        self,
        scheduler: Option<String>,
        of_classes: Vec<(Class, String)>,
        selector: Option<SelectorConfig>,
    ) -> Result<Self, CliError> {
        let mut given = BTreeMap::new();
        for (class, name) in of_classes {
            if given.insert(class, name).is_some() {
                return Err(CliError::Usage(format!(
                    "--class-scheduler: {} has two schedulers: remove one",
                    class.name()
                )));
            }
        }
        let mut class_schedulers = self.class_schedulers;
        class_schedulers.extend(given);
        Ok(Self {
            scheduler: scheduler.or(self.scheduler),
            class_schedulers,
            selector: selector.or(self.selector),
            ..self
        })
    }

    /// Settings that none of its schedulers reads, in words, by ascending line.
    pub(crate) fn unread(&self) -> Vec<Problem> {
        let config = self.config();
        let scheduler_of = |class: Class| {
            let own = config.class_schedulers.get(&class);
            own.unwrap_or(&config.scheduler).as_str()
        };
        let unread = self.options.unread(scheduler_of);
        let mut told: Vec<_> = unread
            .map(|key| {
                let line = self.lines.get(key).copied().unwrap_or_default();
                let reason = "changes nothing: no scheduler of this session reads it";
                Problem::new(line, format!("`{key}` {reason}"))
            })
            .collect();
        told.sort_by_key(|problem| problem.line);
        told
    }

    /// Whether the engine would take them.
    pub(crate) fn check(&self) -> Result<(), sumlink_engine::ConfigError> {
        self.config().check()
    }
}
