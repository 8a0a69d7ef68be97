//! Segments a super-packet, and joins consecutive segments to one packet again.

use super::OFFLOAD_HEADER;
use super::checksum::{fold, pseudo_header, set_ip};

/// The checksum at `csum_offset` covers the pseudo header only; the receiver completes it.
pub(super) const NEEDS_CSUM: u8 = 1;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_TCPV6: u8 = 4;
pub(super) const GSO_UDP_L4: u8 = 5;
/// Flag in the kind: the segments carry ECN's CWR.
pub(super) const GSO_ECN: u8 = 0x80;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const TCP_CWR: u8 = 0x80;
/// Flags that only the last segment carries: FIN, PSH.
pub(super) const TCP_LAST: u8 = 0x09;
/// Space for the offload header, an IPv6 header with extensions, and a TCP header.
pub(super) const MAX_HEADERS: usize = 512;

/// The segmentation of a super-packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Kind of the segments, `GSO_ECN` included.
    kind: u8,
    /// Length of the IP header with its extensions: offset of the TCP or UDP header.
    transport: usize,
    /// Length of all headers, from IP on.
    pub(super) headers: usize,
    /// Payload of each segment except the last.
    size: usize,
}

impl Layout {
    /// `None` for a packet that needs no segmentation.
    pub(super) fn of(data: &[u8]) -> Option<Self> {
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

    /// Number of segments of a super-packet of `wire` bytes.
    pub(super) fn count(&self, wire: usize) -> usize {
        (wire - self.headers).div_ceil(self.size)
    }

    /// Payload length of one segment.
    pub(super) fn payload(&self, wire: usize, index: usize) -> usize {
        (wire - self.headers - index * self.size).min(self.size)
    }

    /// The packet made of the segments `first..end`: the offload header, its headers and its
    /// payload.
    pub(super) fn join<'a>(
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
