//! The budget for duplicates.

use std::time::Duration;

use crate::{Instant, Redundancy};

/// Share of the floor for duplicates that are not urgent: over slow links the whole floor would be
/// a large part of everything that they carry.
const OTHERS: f64 = 1.0 / 8.0;

/// Bytes that schedulers may duplicate: a share of the bytes sent, and a floor that refills with
/// time.
#[derive(Debug)]
pub(super) struct RepeatBudget {
    /// For urgent bytes, which may also use `other`.
    urgent: Account,
    /// For all bytes.
    other: Account,
    /// The share of the bytes sent that is added to `other`.
    share: f64,
    /// [`Redundancy::advance`].
    advance: Duration,
}

/// A floor that refills, and additional bytes.
#[derive(Debug)]
struct Account {
    floor: f64,
    refill: f64,
    left: f64,
    /// Time of the last refill.
    at: Instant,
}

impl RepeatBudget {
    pub(super) fn new(rules: Redundancy, now: Instant) -> Self {
        let account = |part: f64| Account {
            floor: rules.floor as f64 * part,
            refill: rules.refill as f64 * part,
            left: rules.floor as f64 * part,
            at: now,
        };
        Self {
            urgent: account(1.0 - OTHERS),
            other: account(OTHERS),
            share: rules.share,
            advance: rules.advance,
        }
    }

    /// Bytes that may be duplicated now if they are not urgent; negative after an advance.
    pub(super) fn other(&mut self, now: Instant) -> i64 {
        self.other.fill(now);
        self.other.left as i64
    }

    /// Bytes that may be duplicated now if they are urgent.
    pub(super) fn urgent(&mut self, now: Instant) -> u64 {
        self.urgent.fill(now);
        self.other.fill(now);
        (self.urgent.left.max(0.0) + self.other.left.max(0.0)) as u64
    }

    /// How far `other` may be overdrawn, as time at the rate of all paths.
    pub(super) fn advance(&self) -> Duration {
        self.advance
    }

    /// Records that `bytes` stream bytes have been sent.
    pub(super) fn note_sent(&mut self, bytes: u64) {
        self.other.left += bytes as f64 * self.share;
    }

    /// Records that `bytes` of them were duplicates.
    pub(super) fn note_repeated(&mut self, bytes: u64, urgent: bool) {
        let bytes = bytes as f64;
        let from_floor = if urgent {
            bytes.min(self.urgent.left)
        } else {
            0.0
        };
        self.urgent.left -= from_floor;
        self.other.left -= bytes - from_floor;
    }
}

impl Account {
    fn fill(&mut self, now: Instant) {
        let filled = now.saturating_sub(self.at).as_secs_f64() * self.refill;
        self.at = self.at.max(now);
        if self.left < self.floor {
            self.left = (self.left + filled).min(self.floor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Redundancy = Redundancy {
        share: 0.01,
        floor: 8000,
        refill: 800,
        advance: Duration::ZERO,
    };

    #[test]
    fn a_share_of_the_bytes_sent_may_be_duplicated_and_the_floor_refills() {
        let mut budget = RepeatBudget::new(RULES, Instant::from_secs(5));
        assert_eq!(budget.urgent(Instant::from_secs(100)), 8000);
        assert_eq!(budget.other(Instant::from_secs(100)), 1000);
        budget.note_sent(1_000_000);
        assert_eq!(budget.other(Instant::from_secs(200)), 11_000);
        budget.note_repeated(10_900, false);
        assert_eq!(budget.other(Instant::from_secs(200)), 100);
        assert_eq!(budget.other(Instant::from_secs(201)), 200);
        assert_eq!(budget.other(Instant::from_secs(900)), 1000);
    }

    #[test]
    fn urgent_duplicates_leave_the_rest_to_the_others() {
        let now = Instant::from_secs(5);
        let mut budget = RepeatBudget::new(RULES, now);
        budget.note_repeated(7000, true);
        assert_eq!((budget.urgent(now), budget.other(now)), (1000, 1000));
        budget.note_repeated(400, true);
        assert_eq!((budget.urgent(now), budget.other(now)), (600, 600));
    }

    #[test]
    fn the_share_repays_an_advance_and_urgent_duplicates_keep_their_part() {
        let now = Instant::from_secs(5);
        let mut budget = RepeatBudget::new(RULES, now);
        budget.note_repeated(11_000, false);
        assert_eq!((budget.urgent(now), budget.other(now)), (7000, -10_000));
        budget.note_sent(1_000_000);
        assert_eq!((budget.urgent(now), budget.other(now)), (7000, 0));
    }
}
