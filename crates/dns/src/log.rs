//! Log lines about events that strangers can cause at any rate.

use std::time::Duration;

use tokio::time::Instant;

/// Least time between two log lines about one thing.
const PAUSE: Duration = Duration::from_secs(60);

/// Limits log lines.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Option<Instant>,
    count: u64,
}

impl Throttle {
    /// Counts an occurrence. Returns their number since the last log line if another one is due.
    pub(crate) fn count(&mut self) -> Option<u64> {
        self.count = self.count.saturating_add(1);
        let now = Instant::now();
        let is_due = |last| now.saturating_duration_since(last) >= PAUSE;
        if !self.last.is_none_or(is_due) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_are_rare_and_count_what_happened() {
        let mut log = Throttle::default();
        assert_eq!(log.count(), Some(1));
        assert_eq!((log.count(), log.count()), (None, None));
        tokio::time::advance(PAUSE).await;
        assert_eq!(log.count(), Some(3));
    }
}
