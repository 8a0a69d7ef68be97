//! What flags and file say together, and the finished configuration of a client or a server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sumlink_edge_node::NodeConfig;
use sumlink_engine::SelectorConfig;
use sumlink_lab::session::SessionOptions;
use sumlink_proxy::{ClassRule, Forward};
use sumlink_transport::config::{
    AuthorizedClient, Carriers, ClientConfig, ClientLimits, HalfOpenLimits, LinkConfig,
    ServerConfig, SessionConfig,
};
use sumlink_transport::egress::{EgressPolicy, EgressRule};
use sumlink_transport::{Class, Early, PublicKey, SecretKey, Target};

use super::read::{Depth, read};
use super::{ConfigError, File, Problem, memory};
use crate::args::{ClientArgs, CommonArgs, ServerArgs};
use crate::congestion::Controls;
use crate::exit::CliError;

/// Where SOCKS5 is served when the client is told of no other entry.
const DEFAULT_SOCKS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1080);

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
}

/// What an edge node is told.
#[derive(Debug)]
pub(crate) struct EdgeSettings {
    pub(crate) node: NodeConfig,
    pub(crate) control: Option<PathBuf>,
    /// Where metrics are told.
    pub(crate) metrics: Option<SocketAddr>,
}

impl EdgeSettings {
    /// What that file says.
    pub(crate) fn load(file: &Path) -> Result<Self, CliError> {
        match read(file, Depth::Complete)? {
            File::Edge(settings) => Ok(*settings),
            other => Err(other_role(file.to_owned(), &other)),
        }
    }
}

