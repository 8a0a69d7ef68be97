//! ICMP errors (RFC 792, RFC 1812, RFC 4443).

use std::net::IpAddr;

use sumlink_exit::datagram::FlowFailure;

use super::checksum::{Sum, pseudo_header};
use super::header::{IpHeader, MIN_MTU6, header_len};
use super::{Body, Packet, protocol};

/// Type of an ICMP echo request.
pub const ECHO_REQUEST: u8 = 8;

/// Type of an ICMP echo reply.
pub const ECHO_REPLY: u8 = 0;

/// Type of an ICMPv6 echo request.
pub const ECHO_REQUEST6: u8 = 128;

/// Type of an ICMPv6 echo reply.
pub const ECHO_REPLY6: u8 = 129;

/// Bytes of an echo header before the sequence number.
pub const ECHO_HEADER: usize = 6;

/// Bytes of an error's header.
const ERROR_HEADER: usize = 8;

/// Longest ICMP error of IPv4 in bytes (RFC 1812, section 4.3.2.3).
const MAX_ERROR4: usize = 576;

/// Most bytes that are kept of a packet to quote it in an error. The headers of transport protocols
/// identify the program's socket; traceroute and the like also look at the start of their data.
pub const MAX_QUOTE: usize = 128;

/// The problem with a packet that an error reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No route to the destination's network.
    Network,
    /// The destination host does not answer.
    Host,
    /// The protocol is not carried; the field with its number is at this offset.
    Protocol {
        /// Offset in the packet.
        at: u32,
    },
    /// No program has the port.
    Port,
    /// A rule forbids it.
    Prohibited,
    /// The packet is too long for a part of the path.
    TooBig {
        /// Longest packet in bytes.
        mtu: u32,
    },
    /// Its hop limit has been reached.
    HopLimit,
    /// Its fragments cannot be reassembled.
    Reassembly,
}

impl Problem {
    /// The problem that programs receive for a failure at the exit.
    pub fn of(failure: FlowFailure) -> Self {
        match failure {
            FlowFailure::Refused => Self::Port,
            FlowFailure::NetworkUnreachable => Self::Network,
            FlowFailure::Filtered | FlowFailure::NotAllowed => Self::Prohibited,
            FlowFailure::TooBig { mtu } => Self::TooBig { mtu },
            _ => Self::Host,
        }
    }

    /// Type, code and the word after the checksum, for IPv4.
    fn v4(self) -> (u8, u8, u32) {
        match self {
            Self::Network => (3, 0, 0),
            Self::Host => (3, 1, 0),
            Self::Protocol { .. } => (3, 2, 0),
            Self::Port => (3, 3, 0),
            // RFC 1191, section 4.
            Self::TooBig { mtu } => (3, 4, mtu.min(u32::from(u16::MAX))),
            Self::Prohibited => (3, 13, 0),
            Self::HopLimit => (11, 0, 0),
            Self::Reassembly => (11, 1, 0),
        }
    }

    /// The same for IPv6.
    fn v6(self) -> (u8, u8, u32) {
        match self {
            Self::Network => (1, 0, 0),
            Self::Prohibited => (1, 1, 0),
            Self::Host => (1, 3, 0),
            Self::Port => (1, 4, 0),
            Self::TooBig { mtu } => (2, 0, mtu.max(MIN_MTU6 as u32)),
            Self::HopLimit => (3, 0, 0),
            Self::Reassembly => (3, 1, 0),
            Self::Protocol { at } => (4, 1, at),
        }
    }
}

/// The error about a packet, from `reporter` to the packet's source. `quote` is the packet or its
/// beginning. `None` if it must not be answered, or `reporter` has another family.
pub fn error(problem: Problem, reporter: IpAddr, quote: &[u8]) -> Option<Vec<u8>> {
    // The quote may be cut, and then does not parse as a whole packet.
    let destination = source(quote)?;
    if !is_unicast(destination) || reporter.is_ipv4() != destination.is_ipv4() {
        return None;
    }
    let (protocol, (kind, code, word), most) = match reporter {
        IpAddr::V4(_) => (protocol::ICMP, problem.v4(), MAX_ERROR4),
        IpAddr::V6(_) => (protocol::ICMP6, problem.v6(), MIN_MTU6),
    };
    let room = most - header_len(reporter) - ERROR_HEADER;
    let quote = &quote[..quote.len().min(room)];
    let ip = IpHeader {
        source: reporter,
        destination,
        protocol,
        id: 0,
    };
    let mut out = Vec::with_capacity(ip.size() + ERROR_HEADER + quote.len());
    ip.write(&mut out, ERROR_HEADER + quote.len());
    let start = out.len();
    out.extend([kind, code, 0, 0]);
    out.extend(word.to_be_bytes());
    out.extend(quote);
    finish(&mut out, start, reporter, destination);
    Some(out)
}

/// Writes the checksum of the ICMP message from `start` on.
pub(super) fn finish(out: &mut [u8], start: usize, source: IpAddr, destination: IpAddr) {
    let sum = match source {
        IpAddr::V4(_) => Sum::default(),
        IpAddr::V6(_) => pseudo_header(source, destination, protocol::ICMP6, out.len() - start),
    };
    let checksum = sum.plus(&out[start..]).checksum();
    out[start + 2..start + 4].copy_from_slice(&checksum.to_be_bytes());
}

/// Whether an error about this packet may be sent: not about an ICMP error, a later fragment, or a
/// packet to or from more than one host (RFC 1122, section 3.2.2; RFC 4443, section 2.4).
pub fn may_report(packet: &Packet) -> bool {
    let is_answered = match &packet.body {
        Body::Icmp(_) => false,
        Body::Fragment(fragment) => fragment.offset == 0,
        _ => true,
    };
    is_answered && is_unicast(packet.source) && is_unicast(packet.destination)
}

/// Whether this is the address of one host.
pub fn is_unicast(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::from([255; 4]);
    !(address.is_multicast() || address.is_unspecified() || address.is_loopback() || is_broadcast)
}

/// The source address of a packet, of which only the IP header must be complete.
fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            Some(octets.into())
        }
        6 => {
            let octets: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            Some(octets.into())
        }
        _ => None,
    }
}
