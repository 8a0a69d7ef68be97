//! Streams to IPv6 addresses while the server has no IPv6.
//!
//! A program with addresses of both families connects to the IPv6 one first. Its connection ends
//! at the gateway, so the program cannot notice that the server has no IPv6 and try IPv4. If the
//! program has asked the gateway's resolver for the name, the server connects to the name instead
//! and chooses the address itself.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sumlink_exit::target::Host;
use sumlink_proxy::Target;

use crate::names::SharedNames;

/// Time for which IPv6 counts as missing after a stream could not be opened. Until its end, streams
/// do not wait for another failure.
const MISSING: Duration = Duration::from_secs(30);

/// Whether the server reaches IPv6 addresses.
#[derive(Debug, Default)]
pub(super) struct Ipv6 {
    missing_until: Mutex<Option<Instant>>,
}

impl Ipv6 {
    /// Whether a stream failed within the last half minute because IPv6 is missing.
    pub(super) fn is_missing(&self, now: Instant) -> bool {
        let until = self.missing_until.lock();
        let until = *until.unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| now < until)
    }

    /// The server has no route to an IPv6 address.
    pub(super) fn note_missing(&self, now: Instant) {
        let until = self.missing_until.lock();
        *until.unwrap_or_else(PoisonError::into_inner) = Some(now + MISSING);
    }
}

/// The target by the name that the resolver has answered with its address most recently; `None` for
/// a target that is not an IPv6 address, or an address without a known name.
pub(super) fn by_name(target: &Target, names: &SharedNames) -> Option<Target> {
    let Host::Ip(ip @ IpAddr::V6(_)) = target.host else {
        return None;
    };
    if ip.to_canonical().is_ipv4() {
        return None;
    }
    let name = names.latest(ip)?;
    Target::new(&name, target.port).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_missing_for_half_a_minute() {
        let (ipv6, now) = (Ipv6::default(), Instant::now());
        assert!(!ipv6.is_missing(now));
        ipv6.note_missing(now);
        assert!(ipv6.is_missing(now + MISSING / 2));
        assert!(!ipv6.is_missing(now + MISSING));
    }

    #[test]
    fn only_an_ipv6_address_with_a_name_has_a_target_by_name() {
        let names = SharedNames::default();
        for ip in ["2001:db8::1", "192.0.2.1", "::ffff:192.0.2.1"] {
            names.learn(ip.parse().unwrap(), "a.org", Duration::from_secs(60));
        }
        let found = |target: &str| by_name(&target.parse().unwrap(), &names);
        let found = |target: &str| found(target).map(|target| target.to_string());
        assert_eq!(found("[2001:db8::1]:443").as_deref(), Some("a.org:443"));
        assert_eq!(found("[2001:db8::2]:443"), None);
        assert_eq!(found("192.0.2.1:443"), None);
        assert_eq!(found("[::ffff:192.0.2.1]:443"), None);
        assert_eq!(found("a.org:443"), None);
    }
}
