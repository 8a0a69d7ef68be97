//! Version 2 of the PROXY protocol (HAProxy, doc/proxy-protocol.txt, section 2.2).

use std::net::{IpAddr, SocketAddr};

/// The bytes before every header, which no other protocol begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, command PROXY.
const VERSION_AND_COMMAND: u8 = 0x21;

/// TCP over IPv4, and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// The header of a connection from `peer` to `local`.
///
/// Both addresses have the same family, because they belong to one connection; otherwise they are
/// written as IPv6.
pub(super) fn header(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (from, to) = (peer.ip().to_canonical(), local.ip().to_canonical());
    let (family, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (TCP4, [from.octets(), to.octets()].concat()),
        (from, to) => (TCP6, [octets(from), octets(to)].concat()),
    };
    let ports = [peer.port().to_be_bytes(), local.port().to_be_bytes()].concat();
    // 12 or 36 bytes.
    let length = (addresses.len() + ports.len()) as u16;
    let mut header = SIGNATURE.to_vec();
    header.extend([VERSION_AND_COMMAND, family]);
    header.extend(length.to_be_bytes());
    header.extend(addresses);
    header.extend(ports);
    header
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_the_specification() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let v4 = header(address("203.0.113.9:50000"), address("192.0.2.1:443"));
        let expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\
                         \xcb\x00\x71\x09\xc0\x00\x02\x01\xc3\x50\x01\xbb";
        assert_eq!(v4, expected);
        let mapped = header(
            address("[::ffff:203.0.113.9]:50000"),
            address("[::ffff:192.0.2.1]:443"),
        );
        assert_eq!(mapped, expected);
        let v6 = header(address("[2001:db8::9]:50000"), address("[2001:db8::1]:443"));
        assert_eq!(v6[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!(v6.len(), 16 + 36);
        assert_eq!(v6[48..], [0xc3, 0x50, 1, 0xbb]);
        // A mix, which no connection has.
        assert_eq!(header(address("1.2.3.4:5"), address("[::1]:6")).len(), 52);
    }
}
