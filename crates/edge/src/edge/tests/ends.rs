//! A small TCP endpoint for tests of many flows: data both ways, windows down to a few bytes,
//! keepalives, go-back-N. It verifies every byte that it receives.

use std::net::SocketAddr;
use std::time::Duration;

use etherparse::TcpOptionElement as Option_;
use sumlink_engine::RangeSet;

use crate::Instant;
use crate::packet::Segment;
use crate::packet::fixture::Draft;

pub(super) const MSS: u64 = 1000;
const SEGMENTS: u64 = 24;
const SCALE: u8 = 7;
const RTO: Duration = Duration::from_millis(400);
const MAX_TIMEOUTS: u32 = 12;
const KEEPALIVE: Duration = Duration::from_millis(700);

/// The byte at an offset of the stream whose first byte has number `start`.
fn byte(start: u32, offset: u64) -> u8 {
    (offset ^ u64::from(start))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_le_bytes()[7]
}

/// One endpoint.
pub(super) struct End {
    pub(super) me: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Number of its first byte, and of the peer's.
    pub(super) start: u32,
    theirs: Option<u32>,
    their_scale: u8,
    opens: bool,
    total: u64,
    pub(super) acked: u64,
    next: u64,
    highest: u64,
    permitted: u64,
    duplicates: u32,
    /// Bytes received in order, and ranges received beyond them.
    pub(super) taken: u64,
    arrived: RangeSet,
    room: u64,
    keepalive: bool,
    /// It sends SACK blocks, if the peer has offered SACK.
    sack: bool,
    sack_offered: bool,
    pub(super) timer: Instant,
    timeouts: u32,
    pub(super) failed: bool,
    pub(super) out: Vec<Vec<u8>>,
}

impl End {
    /// An endpoint with bytes to send and a receive buffer.
    pub(super) fn new(
        (me, peer): (SocketAddr, SocketAddr),
        start: u32,
        opens: bool,
        (total, room): (u64, u64),
        keepalive: bool,
        sack: bool,
    ) -> Self {
        Self {
            me,
            peer,
            start,
            theirs: None,
            their_scale: 0,
            opens,
            total,
            acked: 0,
            next: 0,
            highest: 0,
            permitted: 0,
            duplicates: 0,
            taken: 0,
            arrived: RangeSet::new(),
            room,
            keepalive,
            sack,
            sack_offered: false,
            timer: Instant::ZERO,
            timeouts: 0,
            failed: false,
            out: Vec::new(),
        }
    }

    /// All of its data has been acknowledged.
    pub(super) fn done(&self) -> bool {
        self.acked >= self.total && self.theirs.is_some()
    }

    fn scale(&self) -> u8 {
        if self.room > 0xffff { SCALE } else { 0 }
    }

    fn draft(&self, position: u64) -> Draft {
        let sequence = self.start.wrapping_add(position as u32);
        let draft = Draft::between(self.me, self.peer, sequence);
        match self.theirs {
            Some(theirs) => draft
                .ack(theirs.wrapping_add(self.taken as u32))
                .window((self.room >> self.scale()) as u16),
            None => draft,
        }
    }

    fn syn(&mut self) {
        let mut draft = self.draft(0);
        draft.sequence = self.start.wrapping_sub(1);
        let syn = draft
            .syn()
            .option(Option_::MaximumSegmentSize(MSS as u16))
            .option(Option_::WindowScale(self.scale()));
        let syn = match self.sack {
            true => syn.option(Option_::SelectiveAcknowledgementPermitted),
            false => syn,
        };
        self.out.push(syn.packet());
    }

    fn acknowledge(&mut self) {
        let mut draft = self.draft(self.next);
        if let Some(theirs) = self.theirs.filter(|_| self.sack && self.sack_offered) {
            let number = |position: u64| theirs.wrapping_add(position as u32);
            let blocks = self.arrived.iter().rev().take(3);
            let blocks: Vec<_> = blocks
                .map(|one| (number(one.start), number(one.end)))
                .collect();
            draft = draft.sack(&blocks);
        }
        self.out.push(draft.packet());
    }

    fn emit(&mut self, position: u64, len: u64) {
        let payload: Vec<u8> = (position..position + len)
            .map(|at| byte(self.start, at))
            .collect();
        self.out
            .push(self.draft(position).payload(&payload).packet());
    }

