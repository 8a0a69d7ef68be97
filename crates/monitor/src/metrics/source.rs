//! Where the samples of a metric come from in the report.

use sumlink_transport::SessionStatus;
use sumlink_transport::status::{
    DatagramPathStatus, Durations, LinkTotals, PathStatus, PeerTotals,
};

use super::Kind;
use super::view::{LinkNow, Peer, View, short};
use super::writer::Writer;
use crate::Report;

/// Values for what this side sends and receives.
type Ways<T> = [fn(&T) -> u64; 2];

/// Where the samples come from, and the labels that they have. Those of a client have the label
/// `client` at a server.
pub(super) enum Source {
    /// The version of the program.
    Build,
    /// A gauge of the process.
    Process(fn(&Report) -> f64),
    /// A counter of the process.
    ProcessTotal(fn(&Report) -> f64),
    /// Refused connections by `reason`.
    Refused,
    /// A gauge of a client: the sum over its sessions.
    Sum(fn(&SessionStatus) -> f64),
    /// A gauge of a client: the highest value of its sessions.
    Most(fn(&SessionStatus) -> f64),
    /// The same for each `direction`.
    SumOfWays([fn(&SessionStatus) -> f64; 2]),
    /// A gauge of a client by `class`.
    Classes(fn(&SessionStatus, &str) -> u64),
    /// A counter of a client.
    Total(fn(&PeerTotals) -> u64),
    /// A counter of a client by `direction`.
    TotalOfWays(Ways<PeerTotals>),
    /// A gauge of a link.
    Link(fn(&LinkNow) -> f64),
    /// A gauge of a link by `direction`.
    LinkWays(fn(&LinkNow) -> Option<[f64; 2]>),
    /// A counter of a link.
    LinkTotal(fn(&LinkTotals) -> u64),
    /// A counter of a link by `direction`.
    LinkTotalOfWays(Ways<LinkTotals>),
    /// A histogram of a link.
    LinkDurations(fn(&LinkTotals) -> &Durations),
    /// Data caps of a link by `period`: usage (false) or limit (true).
    Caps { limit: bool },
    /// Whether a link has reached a cap.
    CapReached,
    /// A gauge of a path.
    Path(fn(&PathStatus) -> f64),
    /// A gauge of a path of datagrams.
    DatagramPath(fn(&DatagramPathStatus) -> f64),
}

/// Names of the directions.
const DIRECTIONS: [&str; 2] = ["sent", "received"];

/// Names of the classes.
const CLASSES: [&str; 4] = ["conversational", "streaming", "interactive", "background"];

use Source::*;

