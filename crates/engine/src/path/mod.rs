//! A path: one carrier as the engine sees it.

mod delay;
mod drained;
mod flight;
mod hole;
mod in_flight;
mod late;
mod one_way;
mod sample;
mod sustained;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use crate::meter::Meter;
use crate::policy::{PathPolicy, PeerPolicy, Priority};
use crate::selector::Selection;
use crate::{Instant, PathId, StreamId};

use drained::OwnQueue;
pub use flight::Flight;
pub(crate) use flight::{Control, Sent};
use hole::Hole;
use late::DeliveryProof;
pub(crate) use late::{RECORD, REPORT_SLACK};
use one_way::OneWay;
pub use sample::{LossState, PathSample};
pub use sustained::SustainedRate;

/// Whether a path can carry data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// The path delivers.
    Active,
    /// Its data is not being delivered. It gets no new data until some is.
    Stalled,
}

/// A path of a session; schedulers read it.
#[derive(Debug)]
pub struct Path {
    pub(crate) id: PathId,
    pub(crate) state: PathState,
    /// This side's policy for the path.
    pub(crate) policy: PathPolicy,
    /// Version of the peer's POLICY that set it; none before the first one.
    pub(crate) policy_version: Option<u64>,
    /// The policy sent to the peer, and its version.
    pub(crate) sent_policy: Option<(u64, PeerPolicy)>,
    /// It is secondary, and more data waits than the primary paths deliver soon.
    pub(crate) helps: bool,
    /// It adds more latency than permitted.
    pub(crate) too_slow: bool,
    /// The selector's decision for it, and the reason.
    pub(crate) selection: Selection,
    pub(crate) selection_reason: String,
    /// Number of its link, if known: paths with the same number share one.
    pub(crate) link: Option<u64>,
    pub(crate) sample: PathSample,
    /// Values derived from the sample that are read often.
    delay: Duration,
    queued_delay: Duration,
    likely_delay: Duration,
    likely_queued_delay: Duration,
    /// The part of the smoothed round trip that its own bytes waited for.
    own_queue: OwnQueue,
    /// One-way delay to the peer, according to its reports.
    one_way: OneWay,
    /// Delay of returning reports over the fastest path; none if unknown.
    pub(crate) report_trip: Option<Duration>,
    /// The same delay without queues.
    pub(crate) report_min_trip: Option<Duration>,
    /// Frame bytes handed to the carrier.
    pub(crate) sent: u64,
    /// Frame bytes that the peer has reported as received.
    pub(crate) confirmed: u64,
    /// Stream data in flight, in the order sent.
    pub(crate) flights: VecDeque<Flight>,
    /// Control frames in flight, in the order sent.
    pub(crate) control: VecDeque<Sent>,
    /// Bytes of whole frames received.
    pub(crate) received: u64,
    /// Start of a frame that has not arrived completely.
    pub(crate) partial: Vec<u8>,
    /// A stalled path is tried again when this many of its bytes are acknowledged.
    pub(crate) recovers_at: u64,
    /// Version of the newest change in a report sent on this path.
    pub(crate) reported_version: u64,
    /// Version of this path's own newest receive count.
    pub(crate) receive_version: u64,
    /// When the last report left on this path.
    pub(crate) last_report: Instant,
    /// Time at which another path reported the first change that this one has not reported yet.
    pub(crate) behind_since: Option<Instant>,
    /// Time at which the peer last acknowledged data, or the path first had data to acknowledge.
    pub(crate) last_progress: Instant,
    /// The hole that TCP is repairing.
    hole: Option<Hole>,
    /// The last proof that it delivers; none if TCP does not report deliveries.
    proof: Option<DeliveryProof>,
    /// Time at which TCP last began to pause to measure.
    paused_at: Option<Instant>,
    /// Last known time at which TCP got a segment through in either direction.
    pub(crate) last_moved: Option<Instant>,
    /// Number of PATH_STATE frames sent to the peer about the path, and the version of the newest
    /// one received.
    pub(crate) state_version_sent: u64,
    pub(crate) state_version_received: u64,
    /// Time since when the peer has reported that its data on the path is not acknowledged.
    pub(crate) peer_stalled_since: Option<Instant>,
    /// For a stalled path: the start of the stall.
    pub(crate) stalled_from: Instant,
    /// For a stalled path: the time since when its earliest data has been unacknowledged.
    pub(crate) oldest_sent_at: Instant,
    /// The stall has been reported to the peer and the program, and a recovery has not.
    pub(crate) is_stall_reported: bool,
    /// The peer has abandoned it.
    pub(crate) is_abandoned: bool,
    /// Time of the last arrival on it.
    pub(crate) last_received: Instant,
    /// Time at which data that elicits a report last left on it.
    pub(crate) last_asked: Option<Instant>,
    /// Time, budget and change count of the last call that found nothing to send.
    pub(crate) idle: Option<(Instant, usize, u64)>,
    /// Token of a PING to answer.
    pub(crate) pong_due: Option<u64>,
    /// The session's CLOSE has been handed to the carrier.
    pub(crate) close_sent: bool,
    /// Number of stalls, decaying with a half-life of [`STALL_HALF_LIFE`].
    stalls: f64,
    /// Time at which `stalls` was last updated.
    stalls_at: Instant,
    /// Share of lost segments, decaying.
    loss: f64,
    pub(crate) joined: Instant,
    pub(crate) data_sent: u64,
    pub(crate) data_received: u64,
    pub(crate) duplicates_sent: u64,
    pub(crate) send_meter: Meter,
    pub(crate) receive_meter: Meter,
}

