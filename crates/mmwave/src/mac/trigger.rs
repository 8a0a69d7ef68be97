//! Triggers for a client to contend, as section 3.1 measured them on commercial devices.

use core::time::Duration;

use sumlink_link::Random;

/// Behavior of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Connected and stationary: trains once a minute, and when its link falls below the threshold.
    Stationary,
    /// Connected and moving without a line of sight: trains every 15 to 20 s, and below the
    /// threshold.
    MobileNlos,
    /// Not connected, but listening ("chatty"): trains every 10 s without needing a link.
    Disconnected,
}

impl Behavior {
    /// Time from one training to the next periodic one.
    pub fn period(self, random: &mut Random) -> Duration {
        match self {
            Self::Stationary => Duration::from_secs(60),
            Self::MobileNlos => Duration::from_secs_f64(15.0 + 5.0 * random.next_f64()),
            Self::Disconnected => Duration::from_secs(10),
        }
    }

    /// Whether it trains when its link falls below the threshold.
    pub fn reacts(self) -> bool {
        self != Self::Disconnected
    }
}

/// Schedule of a client's A-BFTs.
#[derive(Clone, Debug)]
pub struct Trigger {
    behavior: Behavior,
    due: Duration,
    random: Random,
}

impl Trigger {
    /// Starts at time 0; the first period starts at random, so that clients are not all due at
    /// once.
    pub fn new(behavior: Behavior, random: &Random) -> Self {
        let mut random = random.clone();
        let due = behavior.period(&mut random).mul_f64(random.next_f64());
        Self {
            behavior,
            due,
            random,
        }
    }

    /// Whether it contends at that time; `poor` means that its link is below the threshold or gone.
    pub fn wants(&self, now: Duration, poor: bool) -> bool {
        now >= self.due || (poor && self.behavior.reacts())
    }

    /// Starts the next period after a training.
    pub fn done(&mut self, now: Duration) {
        self.due = now + self.behavior.period(&mut self.random);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of contentions within ten minutes of 100 ms intervals.
    fn in_ten_minutes(behavior: Behavior) -> usize {
        let mut trigger = Trigger::new(behavior, &Random::new(1));
        let intervals = (0..6000).map(|n| Duration::from_millis(100 * n));
        intervals
            .filter(|now| {
                let wants = trigger.wants(*now, false);
                if wants {
                    trigger.done(*now);
                }
                wants
            })
            .count()
    }

    #[test]
    fn clients_contend_as_often_as_measured() {
        assert_eq!(in_ten_minutes(Behavior::Stationary), 10);
        assert_eq!(in_ten_minutes(Behavior::Disconnected), 60);
        assert!((30..=40).contains(&in_ten_minutes(Behavior::MobileNlos)));
    }

    #[test]
    fn a_client_without_a_link_contends_at_once() {
        let random = Random::new(1);
        assert!(Trigger::new(Behavior::Stationary, &random).wants(Duration::ZERO, true));
        assert!(!Trigger::new(Behavior::Disconnected, &random).wants(Duration::ZERO, true));
    }
}
