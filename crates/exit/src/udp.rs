//! The server's side of datagrams: UDP sockets that behave as RFC 4787 recommends for a NAT.
//!
//! [`UdpExit::serve`] connects one source of a client to the network:
//!
//! - **Mapping** is endpoint-independent (REQ-1): the source has one socket for each address
//!   family, bound when the client first sends to that family.
//! - **Filtering** is endpoint-independent (REQ-8): a datagram from any remote reaches the client.
//!   Remotes to which the client has not sent have a small share of the source
//!   ([`UdpSettings::unsolicited`], and 128 KiB/s), and cannot take the place of the others.
//! - **Egress policy**: each datagram's remote is checked, in both directions. The answer is kept
//!   for each remote until the policy changes.
//! - **Names** are resolved here, once for each flow, and keep their address. A reply carries the
//!   target, name or address, by which the client last sent to that address.
//! - **Expiry**: a source without traffic ends after [`UdpSettings::idle`]; one that only asked DNS
//!   servers ends [`UdpSettings::dns_idle`] after the answer. Datagrams from remotes to which the
//!   client did not send do not count as traffic (REQ-6).
//! - **Echo**: a datagram to port 0 is an ICMP echo request to that host, and its answer comes back
//!   in the same form ([`Target::echo`](crate::target::Target::echo)). Policy, names and limits are
//!   the same. A source with nothing else ends after 30 s without traffic.
//! - **Fragments**: datagrams of up to 65,507 bytes pass, fragmented by IP (REQ-13, REQ-14).
//! - **Errors** of the network (ICMP) about a remote to which the client has sent are reported to
//!   the client (REQ-12: they do not end the source).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use tracing::debug;

use crate::datagram::DatagramSocket;
use crate::egress::EgressPolicy;
use crate::outgoing::Outgoing;
use crate::pace::Pace;
use crate::resolver::Resolvers;

mod client;
mod echo;
mod expiry;
mod family;
mod inside;
mod limits;
mod names;
mod published;
mod queries;
mod remotes;
mod source;
#[cfg(test)]
mod tests;

use client::Client;
pub use client::UdpStats;
pub use expiry::Expiry;
pub use published::PublishedPort;

/// Shortest idle timeout of a source (RFC 4787, REQ-5).
pub const MIN_IDLE: Duration = Duration::from_secs(120);

/// Time after the last answer after which a source ends that only sent to port 53, by default.
pub const DNS_IDLE: Duration = Duration::from_secs(10);

/// Limits and timeouts for the sources of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSettings {
    /// Local IPv4 address of the sockets. On a server with several addresses, a fixed one keeps the
    /// mapping the same for all remotes (RFC 4787, REQ-2).
    pub local_v4: Ipv4Addr,
    /// Local IPv6 address of the sockets.
    pub local_v6: Ipv6Addr,
    /// Most sources at once, at least 1. A further one takes the place of the source that was idle
    /// longest, if it was idle for 5 s, and is refused otherwise.
    pub sources: usize,
    /// Most remotes of a source to which the client has sent, at least 1. A further one takes the
    /// place of the one used least recently.
    pub remotes: usize,
    /// Most other remotes of a source. A further one takes the place of one that was silent for
    /// 30 s, or else its datagrams are dropped.
    pub unsolicited: usize,
    /// Most bytes of payload per second in each direction, over all sources; datagrams beyond are
    /// dropped. `None` is unlimited.
    pub rate: Option<NonZeroU64>,
    /// Most bytes of memory for remotes, names and datagrams that wait for a name, over all
    /// sources. The kernel's socket buffers are not included.
    pub memory: usize,
    /// Time without traffic after which a source ends; at least [`MIN_IDLE`].
    pub idle: Duration,
    /// Time after the last answer after which a source ends that only sent to port 53.
    pub dns_idle: Duration,
    /// Receive buffer of each socket in bytes; the system's `net.core.rmem_max` applies.
    pub receive_buffer: usize,
    /// The interface and the mark of the sockets.
    pub outgoing: Outgoing,
}

impl Default for UdpSettings {
    fn default() -> Self {
        Self {
            local_v4: Ipv4Addr::UNSPECIFIED,
            local_v6: Ipv6Addr::UNSPECIFIED,
            sources: 1024,
            remotes: 4096,
            unsolicited: 512,
            rate: None,
            memory: 16 << 20,
            // RFC 4787, REQ-5: the recommended default.
            idle: Duration::from_secs(300),
            dns_idle: DNS_IDLE,
            receive_buffer: 1 << 20,
            outgoing: Outgoing::default(),
        }
    }
}

/// The exit for the datagrams of one client. Clones share its limits.
#[derive(Clone, Debug)]
pub struct UdpExit {
    client: Arc<Client>,
    resolvers: Option<Resolvers>,
}

/// Why [`UdpExit::serve`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The client's end of the source has gone.
    Closed,
    /// The source was idle for as long as it may be.
    Idle,
    /// A newer source took its place.
    Replaced,
    /// The client has too many sources.
    Refused,
}

impl UdpExit {
    /// An exit with this policy, which may change at any time.
    ///
    /// `sockets` has a permit for every socket that the clients of a server may have together: a
    /// source takes up to two. Without it, only [`UdpSettings::sources`] keeps a client from using
    /// up the descriptors of the process.
    pub fn new(
        policy: watch::Receiver<Arc<EgressPolicy>>,
        settings: UdpSettings,
        sockets: Option<Arc<Semaphore>>,
    ) -> Self {
        Self::paced(policy, settings, sockets, Arc::default())
    }

    /// The same, within a limit that other traffic of the client shares.
    pub fn paced(
        policy: watch::Receiver<Arc<EgressPolicy>>,
        settings: UdpSettings,
        sockets: Option<Arc<Semaphore>>,
        pace: Arc<Pace>,
    ) -> Self {
        Self {
            client: Arc::new(Client::new(policy, settings, sockets, pace)),
            resolvers: None,
        }
    }

    /// The same exit, with these resolvers for its clients ([`RESOLVER`](crate::target::RESOLVER)).
    pub fn with_resolvers(self, resolvers: Resolvers) -> Self {
        let resolvers = Some(resolvers);
        Self { resolvers, ..self }
    }

    /// Serves one source until it ends. Dropping the future ends it, too.
    ///
    /// A source beyond the limit waits for its first datagrams, reports
    /// [`LimitReached`](crate::datagram::FlowFailure::LimitReached) for them, and ends.
    pub async fn serve(&self, socket: impl DatagramSocket) -> Ended {
        let ended = source::serve(&self.client, self.resolvers.as_ref(), socket).await;
        debug!(?ended, "a source of datagrams has ended");
        ended
    }

    /// Serves a source with the sockets of a published port, until the client's end has gone.
    ///
    /// Any remote may send to it, up to [`UdpSettings::unsolicited`] at a time; the egress policy
    /// does not apply. The client can send to remotes that have sent before, and to no others. The
    /// source has no idle timeout and takes none of the places of [`UdpSettings::sources`].
    pub async fn serve_published(
        &self,
        port: &PublishedPort,
        socket: impl DatagramSocket,
    ) -> Ended {
        published::serve(&self.client, port, socket).await
    }

    /// Counters of the client's sources.
    pub fn stats(&self) -> UdpStats {
        self.client.stats()
    }
}
