//! URLs: their hosts are names, and their queries and fragments may hold anything.

use super::{REDACTED, Redactor};

/// The beginning of an authority in a URL inside of another one.
const ENCODED: &str = "%3a%2f%2f";

/// Schemes of links without a host.
const WITHOUT_HOST: [&str; 2] = ["sumlink:", "file:"];

/// Characters that may follow a URL in a sentence or a list.
const BEHIND: &[char] = &['.', ',', ';', ':', ')', ']', '}', '>', '\'', '`', '\\'];

impl Redactor {
    /// Makes the hosts of all URLs in a text known.
    pub(in crate::diag) fn hosts_of_urls(&mut self, text: &str) {
        let lower = text.to_ascii_lowercase();
        let encoded = lower.match_indices(ENCODED);
        let encoded = encoded.map(|(at, _)| at + ENCODED.len());
        for start in authorities(&lower).chain(encoded) {
            let (before, behind) = lower.split_at(start);
            let before = before.trim_end_matches('/');
            if WITHOUT_HOST.iter().any(|scheme| before.ends_with(*scheme)) {
                continue;
            }
            let name = host(behind);
            // Text behind two slashes alone is a URL only with a whole name.
            if before.ends_with([':', 'f']) || name.contains('.') {
                self.host(name);
            }
        }
    }

    /// Replaces queries and fragments of URLs, and the device half of hardware addresses in their
    /// paths.
    pub(super) fn urls(&mut self, text: &str) -> String {
        let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
        for start in authorities(text) {
            // It may be inside of an earlier URL.
            if start < copied {
                continue;
            }
            out.push_str(&text[copied..start]);
            let url = &text[start..start + len(&text[start..])];
            copied = start + url.len();
            let (place, rest) = url.split_at(url.find(['?', '#']).unwrap_or(url.len()));
            out.push_str(&self.bare_cards(place));
            let (mark, query) = rest.split_at(rest.len().min(1));
            out.push_str(mark);
            let end = query.trim_end_matches(BEHIND).len();
            if end > 0 {
                self.secrets += 1;
                out.push_str(REDACTED);
            }
            out.push_str(&query[end..]);
        }
        out.push_str(&text[copied..]);
        out
    }
}

/// The places behind the two slashes of each URL, with a scheme or without one.
fn authorities(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices("//").filter_map(move |(at, slashes)| {
        let begins = |c: char| c == ':' || c.is_whitespace() || "\"'`<([=,".contains(c);
        let before = text[..at].chars().next_back();
        before.is_none_or(begins).then_some(at + slashes.len())
    })
}

/// Length of a URL from its authority on: up to a blank, or a quote that is not escaped. A longer
/// one is no harm.
fn len(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c.is_whitespace() || (c == '"' && !escaped) {
            return at;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// The host at the beginning of an authority; empty if it is an IPv6 address.
fn host(text: &str) -> &str {
    let is_end = |c: char| c.is_whitespace() || "/?#\"'`<>\\,;()%".contains(c);
    let authority = &text[..text.find(is_end).unwrap_or(text.len())];
    let host = authority.rsplit('@').next().unwrap_or_default();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    let host = &host[..host.find(|c| !is_part(c)).unwrap_or(host.len())];
    host.trim_matches('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_of_all_urls_are_known() {
        let mut redactor = Redactor::default();
        for text in [
            "sign in at http://login.hotel.example/?mac=x",
            "\"reason\":\"at //Portal.Example:8080/x\"",
            "tls://192.0.2.53#x https://bob:pw@proxy.example:3128,https://fritzbox",
            "http://[2001:db8::1]:80/ http://192.0.2.7/ // remark //remark file:///etc/x",
            "sumlink://join?a=x http://localhost/",
            "at /login?next=http%3A%2F%2Fdeep.example%2Fx",
        ] {
            redactor.hosts_of_urls(text);
        }
        let names = "login.hotel.example portal.example:8080 proxy.example fritzbox deep.example";
        let expected = "host-1 host-2:8080 host-3 host-4 host-5";
        assert_eq!(redactor.redact(names), expected);
        let others = "remark join bob localhost etc 192.0.2.7";
        assert_eq!(redactor.redact(others), others);
    }

    #[test]
    fn queries_and_fragments_are_replaced() {
        let mut redactor = Redactor::default();
        for (text, expected) in [
            (
                "at http://192.0.2.1/x?mac=aabbccddeeff&u=o'hara, and",
                "at http://192.0.2.1/x?<redacted>, and",
            ),
            ("(http://a/#me)", "(http://a/#<redacted>)"),
            ("\"http://a/?b\",\"c?\"", "\"http://a/?<redacted>\",\"c?\""),
            (
                r#""at //a/?q=\"b\"&c", "d""#,
                r#""at //a/?<redacted>", "d""#,
            ),
            ("['tls://192.0.2.53#me']", "['tls://192.0.2.53#<redacted>']"),
            (
                "http://a/http://b/?c#d http://e?f",
                "http://a/http://b/?<redacted> http://e?<redacted>",
            ),
            (
                "http://a/AABBCCDDEEFF/?x",
                "http://a/AABBCCxx0001/?<redacted>",
            ),
        ] {
            assert_eq!(redactor.redact(text), expected);
        }
        for same in [
            "http://a/? x",
            "who? #1 a//b?c https://example.org/@x",
            "//",
        ] {
            assert_eq!(redactor.redact(same), same);
        }
    }
}
