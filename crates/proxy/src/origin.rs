//! Where a connection or a source of datagrams comes from.

use std::net::{IpAddr, SocketAddr};

/// The program behind a connection or a source of datagrams, as far as an entry knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Origin {
    /// The address and port of its socket; an IPv4 address is never written as IPv6.
    pub source: SocketAddr,
    /// Where it runs.
    pub from: Side,
    /// The address and port of the entry, if the program's socket is connected to it. Otherwise the
    /// program has sent to the target.
    pub entry: Option<SocketAddr>,
}

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// On this machine.
    Host,
    /// On another machine; its packets reach this one.
    Lan,
}

impl Origin {
    /// A program on this machine that has sent to the target.
    pub fn host(source: SocketAddr) -> Self {
        Self::new(source, Side::Host)
    }

    /// A program on another machine that has sent to the target.
    pub fn lan(source: SocketAddr) -> Self {
        Self::new(source, Side::Lan)
    }

    /// A program that has sent from `source` to an entry. It runs on this machine if it has sent
    /// from a loopback address, or from the address to which it has sent.
    pub fn at_entry(source: SocketAddr, entry: SocketAddr) -> Self {
        let (source, entry) = (canonical(source), canonical(entry));
        let is_host = source.ip().is_loopback() || source.ip() == entry.ip();
        Self {
            entry: Some(entry),
            ..Self::new(source, if is_host { Side::Host } else { Side::Lan })
        }
    }

    fn new(source: SocketAddr, from: Side) -> Self {
        Self {
            source: canonical(source),
            from,
            entry: None,
        }
    }
}

/// The address with IPv4 as IPv4, and with the scope of IPv6.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::from((ip, address.port())),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_on_this_machine_are_known_by_their_address() {
        for (source, entry, from) in [
            ("127.0.0.1:5", "127.0.0.1:1080", Side::Host),
            ("[::ffff:127.0.0.1]:5", "127.0.0.9:1080", Side::Host),
            ("192.168.1.1:5", "[::ffff:192.168.1.1]:1080", Side::Host),
            ("192.168.1.7:5", "192.168.1.1:1080", Side::Lan),
            ("[fe80::7%3]:5", "[::1]:1080", Side::Lan),
        ] {
            let (source, entry) = (source.parse().unwrap(), entry.parse().unwrap());
            let origin = Origin::at_entry(source, entry);
            assert_eq!(origin.from, from, "{source}");
            assert_eq!(origin.source, canonical(source));
        }
    }
}
