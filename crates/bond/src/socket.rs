//! A carrier's TCP socket, as far as the policy needs it, and the settings that each one gets.

use std::fmt::Display;
use std::time::Duration;

use crate::TcpInfo;

/// The `TCP_NOTSENT_LOWAT` of a new carrier, in bytes: one TLS record.
///
/// Data that waits in the socket cannot be given to another path.
pub const INITIAL_NOTSENT_LOWAT: u32 = 16 << 10;

/// How long TCP waits for an acknowledgement before it gives a carrier up (RFC 5482).
///
/// The engine notices a path without progress long before. This timeout only removes the socket of a
/// peer that is gone.
pub const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a peer may be silent before TCP probes it.
pub const KEEPALIVE_TIME: Duration = Duration::from_secs(15);

/// The time between two such probes.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Unanswered probes after which the connection ends.
pub const KEEPALIVE_PROBES: u32 = 3;

/// The least retransmission timeout beyond the round-trip time.
pub const RTO_MIN: Duration = Duration::from_millis(50);

/// The longest delay of an acknowledgement; Linux' own least one.
pub const DELACK_MAX: Duration = Duration::from_millis(40);

/// Bytes that TCP puts into a segment of its queue before it divides it for the link (`tcp_send_mss`
/// in Linux).
pub const SEGMENT: u32 = 64 * 1024;

/// What the policy asks of a carrier's socket.
pub trait Socket {
    /// Why the socket refuses a congestion control.
    type Error: Display;

    /// What TCP reports now; nothing if it cannot be asked.
    fn info(&self) -> Option<TcpInfo>;

    /// Sets `TCP_NOTSENT_LOWAT`; whether that has worked.
    fn set_notsent_lowat(&mut self, bytes: u32) -> bool;

    /// Has TCP pace what it sends, from now on and without a bound on the rate.
    fn pace(&mut self);

    /// Changes the congestion control of the connection in use.
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
        /// Its name.
        to: &'static str,
        /// Why.
        reason: &'a str,
    },
    /// `auto` wanted another congestion control, and the socket refused it.
    ChangeRefused {
        /// Why it was wanted.
        reason: &'a str,
        /// Why it is not to be had.
        error: &'a E,
    },
    /// An outage has left a small window, and slow start begins again.
    SlowStart {
        /// The window, in bytes.
        window: u64,
    },
    /// An outage has left a small window, which grows slowly because the socket refuses to begin slow start.
    NoSlowStart {
        /// The window, in bytes.
        window: u64,
        /// Why.
        error: &'a E,
    },
    /// After a slow start the former congestion control could not be set again.
    Stays {
        /// The control that the connection has now.
        with: &'static str,
        /// Why.
        error: &'a E,
    },
}
