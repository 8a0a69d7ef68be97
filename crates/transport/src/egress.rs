//! Where the server lets streams go: a decision by address and port, taken after the name is resolved.
//!
//! The rules are read in order and the first one that matches decides. Where none matches, the
//! built-in refusals do: loopback, link-local and `fd00:ec2::254` (cloud metadata services live there),
//! multicast, broadcast and unspecified addresses, and every IPv6 address that embeds such an IPv4 one. All
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

mod refused;
mod text;

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use refused::{embedded_ipv4, refused_range};
pub use text::EgressParseError;

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
             -[fd00:ec2::254]:80 +[fd00:ec2::1]:80 \
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
}
