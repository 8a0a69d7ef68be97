//! What is known of one TCP flow, read from its packets: the state behind steering and VISIBLE.
//!
//! The flow's direction is that of the data which the node spreads over its links: from the far end to the user. The user's
//! acknowledgements come back and are what VISIBLE works on. What the user itself sends is let through; only its place is
//! remembered.

mod copies;
mod table;

use std::net::SocketAddr;

use sumlink_engine::RangeSet;

use crate::packet::Segment;
use crate::seq::{self, Position};

pub use copies::{Copies, Kept};
pub use table::{FlowId, FlowTable};

/// The two ends of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The end beyond the network.
    pub far: SocketAddr,
    /// The end behind the links.
    pub user: SocketAddr,
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// One end has sent a SYN, the other none.
    HalfOpen,
    /// Both SYNs were seen: sequence numbers, window scales and options are known.
    Open,
    /// The first packet seen was no SYN (the node has been restarted, or the route has changed): scales are unknown.
    Adopted,
    /// Both ends have said that they send no more.
    Closing,
    /// It was reset.
    Closed,
}

/// The separate ranges that are remembered of what the node has received. A flow with more holes has its highest data
/// forgotten, which at worst keeps it from being boosted.
const MOST_RANGES: usize = 128;

/// The largest window there can be (RFC 7323, section 2.3), and so the furthest that data can be ahead.
const LARGEST_WINDOW: u64 = 1 << 30;

/// The largest shift of a window (RFC 7323, section 2.3).
const LARGEST_SHIFT: u8 = 14;

/// What a user's segment was, as an acknowledgement (RFC 5681, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// None at all: a SYN, a reset, or a segment without an acknowledgement number.
    None,
    /// Of bytes that were not acknowledged before: `from` the number before up to this one.
    New {
        /// The acknowledgement before.
        from: Position,
    },
    /// The same number again, with nothing else in it, while data is outstanding.
    Duplicate {
        /// But for another window, which selective acknowledgements may bring.
        window_moves: bool,
    },
    /// The same number again with nothing else in it, while nothing is outstanding: the answer to something that the user had, or a
    /// question of its own. A window that permits no more than before is nothing else, one that is closed may answer a probe.
    Repeated,
    /// The same number with something else: data, FIN, more window.
    Same,
    /// Of an earlier number: overtaken on its way.
    Old,
    /// Of more than the node has received: the data comes by another way, too, or somebody has made it up. While something is
    /// owed it changes nothing: what was promised is delivered until somebody acknowledges what the node knows of.
    Beyond,
}

impl Acknowledgement {
    /// Whether it is a duplicate, whatever becomes of the window.
    pub fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate { .. })
    }
}

/// One flow.
#[derive(Clone, Debug)]
pub struct Flow {
    phase: Phase,
    /// Its segments must not be edited.
    sealed: bool,
    /// Position of the far end's SYN (the paper's I).
    initial: Option<Position>,
    /// What the node has received of the data and has not been acknowledged by the user.
    received: RangeSet,
    /// End of the highest data that the node has received.
    highest: Position,
    /// Anything is known of the far end's sequence numbers.
    located: bool,
    /// Position behind the far end's FIN.
    far_fin: Option<Position>,
    /// The user's highest acknowledgement (the paper's A^r).
    acked: Option<Position>,
    /// The highest acknowledgement that the far end has been sent (the paper's A^s); never below `acked`.
    told: Position,
    /// The window of the user's last acknowledgement, as it stood in the header.
    window: u16,
    /// Highest position that the user has permitted.
    permitted: Position,
    /// Shift counts in the SYNs; the outer `Option` says whether the SYN was seen.
    user_scale: Option<Option<u8>>,
    far_scale: Option<Option<u8>>,
    /// Sequence number that the user sends next.
    user_next: Option<u32>,
    /// What the far end has acknowledged of the user, and the end of what it has permitted.
    user_window: Option<(u32, u32)>,
    user_fin: bool,
    /// Largest payload that the user accepts, as its SYN says it.
    mss: Option<u16>,
    /// Largest payload that has come from the far end.
    largest: u16,
    /// The lowest data that came again although the user's acknowledgements ask for lower.
    repeated: Option<Position>,
}

/// What a far end's segment brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Position of the segment; nothing if it cannot belong to the flow.
    pub position: Option<Position>,
    /// Bytes that the node had not received before.
    pub new_bytes: u64,
}

