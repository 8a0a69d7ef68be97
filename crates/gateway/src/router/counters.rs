//! How many streams and flows have taken each way.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use super::Way;

/// Streams and flows that have taken each way so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RouteStats {
    /// Streams.
    pub streams: Taken,
    /// Flows of datagrams: the remotes of each source. A flow that changes its way counts again.
    pub flows: Taken,
}

/// A number for each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Taken {
    /// Over the bond.
    pub bond: u64,
    /// Over the link of a rule.
    pub link: u64,
    /// Over the best link, because of a rule.
    pub direct: u64,
    /// Over the best link, because the bond was down.
    pub without_bond: u64,
    /// Refused.
    pub blocked: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    streams: Ways,
    flows: Ways,
}

#[derive(Debug, Default)]
struct Ways {
    bond: AtomicU64,
    link: AtomicU64,
    direct: AtomicU64,
    without_bond: AtomicU64,
    blocked: AtomicU64,
}

impl Counters {
    pub(super) fn stream(&self, way: &Way) {
        self.streams.count(way);
    }

    pub(super) fn flow(&self, way: &Way) {
        self.flows.count(way);
    }

    pub(super) fn stats(&self) -> RouteStats {
        RouteStats {
            streams: self.streams.taken(),
            flows: self.flows.taken(),
        }
    }
}

impl Ways {
    fn count(&self, way: &Way) {
        let counter = match way {
            Way::Bond => &self.bond,
            Way::Link(_) => &self.link,
            Way::Direct { is_fallback: false } => &self.direct,
            Way::Direct { is_fallback: true } => &self.without_bond,
            Way::Blocked => &self.blocked,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn taken(&self) -> Taken {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Taken {
            bond: get(&self.bond),
            link: get(&self.link),
            direct: get(&self.direct),
            without_bond: get(&self.without_bond),
            blocked: get(&self.blocked),
        }
    }
}
