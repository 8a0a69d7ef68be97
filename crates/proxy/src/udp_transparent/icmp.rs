//! ICMP errors about captured datagrams (RFC 792, RFC 4443), in the name of their remotes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use sumlink_exit::datagram::FlowFailure;
use tokio::time::Instant;
use tracing::debug;

/// Most errors per second: a program that sends on regardless must not be answered each time
/// (RFC 1812, section 4.3.2.8).
const RATE: u32 = 100;

/// `IPPROTO_RAW`: the packets have their IP headers, and nothing is received (raw(7)).
const RAW: i32 = 255;

/// Protocol numbers.
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// Precedence "internetwork control" (RFC 1812, section 4.3.2.5).
const CONTROL: u8 = 0xc0;

/// Hop limit of the errors.
const HOPS: u8 = 64;

/// Lengths of headers in bytes.
const IPV4: usize = 20;
const IPV6: usize = 40;
const EIGHT: usize = 8;

/// The least MTU that a link with IPv6 has (RFC 8200, section 5).
const LEAST_MTU_V6: u32 = 1280;

/// Sends the errors of one address family.
#[derive(Debug)]
pub(super) struct Icmp {
    /// `None` if this process may not send them.
    socket: Option<Socket>,
    /// The start of the current second, and the errors in it.
    sent: Mutex<(Instant, u32)>,
}

impl Icmp {
    pub(super) fn open(is_v6: bool) -> Self {
        let domain = if is_v6 { Domain::IPV6 } else { Domain::IPV4 };
        let opened = || -> io::Result<Socket> {
            let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(RAW)))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let socket = opened()
            .inspect_err(|error| debug!(%error, "ICMP errors will not be reported"))
            .ok();
        Self {
            socket,
            sent: Mutex::new((Instant::now(), 0)),
        }
    }

    /// Reports to `program` that its datagrams do not reach `remote`.
    pub(super) fn report(&self, program: SocketAddr, remote: SocketAddr, failure: FlowFailure) {
        let Some(socket) = &self.socket else {
            return;
        };
        let Some(packet) = packet(program, remote, failure) else {
            return;
        };
        if !self.is_due(Instant::now()) {
            return;
        }
        // A raw socket takes the port as a protocol.
        let mut to = program;
        to.set_port(0);
        if let Err(error) = socket.send_to(&packet, &to.into()) {
            debug!(%program, %remote, %error, "cannot report a failure");
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(sent.0) >= Duration::from_secs(1) {
            *sent = (now, 0);
        }
        sent.1 = sent.1.saturating_add(1);
        sent.1 <= RATE
    }
}

/// The error as an IP packet; `None` if there is none for this failure.
fn packet(program: SocketAddr, remote: SocketAddr, failure: FlowFailure) -> Option<Vec<u8>> {
    match (program.ip(), remote.ip()) {
        (IpAddr::V4(to), IpAddr::V4(from)) => {
            let (kind, code, info) = icmp4(failure)?;
            let mut quoted = header4(to, from, UDP, 0, EIGHT);
            quoted.extend(header_udp(program, remote));
            let mut packet = header4(from, to, ICMP, CONTROL, EIGHT + quoted.len());
            packet.extend(message(kind, code, info, &quoted, 0));
            Some(packet)
        }
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            let (kind, code, info) = icmp6(failure)?;
            let mut quoted = header6(to, from, UDP, 0, EIGHT);
            quoted.extend(header_udp(program, remote));
            let length = EIGHT + quoted.len();
            let mut packet = header6(from, to, ICMP6, CONTROL, length);
            // The pseudo-header (RFC 8200, section 8.1).
            let pseudo = sum(&from.octets()) + sum(&to.octets()) + length as u32 + u32::from(ICMP6);
            packet.extend(message(kind, code, info, &quoted, pseudo));
            Some(packet)
        }
        _ => None,
    }
}

/// Type, code and the word after the checksum.
fn icmp4(failure: FlowFailure) -> Option<(u8, u8, u32)> {
    match failure {
        FlowFailure::Refused => Some((3, 3, 0)),
        FlowFailure::HostUnreachable => Some((3, 1, 0)),
        FlowFailure::NetworkUnreachable => Some((3, 0, 0)),
        FlowFailure::Filtered | FlowFailure::NotAllowed => Some((3, 13, 0)),
        FlowFailure::TooBig { mtu } if mtu > 0 => Some((3, 4, mtu.min(u32::from(u16::MAX)))),
        _ => None,
    }
}

