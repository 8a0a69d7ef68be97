//! Selection among subflows, by the selectors of sumlink: a parked path is a backup subflow.
//!
//! The laboratory does the same with the kernel's MPTCP (`mptcp@base`, `mptcp@global`): a program at
//! the client reads the state of the subflows, counts at the receiver, and sets the flag `backup`.

use std::collections::BTreeMap;
use std::time::Duration;

use sumlink_engine::selector::{self, Seen, SeenPath, Selector};
use sumlink_engine::{PathId, SelectorConfig};

use super::{Mptcp, Subflow};
use crate::clock::{Nanos, duration};
use crate::net::Net;
use crate::tcp::Side;
use crate::trace::SubflowLine;
use crate::workload::Channel;

/// Reviews for each check for stale subflows: one every 20 ms.
pub(super) const REVIEWS_FOR_EACH_CHECK: u64 = 5;

/// The selector of one connection.
#[derive(Debug)]
pub(super) struct Selection {
    selector: Box<dyn Selector>,
    /// The side that sends.
    sender: Side,
    /// Total time for which each link's subflow was a backup, and since when it is one now.
    rests: BTreeMap<usize, (Nanos, Option<Nanos>)>,
}

impl Selection {
    /// `None` only for an unknown selector; names are checked when the system's name is parsed.
    pub(super) fn new((config, sender): &(SelectorConfig, Side)) -> Option<Self> {
        Some(Self {
            selector: selector::by_name(config)?,
            sender: *sender,
            rests: BTreeMap::new(),
        })
    }
}

impl Mptcp {
    /// Lets the connection's selector decide about its subflows, if it is time.
    pub(super) fn select(&mut self, net: &mut Net, number: Channel) {
        let now = net.now();
        let channel = &mut self.channels[number];
        let Some(selection) = channel.selection.as_mut().filter(|_| !channel.is_over) else {
            return;
        };
        let (sender, receiver) = (selection.sender, selection.sender.peer());
        let half = &channel.halves[sender.index()];
        let is_busy = half.offered > 0 || half.acknowledged < half.next;
        let due = selection.selector.next_review(is_busy);
        if due.is_none_or(|at| at > duration(now)) {
            return;
        }
        let mss = u64::from(self.config.mss);
        let seen = |subflow: &Subflow| {
            let tcp = net.tcp(subflow.connection, sender);
            let info = tcp.info(now);
            SeenPath {
                id: PathId(net.link_of(subflow.connection) as u32),
                works: !subflow.is_over
                    && !subflow.is_stale[sender.index()]
                    && tcp.is_established(),
                srtt: Duration::from_nanos(info.srtt),
                mss,
                received: net.tcp(subflow.connection, receiver).received(),
                rate: info.delivery_rate as f64,
            }
        };
        let mut paths: Vec<SeenPath> = channel.subflows.iter().map(seen).collect();
        paths.sort_by_key(|path| path.id);
        let decisions = selection.selector.review(&Seen {
            now: duration(now),
            waiting: half.offered > 0,
            delivered: half.acknowledged,
            delays: &[],
            paths: &paths,
        });
        let alpha = selection.selector.threshold();
        if let Some(trace) = net.trace() {
            trace.threshold(now, sender, alpha);
        }
        let any = !decisions.is_empty();
        for decision in decisions {
            let (link, rests) = (decision.path.0 as usize, decision.selection.rests());
            let rest = selection.rests.entry(link).or_default();
            match (rests, rest.1) {
                (true, None) => rest.1 = Some(now),
                (false, Some(since)) => *rest = (rest.0 + now - since, None),
                _ => {}
            }
            for subflow in &mut channel.subflows {
                if net.link_of(subflow.connection) == link {
                    subflow.is_backup = rests;
                }
            }
            if let Some(trace) = net.trace() {
                let reason = &decision.reason;
                trace.selected(now, sender, decision.path, decision.selection, reason);
            }
        }
        if any {
            self.pump(net, number, sender);
        }
    }

    /// Writes the state of every subflow that has sent data to the trace.
    pub(super) fn trace_subflows(&self, net: &mut Net, number: Channel) {
        if net.trace().is_none() {
            return;
        }
        let now = net.now();
        for subflow in &self.channels[number].subflows {
            for side in Side::BOTH {
                let tcp = net.tcp(subflow.connection, side);
                if tcp.written() == 0 {
                    continue;
                }
                let line = SubflowLine {
                    srtt: tcp.info(now).srtt,
                    received: net.tcp(subflow.connection, side.peer()).received(),
                    retransmissions: tcp.counters().retransmitted,
                    backup: subflow.is_backup,
                };
                let link = net.link_of(subflow.connection);
                if let Some(trace) = net.trace() {
                    trace.subflow(now, side, link, &line);
                }
            }
        }
    }

    /// Share of the time since the beginning for which each link's subflow was a backup, by link; empty without a
    /// selector. Of several connections the first counts.
    pub(crate) fn rested(&self, net: &Net) -> Vec<f64> {
        let first = self
            .channels
            .iter()
            .find_map(|channel| channel.selection.as_ref());
        let Some(selection) = first else {
            return Vec::new();
        };
        let (now, run) = (net.now(), net.now().saturating_sub(net.at(0)));
        let of_link = |link| {
            let (over, since) = selection.rests.get(&link).copied().unwrap_or_default();
            let all = over + since.map_or(0, |since| now - since);
            all as f64 / run.max(1) as f64
        };
        (0..self.links).map(of_link).collect()
    }
}
