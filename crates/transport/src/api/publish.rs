//! Published ports: a port of the server that leads to a host behind the client.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sumlink_exit::target::Target;

use crate::local::address::{Bare, collide, parse_listen};

/// Most ports that one session publishes.
pub const MAX_PUBLISHED: usize = 64;

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// A port of the server, written `tcp:PORT`, `udp:PORT`, or with an address of the server between
/// them: `tcp:192.0.2.1:PORT`, `tcp:[2001:db8::1]:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicPort {
    /// The protocol.
    pub protocol: Protocol,
    /// The server's address; `None` is all addresses of both families.
    pub address: Option<IpAddr>,
    /// The port, 1..=65535.
    pub port: u16,
}

/// Ports that a client may publish, written `tcp:PORT` or `udp:FIRST-LAST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRule {
    /// The protocol.
    pub protocol: Protocol,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

/// A port that a client publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    /// The server's port.
    pub listen: PublicPort,
    /// The host and port behind the client; a name is resolved by the client.
    pub target: Target,
    /// Whether each connection to the target begins with the address of the remote, in version 2 of
    /// the PROXY protocol. Only for TCP.
    pub proxy_protocol: bool,
}

/// Why a text is not a [`PublicPort`] or a [`PublishRule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishParseError {
    /// It does not begin with a protocol.
    #[error("`{0}`: begin with `tcp:` or `udp:`, as in tcp:8443")]
    Protocol(String),
    /// The rest is not a port, or an address with a port.
    #[error(
        "`{0}` is not a port: write it like tcp:8443 or tcp:192.0.2.1:8443, with a port above 0"
    )]
    Port(String),
    /// The rest is not a range of ports.
    #[error("`{0}` is not a range of ports: write it like tcp:8443 or udp:5000-5100")]
    Range(String),
}

impl Protocol {
    fn split(text: &str) -> Result<(Self, &str), PublishParseError> {
        let tcp = text.strip_prefix("tcp:").map(|rest| (Self::Tcp, rest));
        let udp = || text.strip_prefix("udp:").map(|rest| (Self::Udp, rest));
        tcp.or_else(udp)
            .ok_or_else(|| PublishParseError::Protocol(text.to_owned()))
    }
}

impl PublicPort {
    /// The address and port for a socket; `[::]` if it has no address.
    pub fn socket_address(&self) -> SocketAddr {
        let ip = self.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into());
        SocketAddr::new(ip, self.port)
    }

    /// Whether the two cannot be bound at once.
    pub fn collides(&self, other: &Self) -> bool {
        self.protocol == other.protocol && collide(self.socket_address(), other.socket_address())
    }
}

impl PublishRule {
    /// Whether the rule permits this port.
    pub fn permits(&self, port: &PublicPort) -> bool {
        self.protocol == port.protocol && self.ports.contains(&port.port)
    }
}

impl FromStr for PublicPort {
    type Err = PublishParseError;

    fn from_str(text: &str) -> Result<Self, PublishParseError> {
        let (protocol, rest) = Protocol::split(text)?;
        let address = parse_listen(rest, Bare::All).ok();
        let address = address.filter(|address| address.port() > 0);
        let address = address.ok_or_else(|| PublishParseError::Port(text.to_owned()))?;
        let ip = address.ip().to_canonical();
        let is_all = ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        Ok(Self {
            protocol,
            address: (!is_all).then_some(ip),
            port: address.port(),
        })
    }
}

impl FromStr for PublishRule {
    type Err = PublishParseError;

    fn from_str(text: &str) -> Result<Self, PublishParseError> {
        let (protocol, rest) = Protocol::split(text)?;
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = rest.split_once('-').unwrap_or((rest, rest));
        let ports = port(first).zip(port(last));
        match ports.filter(|(first, last)| first <= last) {
            Some((first, last)) => Ok(Self {
                protocol,
                ports: first..=last,
            }),
            None => Err(PublishParseError::Range(text.to_owned())),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

impl fmt::Display for PublicPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            None => write!(f, "{}:{}", self.protocol, self.port),
            Some(_) => write!(f, "{}:{}", self.protocol, self.socket_address()),
        }
    }
}

/// The state of one published port, as the client or the server sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PublishStatus {
    /// The server's port, such as `tcp:8443`.
    pub listen: String,
    /// The host and port behind the client; empty at the server, which does not know it.
    pub target: String,
    /// `published`, `requested`, or `refused`.
    pub state: String,
    /// Why it is refused; empty otherwise.
    pub reason: String,
    /// Open connections, or remotes of a UDP port at the client.
    pub connections: u64,
    /// The same since the start of the client, or at the server since the port was opened.
    pub connections_total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_rules_keep_their_text() {
        for text in [
            "tcp:8443",
            "udp:5000",
            "tcp:192.0.2.1:80",
            "udp:[2001:db8::1]:53",
        ] {
            let port: PublicPort = text.parse().unwrap();
            assert_eq!(port.to_string(), text);
        }
        assert_eq!(
            "tcp:*:80".parse::<PublicPort>().unwrap().to_string(),
            "tcp:80"
        );
        let mapped: PublicPort = "tcp:[::ffff:192.0.2.1]:80".parse().unwrap();
        assert_eq!(mapped.to_string(), "tcp:192.0.2.1:80");
        for bad in [
            "8443",
            "tcp:",
            "tcp:0",
            "tcp:x",
            "sctp:1",
            "tcp:70000",
            "tcp:::1:80",
        ] {
            assert!(bad.parse::<PublicPort>().is_err(), "{bad}");
        }
        for bad in [
            "tcp",
            "tcp:",
            "tcp:0-5",
            "udp:9-8",
            "tcp:1-70000",
            "tcp:1,2",
            "tcp:*",
        ] {
            assert!(bad.parse::<PublishRule>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rule_permits_its_protocol_and_range() {
        let rule: PublishRule = "udp:5000-5100".parse().unwrap();
        let permits = |text: &str| rule.permits(&text.parse().unwrap());
        assert!(permits("udp:5000") && permits("udp:5100") && permits("udp:10.0.0.1:5050"));
        assert!(!permits("udp:4999") && !permits("udp:5101") && !permits("tcp:5050"));
        let one: PublishRule = "tcp:443".parse().unwrap();
        assert_eq!(one.ports, 443..=443);
    }

    #[test]
    fn ports_collide_with_all_addresses_and_not_across_protocols() {
        let collides = |one: &str, other: &str| {
            let (one, other): (PublicPort, PublicPort) =
                (one.parse().unwrap(), other.parse().unwrap());
            one.collides(&other)
        };
        assert!(collides("tcp:80", "tcp:192.0.2.1:80"));
        assert!(!collides("tcp:80", "udp:80") && !collides("tcp:80", "tcp:81"));
        assert!(!collides("tcp:192.0.2.1:80", "tcp:192.0.2.2:80"));
    }
}
