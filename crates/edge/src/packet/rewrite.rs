//! Edits a segment in place. The checksum is adjusted by the difference (RFC 1624, equation 3), so
//! damage elsewhere in the packet stays detectable.

use super::options::{self, MSS, NOP, SACK, SACK_PERMITTED, TIMESTAMPS};
use super::{SackBlocks, Segment};

/// Sets the acknowledgment number.
pub fn set_ack(packet: &mut [u8], segment: &Segment, ack: u32) {
    replace(packet, segment, segment.header + 8, &ack.to_be_bytes());
}

/// Sets the window, unscaled.
pub fn set_window(packet: &mut [u8], segment: &Segment, window: u16) {
    replace(packet, segment, segment.header + 14, &window.to_be_bytes());
}

/// Sets the timestamp, if the segment has timestamps.
pub fn set_timestamp(packet: &mut [u8], segment: &Segment, timestamp: u32) {
    for at in places(packet, segment, TIMESTAMPS, 8) {
        replace(packet, segment, at + 2, &timestamp.to_be_bytes());
    }
}

/// Sets the timestamp echo, if the segment has timestamps.
pub fn set_timestamp_echo(packet: &mut [u8], segment: &Segment, echo: u32) {
    for at in places(packet, segment, TIMESTAMPS, 8) {
        replace(packet, segment, at + 6, &echo.to_be_bytes());
    }
}

/// Replaces the segment's SACK blocks with at most as many `blocks`. Unused room becomes padding;
/// without blocks the option is removed, as are others of its kind.
pub fn set_sack_blocks(packet: &mut [u8], segment: &Segment, blocks: &SackBlocks) {
    let Some((at, len)) = segment.options.sack_at else {
        return;
    };
    let mut option = [NOP; 40];
    let mut used = 2;
    for (left, right) in blocks.iter().take((len - 2) / 8) {
        option[used..used + 4].copy_from_slice(&left.to_be_bytes());
        option[used + 4..used + 8].copy_from_slice(&right.to_be_bytes());
        used += 8;
    }
    if used > 2 {
        option[0] = SACK;
        option[1] = used as u8;
    }
    for blocks in 1..=4 {
        for other in places(packet, segment, SACK, 8 * blocks) {
            if other != at {
                replace(packet, segment, other, &[NOP; 34][..8 * blocks + 2]);
            }
        }
    }
    replace(packet, segment, at, &option[..len.min(40)]);
}

/// Removes "SACK permitted" from a SYN, so that neither end uses SACK.
pub fn strip_sack_permitted(packet: &mut [u8], segment: &Segment) {
    for at in places(packet, segment, SACK_PERMITTED, 0) {
        replace(packet, segment, at, &[NOP; 2]);
    }
}

/// Lowers the maximum segment size in a SYN to at most `most` bytes. A SYN without the option
/// stands for 536 (RFC 9293, section 3.7.1) and is unchanged.
pub fn clamp_mss(packet: &mut [u8], segment: &Segment, most: u16) {
    for at in places(packet, segment, MSS, 2) {
        if u16::from_be_bytes([packet[at + 2], packet[at + 3]]) > most {
            replace(packet, segment, at + 2, &most.to_be_bytes());
        }
    }
}

/// Offsets of all options of a kind with a value of `len` bytes; receivers differ in which of
/// several they use.
fn places(packet: &[u8], segment: &Segment, kind: u8, len: usize) -> Places {
    let start = segment.header + 20;
    let mut places = Places::default();
    let all = packet.get(start..segment.payload).unwrap_or_default();
    // A packet with invalid options was never parsed as a segment.
    let _ = options::each(all, |found, value, at| {
        if (found, value.len()) == (kind, len) {
            places.at[places.count] = (start + at) as u16;
            places.count += 1;
        }
    });
    places
}

/// Offsets in a packet; 40 bytes of options hold at most 20 options of two bytes.
#[derive(Default)]
struct Places {
    at: [u16; 20],
    count: usize,
    next: usize,
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = self.at[..self.count].get(self.next)?;
        self.next += 1;
        Some(usize::from(*at))
    }
}

/// Writes `bytes` at offset `at`, after the segment's ports, and adjusts the checksum.
fn replace(packet: &mut [u8], segment: &Segment, at: usize, bytes: &[u8]) {
    // Words are aligned to the start of the TCP header; an edit may start or end within a word.
    let start = at - (at - segment.header) % 2;
    let end = (at + bytes.len()).next_multiple_of(2).min(packet.len());
    let end = end + (end - start) % 2;
    let (Some(_), Some(_)) = (packet.get(start..end), packet.get(at..at + bytes.len())) else {
        return;
    };
    let before = words(&packet[start..end]);
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    let after = words(&packet[start..end]);
    let checksum = segment.header + 16;
    let old = u16::from_be_bytes([packet[checksum], packet[checksum + 1]]);
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m')
    let new = !fold(u32::from(!old) + u32::from(!before) + u32::from(after));
    packet[checksum..checksum + 2].copy_from_slice(&new.to_be_bytes());
}

/// The ones' complement sum of whole words.
fn words(bytes: &[u8]) -> u16 {
    fold(
        bytes
            .chunks_exact(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum(),
    )
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
