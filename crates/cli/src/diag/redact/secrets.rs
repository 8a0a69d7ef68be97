//! Secrets by their form (PEM blocks, invitations, long base64) and by their names (`token = ...`);
//! public keys.

use std::ops::Range;

use super::{REDACTED, Redactor, replace_runs};

/// Most lines of a PEM block without an end.
const MAX_BLOCK: usize = 100;

/// The beginning of an invitation.
const INVITATION: &str = "sumlink://";

/// Parts of the names of secrets, in lower case.
const SECRETS: &[&str] = &[
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "psk",
    "credential",
    "apikey",
    "api_key",
    "api-key",
    "private_key",
    "privatekey",
    "private-key",
];

/// Ends of such names with values that extend to the end of the line.
const WHOLE_LINES: &[&str] = &["authorization", "cookie"];

/// Quotes around a value, longer ones first.
const QUOTES: &[&str] = &["\"\"\"", "'''", "\\\"", "\"", "'"];

/// Characters of a public key in base64, which are followed by one `=`.
const KEY: usize = 43;

/// Shortest base64 that counts as a secret.
const LONG: usize = 40;

impl Redactor {
    /// Replaces PEM blocks, such as secret keys.
    pub(super) fn blocks(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut left = 0;
        for line in text.split_inclusive('\n') {
            let begin = line.find("-----BEGIN");
            let ends = line.contains("-----END");
            if let Some(begin) = begin {
                self.secrets += 1;
                out.push_str(&line[..begin]);
                out.push_str(REDACTED);
                out.push('\n');
                left = if ends { 0 } else { MAX_BLOCK };
            } else if left > 0 {
                left = if ends { 0 } else { left - 1 };
            } else {
                out.push_str(line);
            }
        }
        out
    }

    /// Replaces invitations to the end of the link.
    pub(super) fn invitations(&mut self, text: &str) -> String {
        let lower = text.to_ascii_lowercase();
        let is_link = |c: char| c.is_ascii_alphanumeric() || "-._~:/?#[]@!$&()*+,;=%".contains(c);
        let (mut out, mut copied) = (String::with_capacity(text.len()), 0);
        while let Some(found) = lower[copied..].find(INVITATION) {
            let start = copied + found;
            let link = &text[start..];
            let end = link.find(|c: char| !is_link(c)).unwrap_or(link.len());
            out.push_str(&text[copied..start]);
            out.push_str(REDACTED);
            self.secrets += 1;
            copied = start + end;
        }
        out.push_str(&text[copied..]);
        out
    }

    /// Replaces the values of names such as `password`, in TOML, JSON and logs.
    pub(super) fn named_secrets(&mut self, text: &str) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        replace_runs(text, is_name, |run| {
            let name = run.text.to_ascii_lowercase();
            let is_line = WHOLE_LINES.iter().any(|word| name.ends_with(*word));
            if !is_line && !SECRETS.iter().any(|word| name.contains(*word)) {
                return None;
            }
            let value = value(run.after, is_line)?;
            self.secrets += 1;
            let lead = &run.after[..value.start];
            Some((format!("{}{lead}{REDACTED}", run.text), value.end))
        })
    }

    /// Replaces user and password in an address such as `https://user:password@host/`.
    pub(super) fn logins(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(found) = rest.find("://") {
            let (head, tail) = rest.split_at(found + 3);
            out.push_str(head);
            let is_end = |c: char| c.is_whitespace() || "/?#\"'`<>\\".contains(c);
            let host = &tail[..tail.find(is_end).unwrap_or(tail.len())];
            rest = match host.rfind('@') {
                Some(at) => {
                    self.secrets += 1;
                    out.push_str(REDACTED);
                    &tail[at..]
                }
                None => tail,
            };
        }
        out.push_str(rest);
        out
    }

    /// Replaces public keys, and longer base64, which may be secret.
    pub(super) fn base64(&mut self, text: &str) -> String {
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || "+/-_".contains(c);
        replace_runs(text, is_base64, |run| {
            let padding = run.after.bytes().take_while(|byte| *byte == b'=').count();
            let has = |kind: fn(&u8) -> bool| run.text.bytes().any(|byte| kind(&byte));
            let is_random = has(u8::is_ascii_uppercase)
                && has(u8::is_ascii_lowercase)
                && has(u8::is_ascii_digit);
            match run.text.len() {
                KEY if padding > 0 || is_random => {
                    // The forms for URLs and others are the same key.
                    let key = run.text.replace('-', "+").replace('_', "/");
                    let number = self.keys.of(key);
                    Some((format!("key-{number}"), padding.min(1)))
                }
                LONG.. if padding > 0 || is_random => {
                    self.secrets += 1;
                    Some((REDACTED.to_owned(), padding))
                }
                _ => None,
            }
        })
    }
}

/// The place of a value behind its name, `= "value"` or `": value`: the text between the quotes, or
/// the word, list or line.
fn value(behind: &str, is_line: bool) -> Option<Range<usize>> {
    let blank = [' ', '\t'];
    // A name in JSON has a closing quote.
    let text = behind.trim_start_matches(['\\', '"', '\'']);
    let text = text.trim_start_matches(blank).strip_prefix([':', '='])?;
    let text = text.trim_start_matches([' ', '\t', ':', '=', '>']);
    let start = behind.len() - text.len();
    let line_of = |text: &str| text.find('\n').unwrap_or(text.len());
    if let Some(quote) = QUOTES.iter().find(|quote| text.starts_with(**quote)) {
        let inside = &text[quote.len()..];
        // Only texts in three quotes have several lines.
        let inside = match quote.len() {
            3 => inside,
            _ => &inside[..line_of(inside)],
        };
        let end = end_of(inside, quote).unwrap_or(inside.len());
        let start = start + quote.len();
        return Some(start..start + end);
    }
    let end = match text.chars().next()? {
        '[' => text.find(']').map_or(text.len(), |end| end + 1),
        _ if is_line => line_of(text),
        _ => {
            let is_end = |c: char| c.is_whitespace() || ",;}])\"'".contains(c);
            text.find(is_end).unwrap_or(text.len())
        }
    };
    (end > 0).then(|| start..start + end)
}

/// The closing quote that is not escaped.
fn end_of(inside: &str, quote: &str) -> Option<usize> {
    let mut found = inside.match_indices(quote).map(|(at, _)| at);
    match quote {
        "\"" => found.find(|at| {
            let before = &inside.as_bytes()[..*at];
            let escapes = before.iter().rev().take_while(|byte| **byte == b'\\');
            escapes.count() % 2 == 0
        }),
        _ => found.next(),
    }
}
