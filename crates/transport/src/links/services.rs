//! Servers that the DNS lists: SRV records (RFC 2782).

use std::io;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::timeout;

use crate::api::config::{Alternative, ClientConfig};
use crate::api::error::ConnectError;

/// Time for the records of one name.
const PATIENCE: Duration = Duration::from_secs(3);

/// Most servers of one name that are used, the preferred ones first.
pub const MAX_SERVICES: usize = 64;

/// A server in an SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its host; `.` says that there is no such service.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Servers with a lower number are preferred.
    pub priority: u16,
    /// Relative share of the clients among servers with the same priority.
    pub weight: u16,
}

impl Service {
    /// HOST:PORT.
    pub fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// Whether a server is the name of SRV records, such as `_sumlink._tcp.example.org`, instead of
/// HOST:PORT. Names of hosts have no underscore (RFC 952).
pub fn is_service(server: &str) -> bool {
    server.starts_with('_')
}

/// The error of a lookup that knows addresses only.
pub(super) fn no_services() -> io::Error {
    io::Error::other("this client has no lookup for SRV records")
}

/// The records that name a server.
///
/// # Errors
///
/// There are none.
pub fn usable(mut services: Vec<Service>) -> io::Result<Vec<Service>> {
    services.retain(|service| service.host != ".");
    match services.is_empty() {
        true => Err(io::Error::other("the name has no SRV record with a server")),
        false => Ok(services),
    }
}

/// A server of a client, and its place in the order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preferred {
    /// HOST:PORT.
    pub(super) server: String,
    /// Place among the priorities of its name, 0 first.
    pub(super) group: usize,
}

/// The servers of an SRV name, in the order in which a client tries them.
///
/// # Errors
///
/// [`ConnectError::Resolve`] if the name has no records, or they cannot be looked up.
pub(super) async fn servers_of(
    name: &str,
    config: &ClientConfig,
) -> Result<Vec<Preferred>, ConnectError> {
    let found = match &config.lookup {
        Some(lookup) => match timeout(PATIENCE, lookup.look_up_services(name.to_owned())).await {
            Ok(found) => found,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer within {} s", PATIENCE.as_secs()),
            )),
        },
        None => Err(no_services()),
    };
    let found = found.and_then(usable);
    let random = SystemRandom::new();
    let draw = |limit: u32| {
        let mut bytes = [0; 8];
        // Without random numbers no session can be made either.
        let _ = random.fill(&mut bytes);
        (u64::from_ne_bytes(bytes) % (u64::from(limit) + 1)) as u32
    };
    found
        .map(|found| in_order(found, draw))
        .map_err(|error| ConnectError::Resolve {
            name: name.to_owned(),
            reason: error.to_string(),
        })
}

/// The configuration with the servers that the DNS lists now in place of the names of SRV records,
/// and the errors of names without any.
///
/// # Errors
///
/// The last of these errors, if no server is left.
pub async fn with_listed_servers(
    mut config: ClientConfig,
) -> Result<(ClientConfig, Vec<ConnectError>), ConnectError> {
    let (mut listed, mut failed) = (Vec::new(), Vec::new());
    for (server, server_key) in config.servers() {
        match is_service(server) {
            true => match servers_of(server, &config).await {
                Ok(found) => listed.extend(found.into_iter().map(|one| (one.server, server_key))),
                Err(error) => failed.push(error),
            },
            false => listed.push((server.to_owned(), server_key)),
        }
    }
    let mut listed = listed.into_iter();
    match (listed.next(), failed.pop()) {
        (Some(first), last) => {
            (config.server, config.server_key) = first;
            failed.extend(last);
        }
        (None, Some(last)) => return Err(last),
        // A configuration has a server at least.
        (None, None) => {}
    }
    let others = listed.map(|(server, server_key)| Alternative { server, server_key });
    Ok((config.alternatives(others.collect()), failed))
}

