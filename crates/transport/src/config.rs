//! What a client and a server are told: plain structures, filled by the command line, a TOML file or a
//! program that uses this crate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_engine::scheduler::fbdt::FbdtConfig;
use sumlink_engine::{Class, ConfigError, Redundancy, Role, SelectorConfig, scheduler};

use crate::client::ConnectError;
use crate::driver::engine_config;
use crate::egress::EgressPolicy;
use crate::groups::CarrierGroups;
use crate::keys::{PublicKey, SecretKey};
use crate::links;
use crate::pipe;
use crate::policy::{LinkPolicy, check_state};
use crate::server::ServerError;

/// How a session uses memory and time; the same meaning on both sides.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Scheduler that decides which path carries which bytes this side sends: a name of
    /// `sumlink_engine::scheduler::NAMES` or of `own_schedulers`. The peer chooses its own.
    pub scheduler: String,
    /// Schedulers of traffic classes that have another one.
    pub class_schedulers: BTreeMap<Class, String>,
    /// Schedulers of the program, which the names above can choose like the engine's own. The
    /// engine trusts their decisions; `sumlink_sim::Own` runs a scheduler with every decision
    /// checked.
    pub own_schedulers: OwnSchedulers,
    /// What one session may hold of received and of sent bytes, each, in bytes: in the engine and on the way to and
    /// from the streams' programs. At least [`SessionConfig::least_memory`].
    pub memory: u64,
    /// What one stream may hold of that, in bytes.
    pub stream_memory: u64,
    /// Streams that the peer may have open at once.
    pub max_streams: u64,
    /// How long a session without any path waits for one to come back.
    pub session_timeout: Duration,
    /// How much may be sent twice on purpose.
    pub redundancy: Redundancy,
    /// Windows, races and coupling of the `fbdt` scheduler; the others pass over it.
    pub fbdt: FbdtConfig,
    /// Decides which paths carry what this side sends; see `sumlink_engine::selector`.
    pub selector: SelectorConfig,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            scheduler: scheduler::DEFAULT.to_owned(),
            class_schedulers: BTreeMap::new(),
            own_schedulers: OwnSchedulers::default(),
            memory: 64 << 20,
            stream_memory: 32 << 20,
            max_streams: 1024,
            session_timeout: Duration::from_secs(60),
            redundancy: Redundancy::default(),
            fbdt: FbdtConfig::default(),
            selector: SelectorConfig::default(),
        }
    }
}

impl SessionConfig {
    /// The least `memory` that so many streams can work with, in bytes.
    pub fn least_memory(max_streams: u64) -> u64 {
        let engine = sumlink_engine::Config::least_memory(max_streams);
        // Rounded up, so that what [`SessionConfig::split`] leaves is never a byte short.
        (engine + Self::floors(max_streams)).div_ceil(POOL_SHARE - 1) * POOL_SHARE
    }

    /// Whether the values make sense, each and together.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.stream_memory > self.memory {
            return Err(ConfigError::StreamMemory);
        }
        engine_config(Role::Client, self)
            .check()
            .map_err(|error| match error {
                ConfigError::Memory { streams, .. } => ConfigError::Memory {
                    least: Self::least_memory(streams),
                    streams,
                },
                error => error,
            })
    }

    /// The schedulers in one line: `fbdt, conversational redundant`.
    pub fn schedulers(&self) -> String {
        let mut text = self.scheduler.clone();
        for (class, scheduler) in &self.class_schedulers {
            text.push_str(&format!(", {} {scheduler}", class.name()));
        }
        text
    }

    /// How many paths a session may have where `limit` is allowed, and what one too many is told.
    pub(crate) fn most_paths(&self, limit: usize) -> (usize, String) {
        let names = [&self.scheduler]
            .into_iter()
            .chain(self.class_schedulers.values());
        let made_for = names
            .filter_map(|name| Some((self.own_schedulers.most_paths(name, Role::Server)?, name)));
        match made_for.min().filter(|(most, _)| *most <= limit) {
            Some((most, name)) => (
                most,
                format!("the server's scheduler {name} takes {most} paths"),
            ),
            None => (limit, "too many paths in this session".to_owned()),
        }
    }

    /// Who gets how much of the memory of one direction.
    pub(crate) fn split(&self) -> Split {
        let pool = self.memory / POOL_SHARE;
        let engine = self.memory - pool;
        Split {
            engine: engine.saturating_sub(Self::floors(self.max_streams)),
            pool,
        }
    }

    /// What the pipes of all streams, of either side, may hold whatever the pool has left.
    fn floors(max_streams: u64) -> u64 {
        2 * max_streams.min(1 << 32) * pipe::memory::FLOOR as u64
    }
}

