//! Measurements of a path's carrier.

use std::time::Duration;

/// Measurements that the transport takes of a path's carrier, mostly from TCP_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// Smoothed round-trip time (RFC 6298).
    pub srtt: Duration,
    /// Round-trip time variation (RFC 6298).
    pub rttvar: Duration,
    /// Lowest round-trip time of the last minutes; zero if unknown.
    pub min_rtt: Duration,
    /// Sender maximum segment size in bytes.
    pub mss: u32,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Slow start threshold in bytes; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// State of TCP's loss recovery.
    pub loss: LossState,
    /// Bytes sent and not acknowledged by TCP.
    pub in_flight: u64,
    /// Bytes in the socket that TCP has not sent yet.
    pub unsent: u64,
    /// Bytes below TCP, in the interface's queue, from any sender; 0 if it was not read
    /// ([`Session::reads_local_queue`](crate::Session::reads_local_queue)) or the kernel does not
    /// report it.
    pub local_queue: u64,
    /// The carrier accepts no data now; it asks again when it does.
    pub full: bool,
    /// TCP sends almost nothing now because it measures (BBR's PROBE_RTT).
    pub pauses: bool,
    /// Delivery rate in bytes per second as measured by TCP, without bursts
    /// ([`SustainedRate`](crate::SustainedRate)); 0 before the first measurement.
    pub delivery_rate: u64,
    /// TCP's pacing rate in bytes per second; 0 if it does not pace or the rate is unknown.
    pub pacing_rate: u64,
    /// Highest rate at which this side may send over the carrier, in bytes per second; 0 for no
    /// limit.
    pub limit: u64,
    /// Segments sent since the carrier began.
    pub segments: u64,
    /// Segments retransmitted since the carrier began.
    pub retransmitted: u64,
    /// Segments that have reached the peer's TCP since the carrier began, including those behind a
    /// gap; 0 if unknown.
    pub delivered: u64,
    /// Bytes that TCP has received since the carrier began; 0 if unknown.
    pub received: u64,
}

/// State of TCP's loss recovery on a carrier (RFC 5681, RFC 6582).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossState {
    /// No sign of loss.
    #[default]
    Open,
    /// Segments may be or are lost, or the window has just been reduced.
    Recovery,
    /// A retransmission timeout has fired, and the lost segments are not repaired yet.
    Timeout,
}
