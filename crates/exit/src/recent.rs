//! A map that knows which of its entries was used least recently.

use std::collections::HashMap;
use std::hash::Hash;

/// A map ordered by use. All operations but iteration take constant time.
///
/// It does not limit its size: callers decide which entry makes room for another.
#[derive(Debug)]
pub struct Recent<K, V> {
    index: HashMap<K, usize>,
    slots: Vec<Slot<K, V>>,
    /// Slots without an entry.
    free: Vec<usize>,
    newest: Option<usize>,
    oldest: Option<usize>,
}

#[derive(Debug)]
struct Slot<K, V> {
    /// `None` in a free slot.
    entry: Option<(K, V)>,
    newer: Option<usize>,
    older: Option<usize>,
}

impl<K: Eq + Hash + Clone, V> Recent<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The value of `key`; its place in the order stays.
    pub fn get(&self, key: &K) -> Option<&V> {
        let entry = self.slots.get(*self.index.get(key)?)?.entry.as_ref();
        entry.map(|(_, value)| value)
    }

    /// The value of `key`, which becomes the most recently used one.
    pub fn touch(&mut self, key: &K) -> Option<&mut V> {
        let slot = *self.index.get(key)?;
        if self.newest != Some(slot) {
            self.unlink(slot);
            self.link_newest(slot);
        }
        let entry = self.slots.get_mut(slot)?.entry.as_mut();
        entry.map(|(_, value)| value)
    }

    /// Sets the value of `key`, which becomes the most recently used one. Returns its old value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(old) = self.touch(&key) {
            return Some(std::mem::replace(old, value));
        }
        let slot = self.free.pop().unwrap_or(self.slots.len());
        let filled = Slot {
            entry: Some((key.clone(), value)),
            newer: None,
            older: None,
        };
        match self.slots.get_mut(slot) {
            Some(free) => *free = filled,
            None => self.slots.push(filled),
        }
        self.index.insert(key, slot);
        self.link_newest(slot);
        None
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let slot = self.index.remove(key)?;
        self.unlink(slot);
        self.free.push(slot);
        let entry = self.slots.get_mut(slot)?.entry.take();
        entry.map(|(_, value)| value)
    }

    /// The least recently used entry.
    pub fn oldest(&self) -> Option<(&K, &V)> {
        let entry = self.slots.get(self.oldest?)?.entry.as_ref();
        entry.map(|(key, value)| (key, value))
    }

    /// Removes the least recently used entry.
    pub fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (key, _) = self.oldest()?;
        let key = key.clone();
        self.remove(&key).map(|value| (key, value))
    }

    /// All entries, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        entries.map(|(key, value)| (key, value))
    }

    fn link_newest(&mut self, slot: usize) {
        let before = self.newest.replace(slot);
        self.slots[slot].older = before;
        self.slots[slot].newer = None;
        match before {
            Some(before) => self.slots[before].newer = Some(slot),
            None => self.oldest = Some(slot),
        }
    }

    fn unlink(&mut self, slot: usize) {
        let (newer, older) = (self.slots[slot].newer, self.slots[slot].older);
        match newer {
            Some(newer) => self.slots[newer].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.slots[older].newer = newer,
            None => self.oldest = newer,
        }
    }
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self {
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: None,
            oldest: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Insert(u8, u32),
        Touch(u8),
        Get(u8),
        Remove(u8),
        PopOldest,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let key = 0..12u8;
        prop_oneof![
            3 => (key.clone(), any::<u32>()).prop_map(|(key, value)| Operation::Insert(key, value)),
            2 => key.clone().prop_map(Operation::Touch),
            1 => key.clone().prop_map(Operation::Get),
            1 => key.prop_map(Operation::Remove),
            1 => Just(Operation::PopOldest),
        ]
    }

    proptest! {
        #[test]
        fn it_equals_a_list_in_order_of_use(
            operations in proptest::collection::vec(operation(), 0..200),
        ) {
            let mut map = Recent::default();
            // The least recently used entry first.
            let mut list: Vec<(u8, u32)> = Vec::new();
            for operation in operations {
                let find = |list: &[(u8, u32)], key| list.iter().position(|(own, _)| *own == key);
                match operation {
                    Operation::Insert(key, value) => {
                        let old = find(&list, key).map(|place| list.remove(place).1);
                        list.push((key, value));
                        prop_assert_eq!(map.insert(key, value), old);
                    }
                    Operation::Touch(key) => {
                        let found = find(&list, key).map(|place| {
                            let entry = list.remove(place);
                            list.push(entry);
                            entry.1
                        });
                        prop_assert_eq!(map.touch(&key).copied(), found);
                    }
                    Operation::Get(key) => {
                        let found = find(&list, key).map(|place| list[place].1);
                        prop_assert_eq!(map.get(&key).copied(), found);
                    }
                    Operation::Remove(key) => {
                        let found = find(&list, key).map(|place| list.remove(place).1);
                        prop_assert_eq!(map.remove(&key), found);
                    }
                    Operation::PopOldest => {
                        let found = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(map.pop_oldest(), found);
                    }
                }
                prop_assert_eq!(map.len(), list.len());
                prop_assert_eq!(map.is_empty(), list.is_empty());
                let oldest = map.oldest().map(|(key, value)| (*key, *value));
                prop_assert_eq!(oldest, list.first().copied());
                let mut all: Vec<(u8, u32)> = map.iter().map(|(k, v)| (*k, *v)).collect();
                all.sort_unstable();
                let mut expected = list.clone();
                expected.sort_unstable();
                prop_assert_eq!(all, expected);
            }
            prop_assert!(map.slots.len() <= 12);
        }
    }
}
