//! IP headers.

use std::net::IpAddr;

use super::checksum::Sum;

/// Hop limit of packets from the stack (RFC 1700).
const HOP_LIMIT: u8 = 64;

/// Longest packet that every IPv6 link carries (RFC 8200, section 5).
pub const MIN_MTU6: usize = 1280;

/// Addresses and protocol of a packet to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpHeader {
    /// Source address.
    pub source: IpAddr,
    /// Destination address, of the same family.
    pub destination: IpAddr,
    /// Protocol of the data.
    pub protocol: u8,
    /// Identification of IPv4, which fragments of one packet share.
    pub id: u16,
}

impl IpHeader {
    /// Bytes of the header.
    pub fn size(&self) -> usize {
        header_len(self.source)
    }

    /// Appends the header of a packet with `len` bytes of data. IPv4 packets may be fragmented on
    /// the way.
    pub fn write(&self, out: &mut Vec<u8>, len: usize) {
        self.write_with(out, len, 0);
    }

    /// [`IpHeader::write`] with the flags and the fragment offset of IPv4.
    pub(super) fn write_with(&self, out: &mut Vec<u8>, len: usize, fragment: u16) {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let start = out.len();
                out.extend([0x45, 0]);
                out.extend(((20 + len) as u16).to_be_bytes());
                out.extend(self.id.to_be_bytes());
                out.extend(fragment.to_be_bytes());
                out.extend([HOP_LIMIT, self.protocol, 0, 0]);
                out.extend(source.octets());
                out.extend(destination.octets());
                let checksum = Sum::default().plus(&out[start..]).checksum();
                out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            (source, destination) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                out.extend([0x60, 0, 0, 0]);
                out.extend((len as u16).to_be_bytes());
                out.extend([self.protocol, HOP_LIMIT]);
                out.extend(octets(source));
                out.extend(octets(destination));
            }
        }
    }
}

/// Bytes of an IP header without options.
pub fn header_len(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(_) => 20,
        IpAddr::V6(_) => 40,
    }
}