/// How fast the count of past stalls decays.
const STALL_HALF_LIFE: Duration = Duration::from_secs(20);

/// Assumed round-trip time of a path without measurements.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);

/// Initial congestion window of RFC 6928 in bytes, for a path without measurements.
const UNKNOWN_CWND: u64 = 14_600;

/// The first slow start of a path ends at the latest when this many times its window has arrived.
const FIRST_WINDOWS: u64 = 4;

/// Segment size of a path without measurements: that of an Ethernet with timestamps.
const UNKNOWN_MSS: u64 = 1448;

/// Most unacknowledged pieces of data on a path; bounds the engine's record of them.
const MAX_FLIGHTS: usize = 4096;

impl Path {
    pub(crate) fn new(id: PathId, now: Instant) -> Self {
        let mut path = Self {
            id,
            state: PathState::Active,
            policy: PathPolicy::default(),
            policy_version: None,
            sent_policy: None,
            helps: false,
            too_slow: false,
            selection: Selection::default(),
            selection_reason: String::new(),
            link: None,
            sample: PathSample::default(),
            delay: Duration::ZERO,
            queued_delay: Duration::ZERO,
            likely_delay: Duration::ZERO,
            likely_queued_delay: Duration::ZERO,
            own_queue: OwnQueue::default(),
            one_way: OneWay::default(),
            report_trip: None,
            report_min_trip: None,
            sent: 0,
            confirmed: 0,
            flights: VecDeque::new(),
            control: VecDeque::new(),
            received: 0,
            partial: Vec::new(),
            recovers_at: 0,
            reported_version: 0,
            receive_version: 0,
            last_report: now,
            behind_since: None,
            last_progress: now,
            hole: None,
            proof: None,
            paused_at: None,
            last_moved: None,
            state_version_sent: 0,
            state_version_received: 0,
            peer_stalled_since: None,
            stalled_from: now,
            oldest_sent_at: now,
            is_stall_reported: false,
            is_abandoned: false,
            last_received: now,
            last_asked: None,
            idle: None,
            pong_due: None,
            close_sent: false,
            stalls: 0.0,
            stalls_at: now,
            loss: 0.0,
            joined: now,
            data_sent: 0,
            data_received: 0,
            duplicates_sent: 0,
            send_meter: Meter::default(),
            receive_meter: Meter::default(),
        };
        path.update_delays();
        path
    }

