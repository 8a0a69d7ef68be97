//! The configuration of a server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use sumlink_bond::join::SERVER_PATHS;
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::resolver::ResolverSource;
use sumlink_exit::udp::UdpSettings;

use super::SessionConfig;
#[cfg(doc)]
use super::parse_host_name;
use crate::api::join::Invitations;
use crate::api::publish::PublishRule;
use crate::carrier::groups::CarrierGroups;
use crate::carrier::keys::{PublicKey, SecretKey};
use crate::server::ServerError;

/// An authorized client.
#[derive(Clone, Debug)]
pub struct AuthorizedClient {
    /// Its public key.
    pub key: PublicKey,
    /// A label for logs and status; may be empty.
    pub name: String,
    /// The ports of the server that it may publish; none by default.
    pub publish: Vec<PublishRule>,
}

/// Limits for one client key.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Maximum number of concurrent sessions.
    pub sessions: usize,
    /// Memory limit for all its sessions together, in bytes of both directions. A session counts
    /// with the maximum that its configuration allows; one is always possible.
    pub memory: u64,
    /// Maximum number of paths of one session.
    pub paths: usize,
    /// Maximum number of connections to all published TCP ports of the client together.
    pub published: usize,
}

/// Limits on connections that have not proved a key. A connection beyond them evicts the oldest one
/// of the network that has the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenLimits {
    /// Limit on all of them together.
    pub total: usize,
    /// Share of `total` that is reserved for addresses of live sessions; must be less than `total`.
    pub reserved: usize,
    /// Limit per IPv4 address and per IPv6 /64.
    pub per_address: usize,
}

impl HalfOpenLimits {
    /// The same limits reduced in proportion to at most `most` connections.
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
    /// Maximum number of concurrent sessions of one client, by their number and their memory.
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
            paths: SERVER_PATHS,
            published: 1024,
        }
    }
}

/// The configuration of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerConfig {
    /// The address and port for all clients; `[::]:PORT` takes IPv4 too.
    pub listen: SocketAddr,
    /// The host name by which load balancers know this server among others, as
    /// [`parse_host_name`] returns it. Clients send it (SNI) with the further connections of a
    /// session.
    pub name: Option<String>,
    /// Names of the protocol (ALPN) that connections may have besides the usual ones.
    pub alpn: Vec<String>,
    /// The addresses of load balancers: each TCP connection from there must begin with a header of
    /// the PROXY protocol, whose address counts as the client's.
    pub proxy_protocol_from: Vec<IpNet>,
    /// This server's own key.
    pub key: SecretKey,
    /// The clients that may connect; all others are refused.
    pub authorized: Vec<AuthorizedClient>,
    /// The destinations that streams may connect to.
    pub egress: EgressPolicy,
    /// Limits for each client.
    pub limits: ClientLimits,
    /// Limits on connections that have not proved a key.
    pub half_open: HalfOpenLimits,
    /// TCP congestion control for carriers; [`crate::congestion::AUTO`] chooses by measurement,
    /// `None` is the kernel's default.
    pub congestion: Option<String>,
    /// Groups the carriers of a session for coupled congestion controls; `None` leaves them
    /// independent.
    pub groups: Option<Arc<dyn CarrierGroups>>,
    /// The invitations with which clients may join at run time; without them, only authorized
    /// clients exist.
    pub invitations: Option<Arc<dyn Invitations>>,
    /// Whether the server takes datagram carriers, on the UDP port of the same number; otherwise
    /// datagrams take the TCP carriers.
    pub udp: bool,
    /// Limits and timeouts of each client's UDP sockets.
    pub exit: UdpSettings,
    /// The resolvers for name lookups of the clients.
    pub resolvers: ResolverSource,
    /// Memory, scheduler, timeouts.
    pub session: SessionConfig,
}

impl ServerConfig {
    /// A configuration with the default settings: the default egress policy and limits.
    ///
    /// The setters below change one setting each; the fields can be assigned as well.
    pub fn new(listen: SocketAddr, key: SecretKey, authorized: Vec<AuthorizedClient>) -> Self {
        Self {
            listen,
            name: None,
            alpn: Vec::new(),
            proxy_protocol_from: Vec::new(),
            key,
            authorized,
            egress: EgressPolicy::default(),
            limits: ClientLimits::default(),
            half_open: HalfOpenLimits::default(),
            congestion: None,
            groups: None,
            invitations: None,
            udp: true,
            exit: UdpSettings::default(),
            resolvers: ResolverSource::default(),
            session: SessionConfig::default(),
        }
    }

    /// Sets [`ServerConfig::name`].
    #[must_use]
    pub fn name(mut self, name: impl Into<Option<String>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets [`ServerConfig::alpn`].
    #[must_use]
    pub fn alpn(mut self, names: Vec<String>) -> Self {
        self.alpn = names;
        self
    }

    /// Sets [`ServerConfig::proxy_protocol_from`].
    #[must_use]
    pub fn proxy_protocol_from(mut self, networks: Vec<IpNet>) -> Self {
        self.proxy_protocol_from = networks;
        self
    }

    /// Whether connections from this address begin with a header of the PROXY protocol.
    pub(crate) fn is_balancer(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let networks = &self.proxy_protocol_from;
        networks.iter().any(|network| network.contains(&address))
    }

    /// Sets [`ServerConfig::udp`].
    #[must_use]
    pub fn udp(mut self, udp: bool) -> Self {
        self.udp = udp;
        self
    }

    /// Sets [`ServerConfig::invitations`].
    #[must_use]
    pub fn invitations(mut self, invitations: impl Into<Option<Arc<dyn Invitations>>>) -> Self {
        self.invitations = invitations.into();
        self
    }

    /// Sets [`ServerConfig::exit`].
    #[must_use]
    pub fn exit(mut self, exit: UdpSettings) -> Self {
        self.exit = exit;
        self
    }

    /// Sets [`ServerConfig::resolvers`].
    #[must_use]
    pub fn resolvers(mut self, resolvers: ResolverSource) -> Self {
        self.resolvers = resolvers;
        self
    }

    /// Sets [`ServerConfig::egress`].
    #[must_use]
    pub fn egress(mut self, egress: EgressPolicy) -> Self {
        self.egress = egress;
        self
    }

    /// Sets [`ServerConfig::limits`].
    #[must_use]
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets [`ServerConfig::half_open`].
    #[must_use]
    pub fn half_open(mut self, half_open: HalfOpenLimits) -> Self {
        self.half_open = half_open;
        self
    }

    /// Sets [`ServerConfig::congestion`].
    #[must_use]
    pub fn congestion(mut self, congestion: impl Into<Option<String>>) -> Self {
        self.congestion = congestion.into();
        self
    }

    /// Sets [`ServerConfig::groups`].
    #[must_use]
    pub fn groups(mut self, groups: impl Into<Option<Arc<dyn CarrierGroups>>>) -> Self {
        self.groups = groups.into();
        self
    }

    /// Sets [`ServerConfig::session`].
    #[must_use]
    pub fn session(mut self, session: SessionConfig) -> Self {
        self.session = session;
        self
    }

    /// Checks that a server could start with this configuration. [`crate::Server::bind`] performs
    /// the same check.
    ///
    /// # Errors
    ///
    /// The first error, as returned by `bind`.
    pub fn check(&self) -> Result<(), ServerError> {
        self.session.check()?;
        // With invitations, clients come later.
        match self.authorized.is_empty() && self.invitations.is_none() {
            true => Err(ServerError::NobodyAuthorized),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
