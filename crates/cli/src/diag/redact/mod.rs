//! Replaces what identifies people, machines and networks, and every secret. Each text of a report
//! passes [`Redactor::redact`].
//!
//! When in doubt, the passes replace, such as a text that only looks like a key. The same thing has
//! the same replacement everywhere.

mod addresses;
mod secrets;
#[cfg(test)]
mod tests;
mod urls;

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

/// The replacement of a secret.
const REDACTED: &str = "<redacted>";

/// Shortest name that is replaced, in bytes: shorter ones hide nothing.
const MIN_NAME: usize = 3;

/// Names that reveal nothing. Replacing these words would make a report unreadable.
const COMMON: &[&str] = &[
    "addr",
    "address",
    "admin",
    "all",
    "alpine",
    "any",
    "arch",
    "auto",
    "bond",
    "client",
    "debian",
    "default",
    "dev",
    "example",
    "fedora",
    "gateway",
    "guest",
    "host",
    "inet",
    "key",
    "laptop",
    "link",
    "linux",
    "local",
    "localdomain",
    "localhost",
    "machine",
    "main",
    "mail",
    "metric",
    "name",
    "net",
    "network",
    "nobody",
    "none",
    "null",
    "openwrt",
    "proto",
    "redacted",
    "root",
    "router",
    "scope",
    "server",
    "src",
    "sumlink",
    "table",
    "tcp",
    "test",
    "tls",
    "true",
    "false",
    "ubuntu",
    "udp",
    "user",
    "via",
    "vpn",
    "www",
];

/// What has been replaced so far, so that the next one gets the same replacement.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// Known names in lower case and their replacements, the longest names first.
    names: Vec<(String, String)>,
    hosts: usize,
    users: usize,
    /// Replacements of names that were used.
    used: BTreeSet<String>,
    /// Public keys in standard base64 without padding.
    keys: Numbers<String>,
    addresses: Numbers<IpAddr>,
    /// Hardware addresses.
    cards: Numbers<Vec<u8>>,
    /// Number of replaced secrets.
    secrets: usize,
}

/// Values and their numbers, in the order in which they were first seen.
#[derive(Debug)]
struct Numbers<T>(HashMap<T, usize>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Numbers<T> {
    /// The number of this thing, counted from 1.
    fn of(&mut self, thing: T) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(thing).or_insert(next)
    }
}

impl Redactor {
    /// Makes the name of this machine known, and its first label.
    pub(super) fn machine(&mut self, name: &str) {
        let label = name.split('.').next().unwrap_or_default();
        for name in [name, label] {
            if self.is_new(name) {
                self.know(name, "machine".to_owned());
            }
        }
    }

    /// Makes the name of a user of this machine known.
    pub(super) fn user(&mut self, name: &str) {
        if self.is_new(name) {
            self.users += 1;
            self.know(name, format!("user-{}", self.users));
        }
    }

    /// Makes the name of another host, or of a domain, known.
    pub(super) fn host(&mut self, name: &str) {
        if self.is_new(name) {
            self.hosts += 1;
            self.know(name, format!("host-{}", self.hosts));
        }
    }

    fn is_new(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        name.len() >= MIN_NAME
            && !COMMON.contains(&name.as_str())
            && name.chars().any(char::is_alphabetic)
            && name.parse::<IpAddr>().is_err()
            && self.names.iter().all(|(known, _)| *known != name)
    }

    fn know(&mut self, name: &str, replacement: String) {
        self.names.push((name.to_ascii_lowercase(), replacement));
        // A longer name may contain a shorter one.
        self.names.sort_by_key(|(name, _)| Reverse(name.len()));
    }

    /// The text without secrets and identities.
    pub(super) fn redact(&mut self, text: &str) -> String {
        let text = self.blocks(text);
        let text = self.invitations(&text);
        let text = self.urls(&text);
        let text = self.logins(&text);
        let text = self.named_secrets(&text);
        let text = self.base64(&text);
        // Before hardware addresses, which could be a part of one.
        let text = self.ipv6(&text);
        let text = self.hardware(&text);
        let text = self.ipv4(&text);
        self.known_names(&text)
    }

    /// The replacements, a line for each kind.
    pub(super) fn summary(&self) -> String {
        let used = |kind: &str| {
            let used = self.used.iter();
            used.filter(|replacement| replacement.starts_with(kind))
                .count()
        };
        let kinds = [
            (
                self.secrets,
                "secrets, such as passwords, tokens and queries of URLs: <redacted>",
            ),
            (self.keys.0.len(), "public keys: key-1, key-2, ..."),
            (self.addresses.0.len(), "public addresses: addr-1, ..."),
            (
                self.cards.0.len(),
                "hardware addresses: their device half, as xx and a number",
            ),
            (used("host"), "names of hosts and domains: host-1, ..."),
            (used("machine"), "the name of this machine: machine"),
            (used("user"), "names of users: user-1, ..."),
        ];
        let line = |(count, what): &(usize, &str)| format!("{count:>6} {what}\n");
        kinds.iter().map(line).collect()
    }

    /// Replaces known names where they are whole words.
    fn known_names(&mut self, text: &str) -> String {
        let bytes = text.as_bytes();
        let (mut out, mut copied, mut at) = (String::with_capacity(text.len()), 0, 0);
        while at < bytes.len() {
            let found = match begins_word(bytes, at) {
                true => self.names.iter().find(|(name, _)| {
                    let end = at + name.len();
                    let part = bytes.get(at..end);
                    part.is_some_and(|part| part.eq_ignore_ascii_case(name.as_bytes()))
                        && bytes.get(end).is_none_or(|next| !is_word(*next))
                }),
                false => None,
            };
            let Some((name, replacement)) = found else {
                at += 1;
                continue;
            };
            out.push_str(&text[copied..at]);
            out.push_str(replacement);
            if !self.used.contains(replacement) {
                self.used.insert(replacement.clone());
            }
            at += name.len();
            copied = at;
        }
        out.push_str(&text[copied..]);
        out
    }
}

/// Whether a byte belongs to a word; a part of a character beyond ASCII does.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Whether a word can begin here: behind another character, or behind an escaped one of JSON.
fn begins_word(bytes: &[u8], at: usize) -> bool {
    match &bytes[..at] {
        [] => true,
        [.., b'\\', b'n' | b'r' | b't'] => true,
        [.., last] => !is_word(*last),
    }
}

/// A longest run of characters of a kind.
#[derive(Clone, Copy, Debug)]
struct Run<'a> {
    /// The character before it.
    before: Option<char>,
    text: &'a str,
    /// The rest of the text behind it.
    after: &'a str,
}

/// Passes each longest run of characters that `is_part` accepts to `replace`, which returns the
/// text for it and for a number of bytes behind it, or leaves it as it is.
fn replace_runs(
    text: &str,
    is_part: impl Fn(char) -> bool,
    mut replace: impl FnMut(Run<'_>) -> Option<(String, usize)>,
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    let mut rest = text;
    while let Some(start) = rest.find(&is_part) {
        let (head, tail) = rest.split_at(start);
        before = head.chars().next_back().or(before);
        let end = tail.find(|c: char| !is_part(c)).unwrap_or(tail.len());
        let (run, after) = tail.split_at(end);
        out.push_str(head);
        let replaced = replace(Run {
            before,
            text: run,
            after,
        });
        let behind = match replaced {
            Some((new, behind)) => {
                out.push_str(&new);
                behind
            }
            None => {
                out.push_str(run);
                0
            }
        };
        before = run.chars().next_back();
        rest = after.get(behind..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}
