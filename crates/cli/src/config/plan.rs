//! Flags over file over defaults: the finished configuration of a client or a server.
//!
//! `sumlink check` and the start of a program use the same functions, so both accept and refuse the
//! same files. Only the start changes the machine: ports, devices, congestion controls in the
//! kernel.

mod entries;
mod findings;
mod gateway;

use std::path::{Path, PathBuf};

use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_proxy::{AnyForward, ClassRule};
use sumlink_store::Location;
use sumlink_transport::config::{
    Alternative, AuthorizedClient, Carriers, ClientConfig, LinkConfig, ServerConfig,
};
use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::{ConnectError, Early, ServerError};

use super::read::{Read, read};
use super::settings::{ClientSettings, ClientsSettings, GatewaySettings, ServerSettings};
use super::{ConfigError, File, Problem, memory};
use crate::args::{ClientArgs, CommonArgs, ServerArgs};
use crate::congestion::Controls;
use crate::error::CliError;
use crate::lookup::with_services;
pub(crate) use entries::Entrance;
use entries::Entry;
pub use findings::Findings;

/// The purpose of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// The program is about to start.
    Start,
    /// Only a check; nothing is loaded into the kernel.
    Check,
}

/// Configuration of a client and its local entries.
#[derive(Debug)]
pub(crate) struct ClientPlan {
    pub(crate) config: ClientConfig,
    /// Local entries; at least one.
    pub(crate) entries: Vec<Entry>,
    /// Limit on the local connections of all entries together; by default derived from the limit on
    /// open files.
    pub(crate) max_connections: Option<usize>,
    pub(crate) classes: Vec<ClassRule>,
    /// The gateway of the file.
    pub(crate) gateway: Option<GatewaySettings>,
    /// When a stream is reported as connected before the server confirms it.
    pub(crate) early: Early,
    pub(crate) control: Option<PathBuf>,
    pub(crate) monitor: Option<sumlink_monitor::Settings>,
}

/// A server's configuration.
#[derive(Debug)]
pub(crate) struct ServerPlan {
    pub(crate) config: ServerConfig,
    /// The clients that are managed at run time.
    pub(crate) clients: ClientsSettings,
    /// Number of egress rules.
    pub(crate) rules: usize,
    pub(crate) control: Option<PathBuf>,
    pub(crate) monitor: Option<sumlink_monitor::Settings>,
}

/// The configuration of a file of either role.
#[derive(Debug)]
pub(crate) enum Plan {
    Client(Box<ClientPlan>),
    Server(Box<ServerPlan>),
}

impl Plan {
    /// The verb that uses it.
    pub(crate) fn role(&self) -> &'static str {
        match self {
            Self::Client(_) => "client",
            Self::Server(_) => "server",
        }
    }
}

/// A configuration or the reason why there is none, with the warnings of either.
#[derive(Debug)]
pub struct Planned<T> {
    /// The configuration, or the failure.
    pub plan: Result<T, CliError>,
    /// Warnings by ascending line; line 0 is the command line.
    pub warnings: Vec<Problem>,
}

impl<T> Planned<T> {
    /// Converts the configuration.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Planned<U> {
        Planned {
            plan: self.plan.map(convert),
            warnings: self.warnings,
        }
    }

    /// Returns the configuration for a start and logs its warnings.
    ///
    /// # Errors
    ///
    /// Why there is no configuration.
    pub fn logged(self, file: Option<&Path>) -> Result<T, CliError> {
        for Problem { line, reason, .. } in &self.warnings {
            match (file, line) {
                (Some(file), 1..) => tracing::warn!("{}:{line}: {reason}", file.display()),
                _ => tracing::warn!("{reason}"),
            }
        }
        self.plan
    }
}

