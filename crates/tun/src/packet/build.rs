//! Packets that the stack creates: answers over UDP, echo replies, fragments and TCP resets.

use std::net::{IpAddr, SocketAddr};

use super::checksum::{Sum, pseudo_header};
use super::header::IpHeader;
use super::{Packet, Segment, icmp, protocol};

/// Bytes of a UDP header.
pub const UDP_HEADER: usize = 8;

/// Bytes of an IPv6 fragment header.
const FRAGMENT_HEADER: usize = 8;

/// The flag "more fragments" in the third word of an IPv4 header.
const MORE_FRAGMENTS: u16 = 0x2000;

/// Appends the IP and UDP headers of a datagram with this payload, which the caller appends or
/// sends separately.
///
/// With `is_partial`, the checksum covers only the pseudo header, and the kernel completes it.
pub fn udp_headers(
    out: &mut Vec<u8>,
    source: SocketAddr,
    destination: SocketAddr,
    id: u16,
    payload: &[&[u8]],
    is_partial: bool,
) {
    let len = UDP_HEADER + payload.iter().map(|part| part.len()).sum::<usize>();
    let ip = IpHeader {
        source: source.ip(),
        destination: destination.ip(),
        protocol: protocol::UDP,
        id,
    };
    ip.write(out, len);
    let sum = pseudo_header(ip.source, ip.destination, ip.protocol, len);
    let mut header = [0; UDP_HEADER];
    header[..2].copy_from_slice(&source.port().to_be_bytes());
    header[2..4].copy_from_slice(&destination.port().to_be_bytes());
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    let checksum = match is_partial {
        true => sum.folded(),
        false => {
            let whole = |sum: Sum, part: &&[u8]| sum.plus(part);
            match payload.iter().fold(sum.plus(&header), whole).checksum() {
                // Zero means "no checksum" (RFC 768).
                0 => u16::MAX,
                checksum => checksum,
            }
        }
    };
    header[6..8].copy_from_slice(&checksum.to_be_bytes());
    out.extend(header);
}

/// Appends an echo reply. `payload` begins with the sequence number.
pub fn echo_reply(
    out: &mut Vec<u8>,
    source: IpAddr,
    destination: IpAddr,
    id: u16,
    icmp_id: u16,
    payload: &[u8],
) {
    let (protocol, kind) = match source {
        IpAddr::V4(_) => (protocol::ICMP, icmp::ECHO_REPLY),
        IpAddr::V6(_) => (protocol::ICMP6, icmp::ECHO_REPLY6),
    };
    let len = icmp::ECHO_HEADER + payload.len();
    let ip = IpHeader {
        source,
        destination,
        protocol,
        id,
    };
    ip.write(out, len);
    let start = out.len();
    out.extend([kind, 0, 0, 0]);
    out.extend(icmp_id.to_be_bytes());
    out.extend(payload);
    icmp::finish(out, start, source, destination);
}

/// Splits a packet that was built here into fragments of at most `mtu` bytes, each a packet: of
/// IPv4 (RFC 791, section 2.3) or of IPv6 (RFC 8200, section 4.5). Calls `send` with each of them.
pub fn fragments(packet: &[u8], mtu: usize, id: u32, mut send: impl FnMut(&[u8])) {
    let Ok(parsed) = super::parse(packet) else {
        return;
    };
    let mut ip = IpHeader {
        source: parsed.source,
        destination: parsed.destination,
        // Extension headers of IPv6 would be a part of the data.
        protocol: match parsed.source {
            IpAddr::V4(_) => packet[9],
            IpAddr::V6(_) => packet[6],
        },
        id: id as u16,
    };
    let data = &packet[ip.size()..parsed.len];
    let is_v4 = ip.source.is_ipv4();
    let overhead = match is_v4 {
        true => ip.size(),
        false => ip.size() + FRAGMENT_HEADER,
    };
    // Offsets are in units of eight bytes.
    let size = mtu.saturating_sub(overhead) / 8 * 8;
    if size == 0 {
        return;
    }
    let protocol = ip.protocol;
    let mut out = Vec::with_capacity(mtu);
    let mut offset = 0;
    for part in data.chunks(size) {
        out.clear();
        let more = offset + part.len() < data.len();
        match is_v4 {
            true => {
                let flags = if more { MORE_FRAGMENTS } else { 0 };
                ip.write_with(&mut out, part.len(), flags | (offset / 8) as u16);
            }
            false => {
                ip.protocol = protocol::FRAGMENT;
                ip.write(&mut out, FRAGMENT_HEADER + part.len());
                out.extend([protocol, 0]);
                out.extend((offset as u16 | u16::from(more)).to_be_bytes());
                out.extend(id.to_be_bytes());
            }
        }
        out.extend(part);
        send(&out);
        offset += part.len();
    }
}

/// The reset that answers a segment without a connection (RFC 9293, section 3.5.2); `None` for a
/// reset, which is never answered.
pub fn reset(packet: &Packet, segment: &Segment) -> Option<Vec<u8>> {
    let flags = segment.flags;
    if flags.rst {
        return None;
    }
    let ip = IpHeader {
        source: packet.destination,
        destination: packet.source,
        protocol: protocol::TCP,
        id: 0,
    };
    let control = u32::from(flags.syn) + u32::from(flags.fin);
    let (sequence, ack, bits) = match flags.ack {
        true => (segment.ack, 0, RST),
        false => {
            let len = (segment.len as u32).wrapping_add(control);
            (0, segment.sequence.wrapping_add(len), RST | ACK)
        }
    };
    let mut header = [0; 20];
    header[..2].copy_from_slice(&segment.destination_port.to_be_bytes());
    header[2..4].copy_from_slice(&segment.source_port.to_be_bytes());
    header[4..8].copy_from_slice(&sequence.to_be_bytes());
    header[8..12].copy_from_slice(&ack.to_be_bytes());
    // The header's length in words of four bytes.
    header[12] = 5 << 4;
    header[13] = bits;
    let sum = pseudo_header(ip.source, ip.destination, ip.protocol, header.len());
    let checksum = sum.plus(&header).checksum();
    header[16..18].copy_from_slice(&checksum.to_be_bytes());
    let mut out = Vec::with_capacity(ip.size() + header.len());
    ip.write(&mut out, header.len());
    out.extend(header);
    Some(out)
}

const RST: u8 = 4;
const ACK: u8 = 16;
