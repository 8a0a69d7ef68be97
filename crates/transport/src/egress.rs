//! Where the server lets streams go: a decision by address and port, taken after the name is resolved.
//!
//! The rules are read in order and the first one that matches decides. Where none matches, the
//! built-in refusals do: loopback, link-local (cloud metadata services live there), multicast,
//! broadcast and unspecified addresses, and every IPv6 address that embeds such an IPv4 one. All
//! else is allowed.
//!
//! Two points keep a rule from opening more than its author meant:
//!
//! - A built-in refusal is opened only by an allow rule *inside* the refused range
//!   (`allow 127.0.0.0/8:80`, `allow 169.254.169.254`). A wider one (`allow *:443`,
//!   `allow 0.0.0.0/0`) passes over these addresses, so that "only the web" is
//!   `allow *:443`, `deny *` and does not expose the server's own loopback services.
//! - A deny rule for IPv4 also matches the IPv6 addresses that embed the denied ones (NAT64, 6to4).
//!   An allow rule does not, except for IPv4-mapped ones, which are the same destination.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Decides which addresses and ports the server may connect to. The default has no rules: only the
/// built-in refusals hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    rules: Vec<EgressRule>,
}

/// One line of an [`EgressPolicy`], written `allow DESTINATIONS` or `deny DESTINATIONS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EgressRule {
    /// What happens to a destination that the rule matches.
    pub action: EgressAction,
    /// What the rule matches.
    pub destinations: Destinations,
}

/// What an [`EgressRule`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressAction {
    /// The server connects.
    Allow,
    /// The server answers [`OpenError::NotAllowed`](crate::target::OpenError::NotAllowed).
    Deny,
}

/// A set of addresses and ports, written `NETWORK[:PORTS]`.
///
/// NETWORK is `*` (any address), `192.0.2.7`, `10.0.0.0/8`, `[2001:db8::1]`, `[2001:db8::]/32` or
/// `2001:db8::/32`. PORTS is a list of ports and ranges such as `80,8000-8010`; without it, every
/// port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destinations {
    /// The addresses; `None` is any address of both families.
    network: Option<IpNet>,
    /// The ports; empty is every port.
    ports: Vec<RangeInclusive<u16>>,
}

/// Why an [`EgressPolicy`] refuses a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EgressRefusal {
    /// A deny rule matches.
    #[error("denied by the egress rule `{0}`")]
    Rule(EgressRule),
    /// The address lies in a range that is refused unless a rule opens it.
    #[error("{range} ({kind}) is refused unless an egress rule such as `allow {range}` opens it")]
    BuiltIn {
        /// The refused range.
        range: IpNet,
        /// What the range is, as in `loopback`.
        kind: &'static str,
    },
}

/// Why a text is not an [`EgressRule`] or [`Destinations`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EgressParseError {
    /// The rule starts with another word than `allow` or `deny`.
    #[error("`{0}`: an egress rule is `allow DESTINATIONS` or `deny DESTINATIONS`")]
    Action(String),
    /// The address or prefix length cannot be read.
    #[error(
        "`{0}` is not a network: write *, 192.0.2.7, 10.0.0.0/8, [2001:db8::1] or [2001:db8::]/32"
    )]
    Network(String),
    /// An IPv6 address without brackets, where a port could be mistaken for a part of it.
    #[error("`{0}`: write an IPv6 address in brackets, as in [2001:db8::1]:443")]
    Brackets(String),
    /// The address has bits set behind its prefix.
    #[error("`{given}` has bits set behind its prefix: write {network} or {host}")]
    HostBits {
        /// The network as written.
        given: IpNet,
        /// The network that the prefix length means.
        network: IpNet,
        /// The one address, if that was meant.
        host: IpAddr,
    },
    /// A port or range of ports cannot be read.
    #[error("`{0}` is not a port or a range: write numbers from 1 to 65535, as in 80,8000-8010")]
    Ports(String),
}

impl EgressPolicy {
    /// A policy whose rules are tried in this order, the first match deciding.
    pub fn new(rules: impl IntoIterator<Item = EgressRule>) -> Self {
        Self {
            rules: rules.into_iter().collect(),
        }
    }

    /// A policy from two lists without an order between them: deny wins over allow.
    pub fn from_lists(
        allow: impl IntoIterator<Item = Destinations>,
        deny: impl IntoIterator<Item = Destinations>,
    ) -> Self {
        let rule = |action| {
            move |destinations| EgressRule {
                action,
                destinations,
            }
        };
        let deny = deny.into_iter().map(rule(EgressAction::Deny));
        Self::new(deny.chain(allow.into_iter().map(rule(EgressAction::Allow))))
    }

    /// The rules in the order in which they are tried.
    pub fn rules(&self) -> &[EgressRule] {
        &self.rules
    }

