//! A path: one carrier as the engine sees it.

mod delay;
mod drained;
mod flight;
mod hole;
mod late;
mod on_its_way;
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
use late::Heard;
pub(crate) use late::{RECORD, REPORT_SLACK};
use one_way::OneWay;
pub use sample::{LossState, PathSample};
pub use sustained::SustainedRate;

/// Whether a path can be given work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathState {
    /// It delivers.
    Active,
    /// What was sent on it is not being delivered; it gets no work until something is.
    Stalled,
}

/// A path of a session; schedulers read it.
#[derive(Debug)]
pub struct Path {
    pub(crate) id: PathId,
    pub(crate) state: PathState,
    /// What this side may send over it.
    pub(crate) policy: PathPolicy,
    /// Version of the peer's POLICY that said so; nothing while none has.
    pub(crate) policy_version: Option<u64>,
    /// What the peer was told, and the version of it.
    pub(crate) told_policy: Option<(u64, PeerPolicy)>,
    /// It is secondary, and more waits than the primary paths deliver soon.
    pub(crate) helps: bool,
    /// It adds more latency than it may.
    pub(crate) too_slow: bool,
    /// What the selector has made of it, and why.
    pub(crate) selection: Selection,
    pub(crate) selection_reason: String,
    /// The link that it goes over, where somebody said so: paths with the same number share one.
    pub(crate) link: Option<u64>,
    pub(crate) sample: PathSample,
    /// What follows from it and is asked for often.
    delay: Duration,
    queued_delay: Duration,
    likely_delay: Duration,
    likely_queued_delay: Duration,
    /// What of the smoothed round trip its own bytes waited for.
    own_queue: OwnQueue,
    /// How long the way there takes, by the peer's reports.
    one_way: OneWay,
    /// What reports take on their way back, by the fastest path; nothing while nobody has said so.
    pub(crate) report_trip: Option<Duration>,
    /// The same where nothing waits.
    pub(crate) report_least: Option<Duration>,
    /// Frame bytes handed to the carrier.
    pub(crate) sent: u64,
    /// Frame bytes that the peer reported as received.
    pub(crate) confirmed: u64,
    /// Stream data on its way, in the order sent.
    pub(crate) flights: VecDeque<Flight>,
    /// Control frames on their way, in the order sent.
    pub(crate) control: VecDeque<Sent>,
    /// Bytes of whole frames received.
    pub(crate) received: u64,
    /// Start of a frame whose end has not arrived.
    pub(crate) partial: Vec<u8>,
    /// A stalled path is tried again when so many of its bytes are confirmed.
    pub(crate) recovers_at: u64,
    /// Version of the newest change that a report on this path has told the peer.
    pub(crate) reported_version: u64,
    /// Version of this path's own newest receive count.
    pub(crate) receive_version: u64,
    /// When the last report left on this path.
    pub(crate) last_report: Instant,
    /// When another path told the first thing that this one has not told yet.
    pub(crate) behind_since: Option<Instant>,
    /// When the peer last confirmed something, or the path came to have something to confirm.
    pub(crate) last_progress: Instant,
    /// What TCP repairs.
    hole: Option<Hole>,
    /// When it last showed that it delivers; nothing where TCP does not say.
    heard: Option<Heard>,
    /// When TCP last began to pause in order to measure.
    paused_at: Option<Instant>,
    /// When TCP last got a segment through, either way, as far as anybody knows.
    pub(crate) last_moved: Option<Instant>,
    /// How often the peer was told what the path is to this side, and the newest such frame of the peer.
    pub(crate) said: u64,
    pub(crate) heard_version: u64,
    /// Since when the peer says that what it sends on it is not confirmed.
    pub(crate) doubted_since: Option<Instant>,
    /// Of a stalled path: since when.
    pub(crate) useless_from: Instant,
    /// Of a stalled path: since when what it was given first is not confirmed.
    pub(crate) owed_since: Instant,
    /// The peer and the program know that the path has stalled, and not that it has recovered.
    pub(crate) is_stall_told: bool,
    /// The peer has left it.
    pub(crate) is_left: bool,
    /// When anything last arrived on it.
    pub(crate) last_received: Instant,
    /// When something that asks for a report last left on it.
    pub(crate) last_asked: Option<Instant>,
    /// When it was asked last and had nothing to send, what it could have taken, and after how many changes of the session.
    pub(crate) idle: Option<(Instant, usize, u64)>,
    /// Token of a PING to answer.
    pub(crate) pong_due: Option<u64>,
    /// The session's CLOSE has been handed to the carrier.
    pub(crate) farewell_said: bool,
    /// Times that the path stalled, fading with a half-life of [`STALL_HALF_LIFE`].
    stalls: f64,
    /// When `stalls` was last brought up to date.
    stalls_at: Instant,
    /// Share of segments lost, fading.
    loss: f64,
    pub(crate) joined: Instant,
    pub(crate) data_sent: u64,
    pub(crate) data_received: u64,
    pub(crate) duplicates_sent: u64,
    pub(crate) send_meter: Meter,
    pub(crate) receive_meter: Meter,
}

/// How fast past stalls are forgiven.
const STALL_HALF_LIFE: Duration = Duration::from_secs(20);

/// A path that has not been measured is assumed to have this round-trip time.
const UNKNOWN_RTT: Duration = Duration::from_millis(100);

/// Initial congestion window of RFC 6928 in bytes, for a path that has not been measured.
const UNKNOWN_CWND: u64 = 14_600;

/// A path is in its first slow start until so many times its window has arrived, at the latest.
const FIRST_WINDOWS: u64 = 4;

