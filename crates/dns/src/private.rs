//! Protection against DNS rebinding: a public name with the address of a private network lets a
//! website reach hosts behind the gateway.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::wire::{Message, Record, kind};

/// Networks that no public name has an address of: those in the IANA special-purpose registries
/// (RFC 6890, section 2.2) that are not globally reachable, except the ones for documentation,
/// which no host has.
const V4: [Ipv4Net; 12] = [
    // This network (RFC 791, section 3.2). Linux connects to itself.
    v4([0, 0, 0, 0], 8),
    // Private use (RFC 1918).
    v4([10, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    // Shared between a provider and its customers (RFC 6598).
    v4([100, 64, 0, 0], 10),
    // Loopback (RFC 1122, section 3.2.1.3).
    v4([127, 0, 0, 0], 8),
    // Link-local (RFC 3927).
    v4([169, 254, 0, 0], 16),
    // IETF protocol assignments (RFC 6890).
    v4([192, 0, 0, 0], 24),
    // Benchmarks (RFC 2544); the bond's own device has an address of these.
    v4([198, 18, 0, 0], 15),
    // Multicast (RFC 5771), and reserved addresses with the broadcast address (RFC 1112).
    v4([224, 0, 0, 0], 4),
    v4([240, 0, 0, 0], 4),
    // Deprecated relays of 6to4 (RFC 7526).
    v4([192, 88, 99, 0], 24),
];

/// The same for IPv6.
const V6: [Ipv6Net; 7] = [
    // Unspecified and loopback (RFC 4291, sections 2.5.2 and 2.5.3), and the deprecated
    // IPv4-compatible addresses (2.5.5.1).
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96),
    // Translation within one network (RFC 8215).
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
    // Discard (RFC 6666).
    v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64),
    // Unique local (RFC 4193).
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    // Link-local (RFC 4291, section 2.5.6).
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    // Site-local, deprecated (RFC 3879).
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
    // Multicast (RFC 4291, section 2.7).
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8),
];

/// The keys of addresses in SVCB and HTTPS records (RFC 9460, section 7.3).
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// Whether a public name must not have this address. An IPv6 address that contains an IPv4 address
/// counts as that one: mapped (RFC 4291, section 2.5.5.2), translated (RFC 6052) and 6to4 (RFC
/// 3056). `own` are further networks, such as public ones behind the gateway.
pub fn is_private(address: IpAddr, own: &[IpNet]) -> bool {
    if own.iter().any(|network| network.contains(&address)) {
        return true;
    }
    match address {
        IpAddr::V4(address) => V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => match embedded(address) {
            Some(inner) => is_private(inner.into(), own),
            None => V6.iter().any(|network| network.contains(&address)),
        },
    }
}

/// The first private address in a response, in any section: in A and AAAA records, and as a hint
/// in SVCB and HTTPS records.
pub(crate) fn find(message: &Message<'_>, own: &[IpNet]) -> Option<IpAddr> {
    let mut addresses = message
        .records()
        .flat_map(|record| addresses(message, &record));
    addresses.find(|address| is_private(*address, own))
}

/// The addresses in a record.
pub(crate) fn addresses(message: &Message<'_>, record: &Record<'_>) -> Vec<IpAddr> {
    match record.kind {
        kind::A => v4_of(record.data).into_iter().collect(),
        kind::AAAA => v6_of(record.data).into_iter().collect(),
        kind::SVCB | kind::HTTPS => hints(message, record).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// The address hints of an SVCB or HTTPS record (RFC 9460, section 2.2): priority, target, and
/// parameters with key, length and value.
fn hints(message: &Message<'_>, record: &Record<'_>) -> Option<Vec<IpAddr>> {
    let target_end = message.name_end(record.data_at + 2)?;
    let mut rest = record.data.get(target_end.checked_sub(record.data_at)?..)?;
    let mut found = Vec::new();
    while let [k1, k2, l1, l2, values @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*l1, *l2]));
        let Some((value, after)) = values.split_at_checked(length) else {
            break;
        };
        match u16::from_be_bytes([*k1, *k2]) {
            IPV4_HINT => found.extend(value.chunks_exact(4).filter_map(v4_of)),
            IPV6_HINT => found.extend(value.chunks_exact(16).filter_map(v6_of)),
            _ => {}
        }
        rest = after;
    }
    Some(found)
}

/// The IPv4 address in an IPv6 address that stands for it.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let inner = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            inner(high, low)
        }
        [0x2002, high, low, ..] => inner(high, low),
        _ => None,
    }
}

fn v4_of(data: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(data).ok().map(IpAddr::from)
}

fn v6_of(data: &[u8]) -> Option<IpAddr> {
    <[u8; 16]>::try_from(data).ok().map(IpAddr::from)
}

const fn v4(octets: [u8; 4], length: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(segments: [u16; 8], length: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Answer, address, answer, service};
    use crate::wire::Query;

    #[test]
    fn addresses_inside_are_private_in_every_spelling() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "127.0.0.53",
            "169.254.169.254",
            "198.18.74.1",
            "224.0.0.251",
            "255.255.255.255",
            "::",
            "::1",
            "fd73:756d:6c69::1",
            "fe80::1",
            "fec0::1",
            "ff02::fb",
            "::ffff:192.168.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:c0a8:1::1",
            "::10.0.0.1",
        ] {
            assert!(is_private(text.parse().unwrap(), &[]), "{text}");
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.2.1",
            "2606:4700::1111",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(!is_private(text.parse().unwrap(), &[]), "{text}");
        }
        let own = [
            "2001:db8:7::/48".parse().unwrap(),
            "203.0.113.0/24".parse().unwrap(),
        ];
        assert!(is_private("2001:db8:7::1".parse().unwrap(), &own));
        assert!(is_private("::ffff:203.0.113.9".parse().unwrap(), &own));
    }

    #[test]
    fn hints_of_services_count_like_addresses() {
        let query = Query::new("a.example", kind::HTTPS);
        let find_in = |hints: &[&str]| {
            let hints: Vec<IpAddr> = hints.iter().map(|text| text.parse().unwrap()).collect();
            let bytes = answer(&query, Answer::records([service(&hints, 60)]));
            find(&Message::read(&bytes).unwrap(), &[])
        };
        assert_eq!(find_in(&["192.0.2.1", "2001:db8::1"]), None);
        assert_eq!(
            find_in(&["192.0.2.1", "10.0.0.1"]),
            Some([10, 0, 0, 1].into())
        );
        assert_eq!(find_in(&["fe80::1"]), Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn one_private_address_among_public_ones_is_found() {
        let query = Query::new("a.example", kind::A);
        let records = [address("192.0.2.1", 60), address("127.0.0.1", 60)];
        let bytes = answer(&query, Answer::records(records));
        let message = Message::read(&bytes).unwrap();
        assert_eq!(find(&message, &[]), Some([127, 0, 0, 1].into()));
    }
}
