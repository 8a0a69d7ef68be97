//! Parses listen addresses, in the same way for every option and every key of a file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of a port given without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bare {
    /// 127.0.0.1: for entries that only programs on this machine may reach.
    Loopback,
    /// All addresses of the machine, IPv6 and IPv4: for a server's port.
    All,
}

/// Why a text is not a listen address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The port is missing or is not a valid port number.
    #[error(
        "`{0}` is not an address and port: the port is a number from 0 to 65535, as in \
        127.0.0.1:1080"
    )]
    Port(String),
    /// An IPv6 address without brackets, in which the port is ambiguous.
    #[error(
        "`{0}` is not an address and port: write an IPv6 address in brackets, as in [::1]:1080"
    )]
    Brackets(String),
    /// The host is not an IP address.
    #[error(
        "`{0}` is not an address and port: write it like 127.0.0.1:1080, [::1]:1080, 1080 or *:1080"
    )]
    Host(String),
}

/// Parses `ADDR:PORT`, `PORT` (on the address given by `bare`), or `:PORT` and `*:PORT` (all
/// addresses).
///
/// All addresses are `[::]`, which accepts IPv4 too. Port 0 lets the system choose one.
///
/// # Errors
///
/// Any other text; the message contains a valid example.
pub fn parse_listen(text: &str, bare: Bare) -> Result<SocketAddr, AddressError> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let bracketed = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if bracketed.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok()) {
        return Err(AddressError::Port(text.to_owned()));
    }
    if text.parse::<IpAddr>().is_ok() {
        return Err(match text.contains(':') {
            true => AddressError::Brackets(text.to_owned()),
            false => AddressError::Port(text.to_owned()),
        });
    }
    let all = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let (host, port) = match text.rsplit_once(':') {
        None => (None, text),
        Some((host, port)) => (Some(host), port),
    };
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let address = match (host, bare) {
        (None, _) if !is_number => return Err(AddressError::Host(text.to_owned())),
        (None, Bare::Loopback) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        (None, Bare::All) | (Some("" | "*"), _) => all,
        (Some(host), _) if host.parse::<Ipv6Addr>().is_ok() => {
            return Err(AddressError::Brackets(text.to_owned()));
        }
        (Some(host), _) => {
            let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
            let is_address = inner.unwrap_or(host).parse::<IpAddr>().is_ok();
            return Err(match is_address {
                true => AddressError::Port(text.to_owned()),
                false => AddressError::Host(text.to_owned()),
            });
        }
    };
    let port = port.parse().ok().filter(|_| is_number);
    let port = port.ok_or_else(|| AddressError::Port(text.to_owned()))?;
    Ok(SocketAddr::new(address, port))
}

/// Whether two listeners cannot coexist: they have the same port, and their addresses overlap.
pub fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let takes_all = |address: SocketAddr, other: SocketAddr| {
        address.ip().is_unspecified() && (address.is_ipv6() || other.is_ipv4())
    };
    one.port() == other.port()
        && one.port() != 0
        && (one.ip() == other.ip() || takes_all(one, other) || takes_all(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_port_uses_the_default_address_and_a_star_all_addresses() {
        for (text, bare, address) in [
            ("127.0.0.1:1080", Bare::All, "127.0.0.1:1080"),
            ("[::1]:1080", Bare::All, "[::1]:1080"),
            ("[fe80::1%3]:80", Bare::All, "[fe80::1%3]:80"),
            ("7500", Bare::All, "[::]:7500"),
            ("7500", Bare::Loopback, "127.0.0.1:7500"),
            (":7500", Bare::Loopback, "[::]:7500"),
            ("*:7500", Bare::Loopback, "[::]:7500"),
            ("*:0", Bare::All, "[::]:0"),
        ] {
            let read = parse_listen(text, bare).unwrap();
            assert_eq!(read, address.parse().unwrap(), "{text}");
        }
    }

    #[test]
    fn errors_show_a_valid_address() {
        for (text, hint) in [
            ("", "write it like 127.0.0.1:1080"),
            ("x", "write it like 127.0.0.1:1080"),
            ("localhost:1080", "write it like 127.0.0.1:1080"),
            ("65536", "a number from 0 to 65535"),
            ("*:+1", "a number from 0 to 65535"),
            (":", "a number from 0 to 65535"),
            ("127.0.0.1", "a number from 0 to 65535"),
            ("127.0.0.1:", "a number from 0 to 65535"),
            ("[::1]:x", "a number from 0 to 65535"),
            ("[::1]", "a number from 0 to 65535"),
            ("::1", "in brackets"),
            ("fd00::1:x", "in brackets"),
        ] {
            let error = parse_listen(text, Bare::All).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
            assert!(error.starts_with(&format!("`{text}` is not an address and port: ")));
        }
    }

    #[test]
    fn addresses_collide_where_one_of_them_takes_the_others() {
        let of = |one: &str, other: &str| collide(one.parse().unwrap(), other.parse().unwrap());
        assert!(of("127.0.0.1:1", "127.0.0.1:1") && of("0.0.0.0:1", "127.0.0.1:1"));
        assert!(of("127.0.0.1:1", "[::]:1") && of("[::]:1", "0.0.0.0:1"));
        assert!(!of("127.0.0.1:1", "127.0.0.2:1") && !of("0.0.0.0:1", "[::1]:1"));
        assert!(!of("127.0.0.1:1", "127.0.0.1:2") && !of("[::]:0", "[::]:0"));
    }
}
