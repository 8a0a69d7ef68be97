//! The state of a flow that its siblings see.

use std::time::Duration;

/// One flow, as seen by its siblings.
///
/// Created by [`CongestionControl::flow`](crate::CongestionControl::flow).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flow {
    /// Congestion window in packets.
    pub cwnd: f64,
    /// Smoothed round-trip time; zero before the first sample, and until then algorithms ignore
    /// this flow.
    pub srtt: Duration,
    /// The smallest round-trip time measured; zero before the first sample.
    pub min_rtt: Duration,
    /// Packets acknowledged between losses.
    pub between_losses: BetweenLosses,
    /// State of loss recovery.
    pub phase: Phase,
    /// Whether the window is below ssthresh.
    pub in_slow_start: bool,
}

impl Flow {
    /// Whether it has a round-trip time, so that equations can include it.
    pub fn is_measured(&self) -> bool {
        !self.srtt.is_zero()
    }

    /// srtt in seconds; only for measured flows.
    pub(crate) fn rtt(&self) -> f64 {
        self.srtt.as_secs_f64()
    }

    /// Packets per second: x in the papers, only for measured flows.
    pub(crate) fn rate(&self) -> f64 {
        self.cwnd / self.rtt()
    }
}

/// Amount of data acknowledged between losses, as OLIA needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BetweenLosses {
    /// Packets acknowledged since the last loss, or since the start of the flow.
    pub since_last: u64,
    /// Packets acknowledged between the last two losses.
    pub last_two: u64,
}

impl BetweenLosses {
    /// The larger of the two: l in the papers, in packets.
    pub fn longest(&self) -> u64 {
        self.since_last.max(self.last_two)
    }

    pub(crate) fn acknowledge(&mut self, packets: u32) {
        self.since_last += u64::from(packets);
    }

    /// Records a loss; two losses without an acknowledgment in between count as one.
    pub(crate) fn lose(&mut self) {
        if self.since_last > 0 {
            self.last_two = std::mem::take(&mut self.since_last);
        }
    }
}

/// State of loss recovery, with the names of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// No loss is being repaired.
    #[default]
    Open,
    /// A loss is being repaired; the window does not grow.
    Recovery,
    /// The retransmission timer fired; slow start, until all data sent before is acknowledged.
    Loss,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_losses_without_progress_are_one() {
        let mut between = BetweenLosses::default();
        between.acknowledge(5);
        between.lose();
        between.lose();
        between.acknowledge(3);
        assert_eq!((between.last_two, between.since_last), (5, 3));
        assert_eq!(between.longest(), 5);
    }
}
