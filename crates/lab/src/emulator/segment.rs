//! Packets in transit: whole packets, or parts of a super-packet that the kernel left to the
//! receiver to segment.
//!
//! Each packet starts with a header (struct virtio_net_hdr, linux/virtio_net.h) that describes the
//! part of its checksum that the receiver has to complete. With segmentation offload the kernel
//! hands over TCP and UDP data in super-packets of up to 64 KiB; the header then also describes how
//! to segment them. The links carry the segments one by one, so that queues, rates and losses apply
//! to packets as on a wire. Segments that leave a link together and belong together are written as
//! one super-packet again, without a copy.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use sumlink_link::Packet;

use layout::{Layout, MAX_HEADERS};

mod checksum;
mod flow;
mod layout;

pub(crate) use flow::Flow;

/// Bytes of the header before each packet.
pub(crate) const OFFLOAD_HEADER: usize = 10;

/// A packet as it travels on a link.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// The bytes read from the interface, including the offload header if present.
    data: Arc<Vec<u8>>,
    /// Index of this segment in the super-packet, from 0.
    index: u16,
    /// Bytes on the wire, from the IP header on.
    wire_len: u32,
}

impl Segment {
    /// A single packet with its offload header.
    pub(crate) fn whole(data: Arc<Vec<u8>>) -> Self {
        Self {
            wire_len: data.len().saturating_sub(OFFLOAD_HEADER) as u32,
            data,
            index: 0,
        }
    }

    /// The segments of a read from an interface with offloads: the packet itself, unless it is a
    /// super-packet. Empty if shorter than a header, which the kernel does not send.
    pub(crate) fn cut(data: Arc<Vec<u8>>) -> impl Iterator<Item = Self> + use<> {
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

/// Consecutive segments of one super-packet, to be written together.
#[derive(Debug)]
pub(crate) struct Run {
    data: Arc<Vec<u8>>,
    /// The first segment and the one past the last.
    range: [u16; 2],
}

impl Run {
    pub(crate) fn new(segment: Segment) -> Self {
        Self {
            data: segment.data,
            range: [segment.index, segment.index + 1],
        }
    }

    /// Takes the segment if it continues this run; returns it otherwise.
    pub(crate) fn extend(&mut self, segment: Segment) -> Result<(), Segment> {
        if segment.index != self.range[1] || !Arc::ptr_eq(&self.data, &segment.data) {
            return Err(segment);
        }
        self.range[1] += 1;
        Ok(())
    }

    /// The buffer of the super-packet that contains the segments.
    pub(crate) fn into_buffer(self) -> Arc<Vec<u8>> {
        self.data
    }

    /// Writes a single packet as it was read.
    pub(crate) fn write_whole(&self, mut to: &File) -> io::Result<()> {
        to.write(&self.data).map(drop)
    }

    /// Writes the segments as one packet.
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

#[cfg(test)]
mod tests {
    use super::checksum::{fold, pseudo_header, set_ip, sum};
    use super::layout::{
        GSO_ECN, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, NEEDS_CSUM, TCP, TCP_CWR, TCP_LAST, UDP,
    };
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

    /// Completes a checksum as a receiver with NEEDS_CSUM does, and returns whether it verifies.
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
            let segments: Vec<_> = Segment::cut(Arc::new(data.clone())).collect();
            let headers = if v6 { 72 } else { 52 };
            let lengths: Vec<_> = segments.iter().map(Packet::wire_len).collect();
            assert_eq!(lengths, [headers + 1_400, headers + 1_400, headers + 200]);
            let mut payload: Vec<u8> = Vec::new();
            for (i, segment) in segments.iter().enumerate() {
                let packet = join(std::slice::from_ref(segment));
                assert!(checksum_holds(&packet), "v6 {v6}, segment {i}");
                assert_eq!(packet[1], 0, "not to be segmented again");
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
    fn consecutive_segments_are_joined() {
        for v6 in [false, true] {
            let data = tcp(v6, 10_000, 1_000);
            let segments: Vec<_> = Segment::cut(Arc::new(data.clone())).collect();
            assert_eq!(join(&segments), data, "together they are the original");
            let middle = join(&segments[2..5]);
            assert!(checksum_holds(&middle));
            assert_eq!(middle.len(), data.len() - 7_000);
            assert_eq!(middle[1], if v6 { GSO_TCPV6 } else { GSO_TCPV4 });
            let mut run = Run::new(segments[2].clone());
            assert!(
                run.extend(segments[4].clone()).is_err(),
                "a segment is missing"
            );
            let other: Vec<_> = Segment::cut(Arc::new(data.clone())).collect();
            assert!(
                run.extend(other[3].clone()).is_err(),
                "belongs to another super-packet"
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
        let segments: Vec<_> = Segment::cut(Arc::new(data.clone())).collect();
        assert_eq!(segments.len(), 3);
        for (i, len) in [1_008, 1_008, 508].into_iter().enumerate() {
            let packet = join(&segments[i..=i]);
            assert!(checksum_holds(&packet), "{i}");
            let udp = &packet[OFFLOAD_HEADER + 20..];
            assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), len);
        }
    }

    #[test]
    fn packets_that_cannot_be_segmented_stay_whole() {
        assert_eq!(Segment::cut(Arc::new(vec![0; 4])).count(), 0);
        assert_eq!(Segment::cut(Arc::new(vec![0; 60])).count(), 1);
        for garbage in [
            [NEEDS_CSUM, GSO_TCPV4, 0, 0, 0, 0, 0xff, 0xff, 0, 0].as_slice(),
            &[1; 90],
            &[0xff; 90],
        ] {
            let mut data = garbage.to_vec();
            data.extend([0x45; 30]);
            assert_eq!(Segment::cut(Arc::new(data.clone())).count(), 1);
        }
    }
}
