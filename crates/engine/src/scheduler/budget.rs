//! What may be sent twice by choice.

use crate::{Instant, Redundancy};

/// Bytes that schedulers may repeat: a part of what is sent, and a floor that fills up again with time.
#[derive(Debug)]
pub(super) struct RepeatBudget {
    rules: Redundancy,
    /// Bytes that may be repeated now.
    left: f64,
    /// When the floor was last filled up.
    at: Instant,
}

impl RepeatBudget {
    pub(super) fn new(rules: Redundancy, now: Instant) -> Self {
        Self {
            rules,
            left: rules.floor as f64,
            at: now,
        }
    }

    /// Bytes that may be repeated now.
    pub(super) fn left(&mut self, now: Instant) -> u64 {
        let floor = self.rules.floor as f64;
        let filled = now.saturating_sub(self.at).as_secs_f64() * self.rules.refill as f64;
        self.at = self.at.max(now);
        if self.left < floor {
            self.left = (self.left + filled).min(floor);
        }
        self.left.max(0.0) as u64
    }

    /// So many stream bytes have been sent, of which `repeated` by choice.
    pub(super) fn note(&mut self, sent: u64, repeated: u64) {
        self.left += sent as f64 * self.rules.share - repeated as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_is_sent_may_be_repeated_and_the_floor_comes_back() {
        let rules = Redundancy {
            share: 0.01,
            floor: 10_000,
            refill: 1000,
        };
        let mut budget = RepeatBudget::new(rules, Instant::from_secs(5));
        assert_eq!(budget.left(Instant::from_secs(100)), 10_000);
        budget.note(1_000_000, 0);
        assert_eq!(budget.left(Instant::from_secs(200)), 20_000);
        budget.note(20_000, 20_000);
        assert_eq!(budget.left(Instant::from_secs(200)), 200);
        assert_eq!(budget.left(Instant::from_secs(201)), 1200);
        assert_eq!(budget.left(Instant::from_secs(900)), 10_000);
    }
}