    /// The path's number.
    pub fn id(&self) -> PathId {
        self.id
    }

    /// Whether it delivers.
    pub fn state(&self) -> PathState {
        self.state
    }

    /// The latest measurements.
    pub fn sample(&self) -> &PathSample {
        &self.sample
    }

    /// Frame bytes handed to the carrier.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Frame bytes that the peer has reported as received.
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Smoothed round-trip time; 100 ms while unknown.
    pub fn srtt(&self) -> Duration {
        srtt_of(&self.sample)
    }

    /// Congestion window in bytes; the initial one of RFC 6928 while unknown.
    pub fn cwnd(&self) -> u64 {
        match self.sample.cwnd {
            0 => UNKNOWN_CWND,
            cwnd => cwnd,
        }
    }

    /// Sender maximum segment size in bytes; 1448 while unknown.
    pub fn mss(&self) -> u64 {
        match self.sample.mss {
            0 => UNKNOWN_MSS,
            mss => u64::from(mss),
        }
    }

    /// This side's policy for the path.
    pub fn policy(&self) -> &PathPolicy {
        &self.policy
    }

    /// Whether the path is a backup, which carries data only while no other path delivers.
    pub fn is_backup(&self) -> bool {
        self.rank() == Some(Priority::Backup)
    }

    /// Whether it is a backup only because it adds more latency than permitted.
    pub fn is_too_slow(&self) -> bool {
        self.too_slow
    }

    /// When the path carries data, from its priority and its latency; none if never.
    pub(crate) fn rank(&self) -> Option<Priority> {
        match self.policy.priority {
            Priority::Never => None,
            _ if self.too_slow => Some(Priority::Backup),
            Priority::Secondary if self.helps => Some(Priority::Primary),
            priority => Some(priority),
        }
    }

    /// The selector's decision for the path.
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// The reason, in one sentence; empty if the selector has not decided about the path.
    pub fn selection_reason(&self) -> &str {
        &self.selection_reason
    }

    /// The rank combined with the selector's decision: a parked path comes after all others of its
    /// priority.
    pub(crate) fn selected_rank(&self) -> Option<(Priority, bool)> {
        Some((self.rank()?, self.selection.rests()))
    }

    /// Whether both paths are known to share a link: a fault of one then affects the other.
    pub fn shares_link(&self, other: &Self) -> bool {
        self.id == other.id || self.link.is_some() && self.link == other.link
    }

    /// Whether the record of the path's data in flight is full: then it gets no more.
    pub(crate) fn has_max_flights(&self) -> bool {
        self.flights.len() >= MAX_FLIGHTS
    }

    /// Delivery rate in bytes per second: as measured, or as permitted by its window.
    ///
    /// A path that has just joined is in slow start: its window shows its capacity better than its
    /// short history.
    pub fn rate(&self) -> f64 {
        let window = self.window_rate();
        match self.sample.delivery_rate {
            0 => window,
            measured if self.is_new() => window.max(self.limited(measured as f64)),
            measured => self.limited(measured as f64),
        }
    }

    /// Rate in bytes per second that the path has reached, even if it has carried too little to
    /// reach its capacity; equal to [`Path::rate`] before the first measurement.
    pub fn shown_rate(&self) -> f64 {
        match self.sample.delivery_rate {
            0 => self.rate(),
            measured => self.limited(measured as f64),
        }
    }

    /// Whether the path is in slow start and has carried too little for a known rate.
    pub(crate) fn is_new(&self) -> bool {
        self.sample.delivery_rate == 0 || self.sent < 4 * UNKNOWN_CWND
    }

