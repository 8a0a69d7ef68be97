//! Settings of a file; each is present only if the file sets it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use sumlink_dns::{Name, UpstreamAddress};
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_engine::{DatagramConfig, DatagramPolicy, SelectorConfig};
use sumlink_gateway::rules::Rule;
use sumlink_proxy::{AnyForward, ClassRule};
use sumlink_settings::session::SessionOptions;
use sumlink_store::Location;
use sumlink_transport::config::{
    AuthorizedClient, Carriers, ClientLimits, HalfOpenLimits, LinkConfig, ServerChoice,
    SessionConfig,
};
use sumlink_transport::egress::EgressRule;
use sumlink_transport::policy::Beyond;
use sumlink_transport::publish::Publish;
use sumlink_transport::resolver::ResolverSource;
use sumlink_transport::udp::UdpSettings;
use sumlink_transport::{Class, Early, PublicKey};

use super::schedulers::parse_scheduler;
use super::{Problem, memory};
use crate::error::CliError;

/// Settings of a client; each is present only if it is set.
#[derive(Debug, Default)]
pub(crate) struct ClientSettings {
    /// The servers, HOST:PORT each.
    pub(crate) servers: Vec<String>,
    /// The key of all of them, or one for each.
    pub(crate) server_keys: Vec<PublicKey>,
    pub(crate) server_choice: Option<ServerChoice>,
    /// The name that connections send; empty for none.
    pub(crate) sni: Option<String>,
    /// Names of the protocol over TCP and over QUIC.
    pub(crate) alpn: Vec<String>,
    pub(crate) datagram_alpn: Vec<String>,
    pub(crate) key: Option<PathBuf>,
    /// `Some` and empty is an explicit `auto`.
    pub(crate) links: Option<Vec<LinkConfig>>,
    pub(crate) congestion: Option<String>,
    pub(crate) coupled: Option<String>,
    pub(crate) carriers: Option<Carriers>,
    pub(crate) early: Option<Early>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) socks: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    pub(crate) forward: Vec<AnyForward>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) udp: Option<bool>,
    pub(crate) classes: Vec<ClassRule>,
    pub(crate) monitor: Option<sumlink_monitor::Settings>,
    pub(crate) gateway: Option<GatewaySettings>,
    pub(crate) publish: Vec<Publish>,
    pub(crate) control: Option<PathBuf>,
    pub(crate) session: SessionSettings,
    pub(crate) lines: Lines,
}

/// `[gateway]`
#[derive(Clone, Debug, Default)]
pub(crate) struct GatewaySettings {
    /// Settings of the kernel's part. The ports of the listeners are filled in at the start.
    pub(crate) kernel: sumlink_gateway::kernel::Settings,
    pub(crate) rules: Vec<Rule>,
    /// The file of rules that were added at run time and kept.
    pub(crate) kept_rules: Option<PathBuf>,
    pub(crate) dns: DnsSettings,
    /// Lines of `[gateway]`, for problems that show only on the machine.
    pub(super) lines: GatewayLines,
}

/// Lines of `[gateway]`; each is present only if the file has the key.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatewayLines {
    pub(super) lan: Option<usize>,
    pub(super) device: Option<usize>,
    pub(super) address: Option<usize>,
    pub(super) address6: Option<usize>,
    pub(super) kept_rules: Option<usize>,
    /// Those of the rules, in their order.
    pub(super) rules: Vec<RuleLines>,
    /// Resolvers whose certificate must be for their address, with their lines.
    pub(super) nameless_resolvers: Vec<(usize, UpstreamAddress)>,
}

/// Lines of a `[[gateway.rule]]` block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RuleLines {
    pub(super) block: usize,
    pub(super) user: Option<usize>,
    pub(super) action: Option<usize>,
}

/// `[gateway.dns]`
#[derive(Clone, Debug)]
pub(crate) struct DnsSettings {
    /// Whether the gateway answers DNS questions.
    pub(crate) serve: bool,
    /// Whether this machine's resolver asks it.
    pub(crate) set_resolver: bool,
    pub(crate) resolvers: Vec<UpstreamAddress>,
    /// Domains that may have private addresses.
    pub(crate) allow_private: Vec<Name>,
    /// Memory of the cache in bytes.
    pub(crate) cache: usize,
    pub(crate) domains: Vec<DnsDomain>,
}

/// `[[gateway.dns.domain]]`
#[derive(Clone, Debug)]
pub(crate) enum DnsDomain {
    /// These resolvers answer.
    Forward(Name, Vec<UpstreamAddress>),
    /// The names do not exist.
    Block(Name),
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            serve: true,
            set_resolver: true,
            resolvers: vec![UpstreamAddress::Server],
            allow_private: Vec::new(),
            cache: 4 << 20,
            domains: Vec::new(),
        }
    }
}

/// Settings of a server; each is present only if it is set.
#[derive(Debug, Default)]
pub(crate) struct ServerSettings {
    pub(crate) listen: Option<SocketAddr>,
    /// The name by which load balancers know it.
    pub(crate) name: Option<String>,
    /// Further names of the protocol.
    pub(crate) alpn: Vec<String>,
    /// The addresses of load balancers.
    pub(crate) proxy_protocol_from: Vec<IpNet>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) authorized: Vec<AuthorizedClient>,
    pub(crate) clients: ClientsSettings,
    pub(crate) egress: Vec<EgressRule>,
    pub(crate) limits: ClientLimits,
    pub(crate) half_open: HalfOpenLimits,
    pub(crate) udp: Option<bool>,
    pub(crate) exit: UdpSettings,
    pub(crate) resolvers: ResolverSource,
    pub(crate) monitor: Option<sumlink_monitor::Settings>,
    pub(crate) congestion: Option<String>,
    pub(crate) coupled: Option<String>,
    pub(crate) control: Option<PathBuf>,
    pub(crate) session: SessionSettings,
    pub(crate) lines: Lines,
}

