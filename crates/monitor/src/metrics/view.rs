//! A report grouped for the metrics: by peer, and within a peer by link.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use sumlink_transport::SessionStatus;
use sumlink_transport::status::PeerTotals;

use crate::Report;

/// Characters of a key that distinguish clients of one name, and of a session's identifier.
const SHORT: usize = 8;

/// A report by peers.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) report: &'a Report,
    pub(super) peers: Vec<Peer<'a>>,
}

/// One peer: its counters since the start, and its sessions now.
#[derive(Debug)]
pub(super) struct Peer<'a> {
    /// The client's name, at a server.
    pub(super) client: Option<String>,
    pub(super) totals: Cow<'a, PeerTotals>,
    pub(super) sessions: Vec<&'a SessionStatus>,
    pub(super) links: BTreeMap<&'a str, LinkNow>,
    /// These are all clients together.
    pub(super) is_sum: bool,
}

/// A link's present state, over all paths of all sessions of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LinkNow {
    /// Whether a path delivers.
    pub(super) up: bool,
    /// Paths.
    pub(super) paths: u64,
    /// Rates in bytes per second: sent, received.
    pub(super) rates: [f64; 2],
    /// Shares of the newest session's stream bytes: sent, received.
    pub(super) shares: Option<[f64; 2]>,
}

impl<'a> View<'a> {
    /// Groups a report by clients, or with `per_client` false takes them together.
    pub(super) fn new(report: &'a Report, per_client: bool) -> Self {
        let peers = match per_client || report.role != "server" {
            true => peers(report),
            false => vec![together(report)],
        };
        Self { report, peers }
    }
}

/// The peers, each with its sessions.
fn peers(report: &Report) -> Vec<Peer<'_>> {
    let mut by_peer: HashMap<&str, Vec<&SessionStatus>> = HashMap::new();
    for session in &report.sessions {
        let peer = session.peer.split(' ').next().unwrap_or_default();
        by_peer.entry(peer).or_default().push(session);
    }
    let mut names: HashMap<&str, usize> = HashMap::new();
    for totals in &report.totals {
        *names.entry(totals.client.as_str()).or_default() += 1;
    }
    let peers = report.totals.iter().map(|totals| {
        let mut sessions = by_peer.remove(totals.peer.as_str()).unwrap_or_default();
        // The oldest first.
        sessions.sort_by(|a, b| b.uptime_s.total_cmp(&a.uptime_s));
        let is_unique = names.get(totals.client.as_str()) == Some(&1);
        Peer {
            client: (report.role == "server").then(|| name(totals, is_unique)),
            totals: Cow::Borrowed(totals),
            links: links(&sessions),
            sessions,
            is_sum: false,
        }
    });
    let mut peers: Vec<Peer<'_>> = peers.collect();
    // The links of a client that has no session.
    for session in by_peer.into_values().flatten() {
        peers.push(Peer {
            client: None,
            totals: Cow::Owned(PeerTotals::default()),
            links: links(&[session]),
            sessions: Vec::new(),
            is_sum: false,
        });
    }
    peers
}

/// All clients as one.
fn together(report: &Report) -> Peer<'_> {
    let mut totals = PeerTotals::default();
    for one in &report.totals {
        totals.merge(one);
    }
    let sessions: Vec<&SessionStatus> = report.sessions.iter().collect();
    let mut links = links(&sessions);
    for link in links.values_mut() {
        link.shares = None;
    }
    Peer {
        client: None,
        totals: Cow::Owned(totals),
        sessions,
        links,
        is_sum: true,
    }
}

impl Peer<'_> {
    /// The label of the client, if there is one, and these.
    pub(super) fn labels<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let mut labels = Vec::with_capacity(more.len() + 1);
        labels.extend(self.client.as_deref().map(|client| ("client", client)));
        labels.extend_from_slice(more);
        labels
    }
}

/// A client's name, with the beginning of its key if another one has the same name; or its key.
fn name(totals: &PeerTotals, is_unique: bool) -> String {
    match (totals.client.is_empty(), is_unique) {
        (true, _) => totals.peer.clone(),
        (false, true) => totals.client.clone(),
        (false, false) => format!("{} ({})", totals.client, short(&totals.peer)),
    }
}

/// The first characters of a key or an identifier.
pub(super) fn short(text: &str) -> &str {
    text.get(..SHORT).unwrap_or(text)
}

/// The state of each link of these sessions, the oldest first.
fn links<'a>(sessions: &[&'a SessionStatus]) -> BTreeMap<&'a str, LinkNow> {
    let mut links: BTreeMap<&str, LinkNow> = BTreeMap::new();
    for session in sessions {
        for path in &session.paths {
            let link = links.entry(&path.link).or_default();
            link.up |= path.state == "active";
            link.paths += u64::from(path.id.is_some());
            link.rates[0] += path.send_rate_bps / 8.0;
            link.rates[1] += path.receive_rate_bps / 8.0;
        }
        for totals in &session.links {
            let link = links.entry(&totals.link).or_default();
            link.shares = Some([totals.send_share, totals.receive_share]);
        }
    }
    links
}
