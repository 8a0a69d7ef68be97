//! The server's egress policy: decides by address and port, after the name is resolved, where
//! streams may connect.
//!
//! The rules are read in order and the first match decides. If none matches, the built-in refusals
//! apply. They cover everything outside the public Internet: loopback, link-local, private, shared
//! and reserved ranges, multicast, the metadata services of clouds, the server's own addresses, and
//! every IPv6 address that embeds such an IPv4 address. All other addresses are allowed, including
//! the documentation ranges, which lead nowhere.
//!
//! Two points keep a rule from opening more than its author meant:
//!
//! - A built-in refusal is opened only by an allow rule *inside* the refused range (`allow
//!   127.0.0.0/8:80`, `allow 10.0.0.0/8`). A wider rule (`allow *:443`, `allow 0.0.0.0/0`) skips
//!   these addresses, so that "only the web" is `allow *:443`, `deny *` and does not expose the
//!   server's own loopback services. Of several refused ranges the narrowest counts: `allow
//!   10.0.0.0/8` opens neither the server's own address in it nor a metadata service.
//! - A deny rule for IPv4 also matches the IPv6 addresses that embed the denied ones (NAT64, 6to4).
//!   An allow rule does not, except for IPv4-mapped ones, which are the same destination.

mod refused;
mod text;

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use refused::{embedded_ipv4, refused_range};
pub use text::EgressParseError;

/// Decides which addresses and ports the server may connect to. The default has no rules, only the
/// built-in refusals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    rules: Vec<EgressRule>,
    /// The networks that lead to this machine itself.
    own: Arc<[IpNet]>,
}

/// One line of an [`EgressPolicy`], written `allow DESTINATIONS` or `deny DESTINATIONS`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EgressRule {
    /// The action for matching destinations.
    pub action: EgressAction,
    /// The destinations that the rule matches.
    pub destinations: Destinations,
}

/// The action of an [`EgressRule`].
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
        /// The kind of the range, such as `loopback`.
        kind: &'static str,
    },
}

impl EgressPolicy {
    /// A policy that tries the rules in this order; the first match decides.
    pub fn new(rules: impl IntoIterator<Item = EgressRule>) -> Self {
        Self {
            rules: rules.into_iter().collect(),
            own: Arc::default(),
        }
    }

    /// The same policy for a machine with these addresses. They are refused unless a rule opens
    /// them: a packet filter on the machine's interfaces does not see the packets that the machine
    /// sends to itself.
    ///
    /// A [`Server`](crate::Server) calls this at the start and whenever its addresses change.
    pub fn with_own_addresses(mut self, own: impl IntoIterator<Item = IpNet>) -> Self {
        // Loopback has a separate entry, which `allow 127.0.0.0/8` opens as a whole.
        let own = own.into_iter().filter(|net| !net.addr().is_loopback());
        self.own = own.collect();
        self
    }

    /// The machine's own addresses known to the policy.
    pub(crate) fn own_addresses(&self) -> &[IpNet] {
        &self.own
    }

    /// A policy from two unordered lists: deny takes precedence over allow.
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