/// All servers by priority, those of one priority drawn by weight (RFC 2782, "Usage rules").
/// `draw` returns a random number from 0 to its argument.
fn in_order(mut services: Vec<Service>, mut draw: impl FnMut(u32) -> u32) -> Vec<Preferred> {
    // Those without a weight first, so that they have a small chance.
    services.sort_by_key(|service| (service.priority, service.weight));
    services.dedup();
    let mut ordered: Vec<Preferred> = Vec::with_capacity(services.len());
    let mut group = 0;
    while let Some(priority) = services.first().map(|service| service.priority) {
        let of_group = services.iter().take_while(|s| s.priority == priority);
        let sum = of_group.map(|service| u32::from(service.weight)).sum();
        let drawn = draw(sum);
        let mut running = 0;
        let chosen = services.iter().position(|service| {
            running += u32::from(service.weight);
            running >= drawn
        });
        let chosen = services.remove(chosen.unwrap_or(0));
        let server = chosen.address();
        if ordered.iter().all(|other| other.server != server) {
            ordered.push(Preferred { server, group });
        }
        if services
            .first()
            .is_some_and(|next| next.priority != priority)
        {
            group += 1;
        }
    }
    ordered.truncate(MAX_SERVICES);
    ordered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn service(host: &str, priority: u16, weight: u16) -> Service {
        Service {
            host: host.to_owned(),
            port: 443,
            priority,
            weight,
        }
    }

    fn names(ordered: &[Preferred]) -> Vec<(&str, usize)> {
        ordered
            .iter()
            .map(|one| (one.server.as_str(), one.group))
            .collect()
    }

    #[test]
    fn a_lower_priority_comes_first_and_weights_decide_within_one() {
        let all = vec![
            service("c", 20, 0),
            service("a", 10, 1),
            service("b", 10, 9),
        ];
        let least = in_order(all.clone(), |_| 0);
        assert_eq!(names(&least), [("a:443", 0), ("b:443", 0), ("c:443", 1)]);
        let most = in_order(all, |sum| sum);
        assert_eq!(names(&most), [("b:443", 0), ("a:443", 0), ("c:443", 1)]);
    }

    #[test]
    fn the_share_of_a_server_follows_its_weight() {
        let mut seed = 1_u64;
        let mut draw = |limit: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 33) % (u64::from(limit) + 1)) as u32
        };
        let firsts = (0..10_000).filter(|_| {
            let all = vec![service("a", 0, 25), service("b", 0, 75)];
            in_order(all, &mut draw)[0].server == "b:443"
        });
        let share = firsts.count();
        assert!((7_200..7_800).contains(&share), "{share}");
    }

    #[test]
    fn a_server_listed_twice_counts_once() {
        let all = vec![service("a", 1, 0), service("a", 2, 0), service("a", 1, 0)];
        assert_eq!(names(&in_order(all, |sum| sum)), [("a:443", 0)]);
    }

    proptest! {
        /// Every server appears once, and no group precedes an earlier one.
        #[test]
        fn every_server_has_one_place(
            all in prop::collection::vec(("[a-h]", 0..4_u16, 0..5_u16), 0..20),
            seed in any::<u32>(),
        ) {
            let services: Vec<Service> = all
                .iter()
                .map(|(host, priority, weight)| service(host, *priority, *weight))
                .collect();
            let mut drawn = seed;
            let ordered = in_order(services, |limit| {
                drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                drawn % (limit + 1)
            });
            prop_assert!(ordered.is_sorted_by_key(|one| one.group));
            let hosts: std::collections::BTreeSet<&str> =
                all.iter().map(|(host, ..)| host.as_str()).collect();
            prop_assert_eq!(hosts.len(), ordered.len());
            // The priority of a host is its least.
            for pair in ordered.windows(2) {
                let least = |one: &Preferred| {
                    let same = all.iter().filter(|(host, ..)| one.server == format!("{host}:443"));
                    same.map(|(_, priority, _)| *priority).min()
                };
                prop_assert!(least(&pair[0]) <= least(&pair[1]));
                prop_assert_eq!(pair[0].group == pair[1].group, least(&pair[0]) == least(&pair[1]));
            }
        }
    }
}