/// `[clients]` in the file of a server.
#[derive(Clone, Debug)]
pub(crate) struct ClientsSettings {
    /// The store of clients that are managed at run time.
    pub(crate) store: Option<Location>,
    /// The server's addresses in invitations, HOST:PORT each.
    pub(crate) addresses: Vec<String>,
    /// The action beyond a quota without one of its own.
    pub(crate) beyond: Beyond,
}

impl Default for ClientsSettings {
    fn default() -> Self {
        Self {
            store: None,
            addresses: Vec::new(),
            beyond: Beyond::Never,
        }
    }
}

/// Lines of a file's settings, for problems that show only when all settings are put together.
#[derive(Debug, Default)]
pub struct Lines {
    /// Lines of the keys at the top, with valid values or not.
    pub keys: BTreeMap<String, usize>,
    /// Lines of the links, in the order of the settings.
    pub links: Vec<LinkLines>,
    /// Lines of the forwards, in the order of the settings.
    pub forwards: Vec<usize>,
}

/// Lines of a `[[link]]` block.
#[derive(Clone, Copy, Debug)]
pub struct LinkLines {
    /// Line of its name.
    pub name: usize,
    /// Line of its congestion control, if it has one.
    pub congestion: Option<usize>,
    /// Line of its first data cap, if it has one.
    pub cap: Option<usize>,
}

impl Lines {
    /// The line of a key, or 1 if the key is absent.
    pub fn of(&self, key: &str) -> usize {
        self.keys.get(key).copied().unwrap_or(1)
    }
}

/// `[session]`; each setting is present only if the file sets it.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    pub(crate) scheduler: Option<String>,
    pub(crate) class_schedulers: BTreeMap<Class, String>,
    /// The schedulers that these can name besides those of the engine.
    pub(crate) own_schedulers: OwnSchedulers,
    pub(crate) selector: Option<SelectorConfig>,
    pub(crate) memory: Option<u64>,
    pub(crate) stream_memory: Option<u64>,
    pub(crate) max_streams: Option<u64>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) datagrams: DatagramConfig,
    pub(crate) datagram_policy: Option<DatagramPolicy>,
    pub(crate) datagram_policies: BTreeMap<Class, DatagramPolicy>,
    /// Redundancy budget, windows, races and window scaling.
    pub(crate) options: SessionOptions,
    /// Lines of these settings, by key.
    pub(crate) lines: BTreeMap<String, usize>,
}

impl SessionSettings {
    /// The configuration, with defaults for absent settings.
    pub(crate) fn config(&self) -> SessionConfig {
        let default = SessionConfig::default();
        let memory = self.memory.unwrap_or_else(memory::of_session);
        SessionConfig {
            scheduler: self.scheduler.clone().unwrap_or(default.scheduler),
            class_schedulers: self.class_schedulers.clone(),
            own_schedulers: self.own_schedulers.clone(),
            selector: self.selector.clone().unwrap_or(default.selector),
            memory,
            stream_memory: self.stream_memory.unwrap_or(memory / 2),
            max_streams: self.max_streams.unwrap_or(default.max_streams),
            session_timeout: self.timeout.unwrap_or(default.session_timeout),
            redundancy: self.options.redundancy,
            fbdt: self.options.fbdt.clone(),
            datagrams: self.datagrams.clone(),
            datagram_policy: self.datagram_policy.unwrap_or_default(),
            class_datagram_policies: self.datagram_policies.clone(),
        }
    }

    /// Overrides the settings with flags, which can name the schedulers of the engine and of `own`.
    /// A class's scheduler replaces only that of the same class.
    pub(super) fn with_flags(
        self,
        scheduler: Option<String>,
        of_classes: Vec<(Class, String)>,
        selector: Option<SelectorConfig>,
        datagrams: Option<DatagramPolicy>,
        own: &OwnSchedulers,
    ) -> Result<Self, CliError> {
        let check = |flag: &str, name: &str| {
            let checked = parse_scheduler(name, own);
            checked.map_err(|reason| CliError::Usage(format!("{flag}: {reason}")))
        };
        if let Some(name) = &scheduler {
            check("--scheduler", name)?;
        }
        let mut given = BTreeMap::new();
        for (class, name) in of_classes {
            check("--class-scheduler", &name)?;
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
            own_schedulers: own.clone(),
            selector: selector.or(self.selector),
            datagram_policy: datagrams.or(self.datagram_policy),
            ..self
        })
    }

    /// Settings that none of the session's schedulers uses, by ascending line.
    pub(crate) fn unused(&self) -> Vec<Problem> {
        let config = self.config();
        let scheduler_of = |class: Class| {
            let own = config.class_schedulers.get(&class);
            own.unwrap_or(&config.scheduler).as_str()
        };
        let unused = self.options.unused(scheduler_of, &config.own_schedulers);
        let mut problems: Vec<_> = unused
            .map(|key| {
                let line = self.lines.get(key).copied().unwrap_or_default();
                let reason = "has no effect: no scheduler of this session uses it";
                Problem::new(line, format!("`{key}` {reason}"))
            })
            .collect();
        problems.sort_by_key(|problem| problem.line);
        problems
    }

    /// Checks the settings as the engine would.
    pub(crate) fn check(&self) -> Result<(), sumlink_engine::ConfigError> {
        self.config().check()
    }
}
