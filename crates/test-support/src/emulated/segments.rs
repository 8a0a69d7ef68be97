//! TCP segments made by hand, which no kernel would send.

use std::net::{Ipv4Addr, SocketAddrV4};

use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use sumlink_lab::Side;

use super::Bench;

/// Flag of the last segment of a direction.
pub const FIN: u8 = 1;
/// Flag of the first segment of a direction.
pub const SYN: u8 = 2;
/// Flag of a valid acknowledgment number.
pub const ACK: u8 = 16;

/// A segment (RFC 9293, section 3.1) of a connection from the first end to the second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Segment<'a> {
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Flags, such as [`SYN`].
    pub flags: u8,
    /// Options after the fixed header, in whole words.
    pub options: &'a [u8],
    /// Payload.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// The bytes of the segment, with a valid checksum.
    pub fn between(&self, [from, to]: [(Ipv4Addr, u16); 2]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(from.1.to_be_bytes());
        bytes.extend(to.1.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgment.to_be_bytes());
        let words = 5 + self.options.len() as u8 / 4;
        bytes.extend([words << 4, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend(self.options);
        bytes.extend(self.payload);
        let [high, low] = (bytes.len() as u16).to_be_bytes();
        let pseudo = [
            &from.0.octets()[..],
            &to.0.octets(),
            &[0, 6, high, low],
            &bytes,
        ];
        let sum = checksum(&pseudo.concat());
        bytes[16..18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2);
    let words = words.map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// A socket on one side that sends and receives TCP segments; received ones have IP headers.
pub fn raw_socket(bench: &Bench, side: Side) -> Socket {
    let open = || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP)).unwrap();
    bench.lab.run(side, open).unwrap()
}

/// Sends arbitrary bytes as TCP segments.
pub fn send_raw(bench: &Bench, side: Side, to: Ipv4Addr, segments: Vec<Vec<u8>>) {
    let socket = raw_socket(bench, side);
    let to = SocketAddrV4::new(to, 0).into();
    for segment in segments {
        socket.send_to(&segment, &to).unwrap();
    }
}

/// Sends arbitrary bytes as IP packets over an interface without link-layer headers (packet(7)).
pub fn send_below_ip(bench: &Bench, side: Side, interface: &str, packets: Vec<Vec<u8>>) {
    let interface = interface.to_owned();
    let send = move || {
        let any = Protocol::from(0);
        let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(any)).unwrap();
        let to = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: (libc::ETH_P_IP as u16).to_be(),
            sll_ifindex: if_nametoindex(interface.as_str()).unwrap() as i32,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let mut storage = SockAddrStorage::zeroed();
        // SAFETY: an address of this family is a `sockaddr_ll`, and the storage is large enough for
        // it.
        unsafe { *storage.view_as::<libc::sockaddr_ll>() = to };
        // SAFETY: this length of the storage was written.
        let to = unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as u32) };
        for packet in packets {
            socket.send_to(&packet, &to).unwrap();
        }
    };
    bench.lab.run(side, send).unwrap();
}
