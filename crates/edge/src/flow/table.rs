//! A bounded table of flows; the flow that has been idle longest is evicted first.
//!
//! A tree and a list in an arena. Without hashing, the same packets give the same decisions
//! everywhere, and chosen addresses cannot degrade lookups.

use std::collections::BTreeMap;

use super::FlowKey;
use crate::Instant;

/// A flow's slot in its table. Slots are reused; holders of an id are notified when the flow is
/// removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

/// Values of type `T` by flow, in the order of their last use.
#[derive(Clone, Debug)]
pub struct FlowTable<T> {
    places: BTreeMap<FlowKey, FlowId>,
    entries: Vec<Option<Entry<T>>>,
    free: Vec<FlowId>,
    /// The flow idle longest, and the one used last.
    oldest: Option<FlowId>,
    newest: Option<FlowId>,
    most: usize,
}

#[derive(Clone, Debug)]
struct Entry<T> {
    key: FlowKey,
    used: Instant,
    older: Option<FlowId>,
    newer: Option<FlowId>,
    value: T,
}

impl<T> FlowTable<T> {
    /// An empty table for at most `most` flows, and at least one.
    pub fn new(most: usize) -> Self {
        Self {
            places: BTreeMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            oldest: None,
            newest: None,
            most: most.clamp(1, u32::MAX as usize),
        }
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a new flow requires an eviction.
    pub fn is_full(&self) -> bool {
        self.places.len() >= self.most
    }

    /// The flow's id.
    pub fn find(&self, key: &FlowKey) -> Option<FlowId> {
        self.places.get(key).copied()
    }

    /// Inserts a flow as the most recently used. `None` if the table is full or the flow exists.
    pub fn insert(&mut self, key: FlowKey, value: T, now: Instant) -> Option<FlowId> {
        if self.is_full() || self.places.contains_key(&key) {
            return None;
        }
        let entry = Some(Entry {
            key,
            used: now,
            older: None,
            newer: None,
            value,
        });
        let id = if let Some(id) = self.free.pop() {
            self.entries[id.0 as usize] = entry;
            id
        } else {
            self.entries.push(entry);
            FlowId(self.entries.len() as u32 - 1)
        };
        self.places.insert(key, id);
        self.link(id);
        Some(id)
    }

    /// Removes a flow.
    pub fn remove(&mut self, id: FlowId) -> Option<(FlowKey, T)> {
        self.unlink(id);
        let entry = self.entries.get_mut(id.0 as usize)?.take()?;
        self.places.remove(&entry.key);
        self.free.push(id);
        Some((entry.key, entry.value))
    }

    /// Marks a flow as the most recently used.
    pub fn touch(&mut self, id: FlowId, now: Instant) {
        if self.newest != Some(id) {
            self.unlink(id);
            self.link(id);
        }
        if let Some(entry) = self.entry_mut(id) {
            entry.used = now;
        }
    }

    /// The flow's value.
    pub fn get(&self, id: FlowId) -> Option<&T> {
        self.entry(id).map(|entry| &entry.value)
    }

    /// The flow's value, mutable.
    pub fn get_mut(&mut self, id: FlowId) -> Option<&mut T> {
        self.entry_mut(id).map(|entry| &mut entry.value)
    }

    /// The flow's key.
    pub fn key(&self, id: FlowId) -> Option<FlowKey> {
        self.entry(id).map(|entry| entry.key)
    }

    /// Flows with the time of their last use, longest idle first.
    pub fn idle(&self) -> impl Iterator<Item = (FlowId, Instant, &T)> + '_ {
        let mut next = self.oldest;
        std::iter::from_fn(move || {
            let id = next?;
            let entry = self.entry(id)?;
            next = entry.newer;
            Some((id, entry.used, &entry.value))
        })
    }

    /// Flows, most recently used first.
    pub fn recent(&self) -> impl Iterator<Item = (FlowKey, &T)> + '_ {
        let mut next = self.newest;
        std::iter::from_fn(move || {
            let entry = self.entry(next?)?;
            next = entry.older;
            Some((entry.key, &entry.value))
        })
    }

    fn entry(&self, id: FlowId) -> Option<&Entry<T>> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    fn entry_mut(&mut self, id: FlowId) -> Option<&mut Entry<T>> {
        self.entries.get_mut(id.0 as usize)?.as_mut()
    }

    fn link(&mut self, id: FlowId) {
        let newest = self.newest.replace(id);
        match newest.and_then(|newest| self.entry_mut(newest)) {
            Some(before) => before.newer = Some(id),
            None => self.oldest = Some(id),
        }
        if let Some(entry) = self.entry_mut(id) {
            (entry.older, entry.newer) = (newest, None);
        }
    }

    fn unlink(&mut self, id: FlowId) {
        let Some((older, newer)) = self.entry(id).map(|entry| (entry.older, entry.newer)) else {
            return;
        };
        match older.and_then(|older| self.entry_mut(older)) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| self.entry_mut(newer)) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn key(n: u32) -> FlowKey {
        let port = (n % 60_000) as u16;
        FlowKey {
            far: std::net::SocketAddr::from((std::net::Ipv4Addr::from_bits(n / 60_000), port)),
            user: std::net::SocketAddr::from(([10, 0, 0, 2], 80)),
        }
    }

    #[test]
    fn a_hundred_thousand_flows_are_evicted_in_order_of_last_use() {
        let mut table = FlowTable::new(100_000);
        for n in 0..100_000 {
            table
                .insert(key(n), n, Duration::from_millis(n.into()))
                .unwrap();
        }
        assert!(table.is_full());
        assert_eq!(table.insert(key(100_000), 0, Duration::ZERO), None);
        let first = table.find(&key(0)).unwrap();
        table.touch(first, Duration::from_secs(1000));
        let order: Vec<u32> = table.idle().map(|(_, _, &n)| n).collect();
        assert_eq!((order[0], order[99_999], order.len()), (1, 0, 100_000));
    }

    proptest! {
        /// Compares the table with a plain list in order of use.
        #[test]
        fn random_operations_keep_the_order(
            operations in proptest::collection::vec((0u8..4, 0u32..12), 0..200),
        ) {
            let mut table = FlowTable::new(8);
            let mut model: Vec<(u32, Instant)> = Vec::new();
            for (step, (operation, n)) in operations.into_iter().enumerate() {
                let now = Duration::from_millis(step as u64);
                let place = table.find(&key(n));
                prop_assert_eq!(place.is_some(), model.iter().any(|&(m, _)| m == n));
                match (operation, place) {
                    (0, Some(id)) => {
                        prop_assert_eq!(table.remove(id), Some((key(n), n)));
                        model.retain(|&(m, _)| m != n);
                    }
                    (1, Some(id)) => {
                        table.touch(id, now);
                        model.retain(|&(m, _)| m != n);
                        model.push((n, now));
                    }
                    (_, None) if model.len() < 8 => {
                        prop_assert!(table.insert(key(n), n, now).is_some());
                        model.push((n, now));
                    }
                    (_, None) => prop_assert_eq!(table.insert(key(n), n, now), None),
                    _ => {}
                }
                let order: Vec<_> = table.idle().map(|(_, used, &n)| (n, used)).collect();
                prop_assert_eq!(&order, &model);
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }
}
