//! A stream's target: a host and a port; the server resolves the name.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sumlink_engine::peer_text::is_plain;

/// Longest domain name that a target may carry, in bytes (RFC 1035, section 2.3.4).
pub const MAX_NAME: usize = 255;

/// The name of the server's resolvers. No DNS server is asked for it: ICANN has reserved
/// `.internal` for private use.
pub const RESOLVER: &str = "resolver.sumlink.internal";

/// The name for requests to publish a port (docs/protocol-publish.md).
pub const PUBLISH: &str = "publish.sumlink.internal";

/// The name for speed tests of the bond (docs/protocol-publish.md).
pub const SPEED: &str = "speed.sumlink.internal";

/// The suffix of all names with a special meaning.
const OWN_NAMES: &str = ".sumlink.internal";

/// The port of DNS servers.
pub const DNS_PORT: u16 = 53;

/// The port of a [`Target`] for ICMP echo requests.
pub const ECHO_PORT: u16 = 0;

/// A host and a TCP or UDP port, as requested by a program; for datagrams also a host and
/// [`ECHO_PORT`].
///
/// Domain names stay names: the server resolves them, so that nothing leaks to the resolvers of the
/// client's links and the answer suits the location from which the connection is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host, by name or by address.
    pub host: Host,
    /// The port, 1..=65535; [`ECHO_PORT`] is valid for datagrams only.
    pub port: u16,
}

/// A service that the server provides itself, instead of connecting to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnService {
    /// Name lookup by the server's resolvers.
    Resolver,
    /// A request to publish a port.
    Publish,
    /// A speed test.
    Speed,
    /// Only a newer server knows it.
    Unknown,
}

/// The host part of a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A domain name, 1..=[`MAX_NAME`] bytes, without control characters; text forms of addresses
    /// are excluded.
    Name(String),
    /// A literal address.
    Ip(IpAddr),
}

/// Why a text or a sequence of bytes is not a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// No `:PORT` at the end.
    #[error("no port: write HOST:PORT, or [IPV6]:PORT")]
    NoPort,
    /// An IPv6 address without brackets, in which the port cannot be told from the address.
    #[error("an IPv6 address needs brackets: write [IPV6] or [IPV6]:PORT")]
    NoBrackets,
    /// The port is not a number in 1..=65535.
    #[error("the port must be a number from 1 to 65535")]
    BadPort,
    /// The host is empty, too long, or contains characters that no host name has.
    #[error("the host is neither an address nor a name of at most {MAX_NAME} characters")]
    BadHost,
    /// The encoded form is truncated, has bytes left over, or an unknown address type.
    #[error("the encoded target is malformed")]
    BadEncoding,
}

impl Target {
    /// A target by name; the name may also be a literal address.
    pub fn new(host: &str, port: u16) -> Result<Self, TargetError> {
        if port == 0 {
            return Err(TargetError::BadPort);
        }
        Ok(Self {
            host: Host::parse(host)?,
            port,
        })
    }

    /// The host for ICMP echo requests. A datagram to it is the request's sequence number in two
    /// bytes, network order, and its data; an answer has the same form.
    pub fn echo(host: Host) -> Self {
        let port = ECHO_PORT;
        Self { host, port }
    }

    /// Whether datagrams to this target are ICMP echo requests.
    pub fn is_echo(&self) -> bool {
        self.port == ECHO_PORT
    }