/// Segment size of a path that has not been measured: that of an Ethernet with timestamps.
const UNKNOWN_MSS: u64 = 1448;

/// Stretches of data on a path that the peer has not confirmed: bounds what the engine remembers of them.
const MAX_FLIGHTS: usize = 4096;

impl Path {
    pub(crate) fn new(id: PathId, now: Instant) -> Self {
        let mut path = Self {
            id,
            state: PathState::Active,
            policy: PathPolicy::default(),
            policy_version: None,
            told_policy: None,
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
            report_least: None,
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
            heard: None,
            paused_at: None,
            last_moved: None,
            said: 0,
            heard_version: 0,
            doubted_since: None,
            useless_from: now,
            owed_since: now,
            is_stall_told: false,
            is_left: false,
            last_received: now,
            last_asked: None,
            idle: None,
            pong_due: None,
            farewell_said: false,
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
        path.work_out_delays();
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

    /// The newest measurements.
    pub fn sample(&self) -> &PathSample {
        &self.sample
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

    /// What this side may send over it.
    pub fn policy(&self) -> &PathPolicy {
        &self.policy
    }

    /// Whether the path is a backup, which gets work only while no other path delivers.
    pub fn is_backup(&self) -> bool {
        self.rank() == Some(Priority::Backup)
    }

    /// Whether it is a backup only because it adds more latency than it may.
    pub fn is_too_slow(&self) -> bool {
        self.too_slow
    }

    /// When the path gets work, by its priority and by how it does; nothing for never.
    pub(crate) fn rank(&self) -> Option<Priority> {
        match self.policy.priority {
            Priority::Never => None,
            _ if self.too_slow => Some(Priority::Backup),
            Priority::Secondary if self.helps => Some(Priority::Primary),
            priority => Some(priority),
        }
    }

    /// What the selector has made of the path.
    pub fn selection(&self) -> Selection {
        self.selection
    }

    /// Why, in one sentence; empty while the selector has decided nothing about it.
    pub fn selection_reason(&self) -> &str {
        &self.selection_reason
    }

    /// The same with the selector's decision: one that it has rest comes after all others of its priority.
    pub(crate) fn selected_rank(&self) -> Option<(Priority, bool)> {
        Some((self.rank()?, self.selection.rests()))
    }

    /// Whether both go over the same link, as far as anybody knows: what befalls one then befalls the other.
    pub fn shares_link(&self, other: &Self) -> bool {
        self.id == other.id || self.link.is_some() && self.link == other.link
    }

    /// Whether the engine remembers as much of what is under way on the path as it will: then it gets no more.
    pub(crate) fn is_crowded(&self) -> bool {
        self.flights.len() >= MAX_FLIGHTS
    }

    /// Bytes per second that the path delivers: as measured, else what its window allows.
    ///
    /// A path that has just joined is in slow start: its window, not its short history, says what it can do.
    pub fn rate(&self) -> f64 {
        let window = self.window_rate();
        match self.sample.delivery_rate {
            0 => window,
            measured if self.is_new() => window.max(self.limited(measured as f64)),
            measured => self.limited(measured as f64),
        }
    }

    /// Bytes per second that the path has shown, also where it has carried too little to show all it can; as
    /// [`Path::rate`] before it has shown anything.
    pub fn shown_rate(&self) -> f64 {
        match self.sample.delivery_rate {
            0 => self.rate(),
            measured => self.limited(measured as f64),
        }
    }

    /// Whether the path has carried so little that its rate cannot be known: it is in slow start.
    pub(crate) fn is_new(&self) -> bool {
        self.sample.delivery_rate == 0 || self.sent < 4 * UNKNOWN_CWND
    }

    /// Whether it is in its first slow start, in which the window doubles in each round trip that fills it: what was measured is
    /// the rate of the window before, then.
    ///
    /// All that has arrived is as much as the window where each was filled. A path that was given less for some round trips
    /// has had more arrive, and must not be taken for one that has shown all it can: it would be given less still.
    pub(crate) fn is_doubling(&self) -> bool {
        let arrived = self.sent.saturating_sub(self.sample.in_flight);
        let window = self.sample.cwnd.max(UNKNOWN_CWND);
        self.sample.ssthresh.is_none() && arrived <= FIRST_WINDOWS * window
    }

    /// Bytes per second that the window allows.
    fn window_rate(&self) -> f64 {
        self.limited(self.sample.cwnd.max(UNKNOWN_CWND) as f64 / self.srtt().as_secs_f64())
    }

    /// What is left of a rate where this side may send less: a limit is known before anything is measured, and no burst goes
    /// beyond it.
    fn limited(&self, rate: f64) -> f64 {
        match self.sample.limit {
            0 => rate,
            limit => rate.min(limit as f64),
        }
    }

    /// When it joined the session.
    pub fn joined(&self) -> Instant {
        self.joined
    }

    /// Whether the peer has confirmed anything on it.
    pub fn is_proven(&self) -> bool {
        self.confirmed > 0
    }

    /// How much the path is to be doubted: its stalls, fading, and its share of lost segments.
    pub fn unreliability(&self, now: Instant) -> f64 {
        self.faded_stalls(now) + 10.0 * self.loss
    }

    /// Notes that another path has `range`, too. What of a piece is not in it may still be repeated.
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

    /// Stream data on its way, in the order sent.
    pub fn flights(&self) -> impl DoubleEndedIterator<Item = &Flight> {
        self.flights.iter()
    }

    pub(crate) fn update(&mut self, sample: PathSample, now: Instant) {
        self.hear(&sample, now);
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
        self.work_out_delays();
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
