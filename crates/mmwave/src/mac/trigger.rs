//! Triggers for a client to contend, from its link, as section 3.1 describes commercial devices.
//!
//! A connected client trains once a minute while it has a line of sight, and whenever its signal
//! falls below a threshold. A client that is not connected trains every 10 s.

use core::time::Duration;

use sumlink_link::Random;

/// Fall of the signal since the last training with which a connected client trains again, in dB.
/// The thesis does not report the threshold of its devices: our choice.
pub const FALL_DB: f64 = 10.0;

/// Behavior of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Connected, or about to be.
    Connected,
    /// Not connected, but listening ("chatty"): trains every 10 s without needing a link.
    Disconnected,
}

impl Behavior {
    /// Time from one training to the next periodic one.
    pub fn period(self) -> Duration {
        match self {
            Self::Connected => Duration::from_secs(60),
            Self::Disconnected => Duration::from_secs(10),
        }
    }
}

/// A client's knowledge of its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal {
    /// It has a line of sight to the access point.
    pub los: bool,
    /// It has no trained sector, and wants data.
    pub gone: bool,
    /// Its signal has fallen by [`FALL_DB`] since the last training.
    pub fell: bool,
}

impl Signal {
    /// Whether the link itself needs a training.
    pub fn poor(&self) -> bool {
        self.gone || self.fell
    }
}

/// Schedule of a client's A-BFTs.
#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    behavior: Behavior,
    due: Duration,
}

impl Trigger {
    /// Starts at time 0; the first period starts at random, so that clients are not all due at
    /// once.
    pub fn new(behavior: Behavior, random: &Random) -> Self {
        let part = random.clone().next_f64();
        Self {
            behavior,
            due: behavior.period().mul_f64(part),
        }
    }

    /// Whether it contends at that time.
    pub fn wants(&self, now: Duration, signal: Signal) -> bool {
        let due = now >= self.due;
        match self.behavior {
            Behavior::Connected => signal.poor() || (due && signal.los),
            Behavior::Disconnected => due,
        }
    }

    /// Starts the next period after a training.
    pub fn done(&mut self, now: Duration) {
        self.due = now + self.behavior.period();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of contentions within ten minutes of 100 ms intervals.
    fn in_ten_minutes(behavior: Behavior, los: bool) -> usize {
        let mut trigger = Trigger::new(behavior, &Random::new(1));
        let intervals = (0..6000).map(|n| Duration::from_millis(100 * n));
        let signal = Signal {
            los,
            ..Signal::default()
        };
        intervals
            .filter(|now| {
                let wants = trigger.wants(*now, signal);
                if wants {
                    trigger.done(*now);
                }
                wants
            })
            .count()
    }

    #[test]
    fn periods_are_those_that_the_thesis_measured() {
        assert_eq!(in_ten_minutes(Behavior::Connected, true), 10);
        assert_eq!(in_ten_minutes(Behavior::Connected, false), 0);
        assert_eq!(in_ten_minutes(Behavior::Disconnected, false), 60);
    }

    #[test]
    fn a_connected_client_with_a_poor_link_contends_at_once() {
        let random = Random::new(1);
        for signal in [
            Signal {
                gone: true,
                ..Signal::default()
            },
            Signal {
                fell: true,
                ..Signal::default()
            },
        ] {
            let wants = |behavior| Trigger::new(behavior, &random).wants(Duration::ZERO, signal);
            assert!(wants(Behavior::Connected) && !wants(Behavior::Disconnected));
        }
    }
}
