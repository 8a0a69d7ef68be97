//! Names that never leave the gateway, because no public resolver can answer them and a question
//! would only reveal the network behind the gateway. Rules of the configuration come first.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::wire::{Name, Question, code, kind, local};

/// TTL of addresses of `localhost`, in seconds.
const LOCALHOST_TTL: u32 = 3600;

/// How a name is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    /// The loopback addresses (RFC 6761, section 6.3).
    Localhost,
    /// The name does not exist.
    NoName,
    /// The name exists, without records.
    NoData,
}

/// Names, and how they are answered with everything below them.
const SPECIAL: [(&str, Special); 11] = [
    ("localhost", Special::Localhost),
    // RFC 6761, section 6.4.
    ("invalid", Special::NoName),
    // Multicast DNS (RFC 6762, section 22.1).
    ("local", Special::NoName),
    // Tor (RFC 7686, section 2).
    ("onion", Special::NoName),
    // Homenets (RFC 8375, section 4).
    ("home.arpa", Special::NoName),
    // Private use (ICANN board resolution 2024.07.29.06).
    ("internal", Special::NoName),
    // Discovery of encrypted resolvers (RFC 9462, section 6.4): programs that find one there no
    // longer use the forwarder, and rules by domain fail.
    ("resolver.arpa", Special::NoData),
    // Reverse zones of local networks (RFC 6303, section 4); those with several zones are below.
    ("10.in-addr.arpa", Special::NoName),
    ("168.192.in-addr.arpa", Special::NoName),
    ("254.169.in-addr.arpa", Special::NoName),
    ("127.in-addr.arpa", Special::NoName),
];

static NAMES: LazyLock<HashMap<Name, Special>> = LazyLock::new(|| {
    let more = (16..32).map(|number| format!("{number}.172.in-addr.arpa"));
    let shared = (64..128).map(|number| format!("{number}.100.in-addr.arpa"));
    let v6 = ["c.f", "d.f", "8.e.f", "9.e.f", "a.e.f", "b.e.f"];
    let v6 = v6.map(|digits| format!("{digits}.ip6.arpa"));
    let reverse = more
        .chain(shared)
        .chain(v6)
        .map(|text| (text, Special::NoName));
    let all = SPECIAL
        .map(|(text, special)| (text.to_owned(), special))
        .into_iter()
        .chain(reverse);
    all.filter_map(|(text, special)| Some((text.parse().ok()?, special)))
        .collect()
});

/// The response to a question about a special name, in stored form.
pub(crate) fn answer(question: &Question) -> Option<Bytes> {
    let special = question
        .name
        .suffixes()
        .find_map(|suffix| NAMES.get(suffix))?;
    Some(match special {
        Special::Localhost => {
            let (v4, v6) = ([127, 0, 0, 1], std::net::Ipv6Addr::LOCALHOST.octets());
            let records: &[&[u8]] = match question.kind {
                kind::A => &[&v4],
                kind::AAAA => &[&v6],
                _ => &[],
            };
            local(question, code::NO_ERROR, LOCALHOST_TTL, records)
        }
        Special::NoName => local(question, code::NO_SUCH_NAME, 0, &[]),
        Special::NoData => local(question, code::NO_ERROR, 0, &[]),
    })
}

/// Whether answers for this name have addresses of local networks by design: the discovery of
/// address translators (RFC 7050, section 8.2).
pub(crate) fn has_private_answers(name: &Name) -> bool {
    name.to_string() == "ipv4only.arpa"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Message, Query};

    const PTR: u16 = 12;

    fn answered(name: &str, kind: u16) -> Option<(u16, usize)> {
        let bytes = answer(&Query::new(name, kind).question)?;
        let message = Message::read(&bytes).unwrap();
        Some((message.code(), message.answers().count()))
    }

    #[test]
    fn names_of_local_networks_are_answered_here() {
        assert_eq!(answered("localhost", kind::A), Some((0, 1)));
        assert_eq!(answered("a.localhost", kind::AAAA), Some((0, 1)));
        assert_eq!(answered("localhost", 15), Some((0, 0)));
        for text in [
            "printer.local",
            "x.onion",
            "host.home.arpa",
            "1.1.168.192.in-addr.arpa",
            "1.0.31.172.in-addr.arpa",
            "1.0.64.100.in-addr.arpa",
            "1.c.6.9.6.d.f.ip6.arpa",
            "1.0.8.e.f.ip6.arpa",
        ] {
            assert_eq!(answered(text, PTR), Some((code::NO_SUCH_NAME, 0)), "{text}");
        }
        assert_eq!(answered("_dns.resolver.arpa", kind::SVCB), Some((0, 0)));
    }

    #[test]
    fn public_names_are_not_special() {
        for text in [
            "example.org",
            "mylocal",
            "1.0.32.172.in-addr.arpa",
            "1.1.1.1.in-addr.arpa",
        ] {
            assert_eq!(answered(text, PTR), None, "{text}");
        }
        assert!(has_private_answers(&"ipv4only.arpa".parse().unwrap()));
    }
}