    /// The server's service for this target; `None` for an ordinary target.
    pub fn own_service(&self) -> Option<OwnService> {
        let Host::Name(name) = &self.host else {
            return None;
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is = |own: &str| name.eq_ignore_ascii_case(own);
        let start = name.len().checked_sub(OWN_NAMES.len())?;
        let ending = name.get(start..)?;
        match ending.eq_ignore_ascii_case(OWN_NAMES) {
            false => None,
            true if is(RESOLVER) && self.port == DNS_PORT => Some(OwnService::Resolver),
            true if is(PUBLISH) => Some(OwnService::Publish),
            true if is(SPEED) => Some(OwnService::Speed),
            true => Some(OwnService::Unknown),
        }
    }

    /// The form that an OPEN frame carries (docs/protocol.md, "Targets"): one type byte as in
    /// RFC 1928, section 5 (1 IPv4, 3 name, 4 IPv6), the address, the port in network order.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + MAX_NAME);
        match &self.host {
            Host::Ip(IpAddr::V4(ip)) => {
                out.push(1);
                out.extend_from_slice(&ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            Host::Name(name) => {
                out.push(3);
                out.push(name.len() as u8);
                out.extend_from_slice(name.as_bytes());
            }
        }
        out.extend_from_slice(&self.port.to_be_bytes());
        out
    }

    /// The reverse of [`Target::encode`] for a stream; any input from a peer yields a target or an
    /// error.
    pub fn decode(bytes: &[u8]) -> Result<Self, TargetError> {
        match Self::decode_datagram(bytes)? {
            target if target.is_echo() => Err(TargetError::BadPort),
            target => Ok(target),
        }
    }

    /// [`Target::decode`] for datagrams, which may have [`ECHO_PORT`].
    pub fn decode_datagram(bytes: &[u8]) -> Result<Self, TargetError> {
        let (host, rest) = match bytes.split_first().ok_or(TargetError::BadEncoding)? {
            (1, rest) => {
                let (ip, rest) = rest
                    .split_first_chunk::<4>()
                    .ok_or(TargetError::BadEncoding)?;
                (Host::Ip(Ipv4Addr::from(*ip).into()), rest)
            }
            (4, rest) => {
                let (ip, rest) = rest
                    .split_first_chunk::<16>()
                    .ok_or(TargetError::BadEncoding)?;
                (Host::Ip(Ipv6Addr::from(*ip).into()), rest)
            }
            (3, rest) => {
                let (len, rest) = rest.split_first().ok_or(TargetError::BadEncoding)?;
                let (name, rest) = rest
                    .split_at_checked(usize::from(*len))
                    .ok_or(TargetError::BadEncoding)?;
                let name = std::str::from_utf8(name).map_err(|_| TargetError::BadHost)?;
                (Host::parse(name)?, rest)
            }
            _ => return Err(TargetError::BadEncoding),
        };
        let port = u16::from_be_bytes(rest.try_into().map_err(|_| TargetError::BadEncoding)?);
        Ok(Self { host, port })
    }
}

impl Host {
    fn parse(text: &str) -> Result<Self, TargetError> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Ip(ip));
        }
        let plausible = !text.is_empty()
            && text.len() <= MAX_NAME
            && !text.starts_with('.')
            && !text.contains("..")
            && text
                .chars()
                .all(|c| is_plain(c) && !c.is_whitespace() && !"[]:/@".contains(c));
        if plausible {
            Ok(Self::Name(text.to_owned()))
        } else {
            Err(TargetError::BadHost)
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let (host, port) = text.rsplit_once(':').ok_or(TargetError::NoPort)?;
        let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        if bracketed.is_none() && host.contains(':') {
            return Err(TargetError::NoBrackets);
        }
        let port: u16 = port.parse().map_err(|_| TargetError::BadPort)?;
        Self::new(bracketed.unwrap_or(host), port)
    }
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Self {
        Self {
            host: Host::Ip(addr.ip()),
            port: addr.port(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Ip(ip) => SocketAddr::new(*ip, self.port).fmt(f),
        }
    }
}

/// Why the server did not connect a stream; sent as the code of a RESET frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OpenError {
    /// The server's egress policy does not allow the target.
    #[error("the server's egress policy does not allow this target")]
    NotAllowed,
    /// The name does not resolve at the server.
    #[error("the name does not resolve at the server")]
    NameNotResolved,
    /// The target refused the connection.
    #[error("the target refused the connection")]
    Refused,
    /// The server has no route to the target.
    #[error("the server cannot reach the target's network")]
    Unreachable,
    /// The target did not answer in time.
    #[error("the target did not answer in time")]
    TimedOut,
    /// A limit of the client or the server is reached (connections, streams, file descriptors,
    /// memory).
    #[error("a limit on open connections is reached, here or at the server")]
    LimitReached,
    /// The target in the OPEN frame is malformed.
    #[error("the target is malformed")]
    BadTarget,
    /// The session has ended or never existed.
    #[error("the session to the server is closed")]
    SessionClosed,
    /// The peer reset the stream for another reason.
    #[error("the stream was reset by the peer")]
    Reset,
}

