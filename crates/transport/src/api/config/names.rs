//! What networks and load balancers see of connections before they are encrypted: the server's name
//! (SNI), the protocol's name (ALPN), and the addresses of the balancers themselves.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use rustls::pki_types::ServerName;

use crate::carrier::tls::{DATAGRAM_ALPN, JOIN_ALPN};

/// Why a text is not a name or a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Not a DNS name, the only kind that TLS sends (RFC 6066, section 3).
    #[error(
        "`{0}` is not a host name: write letters, digits, hyphens and dots, no address or port"
    )]
    Host(String),
    /// Not the name of a protocol (RFC 7301, section 3.1).
    #[error("`{0}` is not the name of a protocol: write 1 to 255 characters, such as \"h2\"")]
    Protocol(String),
    /// The name of another exchange with a server.
    #[error("`{0}` is reserved by sumlink: choose another name")]
    Reserved(String),
    /// Not a network.
    #[error(
        "`{0}` is not an address or a network: write 192.0.2.7, 10.0.0.0/8, ::1 or 2001:db8::/32"
    )]
    Network(String),
}

/// Parses a host name for SNI, in lower case and without a dot at its end.
pub fn parse_host_name(text: &str) -> Result<String, NameError> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    match ServerName::try_from(name.as_str()) {
        Ok(ServerName::DnsName(_)) => Ok(name),
        _ => Err(NameError::Host(text.to_owned())),
    }
}

/// Parses the name of a protocol for ALPN.
pub fn parse_protocol_name(text: &str) -> Result<String, NameError> {
    let reserved = [JOIN_ALPN, DATAGRAM_ALPN];
    if reserved.contains(&text.as_bytes()) || text.starts_with("sumlink-invitation/") {
        return Err(NameError::Reserved(text.to_owned()));
    }
    let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    match (1..=255).contains(&text.len()) && is_visible {
        true => Ok(text.to_owned()),
        false => Err(NameError::Protocol(text.to_owned())),
    }
}

/// Parses an address or a network; bits behind its prefix are dropped.
pub fn parse_network(text: &str) -> Result<IpNet, NameError> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let text_of_address = inner.unwrap_or(text);
    let network = match text_of_address.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address.to_canonical()),
        Err(_) => text
            .parse::<IpNet>()
            .map_err(|_| NameError::Network(text.to_owned()))?,
    };
    Ok(match network.trunc() {
        // Addresses are compared as IPv4.
        IpNet::V6(net) if net.prefix_len() >= 96 => {
            let v4 = net.addr().to_ipv4_mapped();
            let v4 = v4.and_then(|v4| Ipv4Net::new(v4, net.prefix_len() - 96).ok());
            v4.map_or(IpNet::V6(net), IpNet::V4)
        }
        network => network,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_host_names_are_sent_as_names() {
        assert_eq!(
            parse_host_name("A.bond.Example.org."),
            Ok("a.bond.example.org".to_owned())
        );
        assert_eq!(parse_host_name("a"), Ok("a".to_owned()));
        for wrong in [
            "",
            ".",
            "192.0.2.1",
            "::1",
            "a:443",
            "a b",
            "ä.example",
            &"a".repeat(300),
        ] {
            assert!(parse_host_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn protocols_with_a_meaning_are_refused() {
        assert_eq!(parse_protocol_name("http/1.1"), Ok("http/1.1".to_owned()));
        assert_eq!(parse_protocol_name("sumlink/1"), Ok("sumlink/1".to_owned()));
        for wrong in [
            "",
            "a b",
            "sumlink-join/1",
            "sumlink-datagrams/1",
            "sumlink-invitation/x",
        ] {
            assert!(parse_protocol_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn networks_are_compared_as_those_of_connections() {
        let parsed = |text| parse_network(text).unwrap().to_string();
        assert_eq!(parsed("10.1.2.3/8"), "10.0.0.0/8");
        assert_eq!(parsed("[::1]"), "::1/128");
        assert_eq!(parsed("::ffff:192.0.2.7"), "192.0.2.7/32");
        assert_eq!(parsed("::ffff:10.0.0.0/104"), "10.0.0.0/8");
        for wrong in ["", "*", "10.0.0.0/33", "balancer.example", "10.0.0.1:80"] {
            assert!(parse_network(wrong).is_err(), "{wrong}");
        }
    }
}