    /// Whether the server may connect to this address and port, and the reason if not.
    pub fn check(&self, ip: IpAddr, port: u16) -> Result<(), EgressRefusal> {
        // The kernel connects to an IPv4-mapped address over IPv4, so IPv4 rules apply.
        let ip = ip.to_canonical();
        let refused = refused_range(ip, &self.own);
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
    /// Whether the set contains this address and port.
    pub fn contains(&self, ip: IpAddr, port: u16) -> bool {
        let ports = &self.ports;
        self.network.is_none_or(|net| net.contains(&ip))
            && (ports.is_empty() || ports.iter().any(|range| range.contains(&port)))
    }

    /// Whether the set contains the IPv4 address embedded in an IPv6 address.
    fn contains_embedded(&self, ip: IpAddr, port: u16) -> bool {
        match ip {
            IpAddr::V6(ip) => {
                embedded_ipv4(ip).is_some_and(|(v4, _)| self.contains(v4.into(), port))
            }
            IpAddr::V4(_) => false,
        }
    }

    /// Whether an allow rule opens this refused range: the rule lies inside it.
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

    /// Rules separated by `;`, and destinations with the expected answer: `+` connects, `-` does
    /// not.
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
            "+192.0.2.1:80 +128.0.0.1:1 +[2001:db8::1]:443 +100.63.255.255:1 +100.128.0.1:1 \
             +172.15.0.1:1 +172.32.0.1:1 +198.17.0.1:1 +223.255.255.255:1 \
             -127.0.0.1:80 -127.255.255.255:1 -0.0.0.0:80 -0.1.2.3:80 \
             -169.254.0.23:80 -224.0.0.1:5 -239.255.255.255:5 -255.255.255.255:9 -[::]:80 \
             -[::1]:80 -[fe80::1]:80 -[febf::1]:80 -[fec0::1]:80 -[ff02::1]:80 \
             -10.0.0.1:22 -172.16.5.5:1 -172.31.255.255:1 -192.168.1.1:80 -100.64.0.1:80 \
             -192.0.0.1:80 -198.18.0.1:80 -198.19.255.255:80 -240.0.0.1:1 -[fc00::1]:22 -[fd00::1]:22 \
             -[100::1]:80 -[2001::1]:80 -[2001:2::1]:80 -[5f00::1]:80 -[64:ff9b:1::1]:80",
        );
    }

    #[test]
    fn metadata_services_are_refused_in_every_form() {
        for service in [
            "169.254.169.254",
            "169.254.170.2",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
        ] {
            let v4: std::net::Ipv4Addr = service.parse().unwrap();
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            check(
                "allow *; allow 0.0.0.0/0; allow [::]/0",
                &format!(
                    "-{v4}:80 -[::ffff:{v4}]:80 -[::{v4}]:80 -[64:ff9b::{v4}]:80 \
                     -[64:ff9b:1::{v4}]:80 -[2002:{high:x}:{low:x}::1]:80"
                ),
            );
            check(&format!("allow {v4}:80"), &format!("+{v4}:80 -{v4}:81"));
        }
        for service in [
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:42::42",
        ] {
            check("allow *; allow [fc00::]/6", &format!("-[{service}]:80"));
            check(&format!("allow [{service}]"), &format!("+[{service}]:80"));
        }
        // Opening the network around a metadata service does not open the service.
        check(
            "allow 100.64.0.0/10; allow 169.254.0.0/16; allow [fc00::]/7",
            "+100.64.0.1:80 -100.100.100.200:80 +169.254.1.1:80 -169.254.169.254:80 +[fd00::1]:80 \
             -[fd00:ec2::254]:80 -[fd20:ce::254]:80",
        );
    }

    #[test]
    fn own_addresses_are_refused_unless_a_rule_names_them() {
        let own = [
            "203.0.113.5/32",
            "10.1.2.3/32",
            "2001:db8::5/128",
            "127.0.0.1/8",
            "::1/128",
        ];
        let own = || own.map(|net| net.parse::<IpNet>().unwrap());
        let allowed = |rules: &[&str], address: &str| {
            let policy = EgressPolicy::new(rules.iter().map(|rule| rule.parse().unwrap()));
            let policy = policy.with_own_addresses(own());
            policy.check(address.parse().unwrap(), 22).is_ok()
        };
        for address in [
            "203.0.113.5",
            "::ffff:203.0.113.5",
            "64:ff9b::203.0.113.5",
            "2002:cb00:7105::1",
            "2001:db8::5",
            "10.1.2.3",
        ] {
            assert!(!allowed(&[], address), "{address}");
            assert!(
                !allowed(&["allow *", "allow 10.0.0.0/8"], address),
                "{address}"
            );
        }
        assert!(allowed(&[], "203.0.113.6"));
        assert!(allowed(&["allow 10.0.0.0/8"], "10.1.2.4"));
        assert!(allowed(&["allow 203.0.113.5:22"], "203.0.113.5"));
        assert!(allowed(&["allow 10.1.2.3"], "10.1.2.3"));
        assert!(allowed(&["allow 127.0.0.0/8"], "127.0.0.1"));
        let policy = EgressPolicy::default().with_own_addresses(own());
        assert_eq!(
            policy
                .check("203.0.113.5".parse().unwrap(), 22)
                .unwrap_err()
                .to_string(),
            "203.0.113.5/32 (an address of this server) is refused unless an egress rule such as \
             `allow 203.0.113.5/32` opens it"
        );
    }

    #[test]
    fn an_address_that_embeds_a_refused_one_is_refused() {
        check(
            "",
            "-[::ffff:127.0.0.1]:80 -[::ffff:169.254.169.254]:80 -[::ffff:0.0.0.0]:80 \
             -[::ffff:10.0.0.1]:80 -[64:ff9b::192.168.0.1]:80 -[2002:6440:1::1]:80 \
             -[::127.0.0.1]:80 -[::ffff:0:127.0.0.1]:80 -[64:ff9b::127.0.0.1]:80 \
             -[64:ff9b::224.0.0.1]:80 -[64:ff9b:1::169.254.169.254]:80 -[2002:7f00:1::]:80 \
             -[2002:7f00:1::5]:80 -[2002:a9fe:a9fe::1]:80 -[2002:ffff:ffff::]:80 \
             -[fd00:ec2::254]:80 \
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
