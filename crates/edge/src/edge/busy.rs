//! N: the flows that share the links at the moment.
//!
//! A flow counts while its user acknowledges something. One whose host has gone keeps what was outstanding until its sender gives
//! up, which takes TCP a quarter of an hour: it takes nothing of the links, and nobody has to share with it. Unless it is owed
//! something: a debt counts until it is paid, or debts would grow with the number of users that fall silent.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Instant;
use crate::flow::FlowId;

/// An entry is as exact as this: so that not every acknowledgement moves it.
const GRAIN: Duration = Duration::from_millis(100);

/// The flows that count.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// Flows by the time of their last acknowledgement, and whether they are owed something.
    heard: BTreeMap<(Instant, FlowId), bool>,
    /// Flows that are owed something.
    owed: usize,
    /// Of them, those without a place in `heard`.
    silent: usize,
}

/// Why a flow counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Its user has acknowledged something of late, at this time.
    pub(super) heard: Option<Instant>,
    /// It is owed something.
    pub(super) owed: bool,
}

impl Share {
    /// Whether it counts at all.
    pub(super) fn counts(self) -> bool {
        self.heard.is_some() || self.owed
    }

    fn is_silent(self) -> bool {
        self.owed && self.heard.is_none()
    }
}

impl Busy {
    /// N.
    pub(super) fn len(&self) -> usize {
        self.heard.len() + self.silent
    }

    /// Flows that are owed something.
    pub(super) fn owed(&self) -> usize {
        self.owed
    }

    /// N, of acknowledgements since then.
    pub(super) fn since(&self, time: Instant) -> usize {
        let heard = self.heard.iter();
        heard
            .filter(|((at, _), owed)| *at >= time || **owed)
            .count()
            + self.silent
    }

    /// A flow's share is another one from now on; what it is.
    pub(super) fn replace(&mut self, id: FlowId, before: Share, now: Share) -> Share {
        let heard = match (before.heard, now.heard) {
            (Some(before), Some(now)) if now.saturating_sub(before) < GRAIN => Some(before),
            (_, now) => now,
        };
        if (before.heard, before.owed) != (heard, now.owed) {
            if let Some(before) = before.heard {
                self.heard.remove(&(before, id));
            }
            self.heard
                .extend(heard.map(|heard| ((heard, id), now.owed)));
        }
        let now = Share { heard, ..now };
        self.owed = self.owed + usize::from(now.owed) - usize::from(before.owed);
        self.silent = self.silent + usize::from(now.is_silent()) - usize::from(before.is_silent());
        now
    }

    /// The flow that was heard of before `time`, and before all others.
    pub(super) fn longest_silent(&self, time: Instant) -> Option<FlowId> {
        let (&(at, id), _) = self.heard.first_key_value()?;
        (at < time).then_some(id)
    }
}
