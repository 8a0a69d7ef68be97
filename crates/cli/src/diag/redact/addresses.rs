//! Public addresses of IPv4 and IPv6, and hardware addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::{Redactor, Run, replace_runs};

/// Beginnings of interface names with the whole hardware address (systemd.net-naming-scheme(7)).
const NAMED_BY_CARD: [&str; 5] = ["enx", "wlx", "wwx", "slx", "ibx"];

/// Parts of the names of hardware addresses, in lower case.
const CARDS: [&str; 4] = ["mac", "bssid", "hwaddr", "ether"];

/// Bytes of a hardware address.
const CARD: usize = 6;

/// Bytes of a hardware address that name the vendor.
const VENDOR: usize = 3;

/// Separators between the bytes of a hardware address with a name, also as URLs encode them.
const SEPARATORS: [&str; 8] = [":", "-", ".", "_", "%3A", "%3a", "%2D", "%2d"];

/// Longest run that is searched for IPv6 addresses: addresses are shorter.
const MAX_RUN: usize = 256;

/// Well-known prefixes that identify no network: global unicast, Teredo, 6to4, NAT64.
const PREFIXES: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0),
    Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0),
    Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0),
    Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0),
];

/// Half of the IPv4 addresses: a route that VPNs use.
const HALF: Ipv4Addr = Ipv4Addr::new(128, 0, 0, 0);

impl Redactor {
    /// Replaces public IPv6 addresses, and the device half of the card in others.
    pub(super) fn ipv6(&mut self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
        replace_runs(text, is_part, |run| {
            let part = candidate(run)?;
            let mut rest = &run.text[part.clone()];
            let mut out = run.text[..part.start].to_owned();
            while let Some((at, len, ip)) = first_ipv6(rest) {
                out.push_str(&rest[..at]);
                match self.ipv6_replacement(ip) {
                    Some(new) => out.push_str(&new),
                    None => out.push_str(&rest[at..at + len]),
                }
                rest = &rest[at + len..];
            }
            out.push_str(rest);
            out.push_str(&run.text[part.end..]);
            Some((out, 0))
        })
    }

    fn ipv6_replacement(&mut self, ip: Ipv6Addr) -> Option<String> {
        if let Some(ipv4) = ip.to_ipv4_mapped() {
            return is_public_ipv4(ipv4).then(|| format!("::ffff:{}", self.address(ipv4.into())));
        }
        if is_public_ipv6(ip) {
            return Some(self.address(ip.into()));
        }
        // RFC 4291, appendix A: the address of the card, with a bit inverted.
        let o = ip.octets();
        if o[11..13] != [0xff, 0xfe] {
            return None;
        }
        let number = self.card(&[o[8] ^ 2, o[9], o[10], o[13], o[14], o[15]]);
        let mut vendor = o;
        vendor[13..].fill(0);
        let text = Ipv6Addr::from(vendor).to_string();
        let text = text.strip_suffix("00:0").unwrap_or(&text);
        Some(format!("{text}xx:{number:04x}"))
    }

    /// Replaces public IPv4 addresses.
    pub(super) fn ipv4(&mut self, text: &str) -> String {
        replace_runs(
            text,
            |c| c.is_ascii_digit() || c == '.',
            |run| {
                let parts: Vec<&str> = run.text.split('.').collect();
                if parts.len() < 4 {
                    return None;
                }
                let mut words: Vec<String> = Vec::new();
                let mut at = 0;
                while at < parts.len() {
                    let ip = parts.get(at..at + 4).and_then(ipv4_of);
                    match ip.filter(|ip| is_public_ipv4(*ip)) {
                        Some(ip) => {
                            words.push(self.address(ip.into()));
                            at += 4;
                        }
                        None => {
                            words.push(parts[at].to_owned());
                            at += 1;
                        }
                    }
                }
                Some((words.join("."), 0))
            },
        )
    }

