//! A bound on a rate that permits short bursts.

use std::time::Duration;

use crate::Instant;

/// A budget may be saved up for this long.
const SAVED: Duration = Duration::from_millis(500);

/// A token bucket. It is full at the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Budget {
    spent: f64,
    at: Instant,
}

impl Budget {
    /// Takes `bytes` if the budget of `rate` bytes per second has them.
    pub(super) fn take(&mut self, bytes: usize, rate: f64, now: Instant) -> bool {
        let earned = now.saturating_sub(self.at).as_secs_f64() * rate;
        self.spent = (self.spent - earned).max(0.0);
        self.at = now;
        let is_enough = self.spent + bytes as f64 <= rate * SAVED.as_secs_f64();
        if is_enough {
            self.spent += bytes as f64;
        }
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_in_the_long_run() {
        let (mut budget, mut taken) = (Budget::default(), 0);
        for ms in 0..10_000 {
            let now = Instant::from_secs(5) + Duration::from_millis(ms);
            taken += 100 * usize::from(budget.take(100, 32_000.0, now));
        }
        assert!((320_000..=336_000).contains(&taken), "{taken}");
    }
}
