//! Names that a report must not show: hosts and domains of configurations, status reports and logs,
//! the users of this machine, and its own name.

use std::path::Path;

use serde_json::Value;

use super::redact::Redactor;
use crate::setup::machine::host_name;

/// Keys of configurations and reports with hosts.
const HOST_KEYS: &[&str] = &[
    "server",
    "server_name",
    "sni",
    "address",
    "target",
    "forward",
    "resolvers",
    "host",
    "listen",
    "rule",
];

/// Keys with names of domains, which may have no period.
const DOMAIN_KEYS: &[&str] = &["domain", "allow_private"];

/// Words before a name in a log.
const BEFORE: &[&str] = &["target=", "domain=", "server=", "host="];

/// Last labels that are endings of files, and no top-level domains.
const ENDINGS: &[&str] = &[
    "conf", "db", "json", "key", "log", "service", "slice", "sock", "socket", "toml", "txt",
];

/// A top-level domain that is also the ending of source files: logs have them as `x.rs:7:1`.
const SOURCES: &str = ".rs";

/// The user IDs of persons; the next one is that of `nobody`.
const PEOPLE: std::ops::Range<u32> = 1000..65534;

/// Makes the name and the users of this machine known.
pub(super) fn of_machine(redactor: &mut Redactor) {
    redactor.machine(&host_name());
    let name = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    redactor.machine(name.trim());
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for user in people(&users) {
        redactor.user(user);
    }
    for variable in ["USER", "LOGNAME", "SUDO_USER"] {
        redactor.user(&std::env::var(variable).unwrap_or_default());
    }
    let home = std::env::var_os("HOME").unwrap_or_default();
    let folder = Path::new(&home).file_name().unwrap_or_default();
    redactor.user(&folder.to_string_lossy());
}

/// The users of passwd(5) that are persons.
fn people(passwd: &str) -> impl Iterator<Item = &str> {
    passwd.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let id: u32 = fields.nth(1)?.parse().ok()?;
        PEOPLE.contains(&id).then_some(name)
    })
}

/// Makes the hosts of a configuration known; one with mistakes is read line by line.
pub(super) fn of_configuration(text: &str, redactor: &mut Redactor) {
    match text.parse::<toml::Table>() {
        Ok(table) => of_table(&table, "", redactor),
        Err(_) => {
            let mut kind = Kind::None;
            for line in text.lines() {
                let value = match line.split_once('=') {
                    Some((key, value)) if is_key(key) => {
                        kind = Kind::of(key.trim(), false);
                        value
                    }
                    // A line of a list, unless it is the header of a table.
                    _ => line,
                };
                if line.trim_start().starts_with('[') {
                    kind = Kind::None;
                }
                of_text(value, kind, redactor);
            }
        }
    }
}

fn is_key(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.trim().is_empty() && text.trim().chars().all(is_part)
}

fn of_table(table: &toml::Table, name: &str, redactor: &mut Redactor) {
    for (key, value) in table {
        let kind = Kind::of(key, matches!(name, "dns" | "domain"));
        of_toml(value, key, kind, redactor);
    }
}

fn of_toml(value: &toml::Value, key: &str, kind: Kind, redactor: &mut Redactor) {
    match value {
        toml::Value::String(text) => of_text(text, kind, redactor),
        toml::Value::Array(values) => {
            for value in values {
                of_toml(value, key, kind, redactor);
            }
        }
        toml::Value::Table(table) => of_table(table, key, redactor),
        _ => {}
    }
}

/// Makes the hosts of a status report known.
pub(super) fn of_report(report: &Value, redactor: &mut Redactor) {
    of_json(report, Kind::None, redactor);
}

fn of_json(value: &Value, kind: Kind, redactor: &mut Redactor) {
    match value {
        Value::String(text) => of_text(text, kind, redactor),
        Value::Array(values) => {
            for value in values {
                of_json(value, kind, redactor);
            }
        }
        Value::Object(members) => {
            for (key, value) in members {
                of_json(value, Kind::of(key, false), redactor);
            }
        }
        _ => {}
    }
}

/// Makes the hosts of a log known.
pub(super) fn of_log(text: &str, redactor: &mut Redactor) {
    of_text(text, Kind::None, redactor);
}

/// Makes the domains of resolv.conf(5) known.
pub(super) fn of_resolver(text: &str, redactor: &mut Redactor) {
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if matches!(words.next(), Some("search" | "domain")) {
            for word in words {
                redactor.host(word.trim_end_matches('.'));
            }
        }
    }
}

/// The kind of a key's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Any text: hosts have a port, or a word before them that says so.
    None,
    /// Hosts, with or without a port.
    Hosts,
    /// Domains.
    Domains,
}

impl Kind {
    /// The kind of a key; in a table of domains, `name` is one.
    fn of(key: &str, in_domains: bool) -> Self {
        if DOMAIN_KEYS.contains(&key) || (in_domains && key == "name") {
            return Self::Domains;
        }
        match HOST_KEYS.contains(&key) {
            true => Self::Hosts,
            false => Self::None,
        }
    }
}

