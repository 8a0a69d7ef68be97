//! A datagram path: a carrier of datagrams, with its measurements and its health.

mod arrivals;
mod health;
mod incoming;
mod measure;
mod reporting;
mod rounds;
pub(super) mod sent;
mod set;

use std::time::Duration;

use super::budget::Budget;
use crate::policy::{PathPolicy, PeerPolicy, Priority};
use crate::{Instant, PathId};

pub(super) use arrivals::Arrivals;
pub use health::PathHealth;
pub(super) use health::{Health, Review};
pub(super) use incoming::{Incoming, SenderClock};
pub(super) use measure::{Losses, Rate, RoundTrip};
pub(super) use reporting::{Reporting, Role};
pub(super) use rounds::Rounds;
pub(super) use sent::Sent;
pub(super) use set::Paths;

/// Largest packet of a QUIC path before its first measurement, in bytes: that of the smallest
/// path that QUIC supports (RFC 9000, section 14), without the heads of QUIC.
const UNKNOWN_PACKET: usize = 1150;

/// Assumed round trip of a path without any measurement.
const UNKNOWN_TRIP: Duration = Duration::from_millis(100);

/// Assumed rate of a path without any measurement, in bytes per second.
const UNKNOWN_RATE: f64 = 125_000.0;

/// Least interval of reports about a path.
const REPORT_INTERVAL: Duration = Duration::from_millis(5);

/// Least bytes of a turn, so that turns make progress whatever the carrier reports.
const MIN_QUANTUM: usize = 1200;

/// Weight of a new relative delay against the smoothed one, while that one is not older than
/// [`RELATIVE_MEMORY`].
const RELATIVE_GAIN: i64 = 4;

const RELATIVE_MEMORY: Duration = Duration::from_secs(1);

/// Times that datagrams have waited for a path count for this long.
const WAIT_MEMORY: Duration = Duration::from_millis(500);

/// Parts of a round trip between two reports.
const REPORTS_PER_TRIP: u32 = 8;

/// Weight of one packet in the loss of a path.
const LOSS_GAIN: f64 = 1.0 / 128.0;

/// The kind of carrier of a datagram path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatagramCarrier {
    /// A QUIC connection with its own path number (RFC 9221).
    Quic,
    /// The stream path of the same number: packets are bodies of DATAGRAM frames there.
    Stream,
}

/// Measurements of the carrier of a datagram path, taken now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramSample {
    /// Smoothed round-trip time (RFC 6298).
    pub srtt: Duration,
    /// Lowest round-trip time of the last minutes; zero if unknown.
    pub min_rtt: Duration,
    /// Round-trip time variation (RFC 6298).
    pub rttvar: Duration,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight: u64,
    /// Largest packet that the carrier takes now, in bytes; 0 if unknown.
    pub max_datagram: usize,
    /// Bytes that the carrier takes now and sends without delay.
    pub space: u64,
}

/// Which datagrams a path carries now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Usage {
    /// Those of all flows.
    #[default]
    Main,
    /// Those for which the main paths have no room.
    Extra,
    /// None: better paths deliver, or its policy forbids it.
    None,
}

/// A datagram path of a session.
#[derive(Debug)]
pub(crate) struct DatagramPath {
    pub(super) id: PathId,
    pub(super) carrier: DatagramCarrier,
    pub(super) link: u64,
    pub(super) policy: PathPolicy,
    /// Version of the peer's POLICY that set it; none before the first one.
    pub(super) policy_version: Option<u64>,
    /// The policy sent to the peer, and its version.
    pub(super) sent_policy: Option<(u64, PeerPolicy)>,
    /// The owner of the session does not want datagrams on it, but the peer may send some.
    pub(super) is_off: bool,
    pub(super) sample: Option<DatagramSample>,
    /// Bytes handed to the carrier since the sample.
    pub(super) handed: u64,
    pub(super) sent: Sent,
    pub(super) arrivals: Arrivals,
    pub(super) reporting: Reporting,
    pub(super) incoming: Incoming,
    pub(super) health: Health,
    /// Time from a packet to its report.
    pub(super) trip: RoundTrip,
    pub(super) rate: Rate,
    /// Share of lost packets, decaying.
    pub(super) loss: f64,
    losses: Losses,
    /// Delay to the peer relative to an unknown constant that all paths share, in microseconds, and
    /// when it was measured.
    pub(super) relative: Option<(i64, Instant)>,
    pub(super) rounds: Rounds,
    /// Copies of calls that the link may carry.
    pub(super) copies: Budget,
    pub(super) usage: Usage,
    /// When it last carried a datagram of a call of this side.
    pub(super) called_at: Option<Instant>,
    /// It is a stream path, and a QUIC path over the same link delivers.
    pub(super) is_replaced: bool,
    /// It is slower than its policy permits.
    pub(super) is_too_slow: bool,
    /// Expected delay of a packet to the peer.
    pub(super) delay: Duration,
    /// Time that datagrams have waited for it, smoothed, and when the last one did.
    waited: Option<(Duration, Instant)>,
    pub(super) joined: Instant,
    pub(super) counters: PathCounters,
}

/// Counters of a datagram path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathCounters {
    pub(super) packets_sent: u64,
    pub(super) bytes_sent: u64,
    pub(super) packets_received: u64,
    pub(super) bytes_received: u64,
    pub(super) packets_lost: u64,
    pub(super) packets_reported: u64,
    pub(super) times_suspect: u64,
}