impl Flow {
    /// A flow of which nothing has been seen.
    pub fn new() -> Self {
        Self {
            phase: Phase::Adopted,
            sealed: false,
            initial: None,
            received: RangeSet::new(),
            highest: 0,
            located: false,
            far_fin: None,
            acked: None,
            told: 0,
            window: 0,
            permitted: 0,
            user_scale: None,
            far_scale: None,
            user_next: None,
            user_window: None,
            user_fin: false,
            mss: None,
            largest: 0,
            repeated: None,
        }
    }

    /// A segment from the far end.
    pub fn far_segment(&mut self, segment: &Segment) -> Arrival {
        let position = self.locate(segment.sequence);
        if segment.flags.rst {
            let refused = !self.located && segment.flags.ack && self.user_next == Some(segment.ack);
            let in_window = self.located
                && position <= self.highest.max(self.permitted)
                && position >= self.acked.unwrap_or(position);
            // A user takes only the very next number, and has any other repeated with that one (RFC 5961, section 3.2): what it is
            // owed is kept until then.
            let final_for_sure = self.owed() == 0 || self.acked == Some(position);
            if refused || (in_window && final_for_sure) {
                self.phase = Phase::Closed;
            }
            return Arrival::default();
        }
        let end = position + segment.sequence_len();
        if !self.plausible(position, end) {
            return Arrival::default();
        }
        // What was acknowledged long ago says nothing new, whoever sends it.
        let past = self.acked.is_some_and(|acked| end < acked);
        self.sealed |= segment.options.sealed && !past;
        if segment.flags.syn && !past && !self.has_both_syns() {
            self.initial = Some(position);
            self.far_scale = Some(segment.options.window_scale);
            self.syn_seen();
        }
        if segment.flags.ack {
            self.permit_user(segment);
        }
        if segment.flags.fin && !past {
            self.far_fin = Some(end);
            self.close();
        }
        self.largest = self.largest.max(segment.len.try_into().unwrap_or(u16::MAX));
        let floor = self.acked.unwrap_or(position);
        let new_bytes = self.received.insert(position.max(floor)..end.max(floor));
        self.keep_ranges(MOST_RANGES);
        if new_bytes == 0 && end > position && self.acked.is_some_and(|acked| position > acked) {
            self.repeated = Some(
                self.repeated
                    .map_or(position, |before| before.min(position)),
            );
        } else if self.acked == Some(position) {
            self.repeated = None;
        }
        self.highest = if self.located {
            self.highest.max(end)
        } else {
            end
        };
        self.located = true;
        Arrival {
            position: Some(position),
            new_bytes,
        }
    }

    /// A segment from the user.
    pub fn user_segment(&mut self, segment: &Segment) -> Acknowledgement {
        let next = segment.sequence.wrapping_add(segment.sequence_len() as u32);
        if !segment.flags.rst && !self.may_come_from_user(segment.sequence, next) {
            return Acknowledgement::None;
        }
        self.sealed |= segment.options.sealed;
        if segment.flags.rst {
            if self
                .user_next
                .is_none_or(|expected| expected == segment.sequence)
            {
                self.phase = Phase::Closed;
            }
            return Acknowledgement::None;
        }
        let ahead = self
            .user_next
            .is_none_or(|expected| next.wrapping_sub(expected).cast_signed() >= 0);
        if ahead {
            self.user_next = Some(next);
        }
        if segment.flags.syn && !self.has_both_syns() {
            self.user_scale = Some(segment.options.window_scale);
            self.mss = segment.options.mss.map(|(mss, _)| mss.max(1));
            self.syn_seen();
        }
        if segment.flags.fin {
            self.user_fin = true;
            self.close();
        }
        if !segment.flags.ack {
            return Acknowledgement::None;
        }
        self.acknowledge(segment)
    }

