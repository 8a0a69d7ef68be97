//! Round trips and the delays measured in them.

use std::time::Duration;

use crate::event::Ack;

/// The current round trip; it ends when data sent after its start is acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    /// Position sent at its start; none if the next acknowledgment starts it.
    end: Option<u64>,
}

impl Round {
    /// State at the start of a flow: the first acknowledgment ends the first round.
    pub(crate) fn first() -> Self {
        Self { end: Some(0) }
    }

    /// Whether this acknowledgment ends the round; if so, the next round starts with it.
    pub(crate) fn is_over(&mut self, ack: &Ack) -> bool {
        let over = self.end.is_some_and(|end| ack.acknowledged > end);
        if over || self.end.is_none() {
            self.end = Some(ack.sent);
        }
        over
    }

    /// Lets the next acknowledgment start a new round.
    pub(crate) fn restart(&mut self) {
        self.end = None;
    }
}

/// The round-trip times of a round, and the extremes of all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delays {
    sum: Duration,
    count: u32,
    least: Option<Duration>,
    most: Duration,
}

impl Delays {
    pub(crate) fn record(&mut self, rtt: Duration) {
        self.sum = self.sum.saturating_add(rtt);
        self.count = self.count.saturating_add(1);
        self.least = Some(self.least.map_or(rtt, |least| least.min(rtt)));
        self.most = self.most.max(rtt);
    }

    /// Number of samples in the round.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Mean of the round; none without a sample.
    pub(crate) fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum / self.count)
    }

    /// The smallest sample of all, the base round-trip time; none without a sample.
    pub(crate) fn base(&self) -> Option<Duration> {
        self.least
    }

    /// The round's mean above the base: the queueing delay.
    pub(crate) fn mean_queueing(&self) -> Option<Duration> {
        Some(self.mean()? - self.least?)
    }

    /// The largest queueing delay of all: the largest sample minus the base.
    pub(crate) fn max_queueing(&self) -> Duration {
        self.most.saturating_sub(self.least.unwrap_or_default())
    }

    /// Starts the next round; the extremes stay.
    pub(crate) fn begin_round(&mut self) {
        (self.sum, self.count) = (Duration::ZERO, 0);
    }
}
