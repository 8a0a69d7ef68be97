//! Packets: parsed, rewritten and built, as pure functions over bytes.
//!
//! `etherparse` parses the headers of IP, TCP and UDP. The chain of IPv6 extension headers is
//! walked here, because fragments must be read from behind the right one.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use etherparse::{
    Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice, UdpHeaderSlice,
};

pub mod build;
pub mod checksum;
pub mod header;
pub mod icmp;
pub mod reassembly;
mod rewrite;
#[cfg(test)]
mod tests;

pub use rewrite::rewrite;

/// Protocol numbers of IP.
pub mod protocol {
    /// ICMP (RFC 792).
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6 (RFC 4443).
    pub const ICMP6: u8 = 58;
    /// The fragment header of IPv6.
    pub const FRAGMENT: u8 = 44;
}

/// Extension headers of IPv6 that precede data: hop-by-hop options, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, ROUTING, 60];

const ROUTING: u8 = 43;

/// Most extension headers of a packet.
const MAX_EXTENSIONS: usize = 8;

/// A parsed IP packet. Offsets count from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Differentiated services code point (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Hop limit, or time to live.
    pub hop_limit: u8,
    /// "Don't fragment" of IPv4; always set for IPv6, which routers never fragment.
    pub dont_fragment: bool,
    /// Offset of the field that names the protocol.
    pub protocol_at: usize,
    /// The end of the packet.
    pub len: usize,
    /// Its contents.
    pub body: Body,
}

/// The contents of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP datagram, or several in a super-packet.
    Udp(Datagram),
    /// An ICMP or ICMPv6 echo request.
    Echo(Echo),
    /// Another ICMP or ICMPv6 message, with its type.
    Icmp(u8),
    /// A fragment.
    Fragment(Fragment),
    /// Another protocol, with its number.
    Other(u8),
}

/// The fields of a TCP header that the stack needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number; valid with `flags.ack`.
    pub ack: u32,
    /// The flags.
    pub flags: Flags,
    /// Offset of the header.
    pub header: usize,
    /// Bytes of payload.
    pub len: usize,
}

/// TCP flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// SYN.
    pub syn: bool,
    /// ACK.
    pub ack: bool,
    /// FIN.
    pub fin: bool,
    /// RST.
    pub rst: bool,
}

/// A UDP header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Offset of the header.
    pub header: usize,
    /// The payload.
    pub payload: Range<usize>,
}

/// An echo request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Identifier.
    pub id: u16,
    /// Offset of the ICMP header.
    pub header: usize,
    /// Sequence number and data, as in a datagram to [`Target::echo`](sumlink_proxy::Target::echo).
    pub payload: Range<usize>,
}

/// A fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Identification.
    pub id: u32,
    /// Offset of its data in the whole, in bytes.
    pub offset: usize,
    /// Whether further fragments follow.
    pub more: bool,
    /// Protocol of the whole.
    pub protocol: u8,
    /// The data.
    pub data: Range<usize>,
}

/// Why a packet cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Neither IPv4 nor IPv6, a truncated header, or a length beyond the packet.
    #[error("not an IP packet, or a truncated one")]
    Ip,
    /// The extension headers of IPv6 are truncated or too many, or route the packet elsewhere
    /// (RFC 5095).
    #[error("extension headers that are truncated, too many, or obsolete")]
    Extensions,
    /// The header of TCP, UDP or ICMP is truncated or has an impossible length.
    #[error("a TCP, UDP or ICMP header of impossible length")]
    Header,
}

impl Packet {
    /// The source with this port.
    pub fn from(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.source, port)
    }

    /// The destination with this port.
    pub fn to(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.destination, port)
    }
}

/// Parses a packet that starts with its IP header. Never panics on any input. Checksums are not
/// verified.
pub fn parse(packet: &[u8]) -> Result<Packet, Malformed> {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => parse_v4(packet),
        Some(6) => parse_v6(packet),
        _ => Err(Malformed::Ip),
    }
}

