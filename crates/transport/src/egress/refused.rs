//! The addresses that are refused unless a rule opens them, also where an IPv6 address hides an IPv4 one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The refused range that an address lies in, and what it is.
pub(super) fn refused_range(ip: IpAddr) -> Option<(IpNet, &'static str)> {
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
pub(super) fn embedded_ipv4(ip: Ipv6Addr) -> Option<(Ipv4Addr, u8)> {
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

/// IPv6 ranges that no rule has to name to be refused (RFC 4291, section 2.4, but for the last).
const REFUSED_IPV6: [(Ipv6Net, &str); 5] = [
    (net6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (net6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    (net6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (net6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
    // The one such service that is not link-local (Amazon EC2, "instance metadata over IPv6").
    (
        net6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254], 128),
        "cloud metadata",
    ),
];

const fn net4(octets: [u8; 4], prefix_len: u8) -> Ipv4Net {
    let [a, b, c, d] = octets;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_len)
}

const fn net6(segments: [u16; 8], prefix_len: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = segments;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix_len)
}