    /// Whether the server may connect to this address and port, and if not, why.
    pub fn check(&self, ip: IpAddr, port: u16) -> Result<(), EgressRefusal> {
        // The kernel connects to an IPv4-mapped address over IPv4, so it is judged as IPv4.
        let ip = ip.to_canonical();
        let refused = refused_range(ip);
        for rule in &self.rules {
            let to = &rule.destinations;
            match rule.action {
                EgressAction::Allow if to.contains(ip, port) && to.opens(refused) => return Ok(()),
                EgressAction::Deny if to.contains(ip, port) || to.contains_embedded(ip, port) => {
                    return Err(EgressRefusal::Rule(rule.clone()));
                }
                _ => {}
            }
        }
        match refused {
            Some((range, kind)) => Err(EgressRefusal::BuiltIn { range, kind }),
            None => Ok(()),
        }
    }
}

impl Destinations {
    /// Whether the set has this address and port.
    pub fn contains(&self, ip: IpAddr, port: u16) -> bool {
        let ports = &self.ports;
        self.network.is_none_or(|net| net.contains(&ip))
            && (ports.is_empty() || ports.iter().any(|range| range.contains(&port)))
    }

    /// Whether the set has the IPv4 address inside an IPv6 one.
    fn contains_embedded(&self, ip: IpAddr, port: u16) -> bool {
        match ip {
            IpAddr::V6(ip) => {
                embedded_ipv4(ip).is_some_and(|(v4, _)| self.contains(v4.into(), port))
            }
            IpAddr::V4(_) => false,
        }
    }

