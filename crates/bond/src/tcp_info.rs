//! The statistics that TCP reports about a connection.

use std::time::Duration;

/// One sample of a connection's state. Counters run from the start of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The state of the connection (RFC 9293, section 3.3.2).
    pub state: TcpState,
    /// The state of loss recovery.
    pub ca_state: CaState,
    /// Smoothed round-trip time (RFC 6298); zero before the first sample.
    pub srtt: Duration,
    /// Round-trip time variation (RFC 6298).
    pub rttvar: Duration,
    /// Least round-trip time of the last minutes (`net.ipv4.tcp_min_rtt_wlen`); `None` before the
    /// first sample, and before Linux 4.6.
    pub min_rtt: Option<Duration>,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Consecutive retransmission timeouts without an acknowledgment in between.
    pub backoff: u8,
    /// Largest segment to be sent, in bytes.
    pub snd_mss: u32,
    /// Largest segment received, in bytes, as tracked by the kernel: 536 until there was a larger
    /// one.
    pub rcv_mss: u32,
    /// Congestion window in bytes: the kernel counts it in segments of `snd_mss`.
    pub snd_cwnd_bytes: u64,
    /// Slow start threshold in bytes; `None` before the first loss.
    pub snd_ssthresh_bytes: Option<u64>,
    /// The peer's receive window in bytes; zero before Linux 5.4.
    pub snd_wnd_bytes: u64,
    /// Bytes sent and not yet acknowledged: segments of `snd_mss`, so the last one is rounded up.
    pub unacked_bytes: u64,
    /// Segments of those that are presumed lost.
    pub lost: u32,
    /// Segments of those that have been retransmitted.
    pub retrans: u32,
    /// Bytes written to the socket and not yet sent for the first time.
    pub notsent_bytes: u64,
    /// Rate at which the network delivered the last samples, in bytes (not bits) per second; zero
    /// before the first sample.
    pub delivery_rate_bytes_per_s: u64,
    /// Whether `delivery_rate_bytes_per_s` was limited by a lack of data to send, and is only a
    /// lower bound of the path's rate.
    pub app_limited: bool,
    /// Rate at which the kernel paces packets, in bytes per second; `None` if it does not.
    pub pacing_rate_bytes_per_s: Option<u64>,
    /// Bytes that the peer has acknowledged (RFC 4898).
    pub bytes_acked: u64,
    /// Bytes received in order (RFC 4898).
    pub bytes_received: u64,
    /// Bytes of data sent, retransmissions included; zero before Linux 4.19.
    pub bytes_sent: u64,
    /// Bytes of data retransmitted; zero before Linux 4.19.
    pub bytes_retrans: u64,
    /// Segments sent, with and without data.
    pub segs_out: u32,
    /// Segments received, with and without data.
    pub segs_in: u32,
    /// Segments retransmitted.
    pub total_retrans: u32,
    /// Segments delivered to the peer, retransmissions included; zero before Linux 4.18.
    pub delivered: u32,
    /// Duplicates that the peer has reported (RFC 2883): unnecessary retransmissions.
    pub dsack_dups: u32,
    /// Time with data in flight.
    pub busy: Duration,
    /// Part of `busy` in which the peer's receive window held the sender back.
    pub rwnd_limited: Duration,
    /// Part of `busy` in which the send buffer was too small.
    pub sndbuf_limited: Duration,
    /// Time since data was last sent.
    pub since_data_sent: Duration,
    /// Time since data was last received.
    pub since_data_received: Duration,
    /// Time since an acknowledgment was last received.
    pub since_ack_received: Duration,
}

/// The state of a TCP connection (RFC 9293, section 3.3.2), as `net/tcp_states.h` numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpState {
    /// Data flows both ways.
    Established,
    /// The connection is being made (SYN-SENT or SYN-RECEIVED).
    Opening,
    /// At least one side has sent its last byte (FIN-WAIT-1 to LAST-ACK).
    Closing,
    /// There is no connection.
    #[default]
    Closed,
}

/// The state of loss recovery (`enum tcp_ca_state` of `linux/tcp.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaState {
    /// Nothing is suspicious.
    #[default]
    Open,
    /// Duplicate or selective acknowledgments: either loss or reordering.
    Disorder,
    /// The window was reduced by a congestion notification or a local one.
    Cwr,
    /// Lost segments are being retransmitted (fast recovery).
    Recovery,
    /// A retransmission timeout has fired.
    Loss,
}
