//! A flow and all that is kept for it.

use std::time::Duration;

use sumlink_engine::RangeSet;

use super::busy::Share;
use super::losses::Losses;
use super::times::Times;
use crate::flow::{Copies, Flow, Phase};
use crate::packet::Segment;
use crate::seq::Position;
use crate::visible::{Parameters, Visible};
use crate::{Config, Instant};

/// A flow and what is kept for it.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) flow: Flow,
    pub(super) copies: Copies,
    pub(super) visible: Visible,
    /// A hole that is repaired from here.
    pub(super) repair: Option<Repair>,
    /// What is known of losses behind that hole, where the user has told of any.
    pub(super) losses: Option<Box<Losses>>,
    /// What was sent again from here and may come back as a duplicate SACK block.
    pub(super) repaired: RangeSet,
    pub(super) times: Times,
    /// Since when its far end has been sending again what its user cannot use.
    pub(super) orphaned: Option<Instant>,
    /// A SYN that would begin another connection between the same ends, if the other end agrees.
    pub(super) renewal: Option<Box<Segment>>,
    pub(super) used: Instant,
    /// How long the last packet took that was sent once and acknowledged.
    pub(super) trip: Duration,
    /// When its user acknowledged something for the last time.
    pub(super) heard: Option<Instant>,
    /// When its far end was told the user's number for the last time.
    pub(super) told: Option<Instant>,
    /// When something of it was sent again from here for the last time.
    pub(super) again: Option<Instant>,
    /// What it is among those that share the links.
    pub(super) share: Share,
    /// Its entry among the timers.
    pub(super) timer: Option<Instant>,
}

/// The repair of one hole by time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    /// Where it starts.
    pub(super) position: Position,
    pub(super) since: Instant,
    /// When it is sent again.
    pub(super) at: Instant,
    pub(super) attempts: u32,
}

impl Tracked {
    /// A flow of which nothing is known; one stands in a flow's place while that is worked on.
    pub(super) fn placeholder() -> Self {
        Self {
            flow: Flow::new(),
            copies: Copies::default(),
            visible: Visible::new(&Parameters::default()),
            repair: None,
            losses: None,
            repaired: RangeSet::new(),
            times: Times::default(),
            orphaned: None,
            renewal: None,
            used: Instant::ZERO,
            trip: Duration::ZERO,
            heard: None,
            told: None,
            again: None,
            share: Share::default(),
            timer: None,
        }
    }

    pub(super) fn ranges(&self) -> usize {
        let losses = self.losses.as_ref().map_or(0, |losses| losses.ranges());
        self.flow.ranges() + self.repaired.count() + losses
    }

    pub(super) fn keep_ranges(&mut self, most: usize) {
        self.flow.keep_ranges(most);
        if let Some(losses) = &mut self.losses
            && losses.ranges() > most
        {
            losses.give_up();
        }
        while self.repaired.count() > most
            && let Some(first) = self.repaired.first()
        {
            self.repaired.remove(first);
        }
    }

    /// When it wants to be looked at: for a repair, or because it is half open, closing or orphaned.
    pub(super) fn wants_timer(&self, config: &Config) -> Option<Instant> {
        let short = matches!(
            self.flow.phase(),
            Phase::HalfOpen | Phase::Closing | Phase::Closed
        );
        let expiry = (short && self.flow.owed() == 0).then(|| self.used + config.idle_half_open);
        self.repair
            .map(|repair| repair.at)
            .into_iter()
            .chain(expiry)
            .min()
    }
}
