//! Identifies the TCP connection of a packet, and builds the reset that answers it.

use super::checksum::{fold, pseudo_header, set_ip, sum};
use super::layout::TCP;
use super::{OFFLOAD_HEADER, Segment};
use crate::config::Direction;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Bytes of a TCP header without options.
const HEADER: usize = 20;
/// Hop limit of a reset.
const TTL: u8 = 64;

/// Addresses and ports of a TCP connection: the client's, the server's. IPv4 addresses are padded
/// with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow([([u8; 16], u16); 2]);

impl Flow {
    /// The connection of a packet that travels in that direction, and whether the packet opens it;
    /// `None` unless the packet is TCP. `data` starts with the offload header.
    pub(crate) fn of(data: &[u8], direction: Direction) -> Option<(Self, bool)> {
        let (ip, tcp) = split(data)?;
        let addresses = match ip[0] >> 4 {
            6 => [&ip[8..24], &ip[24..40]],
            _ => [&ip[12..16], &ip[16..20]],
        };
        let [source, destination] = [0, 1].map(|end| {
            let mut address = [0; 16];
            address[..addresses[end].len()].copy_from_slice(addresses[end]);
            (
                address,
                u16::from_be_bytes([tcp[2 * end], tcp[2 * end + 1]]),
            )
        });
        let ends = match direction {
            Direction::Up => [source, destination],
            Direction::Down => [destination, source],
        };
        let begins = direction == Direction::Up && tcp[13] & (SYN | ACK) == SYN;
        Some((Self(ends), begins))
    }
}

impl Segment {
    /// The packet that contains the segment, with its offload header.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The reset that answers a packet (RFC 9293, section 3.10.7.1), with an offload header; `None`
    /// for packets that must not be answered.
    pub(crate) fn reset_for(data: &[u8]) -> Option<Vec<u8>> {
        let (ip, tcp) = split(data)?;
        let flags = tcp[13];
        if flags & RST != 0 {
            return None;
        }
        let is_v6 = ip[0] >> 4 == 6;
        let head = if is_v6 { 40 } else { 20 };
        let mut answer = vec![0; OFFLOAD_HEADER + head + HEADER];
        let (back, reset) = answer[OFFLOAD_HEADER..].split_at_mut(head);
        if is_v6 {
            back[0] = 0x60;
            (back[6], back[7]) = (TCP, TTL);
            back[8..24].copy_from_slice(&ip[24..40]);
            back[24..40].copy_from_slice(&ip[8..24]);
        } else {
            back[0] = 0x45;
            (back[8], back[9]) = (TTL, TCP);
            back[12..16].copy_from_slice(&ip[16..20]);
            back[16..20].copy_from_slice(&ip[12..16]);
        }
        set_ip(back, HEADER, 0);
        reset[..2].copy_from_slice(&tcp[2..4]);
        reset[2..4].copy_from_slice(&tcp[..2]);
        reset[12] = (HEADER as u8 / 4) << 4;
        if flags & ACK != 0 {
            reset[4..8].copy_from_slice(&tcp[8..12]);
            reset[13] = RST;
        } else {
            let payload = ip.len() + tcp.len() - header_len(ip)? - usize::from(tcp[12] >> 4) * 4;
            let counted = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
            let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            let next = sequence.wrapping_add(payload as u32).wrapping_add(counted);
            reset[8..12].copy_from_slice(&next.to_be_bytes());
            reset[13] = RST | ACK;
        }
        let checksum = !fold(pseudo_header(back, TCP, HEADER) + sum(reset));
        reset[16..18].copy_from_slice(&checksum.to_be_bytes());
        Some(answer)
    }
}

/// Length of an IP header; IPv6 without extensions, which TCP packets do not have here.
fn header_len(ip: &[u8]) -> Option<usize> {
    match ip.first()? >> 4 {
        4 => Some(usize::from(ip[0] & 0x0f) * 4),
        6 => Some(40),
        _ => None,
    }
}

/// The IP header and the rest of a complete TCP packet; `None` for other packets.
fn split(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let ip = data.get(OFFLOAD_HEADER..)?;
    let len = header_len(ip)?;
    let protocol = match ip[0] >> 4 {
        6 => *ip.get(6)?,
        _ => *ip.get(9)?,
    };
    let (head, tcp) = ip.split_at_checked(len)?;
    (protocol == TCP && len >= 20 && tcp.len() >= HEADER).then_some((head, tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with four bytes from 10.0.0.2, port 5000, to 10.0.0.1, port 80.
    fn packet(flags: u8) -> Vec<u8> {
        let mut data = vec![0; OFFLOAD_HEADER + 20 + HEADER + 4];
        let (ip, tcp) = data[OFFLOAD_HEADER..].split_at_mut(20);
        ip[0] = 0x45;
        ip[9] = TCP;
        ip[12..20].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
        tcp[..4].copy_from_slice(&[0x13, 0x88, 0, 80]);
        tcp[4..8].copy_from_slice(&1000u32.to_be_bytes());
        tcp[8..12].copy_from_slice(&7u32.to_be_bytes());
        tcp[12] = 0x50;
        tcp[13] = flags;
        data
    }

    #[test]
    fn both_directions_are_of_one_connection_and_a_syn_begins_it() {
        let up = packet(ACK);
        let down = Segment::reset_for(&up).unwrap();
        let (flow, begins) = Flow::of(&up, Direction::Up).unwrap();
        assert!(!begins);
        assert_eq!(Flow::of(&down, Direction::Down), Some((flow, false)));
        assert!(Flow::of(&packet(SYN), Direction::Up).unwrap().1);
        assert!(!Flow::of(&packet(SYN | ACK), Direction::Down).unwrap().1);
        let mut other = packet(ACK);
        other[OFFLOAD_HEADER + 9] = 17;
        assert_eq!(Flow::of(&other, Direction::Up), None);
        for cut in 0..up.len() - 4 {
            let _ = Flow::of(&up[..cut], Direction::Up);
            let _ = Segment::reset_for(&up[..cut]);
        }
    }

    #[test]
    fn a_reset_is_valid_for_its_receiver() {
        let sequence = |reset: &[u8], at: usize| {
            let tcp = &reset[OFFLOAD_HEADER + 20..];
            u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap())
        };
        let reset = Segment::reset_for(&packet(ACK)).unwrap();
        assert_eq!((sequence(&reset, 4), reset[OFFLOAD_HEADER + 33]), (7, RST));
        let answer = Segment::reset_for(&packet(SYN)).unwrap();
        // Four bytes and the SYN.
        assert_eq!(sequence(&answer, 8), 1005);
        assert_eq!(answer[OFFLOAD_HEADER + 33], RST | ACK);
        for data in [&reset, &answer] {
            let (ip, tcp) = data[OFFLOAD_HEADER..].split_at(20);
            assert_eq!(fold(sum(ip)), 0xffff);
            assert_eq!(fold(pseudo_header(ip, TCP, HEADER) + sum(tcp)), 0xffff);
            assert_eq!(ip[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
            assert_eq!(tcp[..4], [0, 80, 0x13, 0x88]);
        }
        assert_eq!(
            Segment::reset_for(&reset),
            None,
            "a reset is never answered"
        );
    }
}
