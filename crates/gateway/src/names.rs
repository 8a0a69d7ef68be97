//! The names to which our own resolver has answered with an address.
//!
//! A captured connection has only the address of its target. The program has usually asked for a
//! name shortly before, and the forwarder has answered: it fills this table. Several names may have
//! one address, so a rule about a domain can match a connection to another name at that address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sumlink_exit::recent::Recent;

/// Most addresses. The one answered least recently makes room for another.
const ADDRESSES: usize = 16 * 1024;

/// Most names of one address. The one that expires first makes room for another.
const NAMES: usize = 32;

/// Bounds of a name's lifetime. Programs use an answer for some time longer than it says, and
/// answers for days may be wrong tomorrow.
const LIFETIME: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));

/// Longest name in bytes (RFC 1035, section 2.3.4).
const MAX_NAME: usize = 255;

/// A table of addresses and their names, with a bounded size. It has no clock: the time is an
/// argument.
#[derive(Debug)]
pub struct Names {
    addresses: Recent<IpAddr, Entry>,
    most: usize,
}

/// The names of an address.
#[derive(Debug, Default)]
struct Entry {
    /// Each name, and the end of its lifetime.
    names: HashMap<Arc<str>, Instant>,
    /// The name of the latest answer.
    latest: Option<Arc<str>>,
}

impl Names {
    /// A table for at most this number of addresses.
    pub fn new(most: usize) -> Self {
        Self {
            addresses: Recent::default(),
            most: most.max(1),
        }
    }

    /// An answer: `name` has the address `ip` for the time `ttl`, which counts as at least a minute
    /// and at most a day. Letters in upper case and dots at the end make no difference.
    pub fn learn(&mut self, ip: IpAddr, name: &str, ttl: Duration, now: Instant) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        if name.is_empty() || name.len() > MAX_NAME {
            return;
        }
        let ip = ip.to_canonical();
        let until = now + ttl.clamp(LIFETIME.0, LIFETIME.1);
        if self.addresses.touch(&ip).is_none() {
            while self.addresses.len() >= self.most {
                self.addresses.pop_oldest();
            }
            self.addresses.insert(ip, Entry::default());
        }
        let Some(Entry { names, latest }) = self.addresses.touch(&ip) else {
            return;
        };
        names.retain(|_, until| now < *until);
        let name: Arc<str> = name.into();
        *latest = Some(Arc::clone(&name));
        if let Some(known) = names.get_mut(&name) {
            *known = until.max(*known);
            return;
        }
        if names.len() >= NAMES {
            let first = names.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(name, _)| Arc::clone(name)) {
                names.remove(&first);
            }
        }
        names.insert(name, until);
    }

    /// The names of an address, in alphabetical order: lower case, no dot at the end.
    pub fn of(&self, ip: IpAddr, now: Instant) -> Vec<Arc<str>> {
        let entry = self.addresses.get(&ip.to_canonical());
        let names = entry.into_iter().flat_map(|entry| &entry.names);
        let valid = names.filter(|(_, until)| now < **until);
        let mut names: Vec<Arc<str>> = valid.map(|(name, _)| Arc::clone(name)).collect();
        names.sort_unstable();
        names
    }

    /// The name that was answered with this address most recently, if it is still valid.
    pub fn latest(&self, ip: IpAddr, now: Instant) -> Option<Arc<str>> {
        let entry = self.addresses.get(&ip.to_canonical())?;
        let latest = entry.latest.as_ref()?;
        let until = entry.names.get(latest)?;
        (now < *until).then(|| Arc::clone(latest))
    }

    /// Number of addresses, including those of which all names have expired.
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new(ADDRESSES)
    }
}

/// [`Names`] for several tasks, with the system's clock. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct SharedNames(Arc<Mutex<Names>>);

