//! Fair shares of a limit: who makes room when it is reached.
//!
//! When all places are taken, a new entry takes the place of another one: of the network that has
//! the most, there of the client that has the most, and of that client the entry used least
//! recently. So a client that asks for more than its share displaces its own entries or is refused,
//! and the others notice nothing.
//!
//! An entry in use is displaced only if that makes the shares more equal, that is, if its client
//! has at least two more than the new one's. Otherwise, clients with equal shares would displace
//! each other forever.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::Client;

/// The entries within a limit. All operations take logarithmic time, and memory is proportional to
/// the entries. It has no clock: the time is an argument.
#[derive(Debug)]
pub struct Shares<T> {
    most: usize,
    most_own: usize,
    yield_after: Option<Duration>,
    entries: HashMap<u64, Entry<T>>,
    /// The entries of each client, the one used least recently first.
    clients: HashMap<Client, BTreeSet<(Instant, u64)>>,
    networks: HashMap<Client, Network>,
    /// The networks by their number of entries.
    by_size: BTreeSet<(usize, Client)>,
    next: u64,
}

#[derive(Debug)]
struct Entry<T> {
    client: Client,
    last: Instant,
    value: T,
}

#[derive(Debug, Default)]
struct Network {
    entries: usize,
    /// Its clients by their number of entries.
    by_size: BTreeSet<(usize, Client)>,
}

/// An entry that has lost its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Displaced<T> {
    /// Its client.
    pub client: Client,
    /// Its value.
    pub value: T,
}

impl<T> Shares<T> {
    /// At most `most` entries. An entry that was not used for `yield_after` also makes room for
    /// another one of a client with an equal share, such as its own; with `None`, it does not.
    pub fn new(most: usize, yield_after: Option<Duration>) -> Self {
        Self {
            most,
            most_own: usize::MAX,
            yield_after,
            entries: HashMap::new(),
            clients: HashMap::new(),
            networks: HashMap::new(),
            by_size: BTreeSet::new(),
            next: 0,
        }
    }

    /// Limits the entries of each client, even if places are free.
    pub fn with_most_own(mut self, most_own: usize) -> Self {
        self.most_own = most_own;
        self
    }

    /// Adds an entry and returns its number, and the entry that has made room for it. `None` if it
    /// is refused.
    pub fn insert(
        &mut self,
        client: Client,
        value: T,
        now: Instant,
    ) -> Option<(u64, Option<Displaced<T>>)> {
        if self.of(client) >= self.most_own {
            return None;
        }
        let displaced = match self.entries.len() < self.most {
            true => None,
            false => Some(self.displace(client, now)?),
        };
        let number = self.next;
        self.next += 1;
        let entry = Entry {
            client,
            last: now,
            value,
        };
        self.entries.insert(number, entry);
        self.link(client, now, number);
        Some((number, displaced))
    }

    /// Removes the entry that would make room for another one of `client`, even if places are free.
    pub fn displace(&mut self, client: Client, now: Instant) -> Option<Displaced<T>> {
        let number = self.victim(client, now)?;
        self.take(number)
    }

    /// Notes that an entry is in use.
    pub fn touch(&mut self, number: u64, now: Instant) {
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let before = std::mem::replace(&mut entry.last, now);
        if let Some(own) = self.clients.get_mut(&entry.client) {
            own.remove(&(before, number));
            own.insert((now, number));
        }
    }

    /// Notes that `client` uses an entry, too. It becomes its entry if that makes the shares more
    /// equal: the displacement of an entry should not harm clients with smaller shares.
    pub fn share(&mut self, number: u64, client: Client) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        let (owner, last) = (entry.client, entry.last);
        let sizes = match owner.network() == client.network() {
            true => [owner, client].map(|client| self.of(client)),
            false => [owner, client].map(|client| self.of_network(client)),
        };
        let is_room = self.of(client) < self.most_own;
        if sizes[0] > sizes[1] + 1 && is_room {
            self.unlink(owner, last, number);
            self.link(client, last, number);
            if let Some(entry) = self.entries.get_mut(&number) {
                entry.client = client;
            }
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        self.take(number).map(|removed| removed.value)
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of entries of a client.
    pub fn of(&self, client: Client) -> usize {
        self.clients.get(&client).map_or(0, BTreeSet::len)
    }

    fn of_network(&self, client: Client) -> usize {
        let network = self.networks.get(&client.network());
        network.map_or(0, |network| network.entries)
    }

    /// The entry that makes room for one of `client`.
    fn victim(&self, client: Client, now: Instant) -> Option<u64> {
        let network = client.network();
        let own = self.of_network(client);
        // The clients in whose place the new entry may come, with their own number of entries and
        // the new entry's, both of networks or of clients in one network.
        let largest_network = self.by_size.last().copied();
        let other = largest_network
            .filter(|(_, largest)| *largest != network)
            .and_then(|(size, largest)| Some((size, own, self.largest_in(largest)?.1)));
        let neighbor = self
            .largest_in(network)
            .filter(|(_, largest)| *largest != client)
            .map(|(size, largest)| (size, self.of(client), largest));
        let candidates = [other, neighbor].into_iter().flatten();
        for (size, own, largest) in candidates.clone() {
            if size > own + 1 {
                return self.oldest(largest).map(|(_, number)| number);
            }
        }
        let yield_after = self.yield_after?;
        let larger = candidates.filter(|(size, own, _)| size > own);
        std::iter::once(client)
            .chain(larger.map(|(_, _, largest)| largest))
            .filter_map(|client| self.oldest(client))
            .find(|(last, _)| now.saturating_duration_since(*last) >= yield_after)
            .map(|(_, number)| number)
    }

    fn largest_in(&self, network: Client) -> Option<(usize, Client)> {
        self.networks.get(&network)?.by_size.last().copied()
    }

    fn oldest(&self, client: Client) -> Option<(Instant, u64)> {
        self.clients.get(&client)?.first().copied()
    }

    fn take(&mut self, number: u64) -> Option<Displaced<T>> {
        let Entry {
            client,
            last,
            value,
        } = self.entries.remove(&number)?;
        self.unlink(client, last, number);
        Some(Displaced { client, value })
    }

    fn link(&mut self, client: Client, last: Instant, number: u64) {
        let own = self.clients.entry(client).or_default();
        let before = own.len();
        own.insert((last, number));
        self.resized(client, before, before + 1);
    }

    fn unlink(&mut self, client: Client, last: Instant, number: u64) {
        let Some(own) = self.clients.get_mut(&client) else {
            return;
        };
        let before = own.len();
        own.remove(&(last, number));
        let after = own.len();
        if after == 0 {
            self.clients.remove(&client);
        }
        self.resized(client, before, after);
    }

    fn resized(&mut self, client: Client, before: usize, after: usize) {
        let key = client.network();
        let network = self.networks.entry(key).or_default();
        network.by_size.remove(&(before, client));
        self.by_size.remove(&(network.entries, key));
        network.entries = network.entries + after - before;
        if after > 0 {
            network.by_size.insert((after, client));
        }
        if network.entries > 0 {
            self.by_size.insert((network.entries, key));
        } else {
            self.networks.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