fn parse_v4(packet: &[u8]) -> Result<Packet, Malformed> {
    let ip = Ipv4HeaderSlice::from_slice(packet).map_err(|_| Malformed::Ip)?;
    let (header, len) = (ip.slice().len(), usize::from(ip.total_len()));
    if len < header || len > packet.len() {
        return Err(Malformed::Ip);
    }
    let protocol = ip.protocol().0;
    let body = match ip.is_fragmenting_payload() {
        true => Body::Fragment(Fragment {
            id: u32::from(ip.identification()),
            offset: usize::from(ip.fragments_offset().value()) * 8,
            more: ip.more_fragments(),
            protocol,
            data: header..len,
        }),
        false => body(&packet[..len], header, protocol, protocol::ICMP)?,
    };
    Ok(Packet {
        source: ip.source_addr().into(),
        destination: ip.destination_addr().into(),
        dscp: ip.dcp().value(),
        hop_limit: ip.ttl(),
        dont_fragment: ip.dont_fragment(),
        protocol_at: 9,
        len,
        body,
    })
}

fn parse_v6(packet: &[u8]) -> Result<Packet, Malformed> {
    let ip = Ipv6HeaderSlice::from_slice(packet).map_err(|_| Malformed::Ip)?;
    let mut at = ip.slice().len();
    let len = at + usize::from(ip.payload_length());
    let whole = packet.get(..len).ok_or(Malformed::Ip)?;
    let mut protocol = ip.next_header().0;
    let mut protocol_at = 6;
    for count in 0.. {
        if !EXTENSIONS.contains(&protocol) {
            break;
        }
        let rest = whole.get(at..).unwrap_or_default();
        let [next, units, _, segments, ..] = *rest else {
            return Err(Malformed::Extensions);
        };
        let is_routed = protocol == ROUTING && segments != 0;
        if count == MAX_EXTENSIONS || is_routed {
            return Err(Malformed::Extensions);
        }
        protocol_at = at;
        protocol = next;
        at += (usize::from(units) + 1) * 8;
    }
    if at > len {
        return Err(Malformed::Extensions);
    }
    let body = match protocol {
        protocol::FRAGMENT => {
            let header = Ipv6FragmentHeaderSlice::from_slice(&whole[at..]);
            let header = header.map_err(|_| Malformed::Extensions)?;
            // An atomic fragment (RFC 6946) is treated like any other: it is complete at once.
            Body::Fragment(Fragment {
                id: header.identification(),
                offset: usize::from(header.fragment_offset().value()) * 8,
                more: header.more_fragments(),
                protocol: header.next_header().0,
                data: at + 8..len,
            })
        }
        _ => body(whole, at, protocol, protocol::ICMP6)?,
    };
    Ok(Packet {
        source: ip.source_addr().into(),
        destination: ip.destination_addr().into(),
        dscp: ip.dscp().value(),
        hop_limit: ip.hop_limit(),
        dont_fragment: true,
        protocol_at,
        len,
        body,
    })
}

/// Parses the contents of a whole packet behind its IP headers. `icmp` is the family's protocol
/// number of ICMP.
fn body(packet: &[u8], header: usize, protocol: u8, icmp: u8) -> Result<Body, Malformed> {
    let rest = packet.get(header..).unwrap_or_default();
    match protocol {
        protocol::TCP => {
            let tcp = TcpHeaderSlice::from_slice(rest).map_err(|_| Malformed::Header)?;
            Ok(Body::Tcp(Segment {
                source_port: tcp.source_port(),
                destination_port: tcp.destination_port(),
                sequence: tcp.sequence_number(),
                ack: tcp.acknowledgment_number(),
                flags: Flags {
                    syn: tcp.syn(),
                    ack: tcp.ack(),
                    fin: tcp.fin(),
                    rst: tcp.rst(),
                },
                header,
                len: rest.len() - tcp.slice().len(),
            }))
        }
        protocol::UDP => {
            let udp = UdpHeaderSlice::from_slice(rest).map_err(|_| Malformed::Header)?;
            let len = usize::from(udp.length());
            if len < build::UDP_HEADER || len > rest.len() {
                return Err(Malformed::Header);
            }
            Ok(Body::Udp(Datagram {
                source_port: udp.source_port(),
                destination_port: udp.destination_port(),
                header,
                payload: header + build::UDP_HEADER..header + len,
            }))
        }
        _ if protocol == icmp => {
            let Some([kind, code, _, _, id @ .., _, _]) = rest.first_chunk::<8>() else {
                return Err(Malformed::Header);
            };
            let request = match icmp {
                protocol::ICMP => icmp::ECHO_REQUEST,
                _ => icmp::ECHO_REQUEST6,
            };
            if (*kind, *code) != (request, 0) {
                return Ok(Body::Icmp(*kind));
            }
            Ok(Body::Echo(Echo {
                id: u16::from_be_bytes(*id),
                header,
                payload: header + 6..packet.len(),
            }))
        }
        other => Ok(Body::Other(other)),
    }
}
