//! Whom an entry serves, as far as limits are shared fairly.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::Origin;

/// A client that has a share of each limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// All programs on this machine. Their users are unknown without a search in the kernel, which
    /// takes too long for each connection.
    Host,
    /// Another machine, by its address; an IPv4 address is never written as IPv6.
    Lan(IpAddr),
}

impl Client {
    /// The machine with this address.
    pub fn lan(address: IpAddr) -> Self {
        Self::Lan(address.to_canonical())
    }

    /// The client's network, which has a share, too: the /64 of an IPv6 address. A machine chooses
    /// freely among the addresses of it (RFC 8981), and with many of them it must not get many
    /// shares. Usually the whole LAN has one /64, so each address has a share of the network's.
    pub fn network(self) -> Self {
        match self {
            Self::Lan(IpAddr::V6(address)) => {
                let network = address.to_bits() & !u128::from(u64::MAX);
                Self::Lan(Ipv6Addr::from_bits(network).into())
            }
            Self::Host | Self::Lan(IpAddr::V4(_)) => self,
        }
    }
}

impl From<Origin> for Client {
    fn from(origin: Origin) -> Self {
        match origin.from {
            crate::Side::Host => Self::Host,
            crate::Side::Lan => Self::lan(origin.source.ip()),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("this machine"),
            Self::Lan(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_ipv6_have_a_network_and_others_are_alone() {
        let lan = |text: &str| Client::lan(text.parse().unwrap());
        assert_eq!(lan("fd00::7:1").network(), lan("fd00::"));
        assert_eq!(lan("::ffff:192.0.2.1"), lan("192.0.2.1"));
        assert_eq!(lan("192.0.2.1").network(), lan("192.0.2.1"));
        assert_eq!(Client::Host.network(), Client::Host);
        let at = |source: &str, entry: &str| {
            Origin::at_entry(source.parse().unwrap(), entry.parse().unwrap())
        };
        assert_eq!(
            Client::from(at("127.0.0.1:5", "127.0.0.1:1080")),
            Client::Host
        );
        let other = at("192.0.2.1:5", "192.0.2.2:1080");
        assert_eq!(Client::from(other), lan("192.0.2.1"));
    }
}
