//! The state of one TCP flow, read from its packets; steering and VISIBLE build on it.
//!
//! The flow's direction is that of the data spread over the links: from the far end to the user.
//! The user's acknowledgments come back, and VISIBLE works on them. Data from the user passes
//! through; only its position is tracked.

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

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Only one end has sent a SYN.
    HalfOpen,
    /// Both SYNs were seen: sequence numbers, window scales and options are known.
    Open,
    /// The first packet seen was not a SYN (the node was restarted, or the route changed): scales
    /// are unknown.
    Adopted,
    /// Both ends have sent a FIN.
    Closing,
    /// It was reset.
    Closed,
}

/// Most separate ranges of received data that are tracked. A flow with more gaps loses its highest
/// ranges; at worst it is then not boosted.
const MAX_RANGES: usize = 128;

/// The largest possible window (RFC 7323, section 2.3), and so the furthest that data can be ahead.
const LARGEST_WINDOW: u64 = 1 << 30;

/// The largest shift of a window (RFC 7323, section 2.3).
const LARGEST_SHIFT: u8 = 14;

/// Classification of a user's segment as an acknowledgment (RFC 5681, section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledgment {
    /// No acknowledgment: a SYN, a reset, or a segment without an acknowledgment number.
    None,
    /// It advances, acknowledging the bytes from `from` to its number.
    New {
        /// The previous acknowledgment.
        from: Position,
    },
    /// The same number again, without other content, while data is outstanding.
    Duplicate {
        /// The window differs, which acknowledgments with SACK blocks may do.
        window_moves: bool,
    },
    /// The same number again, without other content, while no data is outstanding: the answer to
    /// data that the user already had, or a probe of the user's. A window that permits no more than
    /// before counts as no content; an acknowledgment with a closed window may answer a probe.
    Repeated,
    /// The same number with other content: data, FIN, a larger window.
    Same,
    /// A lower number, overtaken in flight.
    Old,
    /// A number above all data that the node has received: some data takes another route, or the
    /// acknowledgment is forged. While bytes are owed it changes nothing: they are delivered until
    /// the user acknowledges data that the node knows.
    Beyond,
}

impl Acknowledgment {
    /// Whether it is a duplicate, with or without a window change.
    pub fn is_duplicate(self) -> bool {
        matches!(self, Self::Duplicate { .. })
    }
}

/// One flow.
#[derive(Clone, Debug)]
pub struct Flow {
    phase: Phase,
    /// Segments must not be edited.
    sealed: bool,
    /// Position of the far end's SYN (the paper's I).
    initial: Option<Position>,
    /// Data that the node has received and the user has not acknowledged.
    received: RangeSet,
    /// End of the highest data that the node has received.
    highest: Position,
    /// A sequence number of the far end is known.
    located: bool,
    /// Position after the far end's FIN.
    far_fin: Option<Position>,
    /// The user's highest acknowledgment (the paper's A^r).
    acked: Option<Position>,
    /// The highest acknowledgment sent to the far end (the paper's A^s); never below `acked`.
    ack_sent: Position,
    /// The window of the user's last acknowledgment, as in the header.
    window: u16,
    /// Highest position that the user's window permits.
    permitted: Position,
    /// Window scales from the SYNs; the outer `Option` says whether the SYN was seen.
    user_scale: Option<Option<u8>>,
    far_scale: Option<Option<u8>>,
    /// The user's next sequence number.
    user_next: Option<u32>,
    /// The far end's acknowledgment of the user's data, and the end of the window that it permits.
    user_window: Option<(u32, u32)>,
    user_fin: bool,
    /// Largest payload that the user accepts, from its SYN.
    mss: Option<u16>,
    /// A SYN was seen without the SACK option.
    lacks_sack: bool,
    /// Largest payload received from the far end.
    largest: u16,
    /// The lowest repeated data, if the user's acknowledgments request data below it.
    repeated: Option<Position>,
}

/// Effect of a segment from the far end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Position of the segment; `None` if it cannot belong to the flow.
    pub position: Option<Position>,
    /// Bytes that the node had not received before.
    pub new_bytes: u64,
}

