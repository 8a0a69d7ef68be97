//! Text forms of egress rules and destinations: parsing, display and errors.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};

use super::{Destinations, EgressAction, EgressRule};

/// Why a text is not an [`EgressRule`] or [`Destinations`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EgressParseError {
    /// The rule does not start with `allow` or `deny`.
    #[error("`{0}`: an egress rule is `allow DESTINATIONS` or `deny DESTINATIONS`")]
    Action(String),
    /// The address or prefix length is invalid.
    #[error(
        "`{0}` is not a network: write *, 192.0.2.7, 10.0.0.0/8, [2001:db8::1] or [2001:db8::]/32"
    )]
    Network(String),
    /// An IPv6 address without brackets, in which a port would be ambiguous.
    #[error("`{0}`: write an IPv6 address in brackets, as in [2001:db8::1]:443")]
    Brackets(String),
    /// The address has bits set after its prefix.
    #[error("`{given}` has bits set after its prefix: write {network} or {host}")]
    HostBits {
        /// The network as written.
        given: IpNet,
        /// The network given by the prefix length.
        network: IpNet,
        /// The single address that may have been meant.
        host: IpAddr,
    },
    /// A port or range of ports is invalid.
    #[error("`{0}` is not a port or a range: write numbers from 1 to 65535, as in 80,8000-8010")]
    Ports(String),
}

impl FromStr for EgressRule {
    type Err = EgressParseError;

    fn from_str(text: &str) -> Result<Self, EgressParseError> {
        let wrong = || EgressParseError::Action(text.to_owned());
        let (action, destinations) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let action = match action {
            "allow" => EgressAction::Allow,
            "deny" => EgressAction::Deny,
            _ => return Err(wrong()),
        };
        let destinations = destinations.trim().parse()?;
        Ok(Self {
            action,
            destinations,
        })
    }
}

impl FromStr for Destinations {
    type Err = EgressParseError;

    fn from_str(text: &str) -> Result<Self, EgressParseError> {
        let (network, ports) = split_ports(text)?;
        Ok(Self {
            network: parse_network(network)?,
            ports: match ports {
                Some(ports) => ports
                    .split(',')
                    .map(parse_ports)
                    .collect::<Result<_, _>>()?,
                None => Vec::new(),
            },
        })
    }
}

/// Splits `NETWORK:PORTS` before the ports. Colons inside brackets or before a slash belong to
/// IPv6.
fn split_ports(text: &str) -> Result<(&str, Option<&str>), EgressParseError> {
    let behind_address = text.rfind(['/', ']']).unwrap_or(0);
    let tail = &text[behind_address..];
    match tail.find(':') {
        Some(_) if behind_address == 0 && tail.matches(':').count() > 1 => {
            Err(EgressParseError::Brackets(text.to_owned()))
        }
        Some(at) => Ok((&text[..behind_address + at], Some(&tail[at + 1..]))),
        None => Ok((text, None)),
    }
}

fn parse_network(text: &str) -> Result<Option<IpNet>, EgressParseError> {
    let wrong = || EgressParseError::Network(text.to_owned());
    if text == "*" {
        return Ok(None);
    }
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let bracketed = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let address: IpAddr = match bracketed {
        Some(inner) => IpAddr::V6(inner.parse().map_err(|_| wrong())?),
        None => address.parse().map_err(|_| wrong())?,
    };
    let given = match length {
        Some(length) => {
            let length = length.parse().map_err(|_| wrong())?;
            IpNet::new(address, length).map_err(|_| wrong())?
        }
        None => IpNet::from(address),
    };
    let network = given.trunc();
    if network.addr() != given.addr() {
        let host = given.addr();
        return Err(EgressParseError::HostBits {
            given,
            network,
            host,
        });
    }
    // An IPv4-mapped network becomes the IPv4 network, as addresses are compared that way.
    Ok(Some(match network {
        IpNet::V6(net) if net.prefix_len() >= 96 => match net.addr().to_ipv4_mapped() {
            Some(v4) => Ipv4Net::new(v4, net.prefix_len() - 96)
                .map_err(|_| wrong())?
                .into(),
            None => network,
        },
        _ => network,
    }))
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, EgressParseError> {
    let wrong = || EgressParseError::Ports(text.to_owned());
    let port = |text: &str| match text.trim().parse() {
        Ok(0) | Err(_) => Err(wrong()),
        Ok(port) => Ok(port),
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(text)?, port(text)?),
    };
    if first <= last {
        Ok(first..=last)
    } else {
        Err(wrong())
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            EgressAction::Allow => "allow",
            EgressAction::Deny => "deny",
        };
        write!(f, "{action} {}", self.destinations)
    }
}

