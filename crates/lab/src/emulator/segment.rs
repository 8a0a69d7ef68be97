//! Packets on their way: whole ones, or parts of a super-packet that the kernel left to be cut.
//!
//! With segmentation offload the kernel hands over TCP and UDP data in super-packets of up to 64 KiB, each
//! with a header that says how to cut it (struct virtio_net_hdr, linux/virtio_net.h). The links carry the
//! segments one by one, so that queues, rates and losses are those of packets on a wire. What comes out
//! of a link at once and belongs together is written as one super-packet again, without ever having been
//! copied.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use sumlink_link::Packet;

/// Bytes of the header in front of each packet of an interface with offloads.
pub(crate) const OFFLOAD_HEADER: usize = 10;

/// The checksum at `csum_offset` covers the pseudo header only; the rest is left to the receiver.
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Flag beside the kind: the segments carry ECN's CWR.
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_CWR: u8 = 0x80;
/// Flags that only the last segment carries: FIN, PSH.
const TCP_LAST: u8 = 0x09;
/// Room for the offload header, an IPv6 header with extensions, and a TCP header.
const MAX_HEADERS: usize = 512;

/// A packet as it travels on a link.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// What was read from the interface, the offload header included where there is one.
    data: Arc<[u8]>,
    /// Which part of it this is, from 0.
    index: u16,
    /// Bytes on the wire, from the IP header on.
    wire_len: u32,
}

impl Segment {
    /// A packet that was read from an interface without offloads.
    pub(crate) fn whole(data: &[u8]) -> Self {
        Self {
            data: Arc::from(data),
            index: 0,
            wire_len: data.len() as u32,
        }
    }

    /// The segments of what was read from an interface with offloads: the packet itself, unless it is a
    /// super-packet. Nothing for less than a header, which the kernel does not send.
    pub(crate) fn cut(data: &[u8]) -> impl Iterator<Item = Self> + use<> {
        let data: Arc<[u8]> = Arc::from(data);
        let layout = Layout::of(&data);
        let wire = data.len().saturating_sub(OFFLOAD_HEADER);
        let count = match &layout {
            Some(layout) => layout.count(wire),
            None => usize::from(wire > 0),
        };
        (0..count).map(move |index| Self {
            data: Arc::clone(&data),
            index: index as u16,
            wire_len: layout
                .as_ref()
                .map_or(wire, |layout| layout.headers + layout.payload(wire, index))
                as u32,
        })
    }
}

impl Packet for Segment {
    fn wire_len(&self) -> usize {
        self.wire_len as usize
    }
}

/// Neighbouring segments of one super-packet, to be written at once.
#[derive(Debug)]
pub(crate) struct Run {
    data: Arc<[u8]>,
    /// The first segment and the one behind the last.
    range: [u16; 2],
}

impl Run {
    pub(crate) fn new(segment: Segment) -> Self {
        Self {
            data: segment.data,
            range: [segment.index, segment.index + 1],
        }
    }

    /// Takes the segment if it continues this run, else gives it back.
    pub(crate) fn extend(&mut self, segment: Segment) -> Result<(), Segment> {
        if segment.index != self.range[1] || !Arc::ptr_eq(&self.data, &segment.data) {
            return Err(segment);
        }
        self.range[1] += 1;
        Ok(())
    }

    /// Writes the packet to an interface without offloads.
    pub(crate) fn write_whole(&self, mut to: &File) -> io::Result<()> {
        to.write(&self.data).map(drop)
    }

    /// Writes the segments to an interface with offloads, as one packet.
    pub(crate) fn write_joined(&self, mut to: &File) -> io::Result<()> {
        let Some(layout) = Layout::of(&self.data) else {
            return to.write(&self.data).map(drop);
        };
        let mut headers = [0; MAX_HEADERS];
        let [first, end] = self.range.map(usize::from);
        let (headers, payload) = layout.join(&self.data, first, end, &mut headers);
        to.write_vectored(&[IoSlice::new(headers), IoSlice::new(payload)])
            .map(drop)
    }
}

/// How a super-packet is cut.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Kind of the segments, `GSO_ECN` included.
    kind: u8,
    /// Bytes of the IP header, with its extensions: where TCP's or UDP's begins.
    transport: usize,
    /// Bytes of all headers, from IP on.
    headers: usize,
    /// Payload of each segment except the last.
    size: usize,
}

