//! What is measured on a path's carrier.

use std::time::Duration;

/// What the transport measured on a path's carrier, mostly from TCP_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// Smoothed round-trip time (RFC 6298).
    pub srtt: Duration,
    /// Round-trip time variation (RFC 6298).
    pub rttvar: Duration,
    /// Least round-trip time of the last minutes; zero while unknown.
    pub min_rtt: Duration,
    /// Sender maximum segment size in bytes.
    pub mss: u32,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Slow start threshold in bytes; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// How far TCP is with repairing losses.
    pub loss: LossState,
    /// Bytes sent and not acknowledged by TCP.
    pub in_flight: u64,
    /// Bytes in the socket that TCP has not sent yet.
    pub unsent: u64,
    /// Bytes that wait below TCP, in the interface's queue, whoever put them there; 0 where nobody looked
    /// ([`Session::reads_local_queue`](crate::Session::reads_local_queue)) or the kernel tells of none.
    pub local_queue: u64,
    /// The carrier takes nothing at this moment; it asks again when it does.
    pub full: bool,
    /// TCP sends next to nothing at the moment in order to measure (BBR's PROBE_RTT).
    pub pauses: bool,
    /// Delivery rate in bytes per second as TCP measured it, without bursts ([`SustainedRate`](crate::SustainedRate)); 0 when it
    /// has no measurement yet.
    pub delivery_rate: u64,
    /// Bytes per second at which TCP spaces what it sends; 0 when it does not or nobody knows.
    pub pacing_rate: u64,
    /// The most that this side may send over the carrier, in bytes per second; 0 for no limit.
    pub limit: u64,
    /// Segments sent since the carrier began.
    pub segments: u64,
    /// Segments retransmitted since the carrier began.
    pub retransmitted: u64,
    /// Segments that the peer's TCP has, also behind a hole, since the carrier began; 0 where nobody knows.
    pub delivered: u64,
    /// Bytes that TCP has received since the carrier began; 0 where nobody knows.
    pub received: u64,
}

/// How far TCP is with repairing losses on a carrier (RFC 5681, RFC 6582).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossState {
    /// Nothing is suspicious.
    #[default]
    Open,
    /// Something may be or is lost, or the window has just been reduced.
    Recovery,
    /// A retransmission timeout has fired, and what was lost is not repaired yet.
    Timeout,
}