/// Makes the hosts of a text known.
fn of_text(text: &str, kind: Kind, redactor: &mut Redactor) {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    let mut at = 0;
    while let Some(found) = text[at..].find(is_part) {
        let start = at + found;
        let rest = &text[start..];
        let len = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        at = start + len;
        let name = rest[..len].trim_matches('.');
        let port = text[at..].strip_prefix(':');
        let has_port = port.is_some_and(|port| port.starts_with(|c: char| c.is_ascii_digit()));
        let is_source = name.ends_with(SOURCES) && port.is_some_and(is_line_and_column);
        let is_said = || BEFORE.iter().any(|word| text[..start].ends_with(*word));
        // A group of an IPv6 address is none.
        let is_group = name.chars().all(|c| c.is_ascii_hexdigit());
        let is_host = match kind {
            Kind::None => is_domain(name) && ((has_port && !is_source) || is_said()),
            Kind::Hosts => (has_port && !is_group) || is_domain(name),
            Kind::Domains => true,
        };
        if is_host {
            redactor.host(name);
        }
    }
}

/// Whether a text begins with two numbers, `12:5`: it follows the name of a source file.
fn is_line_and_column(text: &str) -> bool {
    let column = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let column = column.strip_prefix(':');
    column.is_some_and(|column| column.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a name has several labels, and the last one is not a number or the ending of a file.
fn is_domain(name: &str) -> bool {
    let Some((first, last)) = name.rsplit_once('.') else {
        return false;
    };
    // A name of another script in ASCII may have digits (RFC 5890, section 2.3.2.1).
    let is_encoded = last.to_ascii_lowercase().starts_with("xn--");
    let is_word = last.chars().count() >= 2 && last.chars().all(char::is_alphabetic);
    let is_name = is_encoded || is_word;
    let has_labels = first.split('.').all(|label| !label.is_empty());
    is_name && has_labels && !ENDINGS.contains(&last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(learn: impl FnOnce(&mut Redactor), text: &str) -> String {
        let mut redactor = Redactor::default();
        learn(&mut redactor);
        redactor.redact(text)
    }

    const CONFIGURATION: &str = r#"
        server = "vpn.example.org:7443"
        key = "client.key"
        forward = ["127.0.0.1:2222=git.example.org:22", "udp:53=nas:53"]
        [[publish]]
        target = "192.168.7.10:443"
        [gateway.dns]
        resolvers = ["server", "tls://192.0.2.53#dns.example.com", "https://doh.example.net/x"]
        allow_private = ["homenet"]
        [[gateway.dns.domain]]
        name = "corp"
        [[link]]
        name = "wlan0"
    "#;

    #[test]
    fn hosts_of_a_configuration_are_found() {
        let text = "vpn.example.org git.example.org nas dns.example.com doh.example.net homenet \
                    corp client.key wlan0 udp server tls";
        let expected = "host-N host-N host-N host-N host-N host-N host-N client.key wlan0 udp \
                        server tls";
        let numbers = |text: String| {
            let words = text.split(' ').map(|word| match word.starts_with("host-") {
                true => "host-N",
                false => word,
            });
            words.collect::<Vec<_>>().join(" ")
        };
        let found = known(|to| of_configuration(CONFIGURATION, to), text);
        assert_eq!(numbers(found), expected);
        // The same without TOML, except for the table of the names.
        let broken = format!("{CONFIGURATION}\nx = [");
        let found = known(|to| of_configuration(&broken, to), text);
        assert_eq!(
            numbers(found),
            expected.replacen("host-N client", "corp client", 1)
        );
    }

    #[test]
    fn hosts_of_reports_and_logs_are_found() {
        let report = serde_json::json!({
            "version": "0.1.0", "sessions": [{ "streams": [{ "target": "a.example:443" }] }],
            "note": "cannot resolve the server's name b.example:7443: no such host",
        });
        let text = "a.example b.example 0.1.0";
        let found = known(|to| of_report(&report, to), text);
        assert!(
            !found.contains("example") && found.ends_with(" 0.1.0"),
            "{found}"
        );
        let log = "refused target=c.example:443 rule=domain=d.example at src/main.rs:12:5 \
                   client.toml:3: e.example x";
        let text = "c.example d.example e.example main.rs client.toml";
        let found = known(|to| of_log(log, to), text);
        assert_eq!(found, "host-1 host-2 e.example main.rs client.toml");
    }

    #[test]
    fn hosts_of_all_top_level_domains_are_found() {
        let log = "cannot resolve blic.rs:443: no such host, target=novosti.rs \
                   xn--e1afmkfd.xn--p1ai:443 xn--80ak6aa92e.XN--90A3AC:80 \
                   at crates/x/src/main.rs:12:5 in lib.rs, prestige.xn--p1ai";
        let text = "blic.rs novosti.rs xn--e1afmkfd.xn--p1ai xn--80ak6aa92e.xn--90a3ac main.rs \
                    lib.rs prestige.xn--p1ai";
        let found = known(|to| of_log(log, to), text);
        let expected = "host-1 host-2 host-3 host-4 main.rs lib.rs prestige.xn--p1ai";
        assert_eq!(found, expected);
    }

    #[test]
    fn search_domains_are_found() {
        let resolver = "nameserver 192.0.2.1\nsearch corp.example. lan.example\noptions edns0\n";
        let found = known(
            |to| of_resolver(resolver, to),
            "x.corp.example edns0 options",
        );
        assert_eq!(found, "x.host-1 edns0 options");
    }

    #[test]
    fn people_have_ids_from_1000() {
        let passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n\
                      nobody:x:65534:65534::/:/bin/false\nbroken\n";
        assert_eq!(people(passwd).collect::<Vec<_>>(), ["alice"]);
    }
}