impl Source {
    /// The labels of all samples.
    pub(super) fn labels(&self) -> &'static [&'static str] {
        match self {
            Build => &["version", "role"],
            Process(_) | ProcessTotal(_) => &[],
            Refused => &["reason"],
            Sum(_) | Most(_) | Total(_) => &["client"],
            SumOfWays(_) | TotalOfWays(_) => &["client", "direction"],
            Classes(_) => &["client", "class"],
            Link(_) | LinkTotal(_) | LinkDurations(_) => &["client", "link"],
            LinkWays(_) | LinkTotalOfWays(_) => &["client", "link", "direction"],
            Caps { .. } => &["link", "period"],
            CapReached => &["link"],
            Path(_) | DatagramPath(_) => &["client", "session", "link", "path"],
        }
    }

    /// The type of the metric.
    pub(super) fn kind(&self) -> Kind {
        match self {
            ProcessTotal(_) | Refused | Total(_) | TotalOfWays(_) | LinkTotal(_)
            | LinkTotalOfWays(_) => Kind::Counter,
            LinkDurations(_) => Kind::Histogram,
            _ => Kind::Gauge,
        }
    }

    /// Writes all samples.
    pub(super) fn write(&self, view: &View<'_>, out: &mut Writer) {
        let report = view.report;
        match self {
            Build => {
                let labels = [("version", &*report.version), ("role", &*report.role)];
                out.sample(&labels, 1.0);
            }
            Process(value) | ProcessTotal(value) => out.sample(&[], value(report)),
            Refused => {
                for (reason, count) in &report.refused {
                    out.count(&[("reason", reason)], *count);
                }
            }
            Caps { limit } => caps(report, *limit, out),
            CapReached => {
                for link in report.policies.iter().filter(|link| link.policy.has_cap()) {
                    out.sample(&[("link", &link.name)], is(link.used_up_until.is_some()));
                }
            }
            _ => {
                for peer in &view.peers {
                    self.write_peer(peer, out);
                }
            }
        }
    }

    fn write_peer(&self, peer: &Peer<'_>, out: &mut Writer) {
        let sessions = || peer.sessions.iter().copied();
        match self {
            Sum(value) => out.sample(&peer.labels(&[]), sessions().map(value).sum()),
            Most(value) => {
                let most = sessions().map(value).fold(0.0, f64::max);
                out.sample(&peer.labels(&[]), most);
            }
            SumOfWays(ways) => {
                for (direction, value) in DIRECTIONS.into_iter().zip(ways) {
                    let labels = peer.labels(&[("direction", direction)]);
                    out.sample(&labels, sessions().map(value).sum());
                }
            }
            Classes(value) => {
                for class in CLASSES {
                    let count = sessions().map(|session| value(session, class)).sum();
                    out.count(&peer.labels(&[("class", class)]), count);
                }
            }
            Total(value) => out.count(&peer.labels(&[]), value(&peer.totals)),
            TotalOfWays(ways) => {
                for (direction, value) in DIRECTIONS.into_iter().zip(ways) {
                    let labels = peer.labels(&[("direction", direction)]);
                    out.count(&labels, value(&peer.totals));
                }
            }
            Link(value) => {
                for (link, now) in &peer.links {
                    out.sample(&peer.labels(&[("link", link)]), value(now));
                }
            }
            LinkWays(values) => {
                for (link, now) in &peer.links {
                    let values = values(now).into_iter().flatten();
                    for (direction, value) in DIRECTIONS.into_iter().zip(values) {
                        let labels = peer.labels(&[("link", link), ("direction", direction)]);
                        out.sample(&labels, value);
                    }
                }
            }
            Path(_) | DatagramPath(_) if peer.is_sum => {}
            Path(value) => {
                for session in sessions() {
                    let id = short(&session.session);
                    for path in session.paths.iter().filter(|path| path.id.is_some()) {
                        let number = path.id.unwrap_or_default().to_string();
                        let labels = [("session", id), ("link", &path.link), ("path", &number)];
                        out.sample(&peer.labels(&labels), value(path));
                    }
                }
            }
            DatagramPath(value) => {
                for session in sessions() {
                    let id = short(&session.session);
                    for path in &session.datagram_paths {
                        let number = path.id.to_string();
                        let labels = [("session", id), ("link", &path.link), ("path", &number)];
                        out.sample(&peer.labels(&labels), value(path));
                    }
                }
            }
            _ => {
                for link in &peer.totals.links {
                    self.write_totals(peer, link, out);
                }
            }
        }
    }

    fn write_totals(&self, peer: &Peer<'_>, link: &LinkTotals, out: &mut Writer) {
        let name = ("link", link.link.as_str());
        match self {
            LinkTotal(value) => out.count(&peer.labels(&[name]), value(link)),
            LinkTotalOfWays(ways) => {
                for (direction, value) in DIRECTIONS.into_iter().zip(ways) {
                    let labels = peer.labels(&[name, ("direction", direction)]);
                    out.count(&labels, value(link));
                }
            }
            LinkDurations(value) => out.histogram(&peer.labels(&[name]), value(link)),
            _ => {}
        }
    }
}

/// A condition as a value.
pub(super) fn is(condition: bool) -> f64 {
    f64::from(u8::from(condition))
}

fn caps(report: &Report, limit: bool, out: &mut Writer) {
    for link in report.policies.iter().filter(|link| link.policy.has_cap()) {
        let policy = &link.policy;
        let usage = link.usage.as_ref();
        for (period, cap, used) in [
            ("day", policy.cap_day, usage.map(|usage| usage.day_bytes)),
            (
                "month",
                policy.cap_month,
                usage.map(|usage| usage.month_bytes),
            ),
        ] {
            let Some(cap) = cap else { continue };
            let value = if limit { cap } else { used.unwrap_or(0) };
            out.sample(&[("link", &link.name), ("period", period)], value as f64);
        }
    }
}