/// The pipes' part of the memory: one in so many. One stream alone uses half a MiB of it, and buffers in front of the
/// engine make nothing faster.
const POOL_SHARE: u64 = 8;

/// The memory of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    /// For the engine.
    pub(crate) engine: u64,
    /// For pipes, beside their floors.
    pub(crate) pool: u64,
}

/// Which links a client uses, and how.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// The interface's name, or a glob (`wwan*`).
    pub name: String,
    /// TCP congestion control for carriers over this link, [`crate::congestion::AUTO`] for one chosen by measurement;
    /// that of all links when not given.
    pub congestion: Option<String>,
    /// Connections at once over this link; as for all links when not given.
    pub carriers: Option<Carriers>,
    /// What it may be used for.
    pub policy: LinkPolicy,
}

impl LinkConfig {
    /// A link of that name, or links by a glob, of which nothing else is said.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            congestion: None,
            carriers: None,
            policy: LinkPolicy::default(),
        }
    }
}

/// How many connections a link has at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriers {
    /// This many, at most [`Carriers::MOST`].
    Fixed(NonZeroU8),
    /// As many as bring something: one more is tried now and then on a link that loses packets without being full.
    Auto,
}

impl Carriers {
    /// The most connections that a link may have.
    pub const MOST: u8 = 8;

    /// One connection on each link.
    pub const ONE: Self = Self::Fixed(NonZeroU8::MIN);
}

/// Everything a client is told.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server's host and port; a name is resolved by the local resolver.
    pub server: String,
    /// The server's public key; a server with another one is not talked to.
    pub server_key: PublicKey,
    /// This client's own key.
    pub key: SecretKey,
    /// The links to use; empty means every interface that can route to the server.
    pub links: Vec<LinkConfig>,
    /// TCP congestion control for links that name none, [`crate::congestion::AUTO`] for one chosen by measurement; the
    /// kernel's default when not given.
    pub congestion: Option<String>,
    /// Makes the carriers of a session siblings for congestion controls that look at each other; alone when not given.
    pub groups: Option<Arc<dyn CarrierGroups>>,
    /// Connections at once over each link that names no number.
    pub carriers: Carriers,
    /// Where what links have moved, and policies that were set at run time, are remembered; nowhere when not given.
    pub state: Option<PathBuf>,
    /// Memory, scheduler, timeouts.
    pub session: SessionConfig,
}

impl ClientConfig {
    /// Whether a client could begin with this: the session's values, the links' policies, and the file in which is
    /// remembered what links have moved. Nothing is changed. [`crate::Client::connect`] asks the same.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, as `connect` would say it.
    pub fn check(&self) -> Result<(), ConnectError> {
        self.session.check()?;
        for link in &self.links {
            let checked = link.policy.check();
            checked.map_err(|error| ConnectError::Policy {
                link: link.name.clone(),
                error,
            })?;
        }
        if let Some(state) = &self.state {
            check_state(state)?;
        }
        Ok(())
    }

    /// What is said of the link of this name.
    pub(crate) fn link(&self, name: &str) -> Option<&LinkConfig> {
        self.links
            .iter()
            .find(|link| links::name_matches(&link.name, name))
    }

    /// How many connections the link of this name has.
    pub(crate) fn carriers_of(&self, link: &str) -> Carriers {
        let own = self.link(link).and_then(|link| link.carriers);
        own.unwrap_or(self.carriers)
    }

    /// Whether any link's number of connections is found by measurement.
    pub(crate) fn measures_carriers(&self) -> bool {
        let own = self.links.iter().filter_map(|link| link.carriers);
        own.chain([self.carriers])
            .any(|carriers| carriers == Carriers::Auto)
    }
}

/// A client that may connect.
#[derive(Clone, Debug)]
pub struct AuthorizedClient {
    /// Its public key.
    pub key: PublicKey,
    /// A label for logs and status; may be empty.
    pub name: String,
}

/// What one client key may use at most.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Sessions at once.
    pub sessions: usize,
    /// What all its sessions may hold together, in bytes of both directions. A session counts with all that its
    /// configuration lets it hold; one is always possible.
    pub memory: u64,
    /// Paths of one session at once.
    pub paths: usize,
}

/// How many connections a server has that have not proved a key. One too many takes the place of the oldest in the
/// network that has the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenLimits {
    /// All of them together.
    pub total: usize,
    /// Those of `total` that only addresses of live sessions get; less than that.
    pub reserved: usize,
    /// Those of one IPv4 address, or of one IPv6 /64.
    pub per_address: usize,
}

