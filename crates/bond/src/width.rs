//! `carriers = "auto"`: how many carriers a link has, by measurement.
//!
//! Where losses hold a connection's window down, several connections side by side get several windows; where a queue
//! is full they get nothing but a larger share of what others need as well. So one more is tried only while packets do
//! not wait in a queue, and stays only if the link then carries clearly more and the session no less.
//!
//! None stays for good. While packets wait in a queue one is taken away, and from time to time without a queue, too. It
//! comes back only if the link then carries less and has no queue: a queue that is full without it is filled by others as
//! well, and what the link carries less is what they get.

use std::num::NonZeroU8;
use std::time::Duration;

use crate::Instant;

/// How many connections a link has at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriers {
    /// This many, at most [`Carriers::MOST`].
    Fixed(NonZeroU8),
    /// As many as bring something: one more is tried now and then on a link that loses packets without being full.
    Auto,
}

impl Carriers {
    /// The most connections that a link may have.
    pub const MOST: u8 = 8;

    /// One connection on each link.
    pub const ONE: Self = Self::Fixed(NonZeroU8::MIN);
}

/// Decides how many carriers a link has.
#[derive(Debug)]
pub struct Width {
    carriers: u8,
    phase: Phase,
    mark: Option<Mark>,
    /// After a trial that did not pay: none before.
    not_before: Option<Instant>,
    /// How long that lasts the next time.
    pause: Duration,
    /// Measurements in a row with a queue.
    queueing: u32,
    /// None is taken away before, once the number has changed.
    kept_until: Option<Instant>,
    /// How long that lasts after the next one that was missed.
    keep: Duration,
}

/// The bytes that a link and its session have moved so far.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Bytes over the link, both ways.
    pub link: u64,
    /// Bytes over all links, both ways.
    pub session: u64,
    /// Packets wait in a queue of the link.
    pub is_queueing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Steady,
    /// One more is there since the last measurement, which is this one.
    Settling(Rates),
    /// The next measurement decides.
    Judging(Rates),
    /// One fewer is there since the last measurement, which is this one.
    Lacking(Rates),
    /// The next measurement decides whether it is missed.
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
    /// Samples, and those of them with a queue.
    samples: u32,
    queueing: u32,
}

/// Length of a measurement; one that takes much longer had pauses in it and says nothing.
const WINDOW: Duration = Duration::from_secs(3);

/// Below this rate, in bytes per second, a link has too little to do to tell.
const LEAST_RATE: f64 = 60_000.0;

/// One more pays when the link carries this many times as much ...
const PAYS: f64 = 1.15;

/// ... and the session at least this part of what it did.
const COSTS: f64 = 0.97;

/// Pause after a trial that did not pay, and its longest after several.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// One is taken away after so many measurements in a row with a queue ...
const QUEUEING: u32 = 2;

/// ... or without one when none has been for so long ...
const DOUBT: Duration = Duration::from_secs(60);

/// ... and is missed when the link then carries less than this part of what it did.
const MISSED: f64 = 0.95;

/// How long a number that was found right is kept at least, and the longest after several times.
const KEEP: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

impl Default for Width {
    fn default() -> Self {
        Self::new()
    }
}

impl Width {
    /// Of a link with one carrier.
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

    /// How many there should be, 1 to [`Carriers::MOST`].
    pub fn carriers(&self) -> u8 {
        self.carriers
    }

    /// Takes what has been moved up to now; afterwards [`Width::carriers`] may be another number.
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
            Phase::Steady if rates.link < LEAST_RATE => {}
            // What is being found out stays unknown, and nothing follows from it.
            Phase::Settling(_) | Phase::Judging(_) if rates.link < LEAST_RATE => {
                self.carriers -= 1;
                self.phase = Phase::Steady;
            }
            Phase::Lacking(_) | Phase::Missing(_) if rates.link < LEAST_RATE => {
                self.phase = Phase::Steady;
            }
            Phase::Steady if self.has_one_too_many(now) => self.take_away(rates),
            Phase::Steady => {
                let waits = self.not_before.is_some_and(|at| now < at);
                if waits || is_queueing || self.carriers >= Carriers::MOST {
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

    /// Whether the last one that was added may be superfluous by now.
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