impl Flow {
    /// A flow without packets.
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
            ack_sent: 0,
            window: 0,
            permitted: 0,
            user_scale: None,
            far_scale: None,
            user_next: None,
            user_window: None,
            user_fin: false,
            mss: None,
            lacks_sack: false,
            largest: 0,
            repeated: None,
        }
    }

    /// Handles a segment from the far end.
    pub fn far_segment(&mut self, segment: &Segment) -> Arrival {
        let position = self.locate(segment.sequence);
        if segment.flags.rst {
            let refused = !self.located && segment.flags.ack && self.user_next == Some(segment.ack);
            let in_window = self.located
                && position <= self.highest.max(self.permitted)
                && position >= self.acked.unwrap_or(position);
            // A user accepts a reset only at the next number, and otherwise requests a repetition
            // with that one (RFC 5961, section 3.2). Owed bytes are kept until then.
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
        // Data acknowledged long ago changes nothing.
        let past = self.acked.is_some_and(|acked| end < acked);
        self.sealed |= segment.options.sealed && !past;
        if segment.flags.syn && !past && !self.has_both_syns() {
            self.initial = Some(position);
            self.far_scale = Some(segment.options.window_scale);
            self.syn_seen(segment);
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
        self.keep_ranges(MAX_RANGES);
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

    /// Handles a segment from the user.
    pub fn user_segment(&mut self, segment: &Segment) -> Acknowledgment {
        let next = segment.sequence.wrapping_add(segment.sequence_len() as u32);
        if !segment.flags.rst && !self.may_come_from_user(segment.sequence, next) {
            return Acknowledgment::None;
        }
        self.sealed |= segment.options.sealed;
        if segment.flags.rst {
            if self
                .user_next
                .is_none_or(|expected| expected == segment.sequence)
            {
                self.phase = Phase::Closed;
            }
            return Acknowledgment::None;
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
            self.syn_seen(segment);
        }
        if segment.flags.fin {
            self.user_fin = true;
            self.close();
        }
        if !segment.flags.ack {
            return Acknowledgment::None;
        }
        self.acknowledge(segment)
    }

    /// Classifies an acknowledgment. RFC 5681, section 2 defines duplicates; one with SACK blocks
    /// may also change the window (RFC 6675, section 2).
    fn acknowledge(&mut self, segment: &Segment) -> Acknowledgment {
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
                return Acknowledgment::Beyond;
            }
            if self
                .initial
                .is_some_and(|initial| !self.answers(initial, ack))
            {
                self.discard_syn(ack);
            }
            self.acked = Some(ack);
            self.ack_sent = ack;
            self.window = segment.window;
            self.permitted = permitted;
            self.received.remove(0..ack);
            if self.located && self.scale().is_some() {
                // The user's window was unknown until now; data beyond it did not come from the far
                // end.
                self.received.remove(permitted + 1..Position::MAX);
                self.highest = self.received.last().map_or(ack, |last| last.end.max(ack));
            }
            return Acknowledgment::New { from: ack };
        };
        if ack < before {
            return Acknowledgment::Old;
        }
        let beyond = self.located && ack > self.highest;
        if beyond && (ack - self.highest > LARGEST_WINDOW || self.owed() > 0) {
            return Acknowledgment::Beyond;
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
                (true, true) if duplicate => Acknowledgment::Duplicate {
                    window_moves: !same_window,
                },
                (true, false) if repeated => Acknowledgment::Repeated,
                _ => Acknowledgment::Same,
            };
        }
        self.acked = Some(ack);
        self.ack_sent = self.ack_sent.max(ack);
        self.repeated = self.repeated.filter(|&position| position > ack);
        self.received.remove(0..ack);
        if beyond {
            self.highest = ack;
            return Acknowledgment::Beyond;
        }
        Acknowledgment::New { from: before }
    }

    /// Whether the user's first acknowledgment answers that SYN and covers only data that the node
    /// has seen.
    fn answers(&self, initial: Position, ack: Position) -> bool {
        ack == initial + 1 || (ack > initial + 1 && self.received.covers(initial + 1..ack))
    }

    /// Discards the far end's SYN because the user has accepted a different one. Its options and
    /// all that is known of the far end's numbers are discarded with it.
    fn discard_syn(&mut self, ack: Position) {
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

    /// Whether the far end may have sent this range: it lies in the window that the user permits.
    fn plausible(&self, position: Position, end: Position) -> bool {
        match self.acked {
            // A probe of a closed window is one byte beyond (RFC 9293, section 3.8.6.1).
            Some(_) if self.scale().is_some() => end <= self.permitted.max(self.highest) + 1,
            Some(acked) => end <= acked + LARGEST_WINDOW,
            None => !self.located || position.abs_diff(self.highest) <= LARGEST_WINDOW,
        }
    }

    /// Updates the user's send window from a far-end segment.
    fn permit_user(&mut self, segment: &Segment) {
        // Without both SYNs the scale is unknown; the largest one permits as much as any.
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

    /// Whether the user may have sent this sequence number: it lies in the window that the far end
    /// permits, or at most one such window before it. An off-path attacker cannot
    /// guess that range (RFC 5961, section 5).
    fn may_come_from_user(&self, sequence: u32, next: u32) -> bool {
        let (Some(known), Some((acked, end))) = (self.user_next, self.user_window) else {
            return true;
        };
        let width = end.wrapping_sub(acked).max(1 << 16);
        let lowest = acked.wrapping_sub(width);
        // A probe of a closed window is one byte beyond; earlier data counts even if it exceeded
        // the window.
        let highest = if is_before(known, end) { end } else { known };
        !is_before(sequence, lowest) && !is_before(highest.wrapping_add(1), next)
    }

    fn has_both_syns(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Closing)
    }

    fn syn_seen(&mut self, segment: &Segment) {
        self.lacks_sack |= segment.options.sack_permitted.is_none();
        let both = self.user_scale.is_some() && self.far_scale.is_some();
        self.phase = if both { Phase::Open } else { Phase::HalfOpen };
    }

    fn close(&mut self) {
        if self.far_fin.is_some() && self.user_fin && self.phase != Phase::Closed {
            self.phase = Phase::Closing;
        }
    }

    /// Records that everything before `position` was acknowledged to the far end. Returns the
    /// highest such position, which never decreases.
    pub fn note_ack_sent(&mut self, position: Position) -> Position {
        self.ack_sent = self.ack_sent.max(position);
        self.ack_sent
    }

    /// Phase of the connection.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether segments must be passed on unchanged (see [`crate::packet::Options::sealed`]).
    pub fn sealed(&self) -> bool {
        self.sealed
    }

    /// The far end's initial sequence number as a position (I of table I), if its SYN was seen.
    pub fn initial(&self) -> Option<Position> {
        self.initial
    }

    /// The user's highest acknowledgment (A^r of table I).
    pub fn acked(&self) -> Option<Position> {
        self.acked
    }

    /// The highest acknowledgment sent to the far end (A^s of table I).
    pub fn ack_sent(&self) -> Position {
        self.ack_sent
    }

    /// Owed bytes: acknowledged to the far end but not by the user. The node must deliver them.
    pub fn owed(&self) -> u64 {
        self.acked.map_or(0, |acked| self.ack_sent - acked)
    }

    /// End of the highest data that the node has received.
    pub fn highest(&self) -> Position {
        self.highest
    }

    /// Bytes between the user's acknowledgment and the highest data received.
    pub fn outstanding(&self) -> u64 {
        self.acked
            .map_or(0, |acked| self.highest.saturating_sub(acked))
    }

    /// Number of tracked ranges of received data.
    pub fn ranges(&self) -> usize {
        self.received.count()
    }

    /// Forgets the highest ranges until at most `most` remain; at worst the flow is then not
    /// boosted.
    pub fn keep_ranges(&mut self, most: usize) {
        while self.received.count() > most.max(1)
            && let Some(last) = self.received.last()
        {
            self.received.remove(last);
        }
    }

    /// End of the data received without a gap, starting at the user's acknowledgment.
    pub fn contiguous(&self) -> Position {
        let acked = self.acked.unwrap_or(self.highest);
        self.received
            .first()
            .filter(|range| range.start <= acked)
            .map_or(acked, |range| range.end.max(acked))
    }

    /// Whether the node has received all data from the user's acknowledgment to `position`.
    pub fn has_received(&self, position: Position) -> bool {
        self.acked.is_some_and(|acked| position <= acked) || position <= self.contiguous()
    }

    /// Position after the far end's FIN, if it was seen.
    pub fn far_fin(&self) -> Option<Position> {
        self.far_fin
    }

    /// Highest position that the user's window permits.
    pub fn permitted(&self) -> Position {
        self.permitted
    }

    /// The window of the user's last acknowledgment, in units of its scale.
    pub fn window(&self) -> u16 {
        self.window
    }

    /// Scale of the user's windows; `None` if a SYN was not seen (RFC 7323, section 2.2: scaling
    /// applies only if both SYNs have the option).
    pub fn scale(&self) -> Option<u8> {
        match (self.user_scale?, self.far_scale?) {
            (Some(shift), Some(_)) => Some(shift),
            _ => Some(0),
        }
    }

    /// Largest payload that the user accepts, in bytes. A SYN without the option stands for 536
    /// (RFC 9293, section 3.7.1). Some far ends send more, and some users accept it; then the
    /// largest payload received applies.
    pub fn mss(&self) -> u16 {
        self.mss.unwrap_or(self.largest.max(536))
    }

    /// Whether the ends are known to have no SACK: a SYN lacked the option (RFC 2018, section 2).
    pub fn lacks_sack(&self) -> bool {
        self.lacks_sack
    }

    /// The user's next sequence number, if it has sent anything.
    pub fn user_next(&self) -> Option<u32> {
        self.user_next
    }

    /// The position from which the far end retransmits although the user waits for lower data. An
    /// earlier node acknowledged the lower bytes to it and is gone.
    pub fn orphaned(&self) -> Option<Position> {
        self.repeated.filter(|_| {
            self.phase == Phase::Adopted && self.contiguous() == self.acked.unwrap_or(0)
        })
    }
}

/// Whether the first of two sequence numbers comes before the second.
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
