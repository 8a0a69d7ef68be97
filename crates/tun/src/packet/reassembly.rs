//! Datagrams from fragments (RFC 791, section 3.2; RFC 8200, section 4.5), in bounded memory.
//!
//! Fragments that overlap make the whole datagram invalid in both families (RFC 5722); exact copies
//! are ignored. The order of arrival does not matter.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::checksum::replace;
use super::header::IpHeader;
use super::{Fragment, Packet};

/// Most incomplete datagrams.
const MAX: usize = 64;

/// Most bytes of data in all of them.
const MAX_BYTES: usize = 1 << 20;

/// Most fragments of one datagram: 65,515 bytes in fragments of 576-byte packets.
const MAX_PARTS: usize = 128;

/// Time after which an incomplete datagram is given up, counted from its first fragment. Linux
/// waits equally long (net.ipv4.ipfrag_time).
const LIFETIME: Duration = Duration::from_secs(30);

/// Longest data behind an IPv4 header without options.
const MAX_LEN: usize = 65_535 - 20;

/// Incomplete datagrams.
#[derive(Debug, Default)]
pub struct Reassembly {
    /// In the order of their first fragments. They are few, and found by comparing each.
    waiting: VecDeque<(Key, Partial)>,
    bytes: usize,
    given_up: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
}

#[derive(Debug)]
struct Partial {
    since: Instant,
    /// By offset; they do not overlap.
    parts: BTreeMap<usize, Vec<u8>>,
    bytes: usize,
    /// Length of the whole, known from its last fragment.
    len: Option<usize>,
    /// An invalid datagram stays until its time is over, so that its remaining fragments do not
    /// make another one.
    is_invalid: bool,
}

impl Reassembly {
    /// Takes a fragment of `packet`, which was parsed from `bytes`. Returns the whole packet,
    /// without options and extension headers, when it is complete.
    pub fn push(
        &mut self,
        packet: &Packet,
        fragment: &Fragment,
        bytes: &[u8],
        now: Instant,
    ) -> Option<Vec<u8>> {
        self.expire(now);
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            protocol: fragment.protocol,
            id: fragment.id,
        };
        let data = bytes.get(fragment.data.clone())?;
        self.make_room(&key, data.len());
        let at = match self.waiting.iter().position(|(known, _)| *known == key) {
            Some(at) => at,
            None => {
                self.waiting.push_back((key, Partial::new(now)));
                self.waiting.len() - 1
            }
        };
        let (_, partial) = self.waiting.get_mut(at)?;
        self.bytes -= partial.bytes;
        partial.add(fragment, data);
        self.bytes += partial.bytes;
        if !partial.is_complete() {
            return None;
        }
        let (_, partial) = self.waiting.remove(at)?;
        self.bytes -= partial.bytes;
        let ip = IpHeader {
            source: key.source,
            destination: key.destination,
            protocol: key.protocol,
            id: key.id as u16,
        };
        let mut whole = Vec::with_capacity(ip.size() + partial.bytes);
        ip.write(&mut whole, partial.bytes);
        partial.parts.values().for_each(|part| whole.extend(part));
        // The program's marks and hop limit count for the whole.
        match packet.source {
            IpAddr::V4(_) => set_v4(&mut whole, packet),
            IpAddr::V6(_) => {
                let class = u16::from(packet.dscp) << 6;
                whole[0] |= (class >> 8) as u8;
                whole[1] |= class as u8;
                whole[7] = packet.hop_limit;
            }
        }
        Some(whole)
    }

    /// Datagrams given up since this was last called: incomplete, invalid, or without room.
    pub fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    /// Gives up datagrams that have waited too long.
    pub fn expire(&mut self, now: Instant) {
        while let Some((_, oldest)) = self.waiting.front()
            && now.saturating_duration_since(oldest.since) >= LIFETIME
        {
            self.pop();
        }
    }

    /// Makes room for a fragment of this datagram: the source with the most datagrams, or with the
    /// most bytes if those are too many, loses its oldest one.
    fn make_room(&mut self, key: &Key, len: usize) {
        let is_new = self.waiting.iter().all(|(known, _)| known != key);
        while is_new && self.waiting.len() >= MAX {
            self.pop_largest(|_| 1);
        }
        while self.bytes + len > MAX_BYTES && !self.waiting.is_empty() {
            self.pop_largest(|partial| partial.bytes);
        }
    }

    /// Gives up the oldest datagram of the source with the largest sum of `size`.
    fn pop_largest(&mut self, size: impl Fn(&Partial) -> usize) {
        let mut sums: HashMap<IpAddr, usize> = HashMap::new();
        for (key, partial) in &self.waiting {
            *sums.entry(key.source).or_default() += size(partial);
        }
        let most = sums.values().max().copied();
        let at = self
            .waiting
            .iter()
            .position(|(key, _)| sums.get(&key.source).copied() == most);
        if let Some((_, partial)) = at.and_then(|at| self.waiting.remove(at)) {
            self.bytes -= partial.bytes;
            self.given_up += 1;
        }
    }

    fn pop(&mut self) {
        if let Some((_, partial)) = self.waiting.pop_front() {
            self.bytes -= partial.bytes;
            self.given_up += 1;
        }
    }
}

