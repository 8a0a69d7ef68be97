//! The PROXY protocol (HAProxy, doc/proxy-protocol.txt): the header before a connection's first
//! byte, with the addresses of the peer of the machine that passes the connection on.
//!
//! Version 2 is written and read, version 1 only read: nginx sends no other.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The bytes before every header of version 2, which no other protocol begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The beginning of every header of version 1.
const VERSION_1: &[u8] = b"PROXY ";

/// The longest header of version 1 (section 2.1), with its line end.
const LONGEST_LINE: usize = 107;

/// Version 2 in the upper half of the byte after the signature.
const VERSION_2: u8 = 0x20;

/// Commands of version 2, in the lower half of that byte: the connection is the balancer's own, or
/// that of a peer.
const LOCAL: u8 = 0;
const PROXY: u8 = 1;

/// TCP over IPv4, and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// Most bytes after the fixed part of version 2. Addresses take 36 at most; additions such as names
/// and checksums (TLVs) a few hundred, a client certificate some kilobytes.
const MAX_REST: usize = 8 * 1024;

/// The origin of a connection, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The machine that passes connections on has made this one itself, such as a check of health,
    /// or it does not know the peer's address.
    Balancer,
    /// A peer with this address.
    Peer(SocketAddr),
}

/// Why a connection does not begin with a usable header.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyHeaderError {
    /// The connection ended before its first byte.
    #[error("it ended without a PROXY header")]
    Nothing,
    /// The balancer is not configured to send headers.
    #[error(
        "no PROXY header, although `proxy_protocol_from` has this address: let the balancer send \
        one (HAProxy `send-proxy-v2`, nginx `proxy_protocol on`)"
    )]
    Missing,
    /// Another version, command or kind of connection than this program knows.
    #[error("unknown {what} in a PROXY header: {value:#04x}")]
    Unknown {
        /// The field.
        what: &'static str,
        /// Its value.
        value: u8,
    },
    /// The header contradicts itself.
    #[error("malformed PROXY header")]
    Malformed,
    /// The header is longer than any that this program needs.
    #[error("a PROXY header of more than {0} bytes")]
    TooLong(usize),
    /// The connection broke.
    #[error("the connection broke before the end of its PROXY header: {}", sumlink_util::plain(.0))]
    Io(#[from] io::Error),
}

/// The header of a connection from `peer` to `local`.
///
/// Both addresses have the same family, because they belong to one connection; otherwise they are
/// written as IPv6.
pub(crate) fn header(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (from, to) = (peer.ip().to_canonical(), local.ip().to_canonical());
    let (family, addresses) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (TCP4, [from.octets(), to.octets()].concat()),
        (from, to) => (TCP6, [octets(from), octets(to)].concat()),
    };
    let ports = [peer.port().to_be_bytes(), local.port().to_be_bytes()].concat();
    // 12 or 36 bytes.
    let length = (addresses.len() + ports.len()) as u16;
    let mut header = SIGNATURE.to_vec();
    header.extend([VERSION_2 | PROXY, family]);
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

/// Reads the header of a connection and nothing behind it.
pub(crate) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Origin, ProxyHeaderError> {
    let mut start = [0; SIGNATURE.len()];
    let mut filled = 0;
    while filled < start.len() {
        let len = stream.read(&mut start[filled..]).await?;
        filled += len;
        let begins = |known: &[u8]| start.starts_with(&known[..known.len().min(filled)]);
        match len {
            0 if filled == 0 => return Err(ProxyHeaderError::Nothing),
            // A peer that speaks another protocol waits for an answer instead of going on.
            _ if !begins(&SIGNATURE) && !begins(VERSION_1) => {
                return Err(ProxyHeaderError::Missing);
            }
            0 => return Err(ProxyHeaderError::Missing),
            _ => {}
        }
    }
    match start == SIGNATURE {
        true => read_binary(stream).await,
        false => read_line(stream, &start).await,
    }
}

