//! Records that must arrive. They are repeated until a packet with one of them is reported.

use std::collections::VecDeque;
use std::time::Duration;

use super::{CloseReason, FlowErrorCode, FlowId};
use crate::Instant;

/// Most records that wait. More are dropped: a flow whose end the peer does not learn expires
/// there, or ends when the peer next uses it.
const MAX: usize = 4096;

/// They go over the best path, and after this time over any.
const WAIT: Duration = Duration::from_millis(10);

/// After this time a record is not repeated any more.
const GIVE_UP: Duration = Duration::from_secs(30);

/// A record that must arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Close {
        flow: FlowId,
        reason: CloseReason,
    },
    Failed {
        flow: FlowId,
        version: u64,
        code: FlowErrorCode,
    },
}

/// A record, and when it was first queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) control: Control,
    since: Instant,
}

/// The records that no packet has taken yet, each with the time since when it waits.
#[derive(Debug, Default)]
pub(super) struct Controls {
    waiting: VecDeque<(Pending, Instant)>,
}

impl Controls {
    /// Queues a new record.
    pub(super) fn push(&mut self, control: Control, now: Instant) {
        let since = now;
        self.repeat(Pending { control, since }, now);
    }

    /// Queues a record that may not have arrived. The peer ignores the second of two.
    pub(super) fn repeat(&mut self, pending: Pending, now: Instant) {
        let is_worth_it = now.saturating_sub(pending.since) <= GIVE_UP;
        if is_worth_it && self.waiting.len() < MAX {
            self.waiting.push_back((pending, now));
        }
    }

    /// The first record that may go over a path; `best` if it is the best one.
    pub(super) fn next(&self, best: bool, now: Instant) -> Option<Pending> {
        let (first, at) = self.waiting.front()?;
        (best || now >= *at + WAIT).then_some(*first)
    }

    /// The first record has been written.
    pub(super) fn taken(&mut self) {
        self.waiting.pop_front();
    }

    /// When a waiting record may go over any path.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|(_, at)| *at + WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_wait_shortly_for_the_best_path_and_not_forever() {
        let mut controls = Controls::default();
        let (flow, reason) = (4, CloseReason::Closed);
        controls.push(Control::Close { flow, reason }, Instant::ZERO);
        assert!(controls.next(false, Instant::ZERO).is_none());
        let pending = controls.next(true, Instant::ZERO).unwrap();
        assert!(controls.next(false, WAIT).is_some());
        controls.taken();
        controls.repeat(pending, GIVE_UP + WAIT);
        assert_eq!(controls.deadline(), None);
        for flow in 0..2 * MAX as u64 {
            controls.push(Control::Close { flow, reason }, Instant::ZERO);
        }
        assert_eq!(controls.waiting.len(), MAX);
    }
}