    /// Whether it is in its first slow start, in which the window doubles in each round trip that
    /// fills it. The measured rate is then that of the previous window.
    ///
    /// The delivered bytes equal the window if each window was filled. A path that was given less
    /// for some round trips has delivered more than its window. It must not be taken for one that
    /// has reached its capacity, or it would be given even less.
    pub(crate) fn is_doubling(&self) -> bool {
        let arrived = self.sent.saturating_sub(self.sample.in_flight);
        let window = self.sample.cwnd.max(UNKNOWN_CWND);
        self.sample.ssthresh.is_none() && arrived <= FIRST_WINDOWS * window
    }

    /// Bytes per second that the window permits.
    fn window_rate(&self) -> f64 {
        self.limited(self.sample.cwnd.max(UNKNOWN_CWND) as f64 / self.srtt().as_secs_f64())
    }

    /// Caps a rate at the limit of this side: the limit is known before anything is measured, and
    /// no burst exceeds it.
    fn limited(&self, rate: f64) -> f64 {
        match self.sample.limit {
            0 => rate,
            limit => rate.min(limit as f64),
        }
    }

    /// Time at which it joined the session.
    pub fn joined(&self) -> Instant {
        self.joined
    }

    /// Whether the peer has acknowledged anything on it.
    pub fn is_proven(&self) -> bool {
        self.confirmed > 0
    }

    /// How unreliable the path is: its decaying number of stalls plus its share of lost segments.
    pub fn unreliability(&self, now: Instant) -> f64 {
        self.faded_stalls(now) + 10.0 * self.loss
    }

    /// Records that another path carries `range`, too. The rest of a piece may still be duplicated.
    pub(crate) fn mark_repeated(&mut self, stream: StreamId, range: &Range<u64>) {
        let overlaps = |flight: &Flight| {
            let starts_before = flight.range.start < range.end;
            flight.stream == stream && starts_before && range.start < flight.range.end
        };
        let mut index = 0;
        while let Some(flight) = self.flights.get_mut(index) {
            index += 1;
            if flight.repeated || !overlaps(flight) {
                continue;
            }
            flight.repeated = true;
            let whole = flight.range.clone();
            flight.range = whole.start.max(range.start)..whole.end.min(range.end);
            let rest = Flight {
                repeated: false,
                ..flight.clone()
            };
            let (before, after) = (whole.start..flight.range.start, flight.range.end..whole.end);
            for (at, part) in [(index, after), (index - 1, before)] {
                if !part.is_empty() {
                    let rest = Flight {
                        range: part,
                        ..rest.clone()
                    };
                    self.flights.insert(at, rest);
                    index += 1;
                }
            }
        }
    }

    /// Stream data in flight, in the order sent.
    pub fn flights(&self) -> impl DoubleEndedIterator<Item = &Flight> {
        self.flights.iter()
    }

    pub(crate) fn update(&mut self, sample: PathSample, now: Instant) {
        self.note_sample(&sample, now);
        let segments = sample.segments.saturating_sub(self.sample.segments);
        if segments > 0 {
            let lost = sample
                .retransmitted
                .saturating_sub(self.sample.retransmitted);
            let weight = (segments as f64 / 1000.0).min(0.5);
            let share = (lost as f64 / segments as f64).min(1.0);
            self.loss += weight * (share - self.loss);
        }
        let before = std::mem::replace(&mut self.sample, sample);
        self.note_own_queue(&before, now);
        self.update_delays();
    }

    pub(crate) fn note_stall(&mut self, now: Instant) {
        self.stalls = self.faded_stalls(now) + 1.0;
        self.stalls_at = now;
    }

    fn faded_stalls(&self, now: Instant) -> f64 {
        let age = now.saturating_sub(self.stalls_at).as_secs_f64();
        self.stalls * 0.5f64.powf(age / STALL_HALF_LIFE.as_secs_f64())
    }
}

fn srtt_of(sample: &PathSample) -> Duration {
    if sample.srtt.is_zero() {
        UNKNOWN_RTT
    } else {
        sample.srtt
    }
}