/// The configuration of a start of `sumlink` with this file and no flags.
///
/// # Errors
///
/// A file that cannot be read; all other problems are in the result.
pub(crate) fn check(file: &Path) -> Result<Planned<Plan>, CliError> {
    let own = &OwnSchedulers::default();
    let Read {
        file: found,
        problems,
    } = read(file, own)?;
    let owned = || Some(file.to_owned());
    Ok(match found {
        None => Findings::new(Some(file), Default::default(), problems).finish(None),
        Some(File::Client(settings)) => {
            let args = ClientArgs {
                config: owned(),
                ..ClientArgs::default()
            };
            client(*settings, problems, args, own, Purpose::Check)
                .map(|plan| Plan::Client(plan.into()))
        }
        Some(File::Server(settings)) => {
            let args = ServerArgs {
                config: owned(),
                ..ServerArgs::default()
            };
            server(*settings, problems, args, own, Purpose::Check)
                .map(|plan| Plan::Server(plan.into()))
        }
    })
}

/// The settings of a file for this role, and the problems of its text.
macro_rules! settings_of {
    ($path:expr, $role:ident, $own:expr) => {{
        let Read { file, problems } = read($path, $own)?;
        match file {
            Some(File::$role(settings)) => (*settings, problems),
            Some(other) => {
                let (file, is) = ($path.to_owned(), other.role());
                return Err(ConfigError::OtherRole { file, is }.into());
            }
            None => return Err(ConfigError::wrong($path, problems).into()),
        }
    }};
}

impl ClientPlan {
    /// A list in the flags replaces that of the file. Both can name the schedulers of `own`.
    pub(crate) fn start(args: ClientArgs, own: &OwnSchedulers) -> Result<Self, CliError> {
        let file = args.config.clone();
        let (settings, problems) = match &file {
            None => (ClientSettings::default(), Vec::new()),
            Some(path) => settings_of!(path, Client, own),
        };
        client(settings, problems, args, own, Purpose::Start).logged(file.as_deref())
    }
}

impl ServerPlan {
    /// A list in the flags replaces that of the file. Both can name the schedulers of `own`.
    pub(crate) fn start(args: ServerArgs, own: &OwnSchedulers) -> Result<Self, CliError> {
        let file = args.config.clone();
        let (settings, problems) = match &file {
            None => {
                let settings = ServerSettings {
                    limits: memory::limits(),
                    ..ServerSettings::default()
                };
                (settings, Vec::new())
            }
            Some(path) => settings_of!(path, Server, own),
        };
        server(settings, problems, args, own, Purpose::Start).logged(file.as_deref())
    }
}

