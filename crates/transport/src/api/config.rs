//! The configuration of a client and a server: plain structures, filled by the command line, a TOML
//! file or a program that uses this crate.

mod engine;
mod names;
mod server;
mod servers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use names::{NameError, parse_host_name, parse_network, parse_protocol_name};
pub use server::{AuthorizedClient, ClientLimits, HalfOpenLimits, ServerConfig};
pub use servers::{Alternative, ServerChoice};
pub use sumlink_bond::Carriers;
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_engine::scheduler::fbdt::FbdtConfig;
use sumlink_engine::{
    Class, ConfigError, DatagramConfig, DatagramPolicy, Redundancy, Role, SelectorConfig, scheduler,
};

use crate::api::error::ConnectError;
#[cfg(doc)]
use crate::api::publish::MAX_PUBLISHED;
use crate::api::publish::Publish;
use crate::carrier::groups::CarrierGroups;
use crate::carrier::keys::{PublicKey, SecretKey};
use crate::links::policy::{LinkPolicy, check_state};
use crate::links::{self, Lookup};
use crate::session::pipe::memory;
pub(crate) use engine::engine_config;

/// Memory, scheduling and timeouts of a session; with the same meaning on both sides.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Scheduler that decides which path carries which bytes this side sends: a name of
    /// `sumlink_engine::scheduler::NAMES` or of `own_schedulers`. The peer chooses its own.
    pub scheduler: String,
    /// Schedulers of traffic classes that use a different one.
    pub class_schedulers: BTreeMap<Class, String>,
    /// Schedulers of the program, which the names above can choose like the engine's own. The
    /// engine trusts their decisions; `sumlink_sim::Own` runs a scheduler with every decision
    /// checked.
    pub own_schedulers: OwnSchedulers,
    /// Limit on a session's received data and on its sent data, each, in bytes: in the engine and
    /// in transit to and from the streams' programs. At least [`SessionConfig::min_memory`].
    pub memory: u64,
    /// The share of it that one stream may hold, in bytes.
    pub stream_memory: u64,
    /// Streams that the peer may have open at once.
    pub max_streams: u64,
    /// How long a session without any path waits for one to come back.
    pub session_timeout: Duration,
    /// Budget for duplicates.
    pub redundancy: Redundancy,
    /// Windows, races and coupling of the `fbdt` scheduler; ignored by the others.
    pub fbdt: FbdtConfig,
    /// Decides which paths carry what this side sends; see `sumlink_engine::selector`.
    pub selector: SelectorConfig,
    /// Limits of datagram flows and of their copies.
    pub datagrams: DatagramConfig,
    /// How this side's datagrams use the paths, unless a program says otherwise.
    pub datagram_policy: DatagramPolicy,
    /// The same for flows of classes that use a different one. It applies to flows with a class
    /// that a program or a rule has set.
    pub class_datagram_policies: BTreeMap<Class, DatagramPolicy>,
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
            datagrams: DatagramConfig::default(),
            datagram_policy: DatagramPolicy::default(),
            class_datagram_policies: BTreeMap::new(),
        }
    }
}

impl SessionConfig {
    /// The lowest `memory` that `max_streams` streams can work with, in bytes.
    pub fn min_memory(max_streams: u64) -> u64 {
        let engine = sumlink_engine::Config::min_memory(max_streams);
        // Rounded up, so that what [`SessionConfig::split`] leaves is never a byte short.
        (engine + Self::floors(max_streams)).div_ceil(POOL_SHARE - 1) * POOL_SHARE
    }

    /// Checks that all values are valid, each and together.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.stream_memory > self.memory {
            return Err(ConfigError::StreamMemory);
        }
        engine_config(Role::Client, self)
            .check()
            .map_err(|error| match error {
                ConfigError::Memory { streams, .. } => ConfigError::Memory {
                    least: Self::min_memory(streams),
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

    /// The maximum number of paths of a session if `limit` is configured, and the reason sent when
    /// it is exceeded.
    pub(crate) fn max_paths(&self, limit: usize) -> (usize, String) {
        let names = [&self.scheduler]
            .into_iter()
            .chain(self.class_schedulers.values());
        let made_for = names
            .filter_map(|name| Some((self.own_schedulers.max_paths(name, Role::Server)?, name)));
        match made_for.min().filter(|(most, _)| *most <= limit) {
            Some((most, name)) => (
                most,
                format!("the server's scheduler {name} takes {most} paths"),
            ),
            None => (limit, "too many paths in this session".to_owned()),
        }
    }

    /// Divides the memory of one direction.
    pub(crate) fn split(&self) -> Split {
        let pool = self.memory / POOL_SHARE;
        let engine = self.memory - pool;
        Split {
            engine: engine.saturating_sub(Self::floors(self.max_streams)),
            pool,
        }
    }

    /// Memory reserved for the pipes of all streams, of either side, independent of the pool.
    fn floors(max_streams: u64) -> u64 {
        2 * max_streams.min(1 << 32) * memory::FLOOR as u64
    }
}

/// The pipes' share of the memory is one in this number. A single stream uses half a MiB of it, and
/// larger buffers in front of the engine speed nothing up.
const POOL_SHARE: u64 = 8;

/// The memory of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    /// For the engine.
    pub(crate) engine: u64,
    /// For pipes, beyond their floors.
    pub(crate) pool: u64,
}

/// Settings of a link, or of the links that match a glob.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// The interface's name, or a glob (`wwan*`).
    pub name: String,
    /// TCP congestion control for carriers over this link; [`crate::congestion::AUTO`] chooses by
    /// measurement. `None` uses the setting of all links.
    pub congestion: Option<String>,
    /// Number of parallel connections over this link; `None` uses the setting of all links.
    pub carriers: Option<Carriers>,
    /// The link's policy.
    pub policy: LinkPolicy,
}

