//! All datagram paths of a session, and which of them carry datagrams now.

use std::time::Duration;

use super::reporting::Role;
use super::{DatagramCarrier, DatagramPath, Usage};
use crate::policy::Priority;
use crate::{Instant, PathId};

/// A relative delay counts for this long: after that, the drift of the clocks matters.
const FRESH: Duration = Duration::from_secs(10);

/// A path that was too slow carries datagrams again below this share of its permitted latency.
const FAST_AGAIN: f64 = 0.75;

/// The datagram paths.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    list: Vec<DatagramPath>,
    /// The best two paths for records about all paths.
    best: [Option<PathId>; 2],
}

impl Paths {
    pub(in crate::datagram) fn add(&mut self, path: DatagramPath, now: Instant) {
        let id = path.id;
        // Rare, and a server has many sessions.
        self.list.reserve_exact(1);
        self.list.push(path);
        let all: Vec<PathId> = self.iter().map(|path| path.id).collect();
        for path in &mut self.list {
            match path.id == id {
                true => all.iter().for_each(|id| path.reporting.add(*id, now)),
                false => path.reporting.add(id, now),
            }
        }
        self.review(now);
    }

    pub(in crate::datagram) fn remove(&mut self, id: PathId, now: Instant) -> Option<DatagramPath> {
        let index = self.list.iter().position(|path| path.id == id)?;
        let path = self.list.remove(index);
        for path in &mut self.list {
            path.reporting.remove(id);
        }
        self.review(now);
        Some(path)
    }

    pub(in crate::datagram) fn get(&self, id: PathId) -> Option<&DatagramPath> {
        self.list.iter().find(|path| path.id == id)
    }

    pub(in crate::datagram) fn get_mut(&mut self, id: PathId) -> Option<&mut DatagramPath> {
        self.list.iter_mut().find(|path| path.id == id)
    }

    /// The path at a position. Positions change when paths come and go.
    pub(in crate::datagram) fn nth(&self, index: usize) -> Option<&DatagramPath> {
        self.list.get(index)
    }

    pub(in crate::datagram) fn nth_mut(&mut self, index: usize) -> Option<&mut DatagramPath> {
        self.list.get_mut(index)
    }

    pub(in crate::datagram) fn iter(&self) -> impl Iterator<Item = &DatagramPath> + Clone {
        self.list.iter()
    }

    pub(in crate::datagram) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(in crate::datagram) fn len(&self) -> usize {
        self.list.len()
    }

    /// The paths that carry all flows now.
    pub(in crate::datagram) fn main(&self) -> impl Iterator<Item = &DatagramPath> + Clone {
        self.iter().filter(|path| path.usage == Usage::Main)
    }

    /// The paths that may carry datagrams now.
    pub(in crate::datagram) fn usable(&self) -> impl Iterator<Item = &DatagramPath> + Clone {
        self.iter().filter(|path| path.usage != Usage::None)
    }

    /// The path for records that may go over any.
    pub(in crate::datagram) fn best(&self) -> Option<PathId> {
        self.best[0]
    }

    /// The role of `by` for reports about `about`.
    pub(in crate::datagram) fn report_role(&self, about: PathId, by: PathId) -> Role {
        if self.best[0] == Some(by) {
            Role::Best
        } else if about == by {
            Role::Own
        } else if self.best[1] == Some(by) {
            Role::Second
        } else {
            Role::Silent
        }
    }

    /// The largest packet that any usable path carries.
    pub(in crate::datagram) fn max_packet(&self) -> Option<usize> {
        self.usable().map(DatagramPath::max_packet).max()
    }

    /// The smallest packet that every usable path carries.
    pub(in crate::datagram) fn min_packet(&self) -> Option<usize> {
        self.usable().map(DatagramPath::max_packet).min()
    }

    /// Derives everything that depends on several paths. Called after each change of one of them.
    pub(in crate::datagram) fn review(&mut self, now: Instant) {
        self.review_delays(now);
        self.review_latency();
        for index in 0..self.list.len() {
            let path = &self.list[index];
            let replaces = |other: &DatagramPath| {
                other.link == path.link
                    && other.carrier == DatagramCarrier::Quic
                    && other.health.is_good()
                    && other.policy.priority != Priority::Never
            };
            let is_stream = path.carrier == DatagramCarrier::Stream;
            self.list[index].is_replaced = is_stream && self.iter().any(replaces);
        }
        let least = self.iter().filter_map(DatagramPath::rank).min();
        for path in &mut self.list {
            path.usage = match path.rank() {
                None => Usage::None,
                rank if rank == least => Usage::Main,
                // Secondary paths that deliver help while primary ones have no room.
                _ if path.health.is_good() && !path.is_too_slow => {
                    match path.policy.priority == Priority::Secondary {
                        true => Usage::Extra,
                        false => Usage::None,
                    }
                }
                _ => Usage::None,
            };
        }
        self.best = [None; 2];
        for place in 0..2 {
            let taken = self.best[0];
            let others = self.iter().filter(|path| Some(path.id) != taken);
            // Paths that carry no datagrams still carry reports.
            let order = |path: &&DatagramPath| {
                let health = path.health.state();
                (path.usage != Usage::Main, health, path.delay, path.id)
            };
            self.best[place] = others.min_by_key(order).map(|path| path.id);
        }
    }

    /// The delay of each path: exact relative to the others if the peer has reported all of them
    /// recently, and half of a round trip otherwise.
    fn review_delays(&mut self, now: Instant) {
        let fresh = |path: &DatagramPath| {
            let relative = path.relative;
            relative.filter(|(_, at)| now.saturating_sub(*at) < FRESH)
        };
        let anchors = self.list.iter();
        let anchor = anchors
            .filter_map(|path| Some((path.srtt(), fresh(path)?.0)))
            .min();
        for path in &mut self.list {
            path.delay = match (anchor, fresh(path)) {
                (Some((trip, anchor)), Some((relative, _))) => {
                    let more = relative.saturating_sub(anchor);
                    let half = super::super::clock::micros(trip / 2);
                    super::super::clock::duration(half.saturating_add(more))
                }
                _ => path.srtt() / 2,
            };
        }
    }

    /// Finds the paths that are slower than their policies permit.
    fn review_latency(&mut self) {
        if self
            .iter()
            .all(|path| path.policy.max_added_latency.is_none())
        {
            return;
        }
        let carries =
            |path: &&DatagramPath| path.health.is_good() && path.policy.priority != Priority::Never;
        let delays: Vec<_> = self
            .iter()
            .filter(carries)
            .map(|path| (path.id, path.delay))
            .collect();
        for path in &mut self.list {
            let Some(most) = path.policy.max_added_latency else {
                path.is_too_slow = false;
                continue;
            };
            let others = delays.iter().filter(|(id, _)| *id != path.id);
            let fastest = others.map(|(_, delay)| *delay).min();
            let added = fastest.map_or(Duration::ZERO, |best| path.delay.saturating_sub(best));
            let bound = match path.is_too_slow {
                true => most.mul_f64(FAST_AGAIN),
                false => most,
            };
            path.is_too_slow = added > bound;
        }
    }
}