impl HalfOpenLimits {
    /// The same limits where no more than `most` are possible: fewer in the same proportion.
    pub(crate) fn within(self, most: usize) -> Self {
        let total = self.total.min(most).max(2);
        let reserved = self.reserved as u128 * total as u128 / self.total.max(1) as u128;
        Self {
            total,
            reserved: usize::try_from(reserved).unwrap_or(total).min(total - 1),
            ..self
        }
    }
}

impl Default for HalfOpenLimits {
    fn default() -> Self {
        Self {
            total: 1024,
            reserved: 256,
            per_address: 32,
        }
    }
}

impl ClientLimits {
    /// Sessions of one client at once, by their number and by what they may hold.
    pub(crate) fn sessions_of(&self, session: &SessionConfig) -> usize {
        let fitting = self.memory / session.memory.saturating_mul(2).max(1);
        self.sessions
            .min(usize::try_from(fitting).unwrap_or(usize::MAX))
            .max(1)
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            sessions: 16,
            memory: 1 << 30,
            paths: 32,
        }
    }
}

impl ServerConfig {
    /// Whether a server could begin with this. [`crate::Server::bind`] asks the same.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong, as `bind` would say it.
    pub fn check(&self) -> Result<(), ServerError> {
        self.session.check()?;
        match self.authorized.is_empty() {
            true => Err(ServerError::NobodyAuthorized),
            false => Ok(()),
        }
    }
}

/// Everything a server is told.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address and port for all clients; `[::]:PORT` takes IPv4 too.
    pub listen: SocketAddr,
    /// This server's own key.
    pub key: SecretKey,
    /// Who may connect. Nobody else can.
    pub authorized: Vec<AuthorizedClient>,
    /// Where streams may go.
    pub egress: EgressPolicy,
    /// What one client may use.
    pub limits: ClientLimits,
    /// What those may use who have not proved a key.
    pub half_open: HalfOpenLimits,
    /// TCP congestion control for carriers, [`crate::congestion::AUTO`] for one chosen by measurement; the kernel's
    /// default when not given.
    pub congestion: Option<String>,
    /// Makes the carriers of a session siblings for congestion controls that look at each other; alone when not given.
    pub groups: Option<Arc<dyn CarrierGroups>>,
    /// Memory, scheduler, timeouts.
    pub session: SessionConfig,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_is_enough_and_a_byte_less_is_not() {
        for max_streams in [1, 16, 1000, 1 << 16] {
            let least = SessionConfig::least_memory(max_streams);
            let config = |memory| SessionConfig {
                memory,
                stream_memory: 1 << 18,
                max_streams,
                ..SessionConfig::default()
            };
            config(least).check().unwrap();
            let error = config(least - POOL_SHARE).check().unwrap_err();
            assert_eq!(
                error,
                ConfigError::Memory {
                    least,
                    streams: max_streams
                }
            );
        }
    }

    #[test]
    fn fewer_half_open_connections_are_divided_like_many() {
        let limits = HalfOpenLimits::default();
        assert_eq!(limits.within(1 << 20), limits);
        let fewer = limits.within(128);
        assert_eq!(
            (fewer.total, fewer.reserved, fewer.per_address),
            (128, 32, 32)
        );
        assert_eq!(limits.within(0).reserved, 0);
    }

    #[test]
    fn a_client_has_as_many_sessions_as_its_memory_allows() {
        let limits = |sessions, memory| ClientLimits {
            sessions,
            memory,
            ..ClientLimits::default()
        };
        let session = SessionConfig::default();
        assert_eq!(limits(16, 1 << 30).sessions_of(&session), 8);
        assert_eq!(limits(3, 1 << 30).sessions_of(&session), 3);
        assert_eq!(limits(16, 1).sessions_of(&session), 1);
    }

    #[test]
    fn nothing_is_given_to_two() {
        let config = SessionConfig::default();
        let split = config.split();
        let floors = SessionConfig::floors(config.max_streams);
        assert_eq!(split.engine + split.pool + floors, config.memory);
    }

    #[test]
    fn a_scheduler_limits_the_paths_and_says_so() {
        let mut config = SessionConfig::default();
        let refusal = |config: &SessionConfig| config.most_paths(32);
        assert_eq!(refusal(&config).0, 32);
        config
            .class_schedulers
            .insert(Class::Streaming, "musher".to_owned());
        assert_eq!(refusal(&config).0, 2);
        assert_eq!(
            refusal(&config).1,
            "the server's scheduler musher takes 2 paths"
        );
        assert_eq!(config.most_paths(1).0, 1);
        assert_eq!(config.schedulers(), "fbdt, streaming musher");
    }
}