    /// Replaces the device half of hardware addresses, also in the names of interfaces.
    pub(super) fn hardware(&mut self, text: &str) -> String {
        let text = self.hardware_with(':', text);
        let text = self.hardware_with('-', &text);
        let text = self.named_cards(&text);
        replace_runs(&text, char::is_alphanumeric, |run| {
            let prefix = NAMED_BY_CARD.iter().find(|p| run.text.starts_with(**p))?;
            let hidden = self.bare_card(&run.text[prefix.len()..])?;
            Some((format!("{prefix}{hidden}"), 0))
        })
    }

    /// Replaces the device half of words that are hardware addresses without separators. Other
    /// numbers have this form, too: this is for texts where that does no harm.
    pub(super) fn bare_cards(&mut self, text: &str) -> String {
        replace_runs(text, char::is_alphanumeric, |run| {
            Some((self.bare_card(run.text)?, 0))
        })
    }

    /// A hardware address without separators and without its device half.
    fn bare_card(&mut self, digits: &str) -> Option<String> {
        let is_card = digits.len() == 2 * CARD && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let card = is_card.then(|| bytes_of(digits.as_bytes()))??;
        let number = self.card(&card);
        Some(format!("{}xx{number:04x}", &digits[..2 * VENDOR]))
    }

    /// Replaces the device half of hardware addresses behind names such as `mac=`. These may have
    /// any separators, or none.
    fn named_cards(&mut self, text: &str) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        replace_runs(text, is_name, |run| {
            let name = run.text.to_ascii_lowercase();
            if !CARDS.iter().any(|word| name.contains(*word)) {
                return None;
            }
            let blank = ['\\', '"', '\'', ' ', '\t'];
            let value = run.after.trim_start_matches(blank);
            let mut signs = ["=", ":", "%3D", "%3d"].iter();
            let value = signs.find_map(|sign| value.strip_prefix(*sign))?;
            let value = value.trim_start_matches(blank);
            let lead = &run.after[..run.after.len() - value.len()];
            let (digits, len) = card_digits(value)?;
            let hidden = self.bare_card(&digits)?;
            Some((format!("{}{lead}{hidden}", run.text), lead.len() + len))
        })
    }

    fn hardware_with(&mut self, separator: char, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_hexdigit() || c == separator;
        replace_runs(text, is_part, |run| {
            let groups: Vec<&str> = run.text.split(separator).collect();
            let mut words: Vec<String> = Vec::new();
            let mut at = 0;
            while at < groups.len() {
                let count = groups[at..].iter().take_while(|g| g.len() == 2).count();
                if count < 6 {
                    let skipped = count.max(1);
                    let skipped = &groups[at..at + skipped];
                    words.extend(skipped.iter().map(|group| (*group).to_owned()));
                    at += skipped.len();
                    continue;
                }
                words.extend(self.hidden(&groups[at..at + count]));
                at += count;
            }
            Some((words.join(&separator.to_string()), 0))
        })
    }

    /// The groups of a hardware address without its device half. All zeros and the broadcast
    /// address stay: they identify no card.
    fn hidden(&mut self, groups: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let Some(card) = bytes_of(groups.concat().as_bytes()) else {
            return words;
        };
        if card.iter().all(|byte| *byte == 0) || card.iter().all(|byte| *byte == 0xff) {
            return words;
        }
        let number = self.card(&card);
        words[VENDOR..].fill("xx".to_owned());
        let last = words.len() - 1;
        words[last - 1] = format!("{:02x}", number >> 8);
        words[last] = format!("{:02x}", number & 0xff);
        words
    }

    /// The number of a card; it has four digits of hexadecimal.
    fn card(&mut self, card: &[u8]) -> u16 {
        self.cards.of(card.to_vec()) as u16
    }

    fn address(&mut self, ip: IpAddr) -> String {
        format!("addr-{}", self.addresses.of(ip))
    }
}

