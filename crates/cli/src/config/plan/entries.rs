//! Local entries and links of a client: contradictions, and settings with surprising effects.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use sumlink_proxy::{AnyForward, Service};
use sumlink_transport::Target;
use sumlink_transport::address::collide;
use sumlink_transport::config::LinkConfig;
use sumlink_transport::links::{Overlap, overlap};
use sumlink_transport::policy::Direction;

use super::Forwards;
use super::findings::Findings;

/// SOCKS5 entry if there is no other entry.
const DEFAULT_SOCKS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1080);

/// A port's transport protocol, and its service.
#[derive(Clone, Debug)]
pub(crate) enum Entrance {
    /// A TCP port.
    Tcp(Service),
    /// A UDP port with a fixed target.
    Udp(Target),
}

/// A local port and its protocol.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Name in events and messages: `socks`, `http`, `forward` or `udp_forward`.
    pub(crate) word: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) service: Entrance,
    /// Line in the file; 0 for the command line.
    line: usize,
}

impl Entrance {
    pub(super) fn is_udp(&self) -> bool {
        matches!(self, Self::Udp(_))
    }
}

/// All entries, each from the flags or else from the file. Two entries on one port are a mistake;
/// an entry that other hosts reach causes a warning.
pub(super) fn all(
    socks: (Option<SocketAddr>, Option<SocketAddr>),
    http: (Option<SocketAddr>, Option<SocketAddr>),
    forwards: Forwards,
    found: &mut Findings<'_>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let one = |word, (flag, file): (Option<_>, Option<_>), service, found: &Findings<'_>| {
        let line = match flag {
            Some(_) => 0,
            None => found.lines.of(word),
        };
        flag.or(file).map(|address| Entry {
            word,
            address,
            service,
            line,
        })
    };
    entries.extend(one("socks", socks, Entrance::Tcp(Service::Socks5), found));
    entries.extend(one("http", http, Entrance::Tcp(Service::HttpProxy), found));
    let (forwards, by_flags) = match forwards {
        Forwards::Flags(forwards) => (forwards, true),
        Forwards::File(forwards) => (forwards, false),
    };
    for (number, forward) in forwards.into_iter().enumerate() {
        let line = found.lines.forwards.get(number).copied().unwrap_or(1);
        let (word, address, service) = match forward {
            AnyForward::Tcp(forward) => {
                let service = Entrance::Tcp(Service::Forward(forward.target));
                ("forward", forward.listen, service)
            }
            AnyForward::Udp(forward) => {
                ("udp_forward", forward.listen, Entrance::Udp(forward.target))
            }
        };
        entries.push(Entry {
            word,
            address,
            service,
            line: if by_flags { 0 } else { line },
        });
    }
    if entries.is_empty() {
        entries.extend(one(
            "socks",
            (Some(DEFAULT_SOCKS), None),
            Entrance::Tcp(Service::Socks5),
            found,
        ));
    }
    for (number, entry) in entries.iter().enumerate() {
        let before = &entries[..number];
        if let Some(other) = before.iter().find(|other| {
            let shares_protocol = other.service.is_udp() == entry.service.is_udp();
            shares_protocol && collide(other.address, entry.address)
        }) {
            let place = match other.line {
                0 => String::new(),
                line => format!(" of line {line}"),
            };
            found.problem_or_usage(
                entry.line,
                format!(
                    "{} {} and {} {}{place} cannot share a port: give one of them another",
                    entry.word, entry.address, other.word, other.address
                ),
            );
        }
        if !entry.address.ip().to_canonical().is_loopback() {
            found.warn(
                entry.line,
                format!(
                    "{} {} is open to other hosts, which can use the session without a password",
                    entry.word, entry.address
                ),
            );
        }
    }
    entries
}

/// Records that the monitoring port is one that the program itself uses: `others` with their names.
pub(super) fn check_monitor<'a>(
    monitor: Option<&sumlink_monitor::Settings>,
    others: impl Iterator<Item = (&'a str, SocketAddr)>,
    found: &mut Findings<'_>,
) {
    let Some(monitor) = monitor else { return };
    for (word, address) in others.filter(|(_, address)| collide(*address, monitor.listen)) {
        found.problem(
            found.lines.of("monitor"),
            format!(
                "monitor {} and {word} {address} cannot share a port: give one of them another",
                monitor.listen
            ),
        );
    }
}

/// Warns if no link carries the data of one direction, which then waits forever.
pub(super) fn warn_of_directions(links: &[LinkConfig], found: &mut Findings<'_>) {
    for (only, lacking) in [(Direction::Up, "downloads"), (Direction::Down, "uploads")] {
        if !links.is_empty() && links.iter().all(|link| link.policy.direction == only) {
            let line = found.lines.links.first().map_or(1, |link| link.name);
            found.warn(
                line,
                format!("no link carries {lacking}: remove `direction` from one of them"),
            );
        }
    }
}

/// Warns of overlapping blocks: the first one that matches an interface applies, so a wider one in
/// front of others is questionable.
pub(super) fn warn_of_overlaps(links: &[LinkConfig], found: &mut Findings<'_>) {
    for (number, link) in links.iter().enumerate() {
        for (before, other) in links[..number].iter().enumerate() {
            let line = |number: usize| found.lines.links.get(number).map_or(1, |link| link.name);
            let (own, first) = (line(number), line(before));
            match overlap(&link.name, &other.name) {
                Overlap::Apart => {}
                Overlap::Within => {
                    found.warn(
                        own,
                        format!(
                            "link `{}` has no effect: `{}` in line {first} matches the same interfaces first",
                            link.name, other.name
                        ),
                    );
                    break;
                }
                // An exception stands before the rule.
                Overlap::Partly if overlap(&other.name, &link.name) == Overlap::Within => {}
                Overlap::Partly => found.warn(
                    own,
                    format!(
                        "links `{}` and `{}` in line {first} match some of the same interfaces; line {first} applies",
                        link.name, other.name
                    ),
                ),
            }
        }
    }
}
