//! A flow and its state in the node.

use std::ops::Range;
use std::time::Duration;

use sumlink_engine::RangeSet;

use super::busy::Share;
use super::losses::Losses;
use super::release::Release;
use super::times::{Times, is_later};
use crate::flow::{Copies, Flow, Phase};
use crate::packet::Segment;
use crate::seq::Position;
use crate::visible::{Parameters, Visible};
use crate::{Config, Instant};

/// An acknowledgment of this many bytes more than was sent before a repetition may still echo a
/// packet from before it: the one that closes the last gap.
const LATE_ECHOES: u64 = 1 << 20;

/// A flow and its state in the node.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) flow: Flow,
    pub(super) copies: Copies,
    pub(super) visible: Visible,
    /// The gap that the node is repairing.
    pub(super) repair: Option<Repair>,
    /// Losses behind that gap, if the user has reported any.
    pub(super) losses: Option<Box<Losses>>,
    /// The far end recovers from a loss until it knows that all data before this position has
    /// arrived: the end of the data that it had sent when it last repeated a packet.
    pub(super) recovers_until: Position,
    /// The packet whose loss shows the far end that the queues are full (`overflow.rs`).
    pub(super) signal: Option<Position>,
    /// The user's window when it began to wait for that packet.
    pub(super) window_at_signal: Option<u16>,
    /// An acknowledgment in this range that echoes an older timestamp than this one is about data
    /// from before the far end repeated that packet with it.
    pub(super) echoed_as: Option<(Range<Position>, u32)>,
    /// An acknowledgment that is passed on in parts.
    pub(super) release: Option<Box<Release>>,
    /// Data that the node has sent again and that may come back as a duplicate SACK block.
    pub(super) repaired: RangeSet,
    pub(super) times: Times,
    /// When the far end began to retransmit data that the user cannot use.
    pub(super) orphaned: Option<Instant>,
    /// A SYN that may start a new connection between the same ends, if the other end agrees.
    pub(super) renewal: Option<Box<Segment>>,
    pub(super) used: Instant,
    /// Trip time of the last acknowledged packet that was sent only once.
    pub(super) trip: Duration,
    /// Time of the user's last acknowledgment.
    pub(super) last_ack: Option<Instant>,
    /// When the user's acknowledgment number was last sent to the far end.
    pub(super) last_passed: Option<Instant>,
    /// When the node last sent data of this flow again.
    pub(super) again: Option<Instant>,
    /// The flow's entry among the busy flows.
    pub(super) share: Share,
    /// The flow's entry among the timers.
    pub(super) timer: Option<Instant>,
}

/// The timed repair of one gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    /// Start of the gap.
    pub(super) position: Position,
    pub(super) since: Instant,
    /// When it is sent again.
    pub(super) at: Instant,
    pub(super) attempts: u32,
}

impl Tracked {
    /// An empty flow; it takes a flow's place during an action.
    pub(super) fn placeholder() -> Self {
        Self {
            flow: Flow::new(),
            copies: Copies::default(),
            visible: Visible::new(&Parameters::default()),
            repair: None,
            losses: None,
            recovers_until: 0,
            signal: None,
            window_at_signal: None,
            echoed_as: None,
            release: None,
            repaired: RangeSet::new(),
            times: Times::default(),
            orphaned: None,
            renewal: None,
            used: Instant::ZERO,
            trip: Duration::ZERO,
            last_ack: None,
            last_passed: None,
            again: None,
            share: Share::default(),
            timer: None,
        }
    }

    /// The far end has repeated the data in a range, with a timestamp of its own.
    pub(super) fn note_repetition(&mut self, range: Range<Position>, theirs: Option<u32>) {
        if let (Some(signal), Some(theirs)) = (self.signal, theirs)
            && range.contains(&signal)
        {
            let end = self.flow.highest() + LATE_ECHOES;
            self.echoed_as = Some((signal + 1..end, theirs));
        }
    }

    /// The echo for an acknowledgment of all data before `number`, in place of `echo`.
    pub(super) fn echo(&self, number: Position, echo: u32) -> u32 {
        match &self.echoed_as {
            Some((range, theirs)) if range.contains(&number) && is_later(*theirs, echo) => *theirs,
            _ => echo,
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

    /// When the flow's timer is due: for a repair, or because it is half open, closing or orphaned.
    pub(super) fn wants_timer(&self, config: &Config) -> Option<Instant> {
        let short = matches!(
            self.flow.phase(),
            Phase::HalfOpen | Phase::Closing | Phase::Closed
        );
        let expiry = (short && self.flow.owed() == 0).then(|| self.used + config.idle_half_open);
        self.repair
            .map(|repair| repair.at)
            .into_iter()
            .chain(self.release.as_ref().map(|release| release.at))
            .chain(expiry)
            .min()
    }
}
