//! Packet parsing: addresses, ports, and the TCP fields that steering and VISIBLE need.
//!
//! `etherparse` parses the headers. TCP options are parsed here, because they are edited in place,
//! and because one unknown option must not hide the others.

mod build;
mod options;
mod rewrite;

use std::net::{IpAddr, SocketAddr};

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, IpSlice, TcpSlice};

pub use build::reset;
pub use options::{Options, SackBlocks};
pub use rewrite::{
    clamp_mss, set_ack, set_sack_blocks, set_timestamp, set_timestamp_echo, set_window,
    strip_sack_permitted,
};

/// A parsed packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole TCP segment.
    Tcp(Segment),
    /// A whole IP packet of something else, or a fragment of one.
    Other(Addresses),
    /// A packet that could not be parsed, the reason, and its addresses if they are readable.
    Malformed(Malformed, Option<Addresses>),
}

/// Why a packet could not be parsed. Its sender is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Neither IPv4 nor IPv6, a truncated header, or a length beyond the packet.
    #[error("not an IP packet, or a truncated one")]
    Ip,
    /// The TCP header is truncated or states an impossible length.
    #[error("a TCP header that is truncated or of impossible length")]
    TcpHeader,
    /// An option's length is impossible or exceeds the header.
    #[error("a TCP option of impossible length")]
    TcpOption,
    /// The TCP checksum is wrong, so no field of the header is reliable.
    #[error("a wrong TCP checksum")]
    Checksum,
}

/// Addresses of a packet other than a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol number of IPv4, or the last "next header" of IPv6.
    pub protocol: u8,
    /// Source and destination port; `None` for fragments and protocols without ports.
    pub ports: Option<(u16, u16)>,
}

/// The flags of a segment that the node uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// SYN.
    pub syn: bool,
    /// FIN.
    pub fin: bool,
    /// RST.
    pub rst: bool,
    /// ACK: the acknowledgment number is valid.
    pub ack: bool,
    /// Urgent data or a congestion mark (RFC 3168: ECE, CWR; with AccECN, AE): the segment carries
    /// more than its number.
    pub marked: bool,
}

/// A TCP segment, and the offsets of its parts in the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
    /// Sequence number of the first byte (of the SYN, if set).
    pub sequence: u32,
    /// Acknowledgment number; valid only with `flags.ack`.
    pub ack: u32,
    /// Window as in the header, unscaled.
    pub window: u16,
    /// Flags.
    pub flags: Flags,
    /// Options.
    pub options: Options,
    /// Offset of the TCP header in the packet.
    pub header: usize,
    /// Offset of the payload in the packet.
    pub payload: usize,
    /// Bytes of payload.
    pub len: usize,
}

impl Segment {
    /// Length in sequence numbers: the payload, plus one each for SYN and FIN (RFC 9293, section
    /// 3.4).
    pub fn sequence_len(&self) -> u64 {
        self.len as u64 + u64::from(self.flags.syn) + u64::from(self.flags.fin)
    }
}

/// Parses a packet that starts with its IP header. Never panics on any input.
///
/// `verify` enables the TCP checksum; without it, damaged headers are trusted.
pub fn parse(packet: &[u8], verify: bool) -> Parsed {
    let Ok(ip) = IpSlice::from_slice(packet) else {
        return Parsed::Malformed(Malformed::Ip, None);
    };
    let (source, destination) = (ip.source_addr(), ip.destination_addr());
    let protocol = ip.payload_ip_number();
    let body = ip.payload().payload;
    let fragment = ip.is_fragmenting_payload();
    if protocol != IpNumber::TCP || fragment {
        let has_ports =
            !fragment && [IpNumber::UDP, IpNumber(132), IpNumber(33)].contains(&protocol);
        let ports = body.first_chunk::<4>().filter(|_| has_ports);
        return Parsed::Other(Addresses {
            source,
            destination,
            protocol: protocol.0,
            ports: ports.map(|p| {
                (
                    u16::from_be_bytes([p[0], p[1]]),
                    u16::from_be_bytes([p[2], p[3]]),
                )
            }),
        });
    }
    let malformed = |why| {
        let addresses = Addresses {
            source,
            destination,
            protocol: protocol.0,
            ports: None,
        };
        Parsed::Malformed(why, Some(addresses))
    };
    let Ok(tcp) = TcpSlice::from_slice(body) else {
        return malformed(Malformed::TcpHeader);
    };
    if verify && sum(source, destination, body) != 0 {
        return malformed(Malformed::Checksum);
    }
    let header = body.as_ptr().addr() - packet.as_ptr().addr();
    let options = match Options::read(tcp.options(), header + 20) {
        Ok(options) => options,
        Err(why) => return malformed(why),
    };
    Parsed::Tcp(Segment {
        source: SocketAddr::new(source, tcp.source_port()),
        destination: SocketAddr::new(destination, tcp.destination_port()),
        sequence: tcp.sequence_number(),
        ack: tcp.acknowledgment_number(),
        window: tcp.window_size(),
        flags: Flags {
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            ack: tcp.ack(),
            marked: tcp.urg() || tcp.ece() || tcp.cwr() || tcp.ns(),
        },
        options,
        header,
        payload: header + tcp.header_slice().len(),
        len: tcp.payload().len(),
    })
}

/// Checksum over pseudo header and segment (RFC 9293, section 3.1): 0 if the one in the header is
/// correct.
fn sum(source: IpAddr, destination: IpAddr, segment: &[u8]) -> u16 {
    let sum = Sum16BitWords::new();
    let sum = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => sum
            .add_slice(&source.octets())
            .add_slice(&destination.octets()),
        (IpAddr::V6(source), IpAddr::V6(destination)) => sum
            .add_slice(&source.octets())
            .add_slice(&destination.octets()),
        _ => sum,
    };
    sum.add_2bytes([0, 6])
        .add_2bytes((segment.len() as u16).to_be_bytes())
        .add_slice(segment)
        .ones_complement()
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