/// The rest of a header of version 2 (section 2.2).
async fn read_binary<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Origin, ProxyHeaderError> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version_and_command, family, length @ ..] = head;
    let (version, command) = (version_and_command & 0xf0, version_and_command & 0x0f);
    let unknown = |what, value| ProxyHeaderError::Unknown { what, value };
    if version != VERSION_2 {
        return Err(unknown("version", version >> 4));
    }
    let length = usize::from(u16::from_be_bytes(length));
    if length > MAX_REST {
        return Err(ProxyHeaderError::TooLong(MAX_REST));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match (command, family) {
        (LOCAL, _) => Ok(Origin::Balancer),
        (PROXY, TCP4) => {
            let (from, _, port) = peer::<4>(&rest).ok_or(ProxyHeaderError::Malformed)?;
            Ok(Origin::Peer((Ipv4Addr::from(from), port).into()))
        }
        (PROXY, TCP6) => {
            let (from, _, port) = peer::<16>(&rest).ok_or(ProxyHeaderError::Malformed)?;
            let from = IpAddr::from(Ipv6Addr::from(from)).to_canonical();
            Ok(Origin::Peer((from, port).into()))
        }
        // Unspecified, UDP or Unix: "the receiver should use the real connection endpoints".
        (PROXY, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => Ok(Origin::Balancer),
        (PROXY, family) => Err(unknown("family", family)),
        (command, _) => Err(unknown("command", command)),
    }
}

/// The peer's and the local address and the peer's port; additions behind them are skipped.
fn peer<const N: usize>(rest: &[u8]) -> Option<([u8; N], [u8; N], u16)> {
    let (from, rest) = rest.split_first_chunk()?;
    let (to, rest) = rest.split_first_chunk()?;
    let (port, rest) = rest.split_first_chunk()?;
    rest.split_first_chunk::<2>()?;
    Some((*from, *to, u16::from_be_bytes(*port)))
}

/// The rest of a header of version 1 (section 2.1): a line of text.
async fn read_line<S: AsyncRead + Unpin>(
    stream: &mut S,
    start: &[u8],
) -> Result<Origin, ProxyHeaderError> {
    let mut line = start.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() >= LONGEST_LINE {
            return Err(ProxyHeaderError::TooLong(LONGEST_LINE));
        }
        line.push(stream.read_u8().await?);
    }
    let text = line.strip_suffix(b"\r\n").unwrap_or(&line);
    let text = std::str::from_utf8(text).map_err(|_| ProxyHeaderError::Malformed)?;
    origin_of_line(text).ok_or(ProxyHeaderError::Malformed)
}

