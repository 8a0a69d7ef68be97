//! The servers of a client, as its configuration and the DNS list them.

use crate::api::config::{ClientConfig, ServerChoice};
use crate::links::services::{Preferred, is_service};

/// Position in the order of preference; a client prefers the least, and among equal ones the server
/// that answers first.
pub(super) type Rank = (usize, usize, usize);

/// All servers known so far. Each keeps its place, a number, while the client runs.
#[derive(Debug, Default)]
pub(super) struct Known {
    each: Vec<Server>,
}

/// One of several servers.
#[derive(Debug)]
struct Server {
    /// HOST:PORT.
    server: String,
    rank: Rank,
    /// The entry of the configuration that it comes from.
    entry: usize,
    /// Whether it is still in the DNS; always for HOST:PORT.
    is_listed: bool,
}

impl Known {
    /// The servers that the configuration gives as HOST:PORT.
    pub(super) fn of(config: &ClientConfig) -> Self {
        let mut known = Self::default();
        for (entry, (server, _)) in config.servers().enumerate() {
            if !is_service(server) {
                let only = Preferred {
                    server: server.to_owned(),
                    group: 0,
                };
                known.set(config.server_choice, entry, &[only]);
            }
        }
        known
    }

    /// Replaces the servers of an entry of the configuration; those from before keep their place.
    pub(super) fn set(&mut self, choice: ServerChoice, entry: usize, found: &[Preferred]) {
        for server in self.of_entry(entry) {
            server.is_listed = false;
        }
        for (at, one) in found.iter().enumerate() {
            let rank = match choice {
                ServerChoice::Fastest => (0, one.group, 0),
                ServerChoice::Listed => (entry, one.group, at),
            };
            if let Some(known) = self
                .of_entry(entry)
                .find(|known| known.server == one.server)
            {
                known.is_listed = true;
                // Another draw of the weights is no reason to move.
                if known.rank.1 != one.group {
                    known.rank = rank;
                }
                continue;
            }
            self.each.push(Server {
                server: one.server.clone(),
                rank,
                entry,
                is_listed: true,
            });
        }
    }

    fn of_entry(&mut self, entry: usize) -> impl Iterator<Item = &mut Server> {
        self.each
            .iter_mut()
            .filter(move |server| server.entry == entry)
    }

    /// The places of the servers to use now.
    pub(super) fn places(&self) -> Vec<usize> {
        let listed = self.each.iter().enumerate();
        listed
            .filter(|(_, server)| server.is_listed)
            .map(|(place, _)| place)
            .collect()
    }

    pub(super) fn rank(&self, place: usize) -> Rank {
        self.each[place].rank
    }

    /// The configuration for sessions with a server.
    pub(super) fn config(&self, config: &ClientConfig, place: usize) -> ClientConfig {
        let known = &self.each[place];
        let (_, server_key) = config
            .servers()
            .nth(known.entry)
            .expect("an entry of the list");
        let mut config = config.clone();
        (config.server, config.server_key) = (known.server.clone(), server_key);
        config
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A server keeps its place through all answers, and only those of the last answer are used.
        #[test]
        fn places_are_stable_whatever_the_dns_answers(
            answers in prop::collection::vec(
                (0..3_usize, prop::collection::btree_map("[a-e]", 0..3_usize, 0..5)),
                1..20,
            ),
        ) {
            for choice in [ServerChoice::Fastest, ServerChoice::Listed] {
                let mut known = Known::default();
                let mut places: BTreeMap<(usize, String), usize> = BTreeMap::new();
                let mut last: BTreeMap<usize, &BTreeMap<String, usize>> = BTreeMap::new();
                for (entry, answer) in &answers {
                    let found: Vec<Preferred> = answer
                        .iter()
                        .map(|(server, group)| Preferred { server: server.clone(), group: *group })
                        .collect();
                    known.set(choice, *entry, &found);
                    last.insert(*entry, answer);
                    for (place, server) in known.each.iter().enumerate() {
                        let key = (server.entry, server.server.clone());
                        prop_assert_eq!(*places.entry(key).or_insert(place), place);
                    }
                    let listed: usize = last.values().map(|answer| answer.len()).sum();
                    prop_assert_eq!(known.places().len(), listed);
                    for place in known.places() {
                        let server = &known.each[place];
                        prop_assert_eq!(server.rank.1, last[&server.entry][&server.server]);
                    }
                }
            }
        }
    }
}