/// [`icmp4`] for ICMPv6.
fn icmp6(failure: FlowFailure) -> Option<(u8, u8, u32)> {
    match failure {
        FlowFailure::Refused => Some((1, 4, 0)),
        FlowFailure::HostUnreachable => Some((1, 3, 0)),
        FlowFailure::NetworkUnreachable => Some((1, 0, 0)),
        FlowFailure::Filtered | FlowFailure::NotAllowed => Some((1, 1, 0)),
        FlowFailure::TooBig { mtu } if mtu > 0 => Some((2, 0, mtu.max(LEAST_MTU_V6))),
        _ => None,
    }
}

fn message(kind: u8, code: u8, info: u32, quoted: &[u8], pseudo: u32) -> Vec<u8> {
    let mut message = vec![kind, code, 0, 0];
    message.extend(info.to_be_bytes());
    message.extend(quoted);
    let checksum = fold(pseudo + sum(&message));
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

fn header4(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, tos: u8, payload: usize) -> Vec<u8> {
    let length = (IPV4 + payload) as u16;
    let mut header = vec![0x45, tos];
    header.extend(length.to_be_bytes());
    header.extend([0, 0, 0, 0, HOPS, protocol, 0, 0]);
    header.extend(from.octets());
    header.extend(to.octets());
    let checksum = fold(sum(&header));
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

fn header6(from: Ipv6Addr, to: Ipv6Addr, protocol: u8, class: u8, payload: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(IPV6);
    header.extend([0x60 | class >> 4, class << 4, 0, 0]);
    header.extend((payload as u16).to_be_bytes());
    header.extend([protocol, HOPS]);
    header.extend(from.octets());
    header.extend(to.octets());
    header
}

/// The header of the program's datagram, as far as its machine needs it to find the socket.
fn header_udp(program: SocketAddr, remote: SocketAddr) -> [u8; EIGHT] {
    let mut header = [0; EIGHT];
    header[..2].copy_from_slice(&program.port().to_be_bytes());
    header[2..4].copy_from_slice(&remote.port().to_be_bytes());
    header[4..6].copy_from_slice(&(EIGHT as u16).to_be_bytes());
    header
}

/// The sum of 16-bit words (RFC 1071) of at most 64 KiB.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    bytes.chunks(2).map(word).sum()
}

/// The checksum of a sum.
fn fold(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    !(twice as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [FlowFailure; 5] = [
        FlowFailure::Refused,
        FlowFailure::HostUnreachable,
        FlowFailure::NetworkUnreachable,
        FlowFailure::Filtered,
        FlowFailure::TooBig { mtu: 1400 },
    ];

    #[test]
    fn an_error_has_the_meaning_that_a_receiver_reads() {
        for failure in ALL {
            let (kind, code, info) = icmp4(failure).unwrap();
            assert_eq!(FlowFailure::from_icmp(kind, code, info), Some(failure));
            let (kind, code, info) = icmp6(failure).unwrap();
            assert_eq!(FlowFailure::from_icmp6(kind, code, info), Some(failure));
        }
        // Says nothing about the remote that a program could use.
        assert_eq!(icmp4(FlowFailure::LimitReached), None);
        assert_eq!(icmp4(FlowFailure::TooBig { mtu: 0 }), None);
    }

    #[test]
    fn packets_have_valid_checksums_and_quote_the_datagram() {
        let v4 = ["192.168.9.2:4000", "198.51.100.7:53"].map(|text| text.parse().unwrap());
        let v6 = ["[fd00::2]:4000", "[2001:db8::7]:53"].map(|text| text.parse().unwrap());
        for failure in ALL {
            let bytes = packet(v4[0], v4[1], failure).unwrap();
            assert_eq!(bytes.len(), IPV4 + EIGHT + IPV4 + EIGHT);
            assert_eq!(fold(sum(&bytes[..IPV4])), 0);
            assert_eq!(fold(sum(&bytes[IPV4..])), 0);
            assert_eq!(bytes[12..16], [198, 51, 100, 7]);
            assert_eq!(bytes[IPV4 + EIGHT + 12..][..4], [192, 168, 9, 2]);
            assert_eq!(bytes[bytes.len() - EIGHT..][..4], [15, 160, 0, 53]);
            let bytes = packet(v6[0], v6[1], failure).unwrap();
            let length = bytes.len() - IPV6;
            assert_eq!(length, EIGHT + IPV6 + EIGHT);
            let pseudo = sum(&bytes[8..IPV6]) + length as u32 + u32::from(ICMP6);
            assert_eq!(fold(pseudo + sum(&bytes[IPV6..])), 0);
        }
        assert_eq!(packet(v4[0], v6[1], FlowFailure::Refused), None);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_limited_per_second() {
        let icmp = Icmp {
            socket: None,
            sent: Mutex::new((Instant::now(), 0)),
        };
        let now = Instant::now();
        let due = |at| (0..1000).filter(|_| icmp.is_due(at)).count();
        assert_eq!(due(now), RATE as usize);
        assert_eq!(due(now + Duration::from_secs(1)), RATE as usize);
    }
}