impl Layout {
    /// `None` for a packet that is not to be cut.
    fn of(data: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u16::from_ne_bytes([*data.get(at)?, *data.get(at + 1)?]));
        let kind = *data.get(1)?;
        let (size, transport) = (usize::from(number(4)?), usize::from(number(6)?));
        let ip = &data[OFFLOAD_HEADER.min(data.len())..];
        let transport_len = match kind & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 => usize::from(*ip.get(transport + 12)? >> 4) * 4,
            GSO_UDP_L4 => 8,
            _ => return None,
        };
        let headers = transport + transport_len;
        let shortest = if kind & !GSO_ECN == GSO_UDP_L4 { 8 } else { 20 };
        let least = if *ip.first()? >> 4 == 6 { 40 } else { 20 };
        let sound = size > 0
            && transport >= least
            && transport_len >= shortest
            && OFFLOAD_HEADER + headers <= MAX_HEADERS
            && headers < ip.len();
        sound.then_some(Self {
            kind,
            transport,
            headers,
            size,
        })
    }

    /// How many segments a super-packet of `wire` bytes makes.
    fn count(&self, wire: usize) -> usize {
        (wire - self.headers).div_ceil(self.size)
    }

    /// Payload of one segment.
    fn payload(&self, wire: usize, index: usize) -> usize {
        (wire - self.headers - index * self.size).min(self.size)
    }

    /// The packet made of the segments `first..end`: its headers, with the offload header before them, and
    /// its payload.
    fn join<'a>(
        &self,
        data: &'a [u8],
        first: usize,
        end: usize,
        buffer: &'a mut [u8; MAX_HEADERS],
    ) -> (&'a [u8], &'a [u8]) {
        let (offload, ip) = data.split_at(OFFLOAD_HEADER);
        let count = self.count(ip.len());
        let body = &ip[self.headers..];
        let payload = &body[first * self.size..body.len().min(end * self.size)];
        let headers = &mut buffer[..OFFLOAD_HEADER + self.headers];
        headers[..OFFLOAD_HEADER].copy_from_slice(offload);
        headers[OFFLOAD_HEADER..].copy_from_slice(&ip[..self.headers]);
        headers[0] = NEEDS_CSUM;
        let is_tcp = self.kind & !GSO_ECN != GSO_UDP_L4;
        headers[2..4].copy_from_slice(&(self.headers as u16).to_ne_bytes());
        let checksum_at: u16 = if is_tcp { 16 } else { 6 };
        headers[8..10].copy_from_slice(&checksum_at.to_ne_bytes());
        if end - first == 1 {
            headers[1] = 0;
            headers[4..6].fill(0);
        } else if first > 0 {
            headers[1] &= !GSO_ECN;
        }
        let (ip, transport) = headers[OFFLOAD_HEADER..].split_at_mut(self.transport);
        let transport_len = transport.len() + payload.len();
        set_ip(ip, transport_len, first);
        if is_tcp {
            let sequence =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]])
                    .wrapping_add((first * self.size) as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if first > 0 {
                transport[13] &= !TCP_CWR;
            }
            if end < count {
                transport[13] &= !TCP_LAST;
            }
        } else {
            transport[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes());
        }
        let sum = pseudo_header(ip, if is_tcp { TCP } else { UDP }, transport_len);
        let at = usize::from(checksum_at);
        transport[at..at + 2].copy_from_slice(&fold(sum).to_be_bytes());
        (headers, payload)
    }
}

