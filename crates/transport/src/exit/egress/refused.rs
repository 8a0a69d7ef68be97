//! The ranges refused unless a rule opens them, including IPv4 addresses embedded in IPv6
//! addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The narrowest refused range that contains an address, and its kind; `own` are the networks of
/// this machine.
pub(super) fn refused_range(ip: IpAddr, own: &[IpNet]) -> Option<(IpNet, &'static str)> {
    match ip {
        IpAddr::V4(ip) => refused_ipv4(ip, own).map(|(net, kind)| (net.into(), kind)),
        IpAddr::V6(ip) => {
            let own_ranges = own.iter().filter_map(|net| match net {
                IpNet::V6(net) => Some((*net, OWN)),
                IpNet::V4(_) => None,
            });
            let ranges = own_ranges
                .chain(REFUSED_IPV6)
                .filter(|(net, _)| net.contains(&ip));
            let ranges = ranges.chain(refused_embedded(ip, own));
            ranges
                .max_by_key(|(net, _)| net.prefix_len())
                .map(|(net, kind)| (net.into(), kind))
        }
    }
}

fn refused_ipv4(ip: Ipv4Addr, own: &[IpNet]) -> Option<(Ipv4Net, &'static str)> {
    let own = own.iter().filter_map(|net| match net {
        IpNet::V4(net) => Some((*net, OWN)),
        IpNet::V6(_) => None,
    });
    let ranges = own.chain(REFUSED_IPV4).filter(|(net, _)| net.contains(&ip));
    ranges.max_by_key(|(net, _)| net.prefix_len())
}

/// The part of an embedding IPv6 range whose IPv4 addresses are refused.
fn refused_embedded(ip: Ipv6Addr, own: &[IpNet]) -> Option<(Ipv6Net, &'static str)> {
    let (v4, start) = embedded_ipv4(ip)?;
    let (net, kind) = refused_ipv4(v4, own)?;
    let range = Ipv6Net::new(ip, start + net.prefix_len()).ok()?.trunc();
    Some((range, kind))
}

/// The IPv4 address to which a translator or tunnel would send packets for this address, and the
/// bit at which it starts.
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

/// The kind of an address of this machine.
const OWN: &str = "an address of this server";

/// The kind of a cloud's metadata service.
const METADATA: &str = "cloud metadata";

/// IPv4 ranges refused by default: those of RFC 6890, section 2.2.2, that are not globally
/// reachable, except the documentation ranges; multicast (RFC 5771); and metadata services, by the
/// documentation of their clouds.
const REFUSED_IPV4: [(Ipv4Net, &str); 17] = [
    (net4([0, 0, 0, 0], 8), "unspecified"),
    (net4([10, 0, 0, 0], 8), "private"),
    (
        net4([100, 64, 0, 0], 10),
        "shared by customers of a provider",
    ),
    (net4([127, 0, 0, 0], 8), "loopback"),
    (net4([169, 254, 0, 0], 16), "link-local"),
    (net4([172, 16, 0, 0], 12), "private"),
    (net4([192, 0, 0, 0], 24), "protocol assignments"),
    (net4([192, 168, 0, 0], 16), "private"),
    (net4([198, 18, 0, 0], 15), "benchmarking"),
    (net4([224, 0, 0, 0], 4), "multicast"),
    (net4([240, 0, 0, 0], 4), "reserved"),
    (net4([255, 255, 255, 255], 32), "broadcast"),
    // Most clouds.
    (net4([169, 254, 169, 254], 32), METADATA),
    // Amazon ECS: the credentials of a task.
    (net4([169, 254, 170, 2], 32), METADATA),
    // Alibaba Cloud.
    (net4([100, 100, 100, 200], 32), METADATA),
    // Azure: a public address that only the virtual machine's host answers.
    (net4([168, 63, 129, 16], 32), METADATA),
    // Oracle Cloud.
    (net4([192, 0, 0, 192], 32), METADATA),
];

/// IPv6 ranges refused by default: those of RFC 6890, section 2.2.3, and of its successor, the IANA
/// registry, that are not globally reachable, except the documentation ranges and those whose
/// embedded IPv4 address decides; multicast (RFC 4291); and metadata services.
const REFUSED_IPV6: [(Ipv6Net, &str); 15] = [
    (net6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (net6([0, 0, 0, 0, 0, 0, 0, 1], 128), "loopback"),
    // RFC 8215: its prefixes may have lengths other than 96, which move the IPv4 address.
    (
        net6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
        "local translation",
    ),
    (net6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "discarded"),
    // RFC 4380: its last bits contain an inverted IPv4 address.
    (net6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "Teredo"),
    (net6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "benchmarking"),
    (net6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "segment routing"),
    (net6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "private"),
    (net6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    // RFC 3879: deprecated, but still private where in use.
    (net6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "private"),
    (net6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
    // Amazon EC2, and in EKS the credentials of a pod.
    (net6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), METADATA),
    // Google Cloud.
    (net6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), METADATA),
    // Scaleway.
    (net6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), METADATA),
    // Oracle Cloud.
    (
        net6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128),
        METADATA,
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
