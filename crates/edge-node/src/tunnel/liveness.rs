//! Whether a link carries anything: probes, and the answers to them.

use std::time::Duration;

use sumlink_edge::Instant;

/// What a new round-trip time counts (RFC 6298, section 2.3).
const GAIN: f64 = 0.125;

/// Whether a link carries anything, as far as its probes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is known yet; it is used.
    New,
    /// Probes are answered.
    Up,
    /// They are not.
    Down,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Whether the other end answers over this link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    every: Duration,
    dead_after: Duration,
    next_probe: Instant,
    /// When the last answer came, or this began.
    heard: Instant,
    pub(crate) state: State,
    /// Smoothed.
    pub(crate) rtt: Option<Duration>,
}

impl Liveness {
    pub(super) fn new(every: Duration, dead_after: Duration) -> Self {
        Self {
            every,
            dead_after,
            next_probe: Instant::ZERO,
            heard: Instant::ZERO,
            state: State::New,
            rtt: None,
        }
    }

    /// When to look again.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match self.state {
            State::Down => self.next_probe,
            _ => self.next_probe.min(self.heard + self.dead_after),
        }
    }

    /// Whether a probe is to be sent now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next_probe <= now;
        if due {
            self.next_probe = now + self.every;
        }
        due
    }

    /// Whether it has just died.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let dead = self.state != State::Down && self.heard + self.dead_after <= now;
        if dead {
            self.state = State::Down;
            self.rtt = None;
        }
        dead
    }

    /// The answer to a probe of that time; whether the link has just come up.
    pub(crate) fn answered(&mut self, sent: Instant, now: Instant) -> bool {
        // An answer that was under way for longer says nothing of now.
        let Some(sample) = now
            .checked_sub(sent)
            .filter(|sample| *sample < self.dead_after)
        else {
            return false;
        };
        self.heard = now;
        self.rtt = Some(match self.rtt {
            Some(rtt) => rtt.mul_f64(1.0 - GAIN) + sample.mul_f64(GAIN),
            None => sample,
        });
        std::mem::replace(&mut self.state, State::Up) != State::Up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_link_dies_in_silence_and_comes_back_with_an_answer() {
        let mut link = Liveness::new(100 * MS, 400 * MS);
        assert!(link.is_due(Instant::ZERO) && !link.is_due(50 * MS));
        assert_eq!(link.poll_timeout(), 100 * MS);
        assert!(link.answered(Instant::ZERO, 20 * MS));
        assert!(!link.answered(10 * MS, 30 * MS));
        assert_eq!(link.rtt, Some(20 * MS));
        assert!(!link.expire(429 * MS) && link.expire(430 * MS) && !link.expire(431 * MS));
        assert_eq!((link.state, link.rtt), (State::Down, None));
        assert!(!link.answered(10 * MS, 440 * MS), "that one is too old");
        assert!(link.answered(430 * MS, 450 * MS));
        assert_eq!(link.state, State::Up);
    }
}
