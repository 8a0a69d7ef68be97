//! Sockets for ICMP echo requests (RFC 792; RFC 4443, section 4).
//!
//! A *ping socket* (`SOCK_DGRAM` with `IPPROTO_ICMP`, icmp(7)) needs no privilege: the kernel
//! chooses the identifier and passes only the answers to it. The administrator permits these
//! sockets by group (`net.ipv4.ping_group_range`). Where that excludes this process, a raw socket
//! with an identifier of our own takes its place, which needs CAP_NET_RAW.
//!
//! Between client and server, a request or an answer is the end of its ICMP message: the sequence
//! number and the data.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Once;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use tracing::warn;

use crate::outgoing::Outgoing;
use crate::udp_io::{Packet, UdpIo};

/// Bytes of an ICMP message before the sequence number: type, code, checksum, identifier.
const HEAD: usize = 6;

/// Shortest payload of a datagram: the sequence number.
pub(super) const MIN_PAYLOAD: usize = 2;

/// Types of a request and of an answer, over IPv4 and over IPv6.
const V4: (u8, u8) = (8, 0);
const V6: (u8, u8) = (128, 129);

/// The identifier of the next raw socket, less the process's number.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// A socket for requests over one address family.
#[derive(Debug)]
pub(super) struct EchoIo {
    io: UdpIo,
    is_v6: bool,
    /// The identifier of a raw socket; that of a ping socket is the kernel's.
    identifier: Option<u16>,
}

impl EchoIo {
    /// Opens a socket with this local address.
    ///
    /// # Errors
    ///
    /// `EACCES` if neither kind of socket is permitted, which is logged once.
    pub(super) fn bind(local: IpAddr, outgoing: &Outgoing) -> io::Result<Self> {
        match Self::new(local, outgoing, false) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::new(local, outgoing, true).inspect_err(|raw| {
                    if raw.kind() == io::ErrorKind::PermissionDenied {
                        warn_once(&error);
                    }
                })
            }
            result => result,
        }
    }

    fn new(local: IpAddr, outgoing: &Outgoing, is_raw: bool) -> io::Result<Self> {
        let (domain, protocol) = match local {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
        };
        let kind = match is_raw {
            true => Type::RAW,
            false => Type::DGRAM,
        };
        let is_v6 = local.is_ipv6();
        let socket = Socket::new(domain, kind, Some(protocol))?;
        let identifier = is_raw.then(identifier);
        if let Some(identifier) = identifier {
            // The kernel passes every ICMP message of the machine to a raw socket.
            socket.attach_filter(&filter(is_v6, identifier))?;
        }
        socket.set_nonblocking(true)?;
        outgoing.apply(&socket)?;
        socket.bind(&SocketAddr::new(local, 0).into())?;
        Ok(Self {
            io: UdpIo::of_icmp(socket, is_v6)?,
            is_v6,
            identifier,
        })
    }

    /// The socket, for all but the contents of its packets.
    pub(super) fn io(&self) -> &UdpIo {
        &self.io
    }

    /// [`UdpIo::send`] for requests.
    pub(super) fn send(
        &self,
        requests: &[(SocketAddr, Bytes)],
        failed: impl FnMut(usize, io::Error),
    ) -> usize {
        let heads: Vec<_> = requests.iter().map(|(_, body)| self.head(body)).collect();
        let packets = requests.iter().zip(&heads);
        let packets: Vec<Packet<'_>> = packets
            .map(|((remote, body), head)| Packet {
                remote: Some(*remote),
                local: None,
                head,
                body,
            })
            .collect();
        self.io.send(&packets, failed)
    }

    /// The beginning of a request with this rest. The kernel replaces identifier and checksum
    /// of ping sockets, and the checksum over IPv6.
    fn head(&self, body: &[u8]) -> [u8; HEAD] {
        let [high, low] = self.identifier.unwrap_or(0).to_be_bytes();
        let (request, _) = types(self.is_v6);
        let mut head = [request, 0, 0, 0, high, low];
        if !self.is_v6 {
            let [high, low] = checksum(&head, body).to_be_bytes();
            (head[2], head[3]) = (high, low);
        }
        head
    }

    /// Sequence number and data of a received packet; `None` if it is no answer to this socket.
    pub(super) fn answer<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        // A raw socket over IPv4 also gets the IP header.
        let message = match self.identifier {
            Some(_) if !self.is_v6 => packet.get(usize::from(packet.first()? & 0x0f) * 4..)?,
            _ => packet,
        };
        let (head, rest) = message.split_first_chunk::<HEAD>()?;
        let (_, answer) = types(self.is_v6);
        let [kind, code, _, _, high, low] = *head;
        let is_own = self
            .identifier
            .is_none_or(|own| own == u16::from_be_bytes([high, low]));
        let is_answer = is_own && (kind, code) == (answer, 0) && rest.len() >= MIN_PAYLOAD;
        is_answer.then_some(rest)
    }
}