/// Gives an IPv4 header without options the marks and the time to live of another packet.
fn set_v4(whole: &mut [u8], packet: &Packet) {
    let old: [u8; 2] = [whole[0], whole[1]];
    whole[1] = packet.dscp << 2;
    let new: [u8; 2] = [whole[0], whole[1]];
    let old_life: [u8; 2] = [whole[8], whole[9]];
    whole[8] = packet.hop_limit;
    let new_life: [u8; 2] = [whole[8], whole[9]];
    let checksum = u16::from_be_bytes([whole[10], whole[11]]);
    let checksum = replace(replace(checksum, &old, &new), &old_life, &new_life);
    whole[10..12].copy_from_slice(&checksum.to_be_bytes());
}

impl Partial {
    fn new(since: Instant) -> Self {
        Self {
            since,
            parts: BTreeMap::new(),
            bytes: 0,
            len: None,
            is_invalid: false,
        }
    }

    fn add(&mut self, fragment: &Fragment, data: &[u8]) {
        if self.is_invalid || !self.fits(fragment, data) {
            self.is_invalid = true;
            self.parts.clear();
            self.bytes = 0;
            return;
        }
        if !fragment.more {
            self.len = Some(fragment.offset + data.len());
        }
        if self
            .parts
            .get(&fragment.offset)
            .is_none_or(|part| part != data)
        {
            self.parts.insert(fragment.offset, data.to_vec());
            self.bytes += data.len();
        }
    }

    /// Whether the fragment is consistent with the others.
    fn fits(&self, fragment: &Fragment, data: &[u8]) -> bool {
        let (start, end) = (fragment.offset, fragment.offset + data.len());
        let is_well_formed = match fragment.more {
            true => !data.is_empty() && data.len().is_multiple_of(8),
            false => self.len.is_none_or(|len| len == end),
        };
        let is_inside = end <= self.len.unwrap_or(MAX_LEN).min(MAX_LEN);
        let is_new_end = fragment.more || self.last_end() <= end;
        if !is_well_formed || !is_inside || !is_new_end {
            return false;
        }
        if let Some(part) = self.parts.get(&start) {
            // A copy is harmless.
            return part == data;
        }
        let is_after_earlier = self
            .parts
            .range(..start)
            .next_back()
            .is_none_or(|(at, part)| at + part.len() <= start);
        let is_before_later = self
            .parts
            .range(start..)
            .next()
            .is_none_or(|(at, _)| end <= *at);
        is_after_earlier && is_before_later && self.parts.len() < MAX_PARTS
    }

    fn last_end(&self) -> usize {
        let last = self.parts.last_key_value();
        last.map_or(0, |(at, part)| at + part.len())
    }

    fn is_complete(&self) -> bool {
        // Parts do not overlap and none is beyond the end.
        !self.is_invalid && self.len == Some(self.bytes)
    }
}