impl OpenError {
    /// The code on the wire (docs/protocol.md, "Reset codes").
    pub fn code(self) -> u64 {
        match self {
            Self::Reset => 0,
            Self::NotAllowed => 1,
            Self::NameNotResolved => 2,
            Self::Refused => 3,
            Self::Unreachable => 4,
            Self::TimedOut => 5,
            Self::LimitReached => 6,
            Self::BadTarget => 7,
            Self::SessionClosed => 8,
        }
    }

    /// The meaning of a code; unknown codes, from a newer peer, become [`OpenError::Reset`].
    pub fn from_code(code: u64) -> Self {
        match code {
            1 => Self::NotAllowed,
            2 => Self::NameNotResolved,
            3 => Self::Refused,
            4 => Self::Unreachable,
            5 => Self::TimedOut,
            6 => Self::LimitReached,
            7 => Self::BadTarget,
            8 => Self::SessionClosed,
            _ => Self::Reset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_wire_forms_come_back_unchanged() {
        for text in ["example.org:443", "192.0.2.7:80", "[2001:db8::1]:22"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            assert_eq!(Target::decode(&target.encode()).unwrap(), target);
        }
    }

    #[test]
    fn only_datagrams_may_have_the_port_of_echoes() {
        let echo = Target::echo(Host::Ip([192, 0, 2, 7].into()));
        assert_eq!(Target::decode(&echo.encode()), Err(TargetError::BadPort));
        assert_eq!(Target::decode_datagram(&echo.encode()), Ok(echo));
        assert!("192.0.2.7:0".parse::<Target>().is_err());
    }

    #[test]
    fn names_with_a_meaning_of_their_own_are_known_in_every_form() {
        let service = |text: &str| text.parse::<Target>().unwrap().own_service();
        assert_eq!(
            service(&format!("{RESOLVER}:53")),
            Some(OwnService::Resolver)
        );
        assert_eq!(
            service("Resolver.SumLink.internal.:53"),
            Some(OwnService::Resolver)
        );
        assert_eq!(
            service(&format!("{RESOLVER}:853")),
            Some(OwnService::Unknown)
        );
        assert_eq!(
            service(&format!("{PUBLISH}:443")),
            Some(OwnService::Publish)
        );
        assert_eq!(service(&format!("{SPEED}:1")), Some(OwnService::Speed));
        assert_eq!(service("x.sumlink.internal:1"), Some(OwnService::Unknown));
        for other in [
            "sumlink.internal:53",
            "internal:53",
            "éé.example:53",
            "192.0.2.1:53",
        ] {
            assert_eq!(service(other), None, "{other}");
        }
    }

    #[test]
    fn bad_texts_say_what_is_missing() {
        let error = |text: &str| text.parse::<Target>().unwrap_err();
        assert_eq!(error("example.org"), TargetError::NoPort);
        assert_eq!(error("2001:db8::1"), TargetError::NoBrackets);
        assert_eq!(error("example.org:0"), TargetError::BadPort);
        assert_eq!(error("example.org:70000"), TargetError::BadPort);
        assert_eq!(error(":80"), TargetError::BadHost);
        assert_eq!(error("a b:80"), TargetError::BadHost);
        assert_eq!(
            error(&format!("{}:80", "a".repeat(256))),
            TargetError::BadHost
        );
    }

    #[test]
    fn every_cut_of_an_encoded_target_is_an_error() {
        for text in ["example.org:443", "192.0.2.7:80", "[2001:db8::1]:22"] {
            let whole = text.parse::<Target>().unwrap().encode();
            for cut in 0..whole.len() {
                assert!(
                    Target::decode(&whole[..cut]).is_err(),
                    "{text} cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn codes_come_back_unchanged() {
        for code in 0..=8 {
            assert_eq!(OpenError::from_code(code).code(), code);
        }
        assert_eq!(OpenError::from_code(1 << 40), OpenError::Reset);
    }
}