fn client(
    file: ClientSettings,
    problems: Vec<Problem>,
    args: ClientArgs,
    own: &OwnSchedulers,
    purpose: Purpose,
) -> Planned<ClientPlan> {
    let mut found = Findings::new(args.config.as_deref(), file.lines, problems);
    let CommonArgs {
        scheduler,
        class_scheduler,
        selector,
        congestion,
        coupled,
        datagrams,
        udp,
        control,
    } = args.common;
    let session = file.session;
    let session = session.with_flags(scheduler, class_scheduler, selector, datagrams, own);
    let session = found.usage_of(session);
    let session = session.unwrap_or_default();
    found.warnings.extend(session.unused());
    let server_by_flag = args.server.map(|server| {
        let parsed = found.usage_of(super::parse_server(&server));
        parsed.unwrap_or(server)
    });
    let servers = match &server_by_flag {
        Some(server) => vec![server.clone()],
        None => file.servers.clone(),
    };
    found.need(servers.first(), "server", "HOST:PORT", "the server");
    let server_keys = match (args.server_key, &server_by_flag) {
        (Some(key), _) => vec![key],
        // One of several servers, each with its own key.
        (None, Some(server)) if file.server_keys.len() > 1 => {
            let place = file.servers.iter().position(|other| other == server);
            let key = place.and_then(|place| file.server_keys.get(place));
            let key = key.copied().ok_or_else(|| {
                CliError::Usage(format!(
                    "--server {server} is none of the servers in the file: give --server-key, too"
                ))
            });
            found.usage_of(key).into_iter().collect()
        }
        (None, _) => file.server_keys,
    };
    found.need(
        server_keys.first(),
        "server_key",
        "PUBKEY",
        "its public key, printed by sumlink pubkey on the server",
    );
    let key = found.key(args.key, file.key);
    let mut links = Vec::new();
    for name in args.link {
        let name = super::parse_link(&name).map_err(CliError::Usage);
        links.extend(found.usage_of(name).map(LinkConfig::named));
    }
    if links.is_empty() {
        links = file.links.unwrap_or_default();
        entries::warn_of_overlaps(&links, &mut found);
        entries::warn_of_directions(&links, &mut found);
    }
    let state_by_flag = args.state.is_some();
    let state = args.state.or(file.state);
    let state = state.or_else(|| state_of_service("links.json"));
    let mut controls = Controls::new(purpose == Purpose::Start);
    // A coupled congestion control applies to all links.
    let couples = coupled.is_some();
    let by_flag = congestion.or(coupled);
    for (number, link) in links.iter_mut().enumerate() {
        let lines = found.lines.links.get(number).copied();
        if link.policy.has_cap() && state.is_none() {
            let line = lines.and_then(|lines| lines.cap).unwrap_or(1);
            found.problem(line, format!(
                "link {} has a data cap, but no file stores the bytes that it moves: add `state = \"FILE\"` or give \
                 --state FILE (a service with systemd's StateDirectory= has one)",
                link.name
            ));
        }
        if let Some(name) = link.congestion.take().filter(|_| !couples) {
            let line = lines.and_then(|lines| lines.congestion).unwrap_or(1);
            let chosen = controls.choose(&name);
            link.congestion = found.in_file(line, "congestion", chosen).flatten();
        }
    }
    let by_file = file.congestion.or(file.coupled);
    let congestion = found.congestion(by_flag, by_file, &mut controls);
    let forward = match args.forward.is_empty() {
        true => Forwards::File(file.forward),
        false => Forwards::Flags(args.forward),
    };
    let entries = entries::all(
        (args.socks, file.socks),
        (args.http, file.http),
        forward,
        &mut found,
    );
    let tcp = entries.iter().filter(|entry| !entry.service.is_udp());
    let ports = tcp.map(|entry| (entry.word, entry.address));
    entries::check_monitor(file.monitor.as_ref(), ports, &mut found);
    let control = found.control(control, file.control);
    if let Some(gateway) = &file.gateway {
        gateway::check(gateway, &links, &mut found);
    }
    let keys = server_keys
        .iter()
        .chain(server_keys.last().into_iter().cycle());
    let mut servers = servers.into_iter().zip(keys.copied());
    let (Some((server, server_key)), Some(key)) = (servers.next(), key) else {
        return found.finish(None);
    };
    let alternatives = servers.map(|(server, server_key)| Alternative { server, server_key });
    let config = ClientConfig::new(server, server_key, key)
        .alternatives(alternatives.collect())
        .server_choice(file.server_choice.unwrap_or_default())
        .sni(file.sni)
        .alpn(file.alpn)
        .datagram_alpn(file.datagram_alpn)
        .links(links)
        .congestion(congestion)
        .groups(controls.into_groups())
        .carriers(args.carriers.or(file.carriers).unwrap_or(Carriers::ONE))
        .udp(udp.or(file.udp).unwrap_or(true))
        .state(state)
        .publish(file.publish)
        .session(session.config());
    // The first reason of other problems is recorded above.
    if let (true, Err(error)) = (found.is_sound(), config.check()) {
        match (&error, found.file) {
            (ConnectError::State(_), Some(_)) if !state_by_flag => {
                found.problem(found.lines.of("state"), format!("`state`: {error}"));
            }
            _ => found.failure = Some(error.into()),
        }
    }
    found.finish(Some(ClientPlan {
        config: with_services(config),
        entries,
        max_connections: args.max_connections.or(file.max_connections),
        early: args.early.or(file.early).unwrap_or_default(),
        classes: file.classes,
        gateway: file.gateway,
        control,
        monitor: file.monitor,
    }))
}

