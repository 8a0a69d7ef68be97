//! `carriers = "auto"`: chooses the number of carriers of a link by measurement.
//!
//! If losses limit a connection's window, several parallel connections get several windows. If a
//! queue is full, they only get a larger share at the expense of others. So one more is tried only
//! while packets do not wait in a queue, and kept only if the link then carries clearly more and
//! the session no less.
//!
//! No additional carrier is kept forever. While packets wait in a queue one is removed, and from
//! time to time without a queue, too. It is added again only if the link then carries less and has
//! no queue: a queue that is full without it is also filled by others, and the link's loss is their
//! gain.

use std::num::NonZeroU8;
use std::time::Duration;

use crate::Instant;

/// The number of parallel connections of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriers {
    /// This many, at most [`Carriers::MAX`].
    Fixed(NonZeroU8),
    /// As many as increase the rate: one more is tried now and then on a link with losses that is
    /// not full.
    Auto,
}

impl Carriers {
    /// Maximum number of connections of a link.
    pub const MAX: u8 = 8;

    /// One connection on each link.
    pub const ONE: Self = Self::Fixed(NonZeroU8::MIN);
}

/// Decides the number of carriers of a link.
#[derive(Debug)]
pub struct Width {
    carriers: u8,
    phase: Phase,
    mark: Option<Mark>,
    /// After a trial without gain: the earliest time of the next one.
    not_before: Option<Instant>,
    /// The pause after the next trial without gain.
    pause: Duration,
    /// Consecutive measurements with a queue.
    queueing: u32,
    /// The earliest time of the next removal, after a change of the number.
    kept_until: Option<Instant>,
    /// How long the number is kept after the next removal that was wrong.
    keep: Duration,
}

/// Total bytes moved by a link and its session.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Bytes over the link, in both directions.
    pub link: u64,
    /// Bytes over all links, in both directions.
    pub session: u64,
    /// Packets wait in a queue of the link.
    pub is_queueing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Steady,
    /// A carrier was added; the current measurement is ignored.
    Settling(Rates),
    /// The next measurement decides whether it is kept.
    Judging(Rates),
    /// A carrier was removed; the current measurement is ignored.
    Lacking(Rates),
    /// The next measurement decides whether it is added again.
    Missing(Rates),
}

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rates {
    link: f64,
    session: f64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    moved: Moved,
    /// Number of samples, and of those with a queue.
    samples: u32,
    queueing: u32,
}

/// Length of a measurement; one that takes much longer contained pauses and is discarded.
const WINDOW: Duration = Duration::from_secs(3);

/// Below this rate, in bytes per second, a link has too little traffic for a measurement.
const MIN_RATE: f64 = 60_000.0;

/// One more is kept if the link carries at least this multiple of its former rate ...
const PAYS: f64 = 1.15;

/// ... and the session at least this share of its own.
const COSTS: f64 = 0.97;

/// Pause after a trial without gain, and its maximum after several.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// One is removed after this many consecutive measurements with a queue ...
const QUEUEING: u32 = 2;

/// ... or, without a queue, after this time without a removal ...
const DOUBT: Duration = Duration::from_secs(60);

/// ... and added again if the link then carries less than this share of its former rate.
const MISSED: f64 = 0.95;

/// Minimum time for which a confirmed number is kept, and its maximum after several confirmations.
const KEEP: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

impl Default for Width {
    fn default() -> Self {
        Self::new()
    }
}

impl Width {
    /// For a link with one carrier.
    pub fn new() -> Self {
        Self {
            carriers: 1,
            phase: Phase::Steady,
            mark: None,
            not_before: None,
            pause: PAUSE.0,
            queueing: 0,
            kept_until: None,
            keep: KEEP.0,
        }
    }

    /// The intended number, 1 to [`Carriers::MAX`].
    pub fn carriers(&self) -> u8 {
        self.carriers
    }

    /// Takes the bytes moved up to now; may change [`Width::carriers`].
    pub fn observe(&mut self, now: Instant, moved: Moved) {
        let mark = self.mark.get_or_insert(Mark {
            at: now,
            moved,
            samples: 0,
            queueing: 0,
        });
        mark.samples += 1;
        mark.queueing += u32::from(moved.is_queueing);
        let time = now.saturating_sub(mark.at);
        if time < WINDOW {
            return;
        }
        let seconds = time.as_secs_f64();
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let rates = Rates {
            link: rate(moved.link, mark.moved.link),
            session: rate(moved.session, mark.moved.session),
        };
        let is_queueing = mark.queueing * 2 > mark.samples;
        self.mark = None;
        if time < WINDOW * 2 {
            self.decide(now, rates, is_queueing);
        }
    }

    fn decide(&mut self, now: Instant, rates: Rates, is_queueing: bool) {
        self.queueing = if is_queueing { self.queueing + 1 } else { 0 };
        match self.phase {
            Phase::Steady if rates.link < MIN_RATE => {}
            // The trial ends without a result, and nothing changes.
            Phase::Settling(_) | Phase::Judging(_) if rates.link < MIN_RATE => {
                self.carriers -= 1;
                self.phase = Phase::Steady;
            }
            Phase::Lacking(_) | Phase::Missing(_) if rates.link < MIN_RATE => {
                self.phase = Phase::Steady;
            }
            Phase::Steady if self.has_one_too_many(now) => self.take_away(rates),
            Phase::Steady => {
                let waits = self.not_before.is_some_and(|at| now < at);
                if waits || is_queueing || self.carriers >= Carriers::MAX {
                    return;
                }
                self.carriers += 1;
                self.phase = Phase::Settling(rates);
            }
            Phase::Settling(before) => self.phase = Phase::Judging(before),
            Phase::Judging(before) => {
                self.phase = Phase::Steady;
                let pays =
                    rates.link >= before.link * PAYS && rates.session >= before.session * COSTS;
                if pays {
                    self.pause = PAUSE.0;
                    self.keep_for(now, KEEP.0);
                } else {
                    self.carriers -= 1;
                    self.add_no_more(now);
                }
            }
            // The queue is full without it.
            Phase::Lacking(_) | Phase::Missing(_) if is_queueing => {
                self.pause = PAUSE.0;
                self.add_no_more(now);
                self.keep = KEEP.0;
                match self.carriers {
                    1 => self.phase = Phase::Steady,
                    _ => self.take_away(rates),
                }
            }
            Phase::Lacking(before) => self.phase = Phase::Missing(before),
            Phase::Missing(before) => {
                self.phase = Phase::Steady;
                if rates.link < before.link * MISSED {
                    self.carriers += 1;
                    self.keep_for(now, self.keep);
                    self.keep = (self.keep * 2).min(KEEP.1);
                } else {
                    self.add_no_more(now);
                    self.keep = KEEP.0;
                    self.keep_for(now, KEEP.0);
                }
            }
        }
    }

    /// Whether the last carrier that was added may be superfluous by now.
    fn has_one_too_many(&self, now: Instant) -> bool {
        let is_due = |after| self.kept_until.is_none_or(|until| now >= until + after);
        let fills_queue = self.queueing >= QUEUEING && is_due(Duration::ZERO);
        self.carriers > 1 && (fills_queue || is_due(DOUBT))
    }

    fn take_away(&mut self, before: Rates) {
        self.carriers -= 1;
        self.phase = Phase::Lacking(before);
    }

    fn add_no_more(&mut self, now: Instant) {
        self.not_before = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
    }

    fn keep_for(&mut self, now: Instant, time: Duration) {
        self.kept_until = Some(now + time);
    }
}

#[cfg(test)]
mod tests;
