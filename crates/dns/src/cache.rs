//! Responses that are kept until they expire.

use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::recent::Recent;

use crate::wire::Query;

/// Memory of an entry besides its message and its name, in bytes: a slot and an index entry, with
/// their spare places.
const ENTRY: usize = 256;

/// The largest part of the cache that one response may take.
const LARGEST: usize = 16;

/// A cache of bounded size. The entry that was used least recently makes room for another one.
///
/// Times are those of a clock that never goes back and counts while the machine is suspended.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Recent<Query, Entry>,
    bytes: usize,
    most: usize,
    stale: Duration,
}

#[derive(Debug)]
struct Entry {
    message: Bytes,
    stored: Duration,
    lifetime: Duration,
}

/// The result of a lookup in the cache.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cached {
    /// A response that was stored this number of seconds ago.
    Fresh(Bytes, u32),
    /// A response that has expired, but not too long ago.
    Stale(Bytes),
    /// Nothing.
    Missing,
}

impl Cache {
    /// A cache of at most `most` bytes, which keeps expired responses for `stale`.
    pub(crate) fn new(most: usize, stale: Duration) -> Self {
        Self {
            entries: Recent::default(),
            bytes: 0,
            most,
            stale,
        }
    }

    /// Looks up `query`.
    pub(crate) fn find(&mut self, query: &Query, now: Duration) -> Cached {
        let Some(entry) = self.entries.touch(query) else {
            return Cached::Missing;
        };
        let age = now.saturating_sub(entry.stored);
        if age < entry.lifetime {
            // A lifetime has at most 86,400 seconds.
            return Cached::Fresh(entry.message.clone(), age.as_secs() as u32);
        }
        if age < entry.lifetime.saturating_add(self.stale) {
            return Cached::Stale(entry.message.clone());
        }
        self.remove(query);
        Cached::Missing
    }

    /// Keeps a response. One that takes a large part of the cache is not kept.
    pub(crate) fn insert(
        &mut self,
        query: &Query,
        message: Bytes,
        lifetime: Duration,
        now: Duration,
    ) {
        let cost = cost(query, &message);
        if cost > self.most / LARGEST {
            return;
        }
        self.remove(query);
        while self.bytes + cost > self.most {
            let Some((query, entry)) = self.entries.pop_oldest() else {
                return;
            };
            self.bytes -= self::cost(&query, &entry.message);
        }
        self.bytes += cost;
        let entry = Entry {
            message,
            stored: now,
            lifetime,
        };
        self.entries.insert(query.clone(), entry);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries = Recent::default();
        self.bytes = 0;
    }

    /// The number of entries and their memory in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    fn remove(&mut self, query: &Query) {
        if let Some(entry) = self.entries.remove(query) {
            self.bytes -= cost(query, &entry.message);
        }
    }
}

/// The memory of an entry in bytes; its name is in the index and in the slot.
fn cost(query: &Query, message: &Bytes) -> usize {
    ENTRY + 2 * query.question.name.as_bytes().len() + message.len()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    const MOST: usize = 64 * 1024;
    const STALE: Duration = Duration::from_secs(50);

    #[derive(Clone, Debug)]
    enum Operation {
        Insert {
            name: u8,
            length: usize,
            lifetime: u64,
        },
        Find(u8),
        Wait(u64),
        Clear,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            6 => (any::<u8>(), 0..6000usize, 1..100u64).prop_map(|(name, length, lifetime)| {
                Operation::Insert { name, length, lifetime }
            }),
            6 => any::<u8>().prop_map(Operation::Find),
            3 => (0..40u64).prop_map(Operation::Wait),
            1 => Just(Operation::Clear),
        ]
    }

    fn query(number: u8) -> Query {
        Query::new(&format!("{}.example", number % 40), 1)
    }

    proptest! {
        /// The model has no bound. The cache may have less than the model, never anything else, and
        /// nothing of it is older than it may be.
        #[test]
        fn it_has_what_was_inserted_last_until_it_expires(
            operations in proptest::collection::vec(operation(), 0..300),
        ) {
            let mut cache = Cache::new(MOST, STALE);
            let mut model: HashMap<Query, (Bytes, u64, u64)> = HashMap::new();
            let (mut now, mut serial, mut inserted) = (0, 0u32, 0);
            for operation in operations {
                let time = Duration::from_secs(now);
                match operation {
                    Operation::Insert { name, length, lifetime } => {
                        serial += 1;
                        let mut message = serial.to_be_bytes().to_vec();
                        message.resize(4 + length, 0);
                        let message = Bytes::from(message);
                        let fits = cost(&query(name), &message) <= MOST / LARGEST;
                        let kept = Duration::from_secs(lifetime);
                        cache.insert(&query(name), message.clone(), kept, time);
                        if fits {
                            inserted += cost(&query(name), &message);
                            model.insert(query(name), (message, now, lifetime));
                            let found = cache.find(&query(name), time);
                            prop_assert!(matches!(found, Cached::Fresh(_, 0)));
                        }
                    }
                    Operation::Find(name) => {
                        let expected = model.get(&query(name));
                        let found = cache.find(&query(name), time);
                        match (found, expected) {
                            (Cached::Missing, None) => {}
                            (Cached::Missing, Some((_, stored, lifetime))) => {
                                let is_over = now - stored >= lifetime + STALE.as_secs();
                                prop_assert!(is_over || inserted > MOST);
                            }
                            (Cached::Fresh(message, age), Some((last, stored, lifetime))) => {
                                prop_assert_eq!(&message, last);
                                prop_assert_eq!(u64::from(age), now - stored);
                                prop_assert!(u64::from(age) < *lifetime);
                            }
                            (Cached::Stale(message), Some((last, stored, lifetime))) => {
                                prop_assert_eq!(&message, last);
                                let age = now - stored;
                                prop_assert!(age >= *lifetime && age < lifetime + STALE.as_secs());
                            }
                            (found, None) => prop_assert!(false, "{:?}", found),
                        }
                    }
                    Operation::Wait(seconds) => now += seconds,
                    Operation::Clear => {
                        cache.clear();
                        model.clear();
                    }
                }
                let held: usize =
                    cache.entries.iter().map(|(query, entry)| cost(query, &entry.message)).sum();
                prop_assert_eq!(cache.size().1, held);
                prop_assert!(held <= MOST);
            }
        }
    }

    #[test]
    fn the_entry_used_least_recently_makes_room() {
        let mut cache = Cache::new(MOST, Duration::ZERO);
        let message = Bytes::from(vec![0; 3000]);
        let (now, long) = (Duration::ZERO, Duration::from_secs(100));
        for number in 0..20 {
            cache.insert(&query(number), message.clone(), long, now);
            assert!(matches!(cache.find(&query(0), now), Cached::Fresh(..)));
        }
        assert!(matches!(cache.find(&query(1), now), Cached::Missing));
        assert!(matches!(cache.find(&query(19), now), Cached::Fresh(..)));
    }
}
