//! Whether a datagram path delivers.
//!
//! The peer reports packets within a few milliseconds of their arrival, so a path is in doubt as
//! soon as a report is overdue: tens of milliseconds after the first lost packet. A path without
//! packets is never overdue; probes keep it from being idle while flows are active, and find out
//! whether a suspect path delivers again.

use std::time::Duration;

use super::sent::Sent;
use super::{RoundTrip, UNKNOWN_TRIP};
use crate::Instant;

/// A report may be later than expected by this time at least ...
const MIN_MARGIN: Duration = Duration::from_millis(25);

/// ... or by this many variations of its round trip.
const VARIATIONS: u32 = 4;

/// A suspect path has failed when its oldest packet is unreported for this time longer ...
const FAILS_AFTER: Duration = Duration::from_secs(1);

/// ... and for this many round trips.
const FAILS_AFTER_TRIPS: u32 = 4;

/// First interval of probes on a suspect path; it doubles with each of them ...
const SUSPECT_PROBES: Duration = Duration::from_millis(25);

/// ... up to this.
const SLOWEST_PROBES: Duration = Duration::from_secs(2);

/// Interval of probes on an idle path while flows are active.
const IDLE_PROBES: Duration = Duration::from_millis(500);

/// The same on a path that carries nothing because of its policy, or that is metered.
const SPARE_PROBES: Duration = Duration::from_secs(5);

/// First interval of probes until the peer has reported anything; it doubles, too ...
const FIRST_PROBES: Duration = Duration::from_secs(1);

/// ... up to this.
const SLOWEST_FIRST_PROBES: Duration = Duration::from_secs(60);

/// Time for which a recovered path must deliver before flows return to it. It doubles with each
/// failure up to [`LONGEST_TRIAL`], and halves with each [`LONGEST_TRIAL`] without one.
const TRIAL: Duration = Duration::from_secs(1);

const LONGEST_TRIAL: Duration = Duration::from_secs(16);

/// How well a datagram path delivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathHealth {
    /// Its packets are reported in time.
    #[default]
    Good,
    /// A report is overdue.
    Suspect,
    /// Nothing has been reported for a second longer.
    Failed,
}

impl PathHealth {
    /// The name in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "working",
            Self::Suspect => "suspect",
            Self::Failed => "failed",
        }
    }
}

/// A change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::datagram) enum Review {
    Unchanged,
    /// It has just become suspect.
    Suspected,
    Failed,
    Recovered,
}

/// The state of a path, and its probes.
#[derive(Debug)]
pub(in crate::datagram) struct Health {
    state: PathHealth,
    since: Instant,
    /// When a packet that asks for a report last left.
    asked: Option<Instant>,
    /// When the last probe left, and the number of probes since the path last delivered.
    probed: Option<Instant>,
    probes: u32,
    /// The peer has reported something on it.
    is_proven: bool,
    trial: Duration,
}

impl Health {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: PathHealth::Good,
            since: now,
            asked: None,
            probed: None,
            probes: 0,
            is_proven: false,
            trial: TRIAL,
        }
    }

    pub(in crate::datagram) fn state(&self) -> PathHealth {
        self.state
    }

    pub(in crate::datagram) fn is_good(&self) -> bool {
        self.state == PathHealth::Good
    }

    /// Whether flows that left the path may return.
    pub(in crate::datagram) fn may_return(&self, now: Instant) -> bool {
        self.is_good() && (self.trial == TRIAL || now >= self.since + self.trial)
    }

    /// A packet that asks for a report has left.
    pub(in crate::datagram) fn note_asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// A probe has left.
    pub(in crate::datagram) fn note_probe(&mut self, now: Instant) {
        self.probed = Some(now);
        self.probes = self.probes.saturating_add(1);
    }

    /// A report covers packets that were not reported before.
    pub(in crate::datagram) fn note_delivery(
        &mut self,
        sent: &Sent,
        trip: &RoundTrip,
        carrier: Option<Duration>,
        now: Instant,
    ) -> Review {
        (self.is_proven, self.probes) = (true, 0);
        let is_overdue = overdue_at(sent, trip, carrier).is_some_and(|at| at <= now);
        if self.is_good() || is_overdue {
            return Review::Unchanged;
        }
        self.state = PathHealth::Good;
        self.since = now;
        Review::Recovered
    }

    /// Makes a path suspect because its link seems to be silent; probes show whether it delivers.
    pub(in crate::datagram) fn suspect(&mut self, now: Instant) {
        if self.is_good() {
            (self.state, self.since) = (PathHealth::Suspect, now);
            (self.probes, self.probed) = (0, None);
        }
    }

    /// Applies the passage of time. `carrier` is the carrier's round trip with the delay of
    /// reports.
    pub(in crate::datagram) fn review(
        &mut self,
        sent: &Sent,
        trip: &RoundTrip,
        carrier: Option<Duration>,
        now: Instant,
    ) -> Review {
        let Some(due) = self.changes_at(sent, trip, carrier) else {
            return Review::Unchanged;
        };
        if now < due {
            return Review::Unchanged;
        }
        if self.is_good() {
            let quiet = now.saturating_sub(self.since);
            for _ in 0..quiet.as_secs() / LONGEST_TRIAL.as_secs() {
                self.trial = (self.trial / 2).max(TRIAL);
            }
            self.trial = (2 * self.trial).min(LONGEST_TRIAL);
            self.suspect(now);
            return Review::Suspected;
        }
        self.state = PathHealth::Failed;
        Review::Failed
    }

    /// When [`Health::review`] changes the state unless a report arrives.
    pub(in crate::datagram) fn changes_at(
        &self,
        sent: &Sent,
        trip: &RoundTrip,
        carrier: Option<Duration>,
    ) -> Option<Instant> {
        match self.state {
            PathHealth::Good => overdue_at(sent, trip, carrier),
            PathHealth::Suspect => {
                let expected = expected(trip, carrier);
                Some(self.since + (expected * FAILS_AFTER_TRIPS).max(FAILS_AFTER))
            }
            PathHealth::Failed => None,
        }
    }

    /// When the next probe is due while flows are active; `is_spare` if the path carries nothing.
    pub(in crate::datagram) fn probe_at(&self, is_active: bool, is_spare: bool) -> Option<Instant> {
        let backoff = |first: Duration, most: Duration| {
            let interval = first.saturating_mul(1 << self.probes.min(16)).min(most);
            self.probed.map_or(self.since, |at| at + interval)
        };
        if !self.is_proven {
            // Also to let the peer know that this side understands datagrams.
            let first = match is_active {
                true => SUSPECT_PROBES,
                false => FIRST_PROBES,
            };
            return Some(backoff(first, SLOWEST_FIRST_PROBES));
        }
        if !is_active {
            return None;
        }
        if !self.is_good() {
            return Some(backoff(SUSPECT_PROBES, SLOWEST_PROBES));
        }
        let interval = if is_spare { SPARE_PROBES } else { IDLE_PROBES };
        self.asked.map(|at| at + interval)
    }
}

/// When the oldest unreported packet is overdue.
fn overdue_at(sent: &Sent, trip: &RoundTrip, carrier: Option<Duration>) -> Option<Instant> {
    let margin = (VARIATIONS * trip.variation()).max(MIN_MARGIN);
    sent.oldest()
        .map(|at| at + expected(trip, carrier) + margin)
}

/// Expected time until a packet is reported. Reports of single packets are prompt, and others come
/// later, so the time of the carrier counts as well.
fn expected(trip: &RoundTrip, carrier: Option<Duration>) -> Duration {
    trip.srtt().max(carrier).unwrap_or(2 * UNKNOWN_TRIP)
}