/// The digits of the hardware address at the beginning of a text, and its length there.
fn card_digits(text: &str) -> Option<(String, usize)> {
    let (mut digits, mut rest) = (String::new(), text);
    while digits.len() < 2 * CARD {
        if !digits.is_empty() && digits.len() % 2 == 0 {
            let mut separators = SEPARATORS.iter();
            let behind = separators.find_map(|separator| rest.strip_prefix(*separator));
            rest = behind.unwrap_or(rest);
        }
        let digit = rest.chars().next().filter(char::is_ascii_hexdigit)?;
        digits.push(digit);
        rest = &rest[1..];
    }
    let is_whole = !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
    is_whole.then(|| (digits, text.len() - rest.len()))
}

/// Bytes from their digits in hexadecimal.
fn bytes_of(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    let byte = |pair: &[u8]| Some((digit(pair.first()?)? * 16 + digit(pair.get(1)?)?) as u8);
    digits.chunks(2).map(byte).collect()
}

/// The address of four numbers; leading zeros do not matter.
fn ipv4_of(parts: &[&str]) -> Option<Ipv4Addr> {
    let byte = |part: &&str| match part.len() {
        1..=3 => part.parse::<u8>().ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = parts.iter().map(byte).collect();
    let bytes: [u8; 4] = bytes?.try_into().ok()?;
    Some(bytes.into())
}

/// The part of a run that may contain IPv6 addresses. A group that continues a word is none, and
/// words around `::` are a path of a program.
fn candidate(run: Run<'_>) -> Option<Range<usize>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let start = match run.before.is_some_and(is_word) {
        true => run.text.find(':')?,
        false => 0,
    };
    if run.before.is_some_and(is_word) && run.text[start..].starts_with("::") {
        return None;
    }
    let end = match run.after.chars().next().is_some_and(is_word) {
        true => run.text.rfind(':')? + 1,
        false => run.text.len(),
    };
    let text = run.text.get(start..end)?;
    let colons = text.matches(':').count();
    // Hardware addresses have only groups of two digits.
    let is_card = colons >= 5 && text.trim_matches(':').split(':').all(|g| g.len() == 2);
    (colons >= 2 && !is_card && text.len() <= MAX_RUN).then_some(start..end)
}

/// The first IPv6 address in a text of hexadecimal digits, colons and periods, with its place and
/// length; the longest one there.
fn first_ipv6(text: &str) -> Option<(usize, usize, Ipv6Addr)> {
    let bytes = text.as_bytes();
    // An address begins with a group or with `::`, and ends likewise.
    let begins = |at: usize| at == 0 || matches!(bytes[at - 1], b':' | b'.') || bytes[at] == b':';
    let ends =
        |at: usize| at == bytes.len() || matches!(bytes[at], b':' | b'.') || bytes[at - 1] == b':';
    for start in (0..bytes.len()).filter(|at| begins(*at)) {
        for end in (start + 2..=bytes.len()).rev().filter(|at| ends(*at)) {
            if let Ok(ip) = text[start..end].parse() {
                return Some((start, end - start, ip));
            }
        }
    }
    None
}

/// Whether an address identifies a host on the Internet: it is not private, shared (RFC 6598), for
/// documentation, for measurements (RFC 2544), or reserved.
fn is_public_ipv4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let is_special = ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || ip.is_multicast()
        || matches!((a, b, c), (0, ..) | (240.., ..) | (100, 64..=127, _))
        || matches!((a, b, c), (198, 18 | 19, _) | (192, 0, 0));
    !is_special && ip != HALF
}

/// The same for IPv6: not unspecified, loopback, multicast, private, link-local, or for
/// documentation (RFC 3849, RFC 9637).
fn is_public_ipv6(ip: Ipv6Addr) -> bool {
    let [first, second, ..] = ip.segments();
    let is_special = ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_multicast()
        || first & 0xfe00 == 0xfc00
        || matches!(first & 0xffc0, 0xfe80 | 0xfec0)
        || (first, second) == (0x2001, 0xdb8)
        || (first, second >> 12) == (0x3fff, 0);
    !is_special && !PREFIXES.contains(&ip)
}