    /// RFC 5681, section 2 for what is a duplicate; with SACK blocks in it, one may also change the window (RFC 6675,
    /// section 2).
    fn acknowledge(&mut self, segment: &Segment) -> Acknowledgement {
        let known = self.located || self.acked.is_some();
        let ack = if known {
            self.locate(segment.ack)
        } else {
            seq::first(segment.ack)
        };
        let before = self.acked;
        let scale = if segment.flags.syn {
            0
        } else {
            self.scale().unwrap_or(0)
        };
        let permitted = ack + (u64::from(segment.window) << scale);
        let Some(before) = before else {
            if known && ack > self.highest + LARGEST_WINDOW {
                return Acknowledgement::Beyond;
            }
            if self
                .initial
                .is_some_and(|initial| !self.answers(initial, ack))
            {
                self.distrust(ack);
            }
            self.acked = Some(ack);
            self.told = ack;
            self.window = segment.window;
            self.permitted = permitted;
            self.received.remove(0..ack);
            if self.located && self.scale().is_some() {
                // Until now nobody knew what the user permits: what lies beyond that was not the far end's.
                self.received.remove(permitted + 1..Position::MAX);
                self.highest = self.received.last().map_or(ack, |last| last.end.max(ack));
            }
            return Acknowledgement::New { from: ack };
        };
        if ack < before {
            return Acknowledgement::Old;
        }
        let beyond = self.located && ack > self.highest;
        if beyond && (ack - self.highest > LARGEST_WINDOW || self.owed() > 0) {
            return Acknowledgement::Beyond;
        }
        let same_window = self.window == segment.window;
        let permits_more = segment.window > self.window;
        self.window = segment.window;
        self.permitted = self.permitted.max(permitted);
        if ack == before {
            let pure = segment.len == 0 && !segment.flags.syn && !segment.flags.fin;
            let waiting = self.outstanding() > 0;
            let duplicate = same_window || !segment.options.sack.is_empty();
            let repeated = !permits_more && segment.window > 0;
            return match (pure, waiting) {
                (true, true) if duplicate => Acknowledgement::Duplicate {
                    window_moves: !same_window,
                },
                (true, false) if repeated => Acknowledgement::Repeated,
                _ => Acknowledgement::Same,
            };
        }
        self.acked = Some(ack);
        self.told = self.told.max(ack);
        self.repeated = self.repeated.filter(|&position| position > ack);
        self.received.remove(0..ack);
        if beyond {
            self.highest = ack;
            return Acknowledgement::Beyond;
        }
        Acknowledgement::New { from: before }
    }

    /// The user's first acknowledgement is of that SYN, and of nothing that the node has not seen.
    fn answers(&self, initial: Position, ack: Position) -> bool {
        ack == initial + 1 || (ack > initial + 1 && self.received.covers(initial + 1..ack))
    }

    /// The SYN that was taken for the far end's is not the one that the user has got: neither are its options, and what is known of
    /// the far end's numbers.
    fn distrust(&mut self, ack: Position) {
        self.phase = Phase::Adopted;
        (self.initial, self.far_scale, self.far_fin) = (None, None, None);
        self.received = RangeSet::new();
        self.highest = ack;
    }

    /// The position of one of the far end's sequence numbers.
    pub fn locate(&self, sequence: u32) -> Position {
        match self.acked {
            Some(acked) => seq::near(acked, sequence),
            None if self.located => seq::near(self.highest, sequence),
            None => seq::first(sequence),
        }
    }

    /// The far end may have sent this: it lies in the window that the user has permitted.
    fn plausible(&self, position: Position, end: Position) -> bool {
        match self.acked {
            // A probe of a closed window is one byte beyond (RFC 9293, section 3.8.6.1).
            Some(_) if self.scale().is_some() => end <= self.permitted.max(self.highest) + 1,
            Some(acked) => end <= acked + LARGEST_WINDOW,
            None => !self.located || position.abs_diff(self.highest) <= LARGEST_WINDOW,
        }
    }

    /// The far end's segment says how far the user may send.
    fn permit_user(&mut self, segment: &Segment) {
        // Without both SYNs the shift is unknown, and the largest there is permits what any would.
        let shift = match (self.user_scale, self.far_scale) {
            (Some(Some(_)), Some(Some(shift))) if !segment.flags.syn => shift,
            (Some(_), Some(_)) => 0,
            _ => LARGEST_SHIFT,
        };
        let end = segment.ack.wrapping_add(u32::from(segment.window) << shift);
        let later = |one: u32, other: u32| {
            if is_before(one, other) { other } else { one }
        };
        self.user_window = Some(match self.user_window {
            Some((acked, before)) => (later(acked, segment.ack), later(before, end)),
            None => (segment.ack, end),
        });
    }

    /// The user may have sent this: it lies in the window that the far end has permitted, or before it by no more than such a
    /// window. Nobody else knows where that is without having seen the flow (RFC 5961, section 5).
    fn may_come_from_user(&self, sequence: u32, next: u32) -> bool {
        let (Some(known), Some((acked, end))) = (self.user_next, self.user_window) else {
            return true;
        };
        let width = end.wrapping_sub(acked).max(1 << 16);
        let lowest = acked.wrapping_sub(width);
        // A probe of a closed window is one byte beyond; what came before counts even where it was too much.
        let highest = if is_before(known, end) { end } else { known };
        !is_before(sequence, lowest) && !is_before(highest.wrapping_add(1), next)
    }