fn server(
    file: ServerSettings,
    problems: Vec<Problem>,
    args: ServerArgs,
    own: &OwnSchedulers,
    purpose: Purpose,
) -> Planned<ServerPlan> {
    let mut found = Findings::new(args.config.as_deref(), file.lines, problems);
    let CommonArgs {
        scheduler,
        class_scheduler,
        selector,
        congestion,
        coupled,
        datagrams,
        udp,
        control,
    } = args.common;
    let session = file.session;
    let session = session.with_flags(scheduler, class_scheduler, selector, datagrams, own);
    let session = found.usage_of(session);
    let session = session.unwrap_or_default();
    found.warnings.extend(session.unused());
    let listen = args.listen.or(file.listen);
    let about = "where clients connect, such as [::]:7443";
    found.need(listen.as_ref(), "listen", "ADDR:PORT", about);
    let key = found.key(args.key, file.key);
    let authorized = if args.authorize.is_empty() {
        file.authorized
    } else {
        let unnamed = |key| AuthorizedClient {
            key,
            name: String::new(),
            publish: Vec::new(),
        };
        args.authorize.into_iter().map(unnamed).collect()
    };
    let mut clients = file.clients;
    clients.store = clients
        .store
        .or_else(|| state_of_service("clients.db").map(Location::File));
    if let Some(file) = &args.config {
        found.warn_of_open_password(file, clients.store.as_ref());
    }
    if clients.store.is_none() {
        found.need_clients(authorized.first());
    }
    let rules = match args.egress.is_empty() {
        true => file.egress,
        false => args.egress,
    };
    let mut controls = Controls::new(purpose == Purpose::Start);
    let by_flag = congestion.or(coupled);
    let by_file = file.congestion.or(file.coupled);
    let congestion = found.congestion(by_flag, by_file, &mut controls);
    let control = found.control(control, file.control);
    let port = listen.into_iter().map(|listen| ("listen", listen));
    entries::check_monitor(file.monitor.as_ref(), port, &mut found);
    let (Some(listen), Some(key)) = (listen, key) else {
        return found.finish(None);
    };
    let rules_count = rules.len();
    let config = ServerConfig::new(listen, key, authorized)
        .name(file.name)
        .alpn(file.alpn)
        .proxy_protocol_from(file.proxy_protocol_from)
        .egress(EgressPolicy::new(rules))
        .limits(file.limits)
        .half_open(file.half_open)
        .udp(udp.or(file.udp).unwrap_or(true))
        .exit(file.exit)
        .resolvers(file.resolvers)
        .congestion(congestion)
        .groups(controls.into_groups())
        .session(session.config());
    if let (true, Err(error)) = (found.is_sound(), config.check()) {
        // The clients of the store are not known yet.
        if clients.store.is_none() || !matches!(error, ServerError::NobodyAuthorized) {
            found.failure = Some(error.into());
        }
    }
    found.finish(Some(ServerPlan {
        config,
        clients,
        rules: rules_count,
        control,
        monitor: file.monitor,
    }))
}

/// Forwards and their source.
enum Forwards {
    Flags(Vec<AnyForward>),
    File(Vec<AnyForward>),
}

/// The file of this name in the directory that systemd gives a service (`StateDirectory=`); in the
/// first one of several.
fn state_of_service(name: &str) -> Option<PathBuf> {
    let directories = std::env::var_os("STATE_DIRECTORY")?;
    let first = std::env::split_paths(&directories).next()?;
    Some(first.join(name))
}

/// The server of a flag; every verb reports the same error.
pub(crate) fn parse_server(server: &str) -> Result<String, CliError> {
    let wrong = |error| CliError::Usage(format!("--server {server}: {error}"));
    super::client_server(server).map_err(wrong)
}