fn origin_of_line(text: &str) -> Option<Origin> {
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        ["PROXY", "UNKNOWN", ..] => Some(Origin::Balancer),
        ["PROXY", family, from, to, from_port, to_port] => {
            let from: IpAddr = from.parse().ok()?;
            let to: IpAddr = to.parse().ok()?;
            let port = from_port.parse().ok()?;
            let _: u16 = to_port.parse().ok()?;
            let fits = |ip: IpAddr| match *family {
                "TCP4" => ip.is_ipv4(),
                "TCP6" => ip.is_ipv6(),
                _ => false,
            };
            let peer = SocketAddr::new(from.to_canonical(), port);
            (fits(from) && fits(to)).then_some(Origin::Peer(peer))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::*;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Reads a header; returns it and the number of bytes left.
    fn read_all(mut bytes: &[u8]) -> (Result<Origin, ProxyHeaderError>, usize) {
        let origin = read(&mut bytes).now_or_never().expect("no waiting");
        (origin, bytes.len())
    }

    /// A header of version 2.
    fn binary(version_and_command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([version_and_command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn headers_are_those_of_the_specification() {
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

    #[test]
    fn a_header_gives_the_origin_and_nothing_behind_it_is_read() {
        let peer = |text| Origin::Peer(address(text));
        // The addresses, and an addition (type, length, value).
        let with_addition = b"\xcb\x00\x71\x09\xc0\x00\x02\x01\xc3\x50\x01\xbb\x04\x00\x02ab";
        let cases: [(Vec<u8>, Origin); 9] = [
            (binary(0x21, 0x11, with_addition), peer("203.0.113.9:50000")),
            // A check of the balancer, whatever its addresses.
            (binary(0x20, 0x00, b""), Origin::Balancer),
            (binary(0x20, 0x11, with_addition), Origin::Balancer),
            // UNSPEC, UDP, Unix.
            (binary(0x21, 0x00, b"xyz"), Origin::Balancer),
            (binary(0x21, 0x12, with_addition), Origin::Balancer),
            (binary(0x21, 0x31, &[0; 216]), Origin::Balancer),
            (
                b"PROXY TCP4 203.0.113.9 192.0.2.1 50000 443\r\n".to_vec(),
                peer("203.0.113.9:50000"),
            ),
            (
                b"PROXY TCP6 2001:db8::9 2001:db8::1 50000 443\r\n".to_vec(),
                peer("[2001:db8::9]:50000"),
            ),
            (b"PROXY UNKNOWN\r\n".to_vec(), Origin::Balancer),
        ];
        for (mut bytes, origin) in cases {
            let whole = bytes.len();
            for cut in 1..whole {
                let (read, _) = read_all(&bytes[..cut]);
                assert!(read.is_err(), "{bytes:x?} cut at {cut}");
            }
            bytes.extend(b"\x16\x03\x01");
            let (read, left) = read_all(&bytes);
            assert_eq!((read.unwrap(), left), (origin, 3), "{bytes:x?}");
        }
    }

    #[test]
    fn what_is_no_header_is_refused_with_a_reason() {
        let long_line = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
        for (bytes, reason) in [
            (b"".to_vec(), "it ended without"),
            (b"\x16\x03\x01\x02\x00".to_vec(), "no PROXY header"),
            (
                b"\r\n\r\n\0\r\nQUIX\n\x21\x11\0\x00".to_vec(),
                "no PROXY header",
            ),
            (b"PROXX TCP4 1.2.3.4".to_vec(), "no PROXY header"),
            (
                binary(0x31, 0x11, &[0; 12]),
                "unknown version in a PROXY header: 0x03",
            ),
            (binary(0x22, 0x11, &[0; 12]), "unknown command"),
            (binary(0x21, 0x41, &[0; 12]), "unknown family"),
            (binary(0x21, 0x11, &[0; 11]), "malformed"),
            (binary(0x21, 0x21, &[0; 35]), "malformed"),
            (binary(0x21, 0x11, &[0; 12 + MAX_REST]), "more than 8192"),
            (long_line, "more than 107"),
            (b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(), "malformed"),
            (
                b"PROXY TCP4 1.2.3.4 1.2.3.4 65536 2\r\n".to_vec(),
                "malformed",
            ),
            (b"PROXY TCP4 1.2.3.4  1.2.3.4 6 2\r\n".to_vec(), "malformed"),
            (b"PROXY TCP4 \xff\xff\xff\xff\r\n".to_vec(), "malformed"),
        ] {
            let error = read_all(&bytes).0.unwrap_err().to_string();
            assert!(error.contains(reason), "{bytes:x?}: {error}");
        }
    }

    proptest! {
        /// The reader understands the writer.
        #[test]
        fn written_headers_are_read(
            from in any::<IpAddr>(), to in any::<IpAddr>(), ports in any::<(u16, u16)>(),
            behind in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let (peer, local) = (SocketAddr::new(from, ports.0), SocketAddr::new(to, ports.1));
            let mut bytes = header(peer, local);
            bytes.extend(&behind);
            let (origin, left) = read_all(&bytes);
            let expected = SocketAddr::new(from.to_canonical(), ports.0);
            prop_assert_eq!(origin.unwrap(), Origin::Peer(expected));
            prop_assert_eq!(left, behind.len());
        }

        /// Any bytes: no panic, and no more than the longest header is read.
        #[test]
        fn arbitrary_bytes_are_bounded(
            version_1 in any::<bool>(), bytes in proptest::collection::vec(any::<u8>(), 0..600),
        ) {
            let start = match version_1 {
                true => b"PROXY TCP4 1".as_slice(),
                false => &SIGNATURE,
            };
            let whole = [start, &bytes].concat();
            let (_, left) = read_all(&whole);
            prop_assert!(whole.len() - left <= SIGNATURE.len() + 4 + MAX_REST);
            let _ = read_all(&bytes);
        }
    }
}
