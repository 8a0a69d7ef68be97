//! N: the flows whose users acknowledge something at the moment.
//!
//! A flow whose host has gone keeps what was outstanding until its sender gives up, which takes TCP a quarter of an hour. It
//! takes nothing of the links, and nobody has to share with it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::Instant;
use crate::flow::FlowId;

/// An entry is as exact as this: so that not every acknowledgement moves it.
const GRAIN: Duration = Duration::from_millis(100);

/// Flows by the time of their last acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Busy(BTreeSet<(Instant, FlowId)>);

impl Busy {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Those with an acknowledgement since then.
    pub(super) fn since(&self, time: Instant) -> usize {
        self.0
            .iter()
            .rev()
            .take_while(|(at, _)| *at >= time)
            .count()
    }

    /// A flow's entry is another one, or none, from now on; what it is.
    pub(super) fn replace(
        &mut self,
        id: FlowId,
        before: Option<Instant>,
        now: Option<Instant>,
    ) -> Option<Instant> {
        if let (Some(before), Some(now)) = (before, now)
            && now.saturating_sub(before) < GRAIN
        {
            return Some(before);
        }
        if before != now {
            if let Some(before) = before {
                self.0.remove(&(before, id));
            }
            self.0.extend(now.map(|now| (now, id)));
        }
        now
    }

    /// Takes one out that was heard of before `time`.
    pub(super) fn expire(&mut self, time: Instant) -> Option<FlowId> {
        self.0.first().filter(|(at, _)| *at < time)?;
        self.0.pop_first().map(|(_, id)| id)
    }
}