fn types(is_v6: bool) -> (u8, u8) {
    match is_v6 {
        true => V6,
        false => V4,
    }
}

/// An identifier that no other raw socket of this process has, unless it has very many.
fn identifier() -> u16 {
    // Only the low bits matter: they differ between the processes of a machine.
    (std::process::id() as u16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A socket filter for the answers with this identifier (linux/filter.h).
fn filter(is_v6: bool, identifier: u16) -> Vec<SockFilter> {
    let code = |parts: [u32; 3]| parts.iter().fold(0, |sum, part| sum | part) as u16;
    let jump = code([libc::BPF_JMP, libc::BPF_JEQ, libc::BPF_K]);
    let give = code([libc::BPF_RET, libc::BPF_K, 0]);
    let (mode, start) = match is_v6 {
        true => (libc::BPF_ABS, None),
        // X is the length of the IP header.
        false => {
            let length = code([libc::BPF_LDX, libc::BPF_B, libc::BPF_MSH]);
            (libc::BPF_IND, Some(SockFilter::new(length, 0, 0, 0)))
        }
    };
    let rest = [
        SockFilter::new(code([libc::BPF_LD, libc::BPF_H, mode]), 0, 0, 4),
        SockFilter::new(jump, 0, 3, identifier.into()),
        SockFilter::new(code([libc::BPF_LD, libc::BPF_B, mode]), 0, 0, 0),
        SockFilter::new(jump, 0, 1, types(is_v6).1.into()),
        SockFilter::new(give, 0, 0, u32::MAX),
        SockFilter::new(give, 0, 0, 0),
    ];
    start.into_iter().chain(rest).collect()
}

/// The Internet checksum (RFC 1071) of a message in two parts, the first of even length.
fn checksum(head: &[u8], body: &[u8]) -> u16 {
    let pairs = head.chunks(2).chain(body.chunks(2));
    let sum: u64 = pairs
        .map(|pair| {
            let low = pair.get(1).copied().unwrap_or(0);
            u64::from(u16::from_be_bytes([pair[0], low]))
        })
        .sum();
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn warn_once(error: &io::Error) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        warn!(
            "echo is not available: {error}; permit it with `sysctl -w \
             net.ipv4.ping_group_range=\"0 2147483647\"`, or give this program CAP_NET_RAW"
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_1071() {
        // Section 3 of the RFC: the sum is ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes[..4], &bytes[4..]), !0xddf2);
        assert_eq!(checksum(&[0, 0], &[1]), !0x0100);
        assert_eq!(checksum(&[0xff; 6], &[0xff; 65_000]), 0);
    }

    /// Sends to itself; the kernel of every machine answers.
    async fn echo(local: IpAddr, is_raw: bool) {
        let socket = match EchoIo::new(local, &Outgoing::default(), is_raw) {
            Ok(socket) => socket,
            // Not permitted here.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return,
            Err(error) => panic!("{local}: {error}"),
        };
        let requests: Vec<_> = [&b"\x00\x07abc"[..], b"\x00\x08", &[9; 1400]]
            .map(|body| (SocketAddr::new(local, 0), Bytes::copy_from_slice(body)))
            .into();
        let sent = socket.send(&requests, |index, error| panic!("{index}: {error}"));
        assert_eq!(sent, requests.len());
        let mut answers: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
        while answers.len() < requests.len() {
            socket.io().ready().await.unwrap();
            let _ = socket.io().try_receive(|arrival| {
                // The filter of a raw socket passes nothing else.
                let answer = socket.answer(arrival.payload).expect("an answer");
                answers.push((arrival.remote, answer.to_vec()));
            });
        }
        for ((to, sent), (from, answer)) in requests.iter().zip(&answers) {
            assert_eq!((to, &sent[..]), (from, &answer[..]));
        }
        let own = &answers[0].1[..];
        assert_eq!(socket.answer(&own[..1]), None);
        assert_eq!(socket.answer(&[]), None);
    }

    #[tokio::test]
    async fn answers_come_back_through_both_kinds_of_sockets() {
        for local in ["127.0.0.1", "::1"] {
            for is_raw in [false, true] {
                echo(local.parse().unwrap(), is_raw).await;
            }
        }
    }
}