fn other_role(file: PathBuf, other: &File) -> CliError {
    let is = other.role();
    ConfigError::OtherRole { file, is }.into()
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
        }
    }

    /// With what flags say instead. A scheduler of a class replaces the file's for that class only.
    fn with_flags(
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
            .map(|key| Problem {
                line: self.lines.get(key).copied().unwrap_or_default(),
                reason: format!("`{key}` changes nothing: no scheduler of this session reads it"),
                about_key_file: false,
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

/// A client's configuration and the local entries that it serves.
#[derive(Debug)]
pub(crate) struct ClientPlan {
    pub(crate) config: ClientConfig,
    pub(crate) socks: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) forward: Vec<Forward>,
    /// Local connections of all entries together; by the limit on open files where nobody has said.
    pub(crate) max_connections: Option<usize>,
    pub(crate) classes: Vec<ClassRule>,
    /// When programs are told that they are connected before the server says so.
    pub(crate) early: Early,
    pub(crate) control: Option<PathBuf>,
}

/// A server's configuration.
#[derive(Debug)]
pub(crate) struct ServerPlan {
    pub(crate) config: ServerConfig,
    pub(crate) control: Option<PathBuf>,
}

impl ClientPlan {
    /// Flags over file over defaults. A list in the flags replaces that of the file.
    pub(crate) fn new(args: ClientArgs) -> Result<Self, CliError> {
        let source = Source(args.config.as_deref());
        let file = match source.file()? {
            None => ClientSettings::default(),
            Some((_, File::Client(settings))) => *settings,
            Some((file, other)) => return Err(other_role(file, &other)),
        };
        let CommonArgs {
            scheduler,
            class_scheduler,
            selector,
            congestion,
            coupled,
            control,
        } = args.common;
        let session = file
            .session
            .with_flags(scheduler, class_scheduler, selector)?;
        source.warn_of_unread(&session);
        let key = source.need(
            args.key.or(file.key),
            "no key: give --key FILE or `key = \"FILE\"`; sumlink keygen makes one",
        )?;
        let server = source.need(
            args.server.or(file.server),
            "no server: give --server HOST:PORT or `server = \"HOST:PORT\"`",
        )?;
        parse_server(&server)?;
        let server_key = source.need(args.server_key.or(file.server_key), "no server key: give --server-key PUBKEY or `server_key = \"PUBKEY\"`; sumlink pubkey prints it at the server")?;
        let mut links = Vec::new();
        for name in args.link {
            let name = super::parse_link(&name).map_err(CliError::Usage)?;
            links.push(LinkConfig::named(name));
        }
        if links.is_empty() {
            links = file.links.unwrap_or_default();
        }
        let state = args.state.or(file.state).or_else(state_of_service);
        if let Some(capped) = links
            .iter()
            .find(|link| link.policy.has_cap() && state.is_none())
        {
            return source.need(None, &format!(
                "link {} has a cap and there is no file in which what it moves is remembered: give --state FILE or `state = \"FILE\"`",
                capped.name
            ));
        }
        let mut controls = Controls::default();
        // What couples all links leaves none its own.
        let couples = coupled.is_some();
        let by_flag = congestion.or(coupled);
        for link in &mut links {
            if let Some(name) = link.congestion.take().filter(|_| !couples) {
                link.congestion = source.congestion_of_file(&name, &mut controls)?;
            }
        }
        let by_file = file.congestion.or(file.coupled);
        let congestion = source.congestion(by_flag, by_file, &mut controls)?;
        let forward = if args.forward.is_empty() {
            file.forward
        } else {
            args.forward
        };
        let http = args.http.or(file.http);
        let entries = http.is_some() || !forward.is_empty();
        Ok(Self {
            config: ClientConfig {
                server,
                server_key,
                key: SecretKey::load(&key)?,
                links,
                congestion,
                groups: controls.into_groups(),
                carriers: args.carriers.or(file.carriers).unwrap_or(Carriers::ONE),
                state,
                session: session.config(),
            },
            socks: args
                .socks
                .or(file.socks)
                .or((!entries).then_some(DEFAULT_SOCKS)),
            http,
            forward,
            max_connections: args.max_connections.or(file.max_connections),
            early: args.early.or(file.early).unwrap_or_default(),
            classes: file.classes,
            control: control.or(file.control),
        })
    }
}

impl ServerPlan {
    /// Flags over file over defaults. A list in the flags replaces that of the file.
    pub(crate) fn new(args: ServerArgs) -> Result<Self, CliError> {
        let source = Source(args.config.as_deref());
        let file = match source.file()? {
            None => ServerSettings {
                limits: memory::limits(),
                ..ServerSettings::default()
            },
            Some((_, File::Server(settings))) => *settings,
            Some((file, other)) => return Err(other_role(file, &other)),
        };
        let CommonArgs {
            scheduler,
            class_scheduler,
            selector,
            congestion,
            coupled,
            control,
        } = args.common;
        let session = file
            .session
            .with_flags(scheduler, class_scheduler, selector)?;
        source.warn_of_unread(&session);
        let key = source.need(
            args.key.or(file.key),
            "no key: give --key FILE or `key = \"FILE\"`; sumlink keygen makes one",
        )?;
        let listen = source.need(
            args.listen.or(file.listen),
            "no address: give --listen ADDR:PORT or `listen = \"ADDR:PORT\"`, such as [::]:7443",
        )?;
        let authorized = if args.authorize.is_empty() {
            file.authorized
        } else {
            let unnamed = |key| AuthorizedClient {
                key,
                name: String::new(),
            };
            args.authorize.into_iter().map(unnamed).collect()
        };
        let authorized = source.need(Some(authorized).filter(|a| !a.is_empty()), "nobody may connect: give --authorize PUBKEY or a [[client]] block with a client's public key")?;
        let rules = if args.egress.is_empty() {
            file.egress
        } else {
            args.egress
        };
        let mut controls = Controls::default();
        let by_flag = congestion.or(coupled);
        let by_file = file.congestion.or(file.coupled);
        let congestion = source.congestion(by_flag, by_file, &mut controls)?;
        Ok(Self {
            config: ServerConfig {
                listen,
                key: SecretKey::load(&key)?,
                authorized,
                egress: EgressPolicy::new(rules),
                limits: file.limits,
                half_open: file.half_open,
                congestion,
                groups: controls.into_groups(),
                session: session.config(),
            },
            control: control.or(file.control),
        })
    }
}

/// The file in the directory that systemd gives a service (`StateDirectory=`); the first, where it gives several.
fn state_of_service() -> Option<PathBuf> {
    let directories = std::env::var_os("STATE_DIRECTORY")?;
    let first = std::env::split_paths(&directories).next()?;
    Some(first.join("links.json"))
}

/// A server that was given as a flag: HOST:PORT. The same words in every verb.
pub(crate) fn parse_server(server: &str) -> Result<(), CliError> {
    let wrong = |error| CliError::Usage(format!("--server {server}: {error}"));
    server.parse::<Target>().map(drop).map_err(wrong)
}

/// The configuration file that was named, if one was.
struct Source<'a>(Option<&'a Path>);

impl Source<'_> {
    /// Says what the file sets in vain. Flags may have chosen the schedulers.
    fn warn_of_unread(&self, session: &SessionSettings) {
        let file = self.0.unwrap_or(Path::new("")).display();
        for Problem { line, reason, .. } in session.unread() {
            tracing::warn!("{file}:{line}: {reason}");
        }
    }

    fn file(&self) -> Result<Option<(PathBuf, File)>, ConfigError> {
        self.0
            .map(|path| Ok((path.to_owned(), read(path, Depth::Text)?)))
            .transpose()
    }

    /// The flag's congestion control, or else the file's, by the name that the kernel knows; whoever asks for one that
    /// there is not is told so before anything is started.
    fn congestion(
        &self,
        flag: Option<String>,
        file: Option<String>,
        controls: &mut Controls,
    ) -> Result<Option<String>, CliError> {
        match (flag, file) {
            (Some(name), _) => {
                let wrong = |error| CliError::Usage(format!("--congestion: {error}"));
                controls.choose(&name).map_err(wrong)
            }
            (None, Some(name)) => self.congestion_of_file(&name, controls),
            (None, None) => Ok(None),
        }
    }

    fn congestion_of_file(
        &self,
        name: &str,
        controls: &mut Controls,
    ) -> Result<Option<String>, CliError> {
        let not_here = |reason| ConfigError::NotHere {
            file: self.0.unwrap_or(Path::new("")).to_owned(),
            reason,
        };
        Ok(controls.choose(name).map_err(not_here)?)
    }

    /// What is missing is the file's fault where there is a file, and the command line's else.
    fn need<T>(&self, value: Option<T>, missing: &str) -> Result<T, CliError> {
        value.ok_or_else(|| match self.0 {
            Some(file) => ConfigError::Incomplete {
                file: file.to_owned(),
                what: missing.to_owned(),
            }
            .into(),
            None => CliError::Usage(missing.to_owned()),
        })
    }
}
