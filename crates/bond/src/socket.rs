//! A carrier's TCP socket as required by the policy, and the settings of all such sockets.

use std::fmt::Display;
use std::time::Duration;

use crate::TcpInfo;

/// The `TCP_NOTSENT_LOWAT` of a new carrier, in bytes: one TLS record.
///
/// Data that waits in the socket cannot be given to another path.
pub const INITIAL_NOTSENT_LOWAT: u32 = 16 << 10;

/// Time without an acknowledgment after which TCP ends a carrier (RFC 5482).
///
/// The engine notices a path without progress long before. This timeout only removes the socket of
/// a peer that is gone.
pub const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Silence of a peer after which TCP probes it.
pub const KEEPALIVE_TIME: Duration = Duration::from_secs(15);

/// The time between two such probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Unanswered probes after which the connection ends.
pub const KEEPALIVE_PROBES: u32 = 3;

/// The least retransmission timeout beyond the round-trip time.
pub const RTO_MIN: Duration = Duration::from_millis(50);

/// The longest delay of an acknowledgment: the minimum that Linux uses.
pub const DELACK_MAX: Duration = Duration::from_millis(40);

/// Bytes that TCP collects in a segment of its queue before it divides it for the link
/// (`tcp_send_mss` in Linux).
pub const SEGMENT: u32 = 64 * 1024;

/// The operations of a carrier's socket that the policy needs.
pub trait Socket {
    /// Why the socket refuses a congestion control.
    type Error: Display;

    /// TCP's current statistics; `None` if they cannot be read.
    fn info(&self) -> Option<TcpInfo>;

    /// Sets `TCP_NOTSENT_LOWAT`; returns whether that worked.
    fn set_notsent_lowat(&mut self, bytes: u32) -> bool;

    /// Turns on TCP's pacing without a rate limit.
    fn pace(&mut self);

    /// Limits TCP's sending rate to this many bytes per second, by pacing; `None` removes the
    /// limit, and TCP continues to pace.
    fn limit(&mut self, rate: Option<u64>);

    /// Changes the congestion control of the connected socket.
    ///
    /// # Errors
    ///
    /// The control does not exist or is not permitted.
    fn set_congestion(&mut self, name: &str) -> Result<(), Self::Error>;

    /// Reports a decision, for a log.
    fn report(&mut self, report: Report<'_, Self::Error>);
}

/// A decision about a carrier.
#[derive(Debug)]
pub enum Report<'a, E> {
    /// `auto` has changed the congestion control to `to`.
    Changed {
        /// The name of the new control.
        to: &'static str,
        /// The reason.
        reason: &'a str,
    },
    /// `auto` wanted another congestion control, and the socket refused it.
    ChangeRefused {
        /// The reason for the change.
        reason: &'a str,
        /// The socket's error.
        error: &'a E,
    },
    /// An outage has left a small window, and slow start restarts.
    SlowStart {
        /// The window, in bytes.
        window: u64,
    },
    /// An outage has left a small window, which grows slowly because the socket refuses to restart
    /// slow start.
    NoSlowStart {
        /// The window, in bytes.
        window: u64,
        /// The reason.
        error: &'a E,
    },
    /// After a slow start the former congestion control could not be set again.
    Stays {
        /// The control that the connection has now.
        with: &'static str,
        /// The reason.
        error: &'a E,
    },
}