impl DatagramPath {
    pub(super) fn new(
        id: PathId,
        carrier: DatagramCarrier,
        link: u64,
        metered: bool,
        now: Instant,
    ) -> Self {
        Self {
            id,
            carrier,
            link,
            policy: PathPolicy {
                metered,
                ..PathPolicy::default()
            },
            policy_version: None,
            sent_policy: None,
            is_off: false,
            sample: None,
            handed: 0,
            sent: Sent::default(),
            arrivals: Arrivals::default(),
            reporting: Reporting::default(),
            incoming: Incoming::default(),
            health: Health::new(now),
            trip: RoundTrip::default(),
            rate: Rate::default(),
            loss: 0.0,
            losses: Losses::default(),
            relative: None,
            rounds: Rounds::default(),
            copies: Budget::default(),
            usage: Usage::Main,
            called_at: None,
            is_replaced: false,
            is_too_slow: false,
            delay: UNKNOWN_TRIP / 2,
            waited: None,
            joined: now,
            counters: PathCounters::default(),
        }
    }

    /// New measurements of the carrier.
    pub(super) fn update(&mut self, sample: DatagramSample) {
        self.sample = Some(sample);
        self.handed = 0;
    }

    /// Largest packet, in bytes.
    pub(super) fn max_packet(&self) -> usize {
        let known = self.sample.map(|sample| sample.max_datagram);
        match (known.filter(|most| *most > 0), self.carrier) {
            (Some(most), _) => most,
            (None, DatagramCarrier::Quic) => UNKNOWN_PACKET,
            (None, DatagramCarrier::Stream) => crate::frame::MAX_BODY,
        }
    }

    /// Bytes that a flow sends in its turn: one packet.
    pub(super) fn quantum(&self) -> i64 {
        self.max_packet().max(MIN_QUANTUM) as i64
    }

    /// A packet took this time by the two clocks.
    pub(super) fn note_relative(&mut self, relative: i64, now: Instant) {
        let smooth = match self.relative {
            Some((before, at)) if now.saturating_sub(at) < RELATIVE_MEMORY => {
                before + (relative - before) / RELATIVE_GAIN
            }
            _ => relative,
        };
        self.relative = Some((smooth, now));
    }

    /// Whether the carrier sends a packet of this many bytes without delay.
    pub(super) fn has_room(&self, len: usize) -> bool {
        match self.sample {
            Some(sample) => sample.space >= self.handed + len as u64,
            None => true,
        }
    }

    /// Smoothed round trip of the carrier.
    pub(super) fn srtt(&self) -> Duration {
        let measured = self.sample.map(|sample| sample.srtt);
        let measured = measured.filter(|srtt| !srtt.is_zero());
        measured.or(self.trip.srtt()).unwrap_or(UNKNOWN_TRIP)
    }

    /// A report shows this many packets as delivered and as lost.
    pub(super) fn note_losses(&mut self, delivered: u64, lost: u64, now: Instant) {
        for (count, share) in [(delivered, 0.0), (lost, 1.0)] {
            for _ in 0..count.min(64) {
                self.loss += (share - self.loss) * LOSS_GAIN;
            }
        }
        self.losses.note(delivered, lost, now);
    }

    /// Whether programs on it would suffer from random loss.
    pub(super) fn is_lossy(&self, now: Instant) -> bool {
        self.losses.is_lossy(now)
    }

    /// Whether a datagram that is lost on it can arrive over it again within `time` of its sending.
    pub(super) fn repairs_within(&self, time: Duration) -> bool {
        self.srtt() + self.report_interval() + self.delay < time
    }

    /// Expected delay of a packet that is sent again if it is lost.
    pub(super) fn delay_with_loss(&self) -> Duration {
        self.delay + (self.srtt() + self.report_interval()).mul_f64(self.loss.clamp(0.0, 1.0))
    }

    /// Rate at which the path delivers, in bytes per second.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        let sample = self.sample.unwrap_or_default();
        let window = match sample.srtt.as_secs_f64() {
            trip if trip > 0.0 => sample.cwnd as f64 / trip,
            _ => 0.0,
        };
        let rate = self.rate.get(now).max(window);
        if rate > 0.0 { rate } else { UNKNOWN_RATE }
    }

    /// Rate at which a path that is full delivers, in bytes per second.
    pub(super) fn steady_rate(&self, now: Instant) -> f64 {
        match self.rate.steady(now) {
            steady if steady > 0.0 => steady,
            _ => self.rate(now),
        }
    }

    /// Least interval of reports about this path.
    pub(super) fn report_interval(&self) -> Duration {
        (self.srtt() / REPORTS_PER_TRIP).max(REPORT_INTERVAL)
    }

    /// How desirable the path is, the best ones first; none if it carries no datagrams.
    pub(super) fn rank(&self) -> Option<u8> {
        let priority = match self.policy.priority {
            Priority::Never => return None,
            _ if self.is_off => return None,
            Priority::Backup => 2,
            _ if self.is_too_slow || self.is_replaced => 2,
            Priority::Secondary => 1,
            Priority::Primary => 0,
        };
        Some(self.health.state() as u8 * 3 + priority)
    }

    /// Round trip of the carrier, with the delay of reports; none if it is not measured.
    pub(super) fn carrier_trip(&self) -> Option<Duration> {
        let srtt = self.sample.map(|sample| sample.srtt);
        let srtt = srtt.filter(|srtt| !srtt.is_zero())?;
        Some(srtt + self.report_interval())
    }

    /// A datagram has waited for its turn on the path.
    pub(super) fn note_wait(&mut self, waited: Duration, now: Instant) {
        let before = self.queue_delay(now);
        self.waited = Some(((7 * before + waited) / 8, now));
    }

    /// Time that datagrams have recently waited for the path.
    pub(super) fn queue_delay(&self, now: Instant) -> Duration {
        let recent = self.waited;
        let recent = recent.filter(|(_, at)| now.saturating_sub(*at) < WAIT_MEMORY);
        recent.map_or(Duration::ZERO, |(waited, _)| waited)
    }
}