    fn has_both_syns(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Closing)
    }

    fn syn_seen(&mut self) {
        let both = self.user_scale.is_some() && self.far_scale.is_some();
        self.phase = if both { Phase::Open } else { Phase::HalfOpen };
    }

    fn close(&mut self) {
        if self.far_fin.is_some() && self.user_fin && self.phase != Phase::Closed {
            self.phase = Phase::Closing;
        }
    }

    /// The far end has been sent an acknowledgement of everything before `position`. Returns what it was sent, which never
    /// goes back.
    pub fn tell(&mut self, position: Position) -> Position {
        self.told = self.told.max(position);
        self.told
    }

    /// How far the flow has come.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Its segments must be passed on as they are (see [`crate::packet::Options::sealed`]).
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// The far end's initial sequence number as a position (I of table I), where its SYN was seen.
    pub fn initial(&self) -> Option<Position> {
        self.initial
    }

    /// The user's highest acknowledgement (A^r of table I).
    pub fn acked(&self) -> Option<Position> {
        self.acked
    }

    /// The highest acknowledgement that the far end was sent (A^s of table I).
    pub fn told(&self) -> Position {
        self.told
    }

    /// Bytes that the far end was told of and the user has not acknowledged: what the node must deliver.
    pub fn owed(&self) -> u64 {
        self.acked.map_or(0, |acked| self.told - acked)
    }

    /// End of the highest data that the node has received.
    pub fn highest(&self) -> Position {
        self.highest
    }

    /// Bytes between the user's acknowledgement and the highest data received.
    pub fn outstanding(&self) -> u64 {
        self.acked
            .map_or(0, |acked| self.highest.saturating_sub(acked))
    }

    /// Separate ranges that are remembered of what the node has received.
    pub fn ranges(&self) -> usize {
        self.received.count()
    }

    /// Forgets the highest of them, until there are no more than so many: at worst that keeps the flow from being boosted.
    pub fn keep_ranges(&mut self, most: usize) {
        while self.received.count() > most.max(1)
            && let Some(last) = self.received.last()
        {
            self.received.remove(last);
        }
    }

    /// How far what the node has received reaches without a gap, from the user's acknowledgement on.
    pub fn contiguous(&self) -> Position {
        let acked = self.acked.unwrap_or(self.highest);
        self.received
            .first()
            .filter(|range| range.start <= acked)
            .map_or(acked, |range| range.end.max(acked))
    }

    /// Everything from the user's acknowledgement to `position` was received by the node.
    pub fn has_received(&self, position: Position) -> bool {
        self.acked.is_some_and(|acked| position <= acked) || position <= self.contiguous()
    }

    /// Position behind the far end's FIN, where it was seen.
    pub fn far_fin(&self) -> Option<Position> {
        self.far_fin
    }

    /// Highest position that the user has permitted to be sent.
    pub fn permitted(&self) -> Position {
        self.permitted
    }

    /// Shift count of the user's windows; nothing where a SYN was not seen (RFC 7323, section 2.2: only if both SYNs have
    /// the option is there any shift).
    pub fn scale(&self) -> Option<u8> {
        match (self.user_scale?, self.far_scale?) {
            (Some(shift), Some(_)) => Some(shift),
            _ => Some(0),
        }
    }

    /// Largest payload that the user accepts, in bytes. A SYN that does not say it stands for 536 (RFC 9293, section 3.7.1);
    /// there are far ends that send more all the same, and users that take it: then it is the largest that has come.
    pub fn mss(&self) -> u16 {
        self.mss.unwrap_or(self.largest.max(536))
    }

    /// Sequence number that the user sends next, where it has sent anything.
    pub fn user_next(&self) -> Option<u32> {
        self.user_next
    }

    /// The far end sends again from here although the user waits for something lower: it was told, by a node that is no
    /// more, that the lower bytes had arrived.
    pub fn orphaned(&self) -> Option<Position> {
        self.repeated.filter(|_| {
            self.phase == Phase::Adopted && self.contiguous() == self.acked.unwrap_or(0)
        })
    }
}

/// Of two sequence numbers, whether the first comes before the second.
fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() < 0
}

impl Default for Flow {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
