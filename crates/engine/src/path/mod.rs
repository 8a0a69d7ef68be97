//! A path: one carrier as the engine sees it.

mod delay;
mod drained;
mod flight;
mod gap;
mod in_flight;
mod one_way;
mod overdue;
mod parts;
mod sample;
mod set;
mod sustained;

use std::ops::Range;
use std::time::Duration;

use crate::policy::{PathPolicy, Priority};
use crate::selector::Selection;
use crate::{Instant, PathId, StreamId};

pub use flight::Flight;
pub(crate) use flight::{Control, Sent};
pub(crate) use overdue::{RECORD, REPORT_SLACK};
use parts::{Delays, Inbound, Outbound, PeerView, Progress, Reports, Stall, Standing, Totals};
pub use sample::{LossState, PathSample};
pub(crate) use set::Paths;
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
    pub(crate) sample: PathSample,
    pub(crate) joined: Instant,
    pub(crate) standing: Standing,
    delays: Delays,
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
    pub(crate) reports: Reports,
    pub(crate) progress: Progress,
    pub(crate) stall: Stall,
    pub(crate) peer: PeerView,
    pub(crate) totals: Totals,
}

/// How fast the memory of past stalls decays.
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
            sample: PathSample::default(),
            joined: now,
            standing: Standing::default(),
            delays: Delays::default(),
            outbound: Outbound::default(),
            inbound: Inbound::new(now),
            reports: Reports::new(now),
            progress: Progress::new(now),
            stall: Stall::new(now),
            peer: PeerView::default(),
            totals: Totals::default(),
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
        self.outbound.sent
    }

    /// Frame bytes that the peer has reported as received.
    pub fn confirmed(&self) -> u64 {
        self.outbound.confirmed
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
        &self.standing.policy
    }

    /// Whether the path is a backup, which carries data only while no other path delivers.
    pub fn is_backup(&self) -> bool {
        self.rank() == Some(Priority::Backup)
    }

    /// Whether it is a backup only because it adds more latency than permitted.
    pub fn is_too_slow(&self) -> bool {
        self.standing.too_slow
    }

    /// When the path carries data, from its priority and its latency; none if never.
    pub(crate) fn rank(&self) -> Option<Priority> {
        match self.standing.policy.priority {
            Priority::Never => None,
            _ if self.standing.too_slow => Some(Priority::Backup),
            Priority::Secondary if self.standing.helps => Some(Priority::Primary),
            priority => Some(priority),
        }
    }

    /// The selector's decision for the path.
    pub fn selection(&self) -> Selection {
        self.standing.selection
    }

    /// The reason, in one sentence; empty if the selector has not decided about the path.
    pub fn selection_reason(&self) -> &str {
        &self.standing.selection_reason
    }

    /// The rank combined with the selector's decision: a parked path comes after all others of its
    /// priority.
    pub(crate) fn selected_rank(&self) -> Option<(Priority, bool)> {
        Some((self.rank()?, self.standing.selection.rests()))
    }

    /// Whether both paths are known to share a link: a fault of one then affects the other.
    pub fn shares_link(&self, other: &Self) -> bool {
        self.id == other.id
            || self.standing.link.is_some() && self.standing.link == other.standing.link
    }

    /// Whether the record of the path's data in flight is full: then it gets no more.
    pub(crate) fn has_max_flights(&self) -> bool {
        self.outbound.flights.len() >= MAX_FLIGHTS
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
        self.sample.delivery_rate == 0 || self.outbound.sent < 4 * UNKNOWN_CWND
    }

    /// Whether it is in its first slow start, in which the window doubles in each round trip that
    /// fills it. The measured rate is then that of the previous window.
    ///
    /// The delivered bytes equal the window if each window was filled. A path that was given less
    /// for some round trips has delivered more than its window. It must not be taken for one that
    /// has reached its capacity, or it would be given even less.
    pub(crate) fn is_doubling(&self) -> bool {
        let arrived = self.outbound.sent.saturating_sub(self.sample.in_flight);
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
        self.outbound.confirmed > 0
    }

    /// How unreliable the path is: its decaying number of stalls plus its share of lost segments.
    pub fn unreliability(&self, now: Instant) -> f64 {
        self.faded_stalls(now) + 10.0 * self.progress.loss
    }

    /// Records that another path carries `range`, too. The rest of a piece may still be duplicated.
    pub(crate) fn mark_repeated(&mut self, stream: StreamId, range: &Range<u64>) {
        let overlaps = |flight: &Flight| {
            let starts_before = flight.range.start < range.end;
            flight.stream == stream && starts_before && range.start < flight.range.end
        };
        let mut index = 0;
        while let Some(flight) = self.outbound.flights.get_mut(index) {
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
                    self.outbound.flights.insert(at, rest);
                    index += 1;
                }
            }
        }
    }

    /// Stream data in flight, in the order sent.
    pub fn flights(&self) -> impl DoubleEndedIterator<Item = &Flight> {
        self.outbound.flights.iter()
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
            self.progress.loss += weight * (share - self.progress.loss);
        }
        let before = std::mem::replace(&mut self.sample, sample);
        self.note_own_queue(&before, now);
        self.update_delays();
    }

    /// Sets how long reports take to return over the fastest path, with queues and without; none if
    /// unknown.
    pub(crate) fn set_report_trip(&mut self, trip: Option<Duration>, min_trip: Option<Duration>) {
        (self.delays.report_trip, self.delays.report_min_trip) = (trip, min_trip);
    }

    pub(crate) fn note_stall(&mut self, now: Instant) {
        self.progress.stalls = self.faded_stalls(now) + 1.0;
        self.progress.stalls_at = now;
    }

    fn faded_stalls(&self, now: Instant) -> f64 {
        self.progress.stalls * fade(self.progress.stalls_at, now)
    }
}

/// The share of a memory of stalls from `since` that is left at `now`.
fn fade(since: Instant, now: Instant) -> f64 {
    let age = now.saturating_sub(since).as_secs_f64();
    0.5f64.powf(age / STALL_HALF_LIFE.as_secs_f64())
}

fn srtt_of(sample: &PathSample) -> Duration {
    if sample.srtt.is_zero() {
        UNKNOWN_RTT
    } else {
        sample.srtt
    }
}