impl LinkConfig {
    /// A link with this name, or the links that match a glob, with default settings.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            congestion: None,
            carriers: None,
            policy: LinkPolicy::default(),
        }
    }
}

/// The configuration of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientConfig {
    /// The server's host and port; a name is resolved by the local resolver.
    pub server: String,
    /// The server's public key; servers with another key are rejected.
    pub server_key: PublicKey,
    /// Other servers for the same client. It has a session with one server at a time.
    pub alternatives: Vec<Alternative>,
    /// How the server is chosen, if there are several.
    pub server_choice: ServerChoice,
    /// The name that connections to any of the servers send (SNI), for load balancers and
    /// firewalls. `None` sends the host of `server` if that is a name, an empty one sends none. A
    /// server with a name ([`ServerConfig::name`]) gets that with the further
    /// connections of a session.
    pub sni: Option<String>,
    /// Names of the protocol that TCP connections offer (ALPN); none is [`crate::tls::ALPN`]. The
    /// server must accept one of them.
    pub alpn: Vec<String>,
    /// The same for QUIC connections; none is [`crate::tls::DATAGRAM_ALPN`].
    pub datagram_alpn: Vec<String>,
    /// This client's own key.
    pub key: SecretKey,
    /// The links to use; empty means every interface that can route to the server.
    pub links: Vec<LinkConfig>,
    /// Interfaces that are no links although they may lead to the server, if `links` is empty:
    /// those of a gateway's LAN.
    pub ignored_links: Vec<String>,
    /// TCP congestion control for links without a setting; [`crate::congestion::AUTO`] chooses by
    /// measurement, `None` is the kernel's default.
    pub congestion: Option<String>,
    /// Groups the carriers of a session for coupled congestion controls; `None` leaves them
    /// independent.
    pub groups: Option<Arc<dyn CarrierGroups>>,
    /// Number of parallel connections over each link without a setting.
    pub carriers: Carriers,
    /// Whether datagrams may use UDP; otherwise they take the TCP carriers.
    pub udp: bool,
    /// The file in which usage and run-time policies of links are saved; `None` saves nothing.
    pub state: Option<PathBuf>,
    /// Looks up the server's name; `None` uses the system's resolver.
    pub lookup: Option<Arc<dyn Lookup>>,
    /// Firewall mark of the packets to the server (`SO_MARK`, socket(7)), by which routing rules
    /// distinguish them from those of other programs. Needs CAP_NET_ADMIN.
    pub mark: Option<u32>,
    /// Ports of the server that lead to hosts behind this client, at most
    /// [`MAX_PUBLISHED`]. The server must permit them.
    pub publish: Vec<Publish>,
    /// Memory, scheduler, timeouts.
    pub session: SessionConfig,
}

impl ClientConfig {
    /// A configuration with the default settings: every link that leads to the server, one
    /// connection over each, no state file.
    ///
    /// The setters below change one setting each; the fields can be assigned as well.
    pub fn new(server: impl Into<String>, server_key: PublicKey, key: SecretKey) -> Self {
        Self {
            server: server.into(),
            server_key,
            alternatives: Vec::new(),
            server_choice: ServerChoice::default(),
            sni: None,
            alpn: Vec::new(),
            datagram_alpn: Vec::new(),
            key,
            links: Vec::new(),
            ignored_links: Vec::new(),
            congestion: None,
            groups: None,
            carriers: Carriers::ONE,
            udp: true,
            state: None,
            lookup: None,
            mark: None,
            publish: Vec::new(),
            session: SessionConfig::default(),
        }
    }

    /// All servers with their keys, the first one first.
    pub fn servers(&self) -> impl Iterator<Item = (&str, PublicKey)> {
        let first = (self.server.as_str(), self.server_key);
        let others = self.alternatives.iter();
        let others = others.map(|other| (other.server.as_str(), other.server_key));
        std::iter::once(first).chain(others)
    }

    /// Sets [`ClientConfig::alternatives`].
    #[must_use]
    pub fn alternatives(mut self, alternatives: Vec<Alternative>) -> Self {
        self.alternatives = alternatives;
        self
    }

