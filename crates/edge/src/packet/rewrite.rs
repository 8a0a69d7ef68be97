//! Editing a segment in place: the checksum is adjusted by the difference (RFC 1624, equation 3), so that damage done to the
//! rest of the packet stays visible to its receiver.

use super::options::{NOP, SACK};
use super::{SackBlocks, Segment};

/// Writes another acknowledgement number.
pub fn set_ack(packet: &mut [u8], segment: &Segment, ack: u32) {
    replace(packet, segment, segment.header + 8, &ack.to_be_bytes());
}

/// Writes another window, not scaled.
pub fn set_window(packet: &mut [u8], segment: &Segment, window: u16) {
    replace(packet, segment, segment.header + 14, &window.to_be_bytes());
}

/// Writes another timestamp, where the segment has timestamps.
pub fn set_timestamp(packet: &mut [u8], segment: &Segment, timestamp: u32) {
    if let Some(at) = segment.options.timestamps_at {
        replace(packet, segment, at + 2, &timestamp.to_be_bytes());
    }
}

/// Writes another timestamp echo, where the segment has timestamps.
pub fn set_timestamp_echo(packet: &mut [u8], segment: &Segment, echo: u32) {
    if let Some(at) = segment.options.timestamps_at {
        replace(packet, segment, at + 6, &echo.to_be_bytes());
    }
}

/// Writes `blocks` in place of the SACK blocks of the segment; there may be fewer, not more. Room that is left becomes
/// padding, and without any block the option goes.
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
    replace(packet, segment, at, &option[..len.min(40)]);
}

/// Takes "SACK permitted" out of a SYN, so that neither end uses SACK.
pub fn strip_sack_permitted(packet: &mut [u8], segment: &Segment) {
    if let Some(at) = segment.options.sack_permitted {
        replace(packet, segment, at, &[NOP; 2]);
    }
}

/// Lowers the maximum segment size in a SYN to at most `most` bytes. A SYN without the option stands for 536
/// (RFC 9293, section 3.7.1) and is left alone.
pub fn clamp_mss(packet: &mut [u8], segment: &Segment, most: u16) {
    if let Some((mss, at)) = segment.options.mss
        && mss > most
    {
        replace(packet, segment, at, &most.to_be_bytes());
    }
}

/// Writes `bytes` at `at` of the packet, behind the segment's ports, and adjusts the checksum.
fn replace(packet: &mut [u8], segment: &Segment, at: usize, bytes: &[u8]) {
    // Words are counted from the start of the TCP header; an edit may start or end within one.
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