    /// Whether an allow rule is meant for this refused range: it lies inside.
    fn opens(&self, refused: Option<(IpNet, &str)>) -> bool {
        match (refused, &self.network) {
            (None, _) => true,
            (Some((range, _)), Some(network)) => range.contains(network),
            (Some(_), None) => false,
        }
    }
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

/// Cuts `NETWORK:PORTS` where the ports start. Colons inside brackets or before a slash are IPv6.
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
    // An IPv4-mapped network is the IPv4 one: that is how addresses are compared.
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

/// The refused range that an address lies in, and what it is.
fn refused_range(ip: IpAddr) -> Option<(IpNet, &'static str)> {
    match ip {
        IpAddr::V4(ip) => refused_ipv4(ip).map(|(net, kind)| (net.into(), kind)),
        IpAddr::V6(ip) => REFUSED_IPV6
            .iter()
            .find(|(net, _)| net.contains(&ip))
            .map(|(net, kind)| ((*net).into(), *kind))
            .or_else(|| refused_embedded(ip)),
    }
}

fn refused_ipv4(ip: Ipv4Addr) -> Option<(Ipv4Net, &'static str)> {
    REFUSED_IPV4.into_iter().find(|(net, _)| net.contains(&ip))
}

/// The part of an embedding IPv6 range whose IPv4 addresses are refused.
fn refused_embedded(ip: Ipv6Addr) -> Option<(IpNet, &'static str)> {
    let (v4, start) = embedded_ipv4(ip)?;
    let (net, kind) = refused_ipv4(v4)?;
    let range = Ipv6Net::new(ip, start + net.prefix_len()).ok()?.trunc();
    Some((range.into(), kind))
}

/// The IPv4 address that a translator or tunnel would send this one's packets to, and the bit at
/// which it starts.
fn embedded_ipv4(ip: Ipv6Addr) -> Option<(Ipv4Addr, u8)> {
    let start = match ip.segments() {
        // 6to4: RFC 3056, section 2.
        [0x2002, ..] => 16,
        // IPv4-compatible: RFC 4291, section 2.5.5.1.
        [0, 0, 0, 0, 0, 0, _, _]
        // IPv4-mapped: RFC 4291, section 2.5.5.2.
        | [0, 0, 0, 0, 0, 0xffff, _, _]
        // IPv4-translated: RFC 2765, section 2.1.
        | [0, 0, 0, 0, 0xffff, 0, _, _]
        // NAT64, well-known prefix: RFC 6052, section 2.1.
        | [0x64, 0xff9b, 0, 0, 0, 0, _, _]
        // NAT64, local-use prefixes of 96 bits: RFC 8215, section 3.
        | [0x64, 0xff9b, 1, _, _, _, _, _] => 96,
        _ => return None,
    };
    let shift = 96 - u32::from(start);
    Some((Ipv4Addr::from_bits((ip.to_bits() >> shift) as u32), start))
}

/// IPv4 ranges that no rule has to name to be refused (RFC 6890, section 2.2.2).
const REFUSED_IPV4: [(Ipv4Net, &str); 5] = [
    (net4([0, 0, 0, 0], 8), "unspecified"),
    (net4([127, 0, 0, 0], 8), "loopback"),
    (net4([169, 254, 0, 0], 16), "link-local"),
    (net4([224, 0, 0, 0], 4), "multicast"),
    (net4([255, 255, 255, 255], 32), "broadcast"),
];

/// IPv6 ranges that no rule has to name to be refused (RFC 4291, section 2.4).
const REFUSED_IPV6: [(Ipv6Net, &str); 4] = [
    (net6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (net6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (net6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (net6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
];

const fn net4(octets: [u8; 4], prefix_len: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_len)
}

const fn net6(segments: [u16; 8], prefix_len: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules separated by `;`, destinations with the expected answer: `+` connects, `-` does not.
    fn check(rules: &str, expected: &str) {
        let rules = rules.split(';').filter(|rule| !rule.trim().is_empty());
        let policy = EgressPolicy::new(rules.map(|rule| rule.parse().unwrap()));
        for case in expected.split_whitespace() {
            let (sign, destination) = case.split_at(1);
            let destination: std::net::SocketAddr = destination.parse().unwrap();
            let answer = policy.check(destination.ip(), destination.port());
            assert_eq!(answer.is_ok(), sign == "+", "{destination}: {answer:?}");
        }
    }

    #[test]
    fn by_default_only_ordinary_addresses_are_reached() {
        check(
            "",
            "+192.0.2.1:80 +10.0.0.1:22 +172.16.5.5:1 +240.0.0.1:1 +128.0.0.1:1 +[2001:db8::1]:443 \
             +[fd00::1]:22 -127.0.0.1:80 -127.255.255.255:1 -0.0.0.0:80 -0.1.2.3:80 \
             -169.254.169.254:80 -224.0.0.1:5 -239.255.255.255:5 -255.255.255.255:9 -[::]:80 \
             -[::1]:80 -[fe80::1]:80 -[febf::1]:80 +[fec0::1]:80 -[ff02::1]:80",
        );
    }

    #[test]
    fn an_address_that_embeds_a_refused_one_is_refused() {
        check(
            "",
            "-[::ffff:127.0.0.1]:80 -[::ffff:169.254.169.254]:80 -[::ffff:0.0.0.0]:80 \
             -[::127.0.0.1]:80 -[::ffff:0:127.0.0.1]:80 -[64:ff9b::127.0.0.1]:80 \
             -[64:ff9b::224.0.0.1]:80 -[64:ff9b:1::169.254.169.254]:80 -[2002:7f00:1::]:80 \
             -[2002:7f00:1::5]:80 -[2002:a9fe:a9fe::1]:80 -[2002:ffff:ffff::]:80 \
             +[::ffff:192.0.2.1]:80 +[64:ff9b::192.0.2.1]:80 +[2002:c000:201::1]:80",
        );
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        check(
            "deny 10.0.0.0/8:22; allow 10.1.0.0/16; deny 10.0.0.0/8; deny *:25",
            "-10.1.0.1:22 +10.1.0.1:80 -10.2.0.1:80 +192.0.2.1:80 -192.0.2.1:25 -[2001:db8::1]:25",
        );
        check(
            "allow *:443; deny *",
            "+192.0.2.1:443 +[2001:db8::1]:443 -192.0.2.1:80 -[2001:db8::1]:80 -127.0.0.1:443",
        );
    }

    #[test]
    fn a_refused_range_is_opened_by_a_rule_inside_it() {
        check(
            "allow 127.0.0.0/8:80,8000-8010; allow [::1]; allow 169.254.169.254:80",
            "+127.0.0.1:80 +127.9.9.9:8000 +127.0.0.1:8010 -127.0.0.1:8011 -127.0.0.1:79 +[::1]:5 \
             +169.254.169.254:80 -169.254.169.253:80 +[::ffff:127.0.0.1]:80 \
             -[64:ff9b::127.0.0.1]:80",
        );
        check(
            "allow *; allow 0.0.0.0/0; allow [::]/0; allow 126.0.0.0/7",
            "-127.0.0.1:80 -[::1]:80 -[fe80::1]:80 -[64:ff9b::127.0.0.1]:80 +126.0.0.1:80",
        );
        check(
            "allow [64:ff9b::7f00:0]/104; allow [::ffff:127.0.0.1]",
            "+[64:ff9b::127.0.0.1]:80 +127.0.0.1:80 -127.0.0.2:80",
        );
    }

    #[test]
    fn a_denied_ipv4_network_is_denied_in_every_disguise() {
        check(
            "deny 10.0.0.0/8; allow *",
            "-10.0.0.1:80 -[::ffff:10.0.0.1]:80 -[64:ff9b::10.0.0.1]:80 -[2002:a00:1::1]:80 \
             +[64:ff9b::11.0.0.1]:80",
        );
    }

    #[test]
    fn in_two_lists_deny_wins() {
        let parse = |text: &str| text.parse::<Destinations>().unwrap();
        let policy = EgressPolicy::from_lists([parse("127.0.0.0/8")], [parse("127.0.0.1:22")]);
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(policy.check(loopback, 80), Ok(()));
        assert_eq!(
            policy.check(loopback, 22).unwrap_err().to_string(),
            "denied by the egress rule `deny 127.0.0.1/32:22`"
        );
        assert_eq!(
            EgressPolicy::default()
                .check(loopback, 22)
                .unwrap_err()
                .to_string(),
            "127.0.0.0/8 (loopback) is refused unless an egress rule such as `allow 127.0.0.0/8` \
             opens it"
        );
    }

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
            "`10.0.0.1/8` has bits set behind its prefix: write 10.0.0.0/8 or 10.0.0.1"
        );
        for rule in ["", "allow", "permit *", "*:80"] {
            assert_eq!(rule.parse::<EgressRule>(), Err(E::Action(rule.to_owned())));
        }
    }
}