    /// Sets [`ClientConfig::server_choice`].
    #[must_use]
    pub fn server_choice(mut self, choice: ServerChoice) -> Self {
        self.server_choice = choice;
        self
    }

    /// Sets [`ClientConfig::sni`].
    #[must_use]
    pub fn sni(mut self, sni: impl Into<Option<String>>) -> Self {
        self.sni = sni.into();
        self
    }

    /// Sets [`ClientConfig::alpn`].
    #[must_use]
    pub fn alpn(mut self, names: Vec<String>) -> Self {
        self.alpn = names;
        self
    }

    /// Sets [`ClientConfig::datagram_alpn`].
    #[must_use]
    pub fn datagram_alpn(mut self, names: Vec<String>) -> Self {
        self.datagram_alpn = names;
        self
    }

    /// Sets [`ClientConfig::links`].
    #[must_use]
    pub fn links(mut self, links: Vec<LinkConfig>) -> Self {
        self.links = links;
        self
    }

    /// Sets [`ClientConfig::ignored_links`].
    #[must_use]
    pub fn ignored_links(mut self, ignored: Vec<String>) -> Self {
        self.ignored_links = ignored;
        self
    }

    /// Sets [`ClientConfig::congestion`].
    #[must_use]
    pub fn congestion(mut self, congestion: impl Into<Option<String>>) -> Self {
        self.congestion = congestion.into();
        self
    }

    /// Sets [`ClientConfig::groups`].
    #[must_use]
    pub fn groups(mut self, groups: impl Into<Option<Arc<dyn CarrierGroups>>>) -> Self {
        self.groups = groups.into();
        self
    }

    /// Sets [`ClientConfig::carriers`].
    #[must_use]
    pub fn carriers(mut self, carriers: Carriers) -> Self {
        self.carriers = carriers;
        self
    }

    /// Sets [`ClientConfig::udp`].
    #[must_use]
    pub fn udp(mut self, udp: bool) -> Self {
        self.udp = udp;
        self
    }

    /// Sets [`ClientConfig::state`].
    #[must_use]
    pub fn state(mut self, state: impl Into<Option<PathBuf>>) -> Self {
        self.state = state.into();
        self
    }

    /// Sets [`ClientConfig::lookup`].
    #[must_use]
    pub fn lookup(mut self, lookup: impl Into<Option<Arc<dyn Lookup>>>) -> Self {
        self.lookup = lookup.into();
        self
    }

    /// Sets [`ClientConfig::mark`].
    #[must_use]
    pub fn mark(mut self, mark: impl Into<Option<u32>>) -> Self {
        self.mark = mark.into();
        self
    }

    /// Sets [`ClientConfig::publish`].
    #[must_use]
    pub fn publish(mut self, publish: Vec<Publish>) -> Self {
        self.publish = publish;
        self
    }

    /// Sets [`ClientConfig::session`].
    #[must_use]
    pub fn session(mut self, session: SessionConfig) -> Self {
        self.session = session;
        self
    }

    /// Checks that a client could start with this configuration: the session's values, the links'
    /// policies, and the file with the saved link state. Changes nothing.
    /// [`crate::Client::connect`] performs the same check.
    ///
    /// # Errors
    ///
    /// The first error, as returned by `connect`.
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

    /// The settings for the link of this name.
    pub(crate) fn link(&self, name: &str) -> Option<&LinkConfig> {
        self.links
            .iter()
            .find(|link| links::name_matches(&link.name, name))
    }

    /// The number of connections for the link of this name.
    pub(crate) fn carriers_of(&self, link: &str) -> Carriers {
        let own = self.link(link).and_then(|link| link.carriers);
        own.unwrap_or(self.carriers)
    }

    /// Whether the number of connections of any link is determined by measurement.
    pub(crate) fn measures_carriers(&self) -> bool {
        let own = self.links.iter().filter_map(|link| link.carriers);
        own.chain([self.carriers])
            .any(|carriers| carriers == Carriers::Auto)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_memory_is_enough_and_a_byte_less_is_not() {
        for max_streams in [1, 16, 1000, 1 << 16] {
            let least = SessionConfig::min_memory(max_streams);
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
    fn the_memory_split_does_not_overlap() {
        let config = SessionConfig::default();
        let split = config.split();
        let floors = SessionConfig::floors(config.max_streams);
        assert_eq!(split.engine + split.pool + floors, config.memory);
    }

    #[test]
    fn a_scheduler_limits_the_paths_with_a_reason() {
        let mut config = SessionConfig {
            own_schedulers: sumlink_schedulers::all(),
            ..SessionConfig::default()
        };
        let refusal = |config: &SessionConfig| config.max_paths(32);
        assert_eq!(refusal(&config).0, 32);
        config
            .class_schedulers
            .insert(Class::Streaming, "musher".to_owned());
        assert_eq!(refusal(&config).0, 2);
        assert_eq!(
            refusal(&config).1,
            "the server's scheduler musher takes 2 paths"
        );
        assert_eq!(config.max_paths(1).0, 1);
        assert_eq!(config.schedulers(), "fbdt, streaming musher");
    }
}