    fn send(&mut self) {
        while self.theirs.is_some() {
            let edge = self
                .permitted
                .min(self.acked + SEGMENTS * MSS)
                .min(self.total);
            let len = edge.saturating_sub(self.next).min(MSS);
            if len == 0 {
                break;
            }
            self.emit(self.next, len);
            self.next += len;
            self.highest = self.highest.max(self.next);
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        if self.failed || self.timer > now {
            return;
        }
        let waits = self.theirs.is_none() || self.acked < self.total;
        if !waits {
            self.timer = now + KEEPALIVE;
            if self.keepalive {
                let position = self.next.wrapping_sub(1); // RFC 9293, section 3.8.4
                self.out.push(self.draft(position).packet());
            }
            return;
        }
        self.timeouts += 1;
        self.failed = self.timeouts > MAX_TIMEOUTS;
        self.timer = now + RTO * (1 << self.timeouts.min(5));
        if self.theirs.is_none() {
            return if self.opens {
                self.syn()
            };
        }
        self.next = self.acked;
        self.duplicates = 0;
        self.send();
        if self.next == self.acked {
            // A probe of a closed window.
            self.emit(self.acked, 1);
            self.highest = self.highest.max(self.acked + 1);
        }
    }

    pub(super) fn handle(&mut self, packet: &[u8], segment: &Segment, now: Instant) {
        if self.failed {
            return;
        }
        if segment.flags.rst {
            let expected = self
                .theirs
                .map(|theirs| theirs.wrapping_add(self.taken as u32));
            self.failed |= expected == Some(segment.sequence); // RFC 5961
            return;
        }
        if segment.flags.syn {
            let is_new = self
                .theirs
                .replace(segment.sequence.wrapping_add(1))
                .is_none();
            self.permitted = self.permitted.max(segment.window.into());
            self.their_scale = segment.options.window_scale.unwrap_or(0);
            self.sack_offered = segment.options.sack_permitted.is_some();
            if is_new && !self.opens {
                (self.timer, self.timeouts) = (now + RTO, 0);
            }
            match self.opens {
                true => self.acknowledge(),
                false => self.syn(),
            }
            return;
        }
        let Some(theirs) = self.theirs else { return };
        // Distance from the next expected byte, in either direction.
        let from = |reference: u64, start: u32, number: u32| {
            let at = start.wrapping_add(reference as u32);
            i64::from(number.wrapping_sub(at).cast_signed()) + reference as i64
        };
        let left = from(self.taken, theirs, segment.sequence);
        let (low, high) = (self.taken as i64, (self.taken + self.room) as i64);
        let payload = &packet[segment.payload..segment.payload + segment.len];
        let fits = |at: &i64| (low..high).contains(at);
        for at in (left..left + segment.len as i64).filter(fits) {
            let value = payload[(at - left) as usize];
            let at = at as u64;
            assert_eq!(value, byte(theirs, at), "wrong byte at {at}");
        }
        let (start, end) = (left.max(low), (left + segment.len as i64).min(high));
        if start < end {
            self.arrived.insert(start as u64..end as u64);
        }
        while let Some(first) = self
            .arrived
            .first()
            .filter(|first| first.start <= self.taken)
        {
            self.taken = self.taken.max(first.end);
            self.arrived.remove(first);
        }
        let ack = from(self.acked, self.start, segment.ack);
        // Acknowledgments of data that was never sent are ignored (RFC 9293, section 3.10.7.4).
        if (self.acked as i64..=self.highest as i64).contains(&ack) {
            self.take_ack(ack as u64, segment, now);
        }
        if segment.len > 0 || left < self.taken as i64 {
            self.acknowledge();
        }
        self.send();
    }

    fn take_ack(&mut self, ack: u64, segment: &Segment, now: Instant) {
        let window = u64::from(segment.window) << self.their_scale;
        self.permitted = self.permitted.max(ack + window);
        if ack > self.acked {
            self.acked = ack;
            self.next = self.next.max(ack);
            (self.timeouts, self.duplicates) = (0, 0);
            self.timer = now + RTO;
        } else if segment.len == 0 && self.highest > ack {
            self.duplicates += 1;
            if self.duplicates == 3 {
                self.emit(ack, (self.highest - ack).min(MSS));
            }
        }
    }
}
