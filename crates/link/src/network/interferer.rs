//! A foreign transmitter on the same channel.

use core::time::Duration;

use crate::ModelError;
use crate::error::share;
use crate::random::Random;

/// Foreign transmissions on the channel of one or several links. They cost time (waiting, and
/// repetitions on layer 2) rather than packets: a packet is lost only when its last repetition
/// fails.
///
/// The interferer alternates between busy and silent periods, both exponentially distributed. While
/// it is busy, a link's server runs at `1 - deferral` of its speed. An attempt to send a packet
/// that overlaps a busy period fails with probability `frame_error`. If every attempt overlaps one,
/// `frame_error^(retry_limit + 1)` of the packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interferer {
    /// Share of time in which it is busy, 0.0..=1.0.
    pub occupancy: f64,
    /// Mean length of a busy period. A frame takes some hundred microseconds, a burst of frames
    /// more.
    pub burst: Duration,
    /// The degree to which the sender defers to it, 0.0..=1.0: 0 is a hidden node, 1 one that is
    /// always heard.
    pub deferral: f64,
    /// Probability that an overlapping attempt fails, 0.0..=1.0.
    pub frame_error: f64,
    /// Maximum number of layer 2 repetitions per packet; 7 is usual (IEEE 802.11,
    /// dot11ShortRetryLimit).
    pub retry_limit: u32,
}

impl Interferer {
    /// No interference.
    pub const NONE: Self = Self {
        occupancy: 0.0,
        burst: Duration::from_millis(1),
        deferral: 0.0,
        frame_error: 0.0,
        retry_limit: 7,
    };

    pub(crate) fn check(&self) -> Result<(), ModelError> {
        share("the occupancy of an interferer", self.occupancy)?;
        share("the deferral to an interferer", self.deferral)?;
        share("the frame error of an interferer", self.frame_error)?;
        if self.burst.is_zero() {
            return Err(ModelError::ZeroTime {
                what: "the mean busy time of an interferer",
                example: "1ms",
            });
        }
        Ok(())
    }
}

/// A running interferer. It sleeps while none of its links has packets to send.
#[derive(Clone, Debug)]
pub(crate) struct Interference {
    pub(crate) spec: Interferer,
    /// The numbers of the links.
    pub(crate) links: Vec<usize>,
    /// Whether each of them has packets to send.
    backlogged: Vec<bool>,
    awake: usize,
    busy: bool,
    /// Time at which `busy` was last valid.
    at: Duration,
    /// Time of its next change.
    next: Option<Duration>,
    random: Random,
}

impl Interference {
    pub(crate) fn new(spec: Interferer, links: Vec<usize>, mut random: Random) -> Self {
        Self {
            busy: random.next_f64() < spec.occupancy,
            backlogged: vec![false; links.len()],
            spec,
            links,
            awake: 0,
            at: Duration::ZERO,
            next: None,
            random,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(crate) fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Current speed of a link's server.
    pub(crate) fn share(&self) -> f64 {
        if self.busy {
            1.0 - self.spec.deferral
        } else {
            1.0
        }
    }

    /// Changes the parameters from now on.
    pub(crate) fn change(&mut self, now: Duration, spec: Interferer) {
        self.spec = spec;
        self.at = now;
        self.busy = self.random.next_f64() < spec.occupancy;
        self.plan(now);
    }

    /// Records whether a link has packets to send; returns whether that woke the interferer up.
    pub(crate) fn update(&mut self, now: Duration, member: usize, backlogged: bool) -> bool {
        if self.backlogged[member] == backlogged {
            return false;
        }
        self.backlogged[member] = backlogged;
        if !backlogged {
            self.awake -= 1;
            if self.awake == 0 {
                self.at = now;
                self.next = None;
            }
            return false;
        }
        self.awake += 1;
        if self.awake > 1 {
            return false;
        }
        // Draws its state after the sleep: the two-state chain, started from `busy` at `at`.
        let occupancy = self.spec.occupancy;
        let silent = self.silent_mean();
        let passed = now.saturating_sub(self.at).as_secs_f64();
        if passed > 0.0 {
            let memory = (-passed * (1.0 / silent + 1.0 / self.spec.burst.as_secs_f64())).exp();
            let before = f64::from(u8::from(self.busy));
            self.busy = self.random.next_f64() < occupancy + (before - occupancy) * memory;
        }
        self.plan(now);
        true
    }

    /// Processes the change that is due at `now`.
    pub(crate) fn fire(&mut self, now: Duration) {
        self.busy = !self.busy;
        self.plan(now);
    }

    fn plan(&mut self, now: Duration) {
        self.at = now;
        let mean = if self.busy {
            self.spec.burst.as_secs_f64()
        } else {
            self.silent_mean()
        };
        let for_ever = self.busy && self.spec.occupancy >= 1.0;
        let length = mean * self.random.next_exponential();
        self.next = Duration::try_from_secs_f64(length)
            .ok()
            .filter(|_| self.awake > 0 && !for_ever)
            .and_then(|length| now.checked_add(length));
    }

    /// Mean length of a silent period in seconds; infinite if it is never busy.
    fn silent_mean(&self) -> f64 {
        self.spec.burst.as_secs_f64() * (1.0 - self.spec.occupancy) / self.spec.occupancy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn interference(occupancy: f64) -> Interference {
        let spec = Interferer {
            occupancy,
            ..Interferer::NONE
        };
        Interference::new(spec, vec![0], Random::new(5))
    }

    #[test]
    fn it_is_busy_for_its_share_of_time_and_sleeps_without_backlog() {
        let mut it = interference(0.3);
        assert_eq!(it.next(), None);
        it.update(Duration::ZERO, 0, true);
        let (mut now, mut busy) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..40_000 {
            let next = it.next().unwrap();
            if it.is_busy() {
                busy += next - now;
            }
            now = next;
            it.fire(now);
        }
        let share = busy.as_secs_f64() / now.as_secs_f64();
        assert!((share - 0.3).abs() < 0.01, "{share}");
        let mean = busy.as_secs_f64() / 20_000.0;
        assert!((mean - 1e-3).abs() < 5e-5, "{mean}");
        it.update(now, 0, false);
        assert_eq!(it.next(), None);
    }

    #[test]
    fn its_state_after_a_sleep_follows_its_occupancy() {
        let mut it = interference(0.3);
        let mut found = 0;
        for n in 1..=10_000u32 {
            it.update(n * 100 * MS, 0, true);
            found += u32::from(it.is_busy());
            it.update(n * 100 * MS, 0, false);
        }
        assert!(found.abs_diff(3_000) < 230, "{found} of 10000"); // five standard deviations
        // After zero time its state is unchanged.
        let before = it.is_busy();
        it.update(1_000_000 * MS, 0, true);
        it.update(1_000_000 * MS, 0, false);
        let then = it.is_busy();
        it.update(1_000_000 * MS, 0, true);
        assert_eq!(it.is_busy(), then, "{before}");
    }

    #[test]
    fn occupancies_of_zero_and_one() {
        for (occupancy, busy) in [(0.0, false), (1.0, true)] {
            let mut it = interference(occupancy);
            it.update(MS, 0, true);
            assert_eq!((it.is_busy(), it.next()), (busy, None));
        }
    }
}
