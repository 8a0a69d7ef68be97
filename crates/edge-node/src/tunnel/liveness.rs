//! Detects whether a link works, by probes and their answers.
//!
//! Round-trip times do not matter: a satellite link counts as much as a cable. A link is down when
//! no probe was answered for `dead_after` although answers were due. It is up again when several
//! probes sent since then are answered in quick succession. Answers that were in flight before, or
//! a single stray one, do not bring a link back.

use std::time::Duration;

use sumlink_edge::Instant;

/// Weight of a new round-trip time (RFC 6298, section 2.3).
const GAIN: f64 = 0.125;

/// Answers that bring a dead link back.
const ANSWERS_TO_REVIVE: u32 = 2;

/// An answer to a probe older than this says nothing about the link's current state.
const LONGEST: Duration = Duration::from_secs(30);

/// State of a link according to its probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No answer yet; the link is used.
    New,
    /// Probes are answered.
    Up,
    /// Probes are not answered.
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

/// Whether the remote end answers over this link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    every: Duration,
    dead_after: Duration,
    next_probe: Instant,
    /// When the last answer arrived, or this began.
    last_answer: Instant,
    /// Send time of the latest probe that was answered.
    answered: Option<Instant>,
    /// When the link died, and how many probes sent since then were answered in quick succession.
    died: Instant,
    answers: u32,
    pub(crate) state: State,
    /// Smoothed round-trip time.
    pub(crate) rtt: Option<Duration>,
}

impl Liveness {
    pub(super) fn new(every: Duration, dead_after: Duration) -> Self {
        Self {
            every,
            dead_after,
            next_probe: Instant::ZERO,
            last_answer: Instant::ZERO,
            answered: None,
            died: Instant::ZERO,
            answers: 0,
            state: State::New,
            rtt: None,
        }
    }

    /// The next deadline.
    pub(crate) fn poll_timeout(&self) -> Instant {
        match self.state {
            State::Down => self.next_probe,
            _ => self.next_probe.min(self.dead_at()),
        }
    }

    /// When the link counts as dead without further answers.
    fn dead_at(&self) -> Instant {
        let due = match (self.answered, self.rtt) {
            (Some(answered), Some(rtt)) => answered + self.every + rtt,
            _ => Instant::ZERO,
        };
        self.last_answer.max(due) + self.dead_after
    }

    /// Whether to send a probe now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next_probe <= now;
        if due {
            self.next_probe = now + self.every;
        }
        due
    }

    /// Whether the link has just died.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let dead = self.state != State::Down && self.dead_at() <= now;
        if dead {
            self.state = State::Down;
            self.rtt = None;
            (self.died, self.answers) = (now, 0);
        }
        dead
    }

    /// Handles the answer to a probe sent at `sent`; returns whether the link has just come up.
    pub(crate) fn answered(&mut self, sent: Instant, now: Instant) -> bool {
        let sample = now.checked_sub(sent);
        let Some(sample) = sample.filter(|sample| *sample < LONGEST) else {
            return false;
        };
        // An overtaken or repeated answer adds no information.
        if self.answered.is_some_and(|answered| sent <= answered) {
            return false;
        }
        self.answered = Some(sent);
        let silent = now.saturating_sub(self.last_answer);
        self.last_answer = now;
        if self.state == State::Down {
            if sent < self.died {
                return false;
            }
            let goes_on = self.answers > 0 && silent < self.dead_after;
            self.answers = if goes_on { self.answers + 1 } else { 1 };
            if self.answers < ANSWERS_TO_REVIVE {
                return false;
            }
        }
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
    fn a_link_dies_in_silence_and_comes_back_with_answers() {
        let mut link = Liveness::new(100 * MS, 400 * MS);
        assert!(link.is_due(Instant::ZERO) && !link.is_due(50 * MS));
        assert_eq!(link.poll_timeout(), 100 * MS);
        assert!(link.answered(Instant::ZERO, 20 * MS));
        assert!(!link.answered(10 * MS, 30 * MS));
        assert_eq!(link.rtt, Some(20 * MS));
        // The next answer was due at 130 ms.
        assert!(!link.expire(529 * MS) && link.expire(530 * MS) && !link.expire(531 * MS));
        assert_eq!((link.state, link.rtt), (State::Down, None));
        assert!(!link.answered(540 * MS, 550 * MS) && link.answered(640 * MS, 650 * MS));
        assert_eq!((link.state, link.rtt), (State::Up, Some(10 * MS)));
    }

    #[test]
    fn a_link_with_a_round_trip_longer_than_dead_after_works() {
        let mut link = Liveness::new(100 * MS, 500 * MS);
        let (trip, mut changes) = (620 * MS, Vec::new());
        // Probes every 100 ms, each answered 620 ms later; the link dies at 5 s.
        for now in 0..8_000 {
            let now = now * MS;
            let sent = now.checked_sub(trip);
            if let Some(sent) = sent.filter(|sent| sent.as_millis() % 100 == 0 && now < 5_000 * MS)
                && link.answered(sent, now)
            {
                changes.push((now, State::Up));
            }
            if link.expire(now) {
                changes.push((now, State::Down));
            }
        }
        let expected = [
            (500 * MS, State::Down),
            (1_220 * MS, State::Up),
            (5_520 * MS, State::Down),
        ];
        assert_eq!(changes, expected);
    }

    #[test]
    fn neither_one_answer_nor_old_ones_revive_a_link() {
        let mut link = Liveness::new(100 * MS, 400 * MS);
        link.answered(100 * MS, 110 * MS);
        assert!(link.expire(1_000 * MS));
        // Answers that were in flight, each arriving once.
        for sent in [200, 300, 400] {
            assert!(!link.answered(sent * MS, 1_100 * MS));
        }
        // Stray answers, far apart, and one of them twice.
        for sent in [1_200, 1_900, 2_600] {
            assert!(!link.answered(sent * MS, (sent + 50) * MS));
            assert!(!link.answered(sent * MS, (sent + 60) * MS));
        }
        assert_eq!(link.state, State::Down);
        assert!(link.answered(2_700 * MS, 2_750 * MS));
    }
}
