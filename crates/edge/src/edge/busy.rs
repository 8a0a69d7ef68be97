//! N: the number of flows that currently share the links.
//!
//! A flow counts while its user acknowledges data. If a user's host disappears, its data stays
//! outstanding until the sender gives up, which takes TCP about 15 minutes. Such a flow uses no
//! link capacity, so it does not count. The exception is a flow with owed bytes: it counts until
//! they are delivered, or debts would grow with the number of silent users.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Instant;
use crate::flow::FlowId;

/// Granularity of an entry, so that an acknowledgment does not move it every time.
const GRANULARITY: Duration = Duration::from_millis(100);

/// The set of busy flows.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// Flows by the time of their last acknowledgment, and whether they have owed bytes.
    last_ack: BTreeMap<(Instant, FlowId), bool>,
    /// Number of flows with owed bytes.
    owed: usize,
    /// Flows with owed bytes and without an entry in `last_ack`.
    silent: usize,
}

/// Why a flow counts as busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Time of the user's last acknowledgment, if recent.
    pub(super) last_ack: Option<Instant>,
    /// The flow has owed bytes.
    pub(super) owed: bool,
}

impl Share {
    /// Whether the flow counts.
    pub(super) fn counts(self) -> bool {
        self.last_ack.is_some() || self.owed
    }

    fn is_silent(self) -> bool {
        self.owed && self.last_ack.is_none()
    }
}

impl Busy {
    /// N.
    pub(super) fn len(&self) -> usize {
        self.last_ack.len() + self.silent
    }

    /// Number of flows with owed bytes.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// N, counting only acknowledgments since `time`.
    pub(super) fn since(&self, time: Instant) -> usize {
        let last_ack = self.last_ack.iter();
        last_ack
            .filter(|((at, _), owed)| *at >= time || **owed)
            .count()
            + self.silent
    }

    /// Replaces a flow's share and returns the new one.
    pub(super) fn replace(&mut self, id: FlowId, before: Share, now: Share) -> Share {
        let last_ack = match (before.last_ack, now.last_ack) {
            (Some(before), Some(now)) if now.saturating_sub(before) < GRANULARITY => Some(before),
            (_, now) => now,
        };
        if (before.last_ack, before.owed) != (last_ack, now.owed) {
            if let Some(before) = before.last_ack {
                self.last_ack.remove(&(before, id));
            }
            self.last_ack
                .extend(last_ack.map(|last_ack| ((last_ack, id), now.owed)));
        }
        let now = Share { last_ack, ..now };
        self.owed = self.owed + usize::from(now.owed) - usize::from(before.owed);
        self.silent = self.silent + usize::from(now.is_silent()) - usize::from(before.is_silent());
        now
    }

    /// The flow with the oldest last acknowledgment, if that is before `time`.
    pub(super) fn longest_silent(&self, time: Instant) -> Option<FlowId> {
        let (&(at, id), _) = self.last_ack.first_key_value()?;
        (at < time).then_some(id)
    }
}
