//! The events that an algorithm handles.

use std::time::Duration;

use crate::Instant;

/// An acknowledgment of new data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// Time of arrival.
    pub now: Instant,
    /// Packets acknowledged for the first time.
    pub acked: u32,
    /// The round-trip time measured with it; none if only retransmitted packets were acknowledged
    /// (Karn).
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time including that sample (RFC 6298); zero before the first one.
    pub srtt: Duration,
    /// All data before this position is acknowledged (snd_una after this acknowledgment). Any unit:
    /// it is only compared with `sent`.
    pub acknowledged: u64,
    /// Position of the next new byte or packet (snd_nxt), in the unit of `acknowledged`.
    pub sent: u64,
    /// The window limits the flow; [`Window::limits`](crate::Window::limits) is one way to know.
    pub cwnd_limited: bool,
}

/// A sample of the delivery rate (draft-cheng-iccrg-delivery-rate-estimation, section 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Packets delivered before the newest acknowledged packet was sent.
    pub before: u64,
    /// Packets delivered until now.
    pub until: u64,
    /// The longer of two times: that in which the packets were sent, and that in which they were
    /// acknowledged. Never shorter than the least round-trip time.
    pub interval: Duration,
    /// The program had nothing to send meanwhile, so the path may be faster.
    pub is_limited: bool,
}

/// A loss, without a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Time of detection.
    pub now: Instant,
}

/// The retransmission timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Time of the timeout.
    pub now: Instant,
    /// It fired before without an acknowledgment since: ssthresh stays (RFC 5681, section 3.1).
    pub repeated: bool,
}

/// A time without data in flight and without data to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// End of the idle time.
    pub now: Instant,
    /// Its length.
    pub lasted: Duration,
    /// The retransmission timeout, without back-off.
    pub rto: Duration,
}