/// Sets the length, and for IPv4 the identification and the checksum, of a packet cut behind `index`
/// others. `header` has at least 20 bytes.
fn set_ip(header: &mut [u8], transport_len: usize, index: usize) {
    if header[0] >> 4 == 6 {
        let len = (header.len() - 40 + transport_len) as u16;
        header[4..6].copy_from_slice(&len.to_be_bytes());
        return;
    }
    let len = (header.len() + transport_len) as u16;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    let identification = u16::from_be_bytes([header[4], header[5]]).wrapping_add(index as u16);
    header[4..6].copy_from_slice(&identification.to_be_bytes());
    header[10..12].fill(0);
    let checksum = !fold(sum(header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The part of TCP's and UDP's checksum that covers the addresses (RFC 9293, section 3.1; RFC 8200,
/// section 8.1), as whoever completes the checksum expects it.
fn pseudo_header(ip: &[u8], protocol: u8, transport_len: usize) -> u64 {
    let addresses = if ip[0] >> 4 == 6 {
        &ip[8..40]
    } else {
        &ip[12..20]
    };
    sum(addresses) + u64::from(protocol) + transport_len as u64
}

/// Sum of 16-bit words in network byte order.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from))
        .sum()
}

/// The ones' complement sum in 16 bits (RFC 1071).
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A super-packet of TCP over IPv4 or IPv6, as the kernel hands it over.
    fn tcp(v6: bool, payload: usize, size: u16) -> Vec<u8> {
        let transport = if v6 { 40 } else { 20 };
        let mut ip = vec![0; transport + 32 + payload];
        for (i, byte) in ip.iter_mut().enumerate() {
            *byte = (i * 31 + 7) as u8;
        }
        let kind = if v6 {
            ip[0] = 0x60;
            ip[6] = TCP;
            GSO_TCPV6
        } else {
            ip[0] = 0x45;
            ip[9] = TCP;
            GSO_TCPV4
        };
        ip[transport + 4..transport + 8].copy_from_slice(&[0xff, 0xff, 0xff, 0x00]);
        ip[transport + 12] = 8 << 4;
        ip[transport + 13] = TCP_CWR | TCP_LAST | 0x10;
        let transport_len = ip.len() - transport;
        let partial = fold(pseudo_header(&ip, TCP, transport_len));
        ip[transport + 16..transport + 18].copy_from_slice(&partial.to_be_bytes());
        set_ip(&mut ip[..transport], transport_len, 0);
        let mut data = vec![NEEDS_CSUM, kind | GSO_ECN];
        for number in [transport as u16 + 32, size, transport as u16, 16] {
            data.extend(number.to_ne_bytes());
        }
        data.extend(ip);
        data
    }

    fn join(segments: &[Segment]) -> Vec<u8> {
        let mut run = Run::new(segments[0].clone());
        for segment in &segments[1..] {
            run.extend(segment.clone()).unwrap();
        }
        let layout = Layout::of(&run.data).unwrap();
        let mut buffer = [0; MAX_HEADERS];
        let [first, end] = run.range.map(usize::from);
        let (headers, payload) = layout.join(&run.data, first, end, &mut buffer);
        [headers, payload].concat()
    }

    /// Completes a checksum as a receiver with NEEDS_CSUM does, and says whether it verifies.
    fn checksum_holds(packet: &[u8]) -> bool {
        let ip = &packet[OFFLOAD_HEADER..];
        let start = usize::from(u16::from_ne_bytes([packet[6], packet[7]]));
        let at = start + usize::from(u16::from_ne_bytes([packet[8], packet[9]]));
        let mut whole = ip.to_vec();
        let checksum = !fold(sum(&ip[start..]));
        whole[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        let transport = &whole[start..];
        let pseudo = pseudo_header(
            ip,
            if ip[0] >> 4 == 6 { ip[6] } else { ip[9] },
            transport.len(),
        );
        let ip_holds = ip[0] >> 4 == 6 || fold(sum(&ip[..start])) == 0xffff;
        ip_holds && fold(pseudo + sum(transport)) == 0xffff
    }

    #[test]
    fn each_segment_is_a_packet_of_its_own() {
        for v6 in [false, true] {
            let data = tcp(v6, 3_000, 1_400);
            let segments: Vec<_> = Segment::cut(&data).collect();
            let headers = if v6 { 72 } else { 52 };
            let lengths: Vec<_> = segments.iter().map(Packet::wire_len).collect();
            assert_eq!(lengths, [headers + 1_400, headers + 1_400, headers + 200]);
            let mut payload: Vec<u8> = Vec::new();
            for (i, segment) in segments.iter().enumerate() {
                let packet = join(std::slice::from_ref(segment));
                assert!(checksum_holds(&packet), "v6 {v6}, segment {i}");
                assert_eq!(packet[1], 0, "not to be cut again");
                let ip = &packet[OFFLOAD_HEADER..];
                let tcp = &ip[headers - 32..];
                let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
                assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(1_400 * i as u32));
                assert_eq!(tcp[13] & TCP_CWR != 0, i == 0, "CWR on the first");
                assert_eq!(tcp[13] & TCP_LAST != 0, i == 2, "PSH and FIN on the last");
                payload.extend(&ip[headers..]);
            }
            assert_eq!(payload, data[OFFLOAD_HEADER + headers..]);
        }
    }

    #[test]
    fn neighbours_become_one_packet_again() {
        for v6 in [false, true] {
            let data = tcp(v6, 10_000, 1_000);
            let segments: Vec<_> = Segment::cut(&data).collect();
            assert_eq!(join(&segments), data, "all of them are the original");
            let middle = join(&segments[2..5]);
            assert!(checksum_holds(&middle));
            assert_eq!(middle.len(), data.len() - 7_000);
            assert_eq!(middle[1], if v6 { GSO_TCPV6 } else { GSO_TCPV4 });
            let mut run = Run::new(segments[2].clone());
            assert!(run.extend(segments[4].clone()).is_err(), "one is missing");
            let other: Vec<_> = Segment::cut(&data).collect();
            assert!(
                run.extend(other[3].clone()).is_err(),
                "another super-packet's"
            );
        }
    }

    #[test]
    fn datagrams_are_cut_as_well() {
        let payload = 2_500;
        let mut ip = vec![9; 28 + payload];
        ip[0] = 0x45;
        ip[9] = UDP;
        let mut data = vec![NEEDS_CSUM, GSO_UDP_L4];
        for number in [28u16, 1_000, 20, 6] {
            data.extend(number.to_ne_bytes());
        }
        data.extend(ip);
        let segments: Vec<_> = Segment::cut(&data).collect();
        assert_eq!(segments.len(), 3);
        for (i, len) in [1_008, 1_008, 508].into_iter().enumerate() {
            let packet = join(&segments[i..=i]);
            assert!(checksum_holds(&packet), "{i}");
            let udp = &packet[OFFLOAD_HEADER + 20..];
            assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), len);
        }
    }

    #[test]
    fn what_cannot_be_cut_stays_whole() {
        assert_eq!(Segment::cut(&[0; 4]).count(), 0);
        assert_eq!(Segment::cut(&[0; 60]).count(), 1);
        for garbage in [
            [NEEDS_CSUM, GSO_TCPV4, 0, 0, 0, 0, 0xff, 0xff, 0, 0].as_slice(),
            &[1; 90],
            &[0xff; 90],
        ] {
            let mut data = garbage.to_vec();
            data.extend([0x45; 30]);
            assert_eq!(Segment::cut(&data).count(), 1);
        }
    }
}