impl fmt::Display for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            None => f.write_str("*")?,
            Some(IpNet::V4(net)) => net.fmt(f)?,
            Some(IpNet::V6(net)) => write!(f, "[{}]/{}", net.addr(), net.prefix_len())?,
        }
        for (i, range) in self.ports.iter().enumerate() {
            f.write_str(if i == 0 { ":" } else { "," })?;
            match (range.start(), range.end()) {
                (first, last) if first == last => first.fmt(f)?,
                (first, last) => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for EgressRule {
    type Error = EgressParseError;

    fn try_from(text: String) -> Result<Self, EgressParseError> {
        text.parse()
    }
}

impl From<EgressRule> for String {
    fn from(rule: EgressRule) -> Self {
        rule.to_string()
    }
}

impl TryFrom<String> for Destinations {
    type Error = EgressParseError;

    fn try_from(text: String) -> Result<Self, EgressParseError> {
        text.parse()
    }
}

impl From<Destinations> for String {
    fn from(destinations: Destinations) -> Self {
        destinations.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_in_one_form() {
        for (text, form) in [
            ("127.0.0.0/8:80,8000-8010", "127.0.0.0/8:80,8000-8010"),
            ("[2001:db8::]/32", "[2001:db8::]/32"),
            ("2001:db8::/32", "[2001:db8::]/32"),
            ("2001:db8::/32:80", "[2001:db8::]/32:80"),
            ("[2001:db8::1]:443", "[2001:db8::1]/128:443"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7:22", "192.0.2.7/32:22"),
            ("[::ffff:10.0.0.0]/104", "10.0.0.0/8"),
            ("*:25", "*:25"),
            ("*", "*"),
        ] {
            let parsed: Destinations = text.parse().unwrap();
            assert_eq!(parsed.to_string(), form);
            assert_eq!(form.parse::<Destinations>().unwrap(), parsed);
        }
    }

    #[test]
    fn a_bad_text_says_what_is_wrong() {
        use EgressParseError as E;
        let network = |text: &str| E::Network(text.to_owned());
        let ports = |text: &str| E::Ports(text.to_owned());
        for (text, error) in [
            ("", network("")),
            ("example.org:80", network("example.org")),
            ("10.0.0.0/33", network("10.0.0.0/33")),
            ("10.0.0.0/", network("10.0.0.0/")),
            ("[10.0.0.1]:80", network("[10.0.0.1]")),
            ("2001:db8::1:80", E::Brackets("2001:db8::1:80".to_owned())),
            ("*:", ports("")),
            ("*:0", ports("0")),
            ("*:80,", ports("")),
            ("*:90-80", ports("90-80")),
            ("*:65536", ports("65536")),
            ("10.0.0.0/8:http", ports("http")),
        ] {
            assert_eq!(text.parse::<Destinations>().unwrap_err(), error, "{text}");
        }
        assert_eq!(
            "10.0.0.1/8"
                .parse::<Destinations>()
                .unwrap_err()
                .to_string(),
            "`10.0.0.1/8` has bits set after its prefix: write 10.0.0.0/8 or 10.0.0.1"
        );
        for rule in ["", "allow", "permit *", "*:80"] {
            assert_eq!(rule.parse::<EgressRule>(), Err(E::Action(rule.to_owned())));
        }
    }
}