impl SharedNames {
    /// See [`Names::learn`].
    pub fn learn(&self, ip: IpAddr, name: &str, ttl: Duration) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.learn(ip, name, ttl, Instant::now());
    }

    /// See [`Names::of`].
    pub fn of(&self, ip: IpAddr) -> Vec<Arc<str>> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.of(ip, Instant::now())
    }

    /// See [`Names::latest`].
    pub fn latest(&self, ip: IpAddr) -> Option<Arc<str>> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.latest(ip, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn texts(names: &Names, ip: IpAddr, now: Instant) -> Vec<String> {
        let names = names.of(ip, now);
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn the_latest_name_of_an_address_is_known_until_it_expires() {
        let (mut names, now) = (Names::default(), Instant::now());
        let minute = Duration::from_secs(60);
        assert_eq!(names.latest(ip(1), now), None);
        names.learn(ip(1), "a.org", 10 * minute, now);
        names.learn(ip(1), "b.org", minute, now);
        assert_eq!(names.latest(ip(1), now).as_deref(), Some("b.org"));
        assert_eq!(names.latest(ip(1), now + minute), None);
        names.learn(ip(1), "a.org", minute, now);
        assert_eq!(names.latest(ip(1), now).as_deref(), Some("a.org"));
    }

    #[test]
    fn names_differ_neither_in_case_nor_in_their_last_dot() {
        let (mut names, now) = (Names::default(), Instant::now());
        for name in ["Example.ORG.", "example.org", "a.example", "", "."] {
            names.learn(ip(1), name, Duration::ZERO, now);
        }
        names.learn(ip(1), &"x".repeat(256), Duration::ZERO, now);
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(texts(&names, mapped, now), ["a.example", "example.org"]);
    }

    #[test]
    fn a_name_stays_for_its_time_within_bounds() {
        let (mut names, now) = (Names::default(), Instant::now());
        let second = Duration::from_secs(1);
        names.learn(ip(1), "short", second, now);
        names.learn(ip(1), "hour", 3600 * second, now);
        names.learn(ip(1), "week", 7 * 86_400 * second, now);
        assert_eq!(
            texts(&names, ip(1), now + 59 * second),
            ["hour", "short", "week"]
        );
        assert_eq!(texts(&names, ip(1), now + 60 * second), ["hour", "week"]);
        assert_eq!(texts(&names, ip(1), now + 3600 * second), ["week"]);
        assert!(texts(&names, ip(1), now + 86_400 * second).is_empty());
        // A later answer with a shorter time does not shorten an earlier one.
        names.learn(ip(1), "hour", second, now);
        assert_eq!(texts(&names, ip(1), now + 61 * second), ["hour", "week"]);
    }

    #[test]
    fn an_address_with_too_many_names_forgets_the_first_to_expire() {
        let (mut names, now) = (Names::default(), Instant::now());
        for number in 0..=NAMES {
            let ttl = Duration::from_secs(100 + number as u64);
            names.learn(ip(1), &format!("n{number}"), ttl, now);
        }
        let known = texts(&names, ip(1), now);
        assert_eq!(known.len(), NAMES);
        assert!(!known.contains(&"n0".to_owned()));
    }

    proptest! {
        #[test]
        fn the_table_is_a_bounded_list_of_answers(
            answers in proptest::collection::vec((0..6u8, 0..4u8, 0..200u64, 0..40u64), 0..100),
        ) {
            const MOST: usize = 4;
            let mut names = Names::new(MOST);
            let mut now = Instant::now();
            // Address, name and expiry of each answer, and the addresses in order of use.
            let mut model: Vec<(IpAddr, String, Instant)> = Vec::new();
            let mut order: Vec<IpAddr> = Vec::new();
            for (address, name, ttl, wait) in answers {
                now += Duration::from_secs(wait);
                let (address, name) = (ip(address), format!("n{name}"));
                names.learn(address, &name, Duration::from_secs(ttl), now);
                let until = now + Duration::from_secs(ttl.max(60));
                order.retain(|known| *known != address);
                order.push(address);
                model.push((address, name, until));
                if order.len() > MOST {
                    let forgotten = order.remove(0);
                    model.retain(|(known, ..)| *known != forgotten);
                }
                prop_assert!(names.len() <= MOST);
                for address in (0..6).map(ip) {
                    let valid = model.iter().filter(|(known, _, until)| {
                        *known == address && now < *until
                    });
                    let mut expected: Vec<String> =
                        valid.map(|(_, name, _)| name.clone()).collect();
                    expected.sort_unstable();
                    expected.dedup();
                    prop_assert_eq!(texts(&names, address, now), expected);
                }
            }
        }
    }
}
