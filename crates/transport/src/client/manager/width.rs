//! `carriers = "auto"`: how many carriers a link has, by measurement.
//!
//! Where losses hold a connection's window down, several connections side by side get several windows; where a queue
//! is full they get nothing but a larger share of what others need as well. So one more is tried only while packets do
//! not wait in a queue, and stays only if the link then carries clearly more and the session no less.

use std::time::{Duration, Instant};

use crate::config::Carriers;

/// Decides how many carriers a link has.
#[derive(Debug)]
pub(super) struct Width {
    carriers: u8,
    phase: Phase,
    mark: Option<Mark>,
    /// After a trial that did not pay: none before.
    not_before: Option<Instant>,
    /// How long that lasts the next time.
    pause: Duration,
}

/// What a link and its session have moved so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moved {
    /// Bytes over the link, both ways.
    pub(super) link: u64,
    /// Bytes over all links, both ways.
    pub(super) session: u64,
    /// Packets wait in a queue of the link.
    pub(super) is_queueing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Steady,
    /// One more is there since the last measurement, which is this one.
    Settling(Rates),
    /// The next measurement decides.
    Judging(Rates),
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

impl Width {
    pub(super) fn new() -> Self {
        Self {
            carriers: 1,
            phase: Phase::Steady,
            mark: None,
            not_before: None,
            pause: PAUSE.0,
        }
    }

    /// How many there should be, 1 to [`Carriers::MOST`].
    pub(super) fn carriers(&self) -> u8 {
        self.carriers
    }

    /// Takes what has been moved up to now; afterwards [`Width::carriers`] may be another number.
    pub(super) fn observe(&mut self, now: Instant, moved: Moved) {
        let mark = self.mark.get_or_insert(Mark {
            at: now,
            moved,
            samples: 0,
            queueing: 0,
        });
        mark.samples += 1;
        mark.queueing += u32::from(moved.is_queueing);
        let time = now.duration_since(mark.at);
        if time < WINDOW {
            return;
        }
        let seconds = time.as_secs_f64();
        // A carrier that ends takes its counts along.
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
        match self.phase {
            Phase::Steady => {
                let waits = self.not_before.is_some_and(|at| now < at);
                if waits
                    || is_queueing
                    || rates.link < LEAST_RATE
                    || self.carriers >= Carriers::MOST
                {
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
                } else {
                    self.carriers -= 1;
                    self.not_before = Some(now + self.pause);
                    self.pause = (self.pause * 2).min(PAUSE.1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of carriers over so many seconds, where `rate` says what a link with so many carries in bytes per
    /// second.
    fn run(seconds: u64, is_queueing: bool, rate: impl Fn(u8) -> u64) -> Vec<u8> {
        let (mut width, begin) = (Width::new(), Instant::now());
        let (mut bytes, mut carriers) = (0, vec![1]);
        for half in 0..seconds * 2 {
            bytes += rate(width.carriers()) / 2;
            let moved = Moved {
                link: bytes,
                session: 2 * bytes,
                is_queueing,
            };
            width.observe(begin + Duration::from_millis(500) * half as u32, moved);
            if carriers.last() != Some(&width.carriers()) {
                carriers.push(width.carriers());
            }
        }
        carriers
    }

    #[test]
    fn as_many_as_bring_something_and_never_more_than_eight() {
        let lossy = |carriers| 2_000_000 * u64::from(carriers);
        let enough = run(180, false, |n| lossy(n.min(4)));
        assert_eq!(enough[..4], [1, 2, 3, 4]);
        assert!(enough[4..].iter().all(|n| [4, 5].contains(n)), "{enough:?}");
        assert!(enough.len() < 16, "trials become rare: {enough:?}");
        let most = run(180, false, |n| 2_000_000 * 2u64.pow(n.into()));
        assert_eq!(most, [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn none_is_added_to_a_full_queue() {
        assert_eq!(run(600, true, |n| 2_000_000 * u64::from(n)), [1]);
    }

    #[test]
    fn none_is_added_to_an_idle_link() {
        assert_eq!(run(600, false, |_| 1000), [1]);
    }

    #[test]
    fn trials_that_bring_nothing_become_rare() {
        let trials = run(3600, false, |_| 2_000_000).len() / 2;
        assert!((5..=12).contains(&trials), "{trials} trials in an hour");
    }

    #[test]
    fn one_that_costs_the_session_more_than_it_brings_goes_again() {
        let (mut width, begin) = (Width::new(), Instant::now());
        let (mut link, mut session) = (0, 0);
        for half in 0..30 {
            link += 1_000_000 * u64::from(width.carriers());
            session += 9_000_000 - 2_000_000 * u64::from(width.carriers() - 1);
            let moved = Moved {
                link,
                session,
                is_queueing: false,
            };
            width.observe(begin + Duration::from_millis(500) * half, moved);
        }
        assert_eq!(width.carriers(), 1);
        assert!(width.not_before.is_some(), "it was tried");
    }
}
