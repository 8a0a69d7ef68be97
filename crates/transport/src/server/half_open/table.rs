//! The assignment of places to networks, and the choice of the connection to evict; no I/O.
//!
//! Hosts are grouped by the networks that usually have one owner: an IPv6 /64, /56 and /48, an IPv4
//! address and its /24. A needed place is taken from the widest network that holds the most, within
//! it from the narrower network that holds the most, and there from the oldest connection, silent
//! ones first. Ties between networks are broken by the age of the connection to evict. A connection
//! is therefore evicted only if no network of the same size holds more than its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use crate::api::config::HalfOpenLimits;

/// The networks of an address, widest first; the last one is the host.
type Networks = [u128; 3];

/// The unit that belongs to one host: an IPv4 address, an IPv6 /64.
pub(in crate::server) type Host = u128;

/// The number of a connection's place, increasing over time.
pub(super) type Place = u64;

/// The result of admitting a connection.
#[derive(Debug)]
pub(super) struct Admitted {
    /// Its place.
    pub(super) place: Place,
    /// Whether the place is one of those reserved for known addresses.
    pub(super) is_reserved: bool,
    /// The places that are lost, possibly including the newcomer's.
    pub(super) evicted: Vec<Place>,
}

/// All places.
#[derive(Debug)]
pub(super) struct Table {
    reserved: Pool,
    strangers: Pool,
    next: Place,
    held: HashMap<Place, Held>,
}

/// A connection with a place.
#[derive(Clone, Copy, Debug)]
struct Held {
    networks: Networks,
    is_reserved: bool,
    has_spoken: bool,
}

/// The order of eviction within one host: silent connections first, then by age.
type Turn = (bool, Place);

/// Places of one kind, reserved or not.
#[derive(Debug)]
struct Pool {
    limit: usize,
    per_host: usize,
    held: usize,
    /// Connections in each of the widest networks.
    wide: BTreeMap<u128, usize>,
    /// Connections in each network of the middle size.
    middle: BTreeMap<[u128; 2], usize>,
    /// The connections of each host.
    hosts: BTreeMap<Networks, BTreeSet<Turn>>,
}

/// The host of an address.
pub(in crate::server) fn host(address: IpAddr) -> Host {
    let [.., host] = networks(address);
    host
}

fn networks(address: IpAddr) -> Networks {
    let (bits, lengths) = match address.to_canonical() {
        // As IPv4-mapped addresses: the /24 and twice the address.
        IpAddr::V4(ip) => (ip.to_ipv6_mapped().to_bits(), [96 + 24, 128, 128]),
        IpAddr::V6(ip) => (ip.to_bits(), [48, 56, 64]),
    };
    lengths.map(|length| bits & (u128::MAX << (128 - length)))
}

impl Table {
    pub(super) fn new(limits: &HalfOpenLimits) -> Self {
        let reserved = limits.reserved.min(limits.total.saturating_sub(1));
        Self {
            reserved: Pool::new(reserved, limits.per_address),
            strangers: Pool::new((limits.total - reserved).max(1), limits.per_address),
            next: 0,
            held: HashMap::new(),
        }
    }

    /// The number of places for unknown addresses.
    pub(super) fn strangers(&self) -> usize {
        self.strangers.limit
    }

    /// The number of them that are taken.
    pub(super) fn held_by_strangers(&self) -> usize {
        self.strangers.held
    }

    /// Whether no place is taken.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let pools = [&self.reserved, &self.strangers];
        self.held.is_empty() && pools.iter().all(|pool| pool.wide.is_empty())
    }

    /// Gives a connection from `address` a place: a reserved one if the address is known and one is
    /// free.
    pub(super) fn admit(&mut self, address: IpAddr, is_known: bool) -> Admitted {
        let networks = networks(address);
        let (place, is_reserved) = (self.next, is_known && self.reserved.takes(&networks));
        self.next += 1;
        let held = Held {
            networks,
            is_reserved,
            has_spoken: false,
        };
        self.held.insert(place, held);
        let pool = self.pool(is_reserved);
        let mut evicted = Vec::new();
        pool.insert(networks, (false, place));
        if let Some(victim) = pool.superfluous(&networks) {
            evicted.push(victim);
            self.remove(victim);
        }
        Admitted {
            place,
            is_reserved,
            evicted,
        }
    }

    /// Records that the connection is no longer silent.
    pub(super) fn spoke(&mut self, place: Place) {
        let Some(held) = self.held.get_mut(&place) else {
            return;
        };
        let before = (held.has_spoken, place);
        held.has_spoken = true;
        let Held {
            networks,
            is_reserved,
            ..
        } = *held;
        let pool = self.pool(is_reserved);
        pool.remove(&networks, before);
        pool.insert(networks, (true, place));
    }

    /// Removes a connection that has lost its place or needs it no more.
    pub(super) fn remove(&mut self, place: Place) {
        if let Some(held) = self.held.remove(&place) {
            let turn = (held.has_spoken, place);
            self.pool(held.is_reserved).remove(&held.networks, turn);
        }
    }

    fn pool(&mut self, is_reserved: bool) -> &mut Pool {
        match is_reserved {
            true => &mut self.reserved,
            false => &mut self.strangers,
        }
    }
}

impl Pool {
    fn new(limit: usize, per_host: usize) -> Self {
        Self {
            limit,
            per_host: per_host.max(1),
            held: 0,
            wide: BTreeMap::new(),
            middle: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// Whether a connection can get a place without evicting another host's.
    fn takes(&self, networks: &Networks) -> bool {
        let of_host = self.hosts.get(networks).map_or(0, BTreeSet::len);
        self.held < self.limit || of_host >= self.per_host
    }

    fn insert(&mut self, networks: Networks, turn: Turn) {
        let [wide, middle, _] = networks;
        self.held += 1;
        *self.wide.entry(wide).or_default() += 1;
        *self.middle.entry([wide, middle]).or_default() += 1;
        self.hosts.entry(networks).or_default().insert(turn);
    }

    fn remove(&mut self, networks: &Networks, turn: Turn) {
        let [wide, middle, _] = *networks;
        let Some(turns) = self.hosts.get_mut(networks) else {
            return;
        };
        if !turns.remove(&turn) {
            return;
        }
        if turns.is_empty() {
            self.hosts.remove(networks);
        }
        self.held -= 1;
        decrement(&mut self.wide, wide);
        decrement(&mut self.middle, [wide, middle]);
    }

    /// The place to evict after a connection of these networks was admitted, if any.
    fn superfluous(&self, newcomer: &Networks) -> Option<Place> {
        let of_host = self.hosts.get(newcomer)?;
        if of_host.len() > self.per_host {
            return of_host.first().map(|(_, place)| *place);
        }
        if self.held <= self.limit {
            return None;
        }
        let most = self.wide.values().max()?;
        let heaviest = self.wide.iter().filter(|(_, held)| *held == most);
        let middles =
            heaviest.flat_map(|(wide, _)| self.middle.range([*wide, 0]..=[*wide, u128::MAX]));
        let middles = heaviest_of(middles, |held| *held);
        let hosts = middles.into_iter().flat_map(|[wide, middle]| {
            let of_middle = [*wide, *middle, 0]..=[*wide, *middle, u128::MAX];
            self.hosts.range(of_middle)
        });
        let hosts = heaviest_of(hosts, BTreeSet::len);
        let first = hosts
            .into_iter()
            .filter_map(|networks| self.hosts.get(networks)?.first());
        first.min().map(|(_, place)| *place)
    }
}

/// The networks, of those given, that hold the most.
fn heaviest_of<'a, K, V: 'a>(
    networks: impl Iterator<Item = (&'a K, &'a V)>,
    held: impl Fn(&V) -> usize,
) -> Vec<&'a K> {
    let (mut most, mut heaviest) = (0, Vec::new());
    for (network, value) in networks {
        let held = held(value);
        if held > most {
            most = held;
            heaviest.clear();
        }
        if held == most {
            heaviest.push(network);
        }
    }
    heaviest
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, network: K) {
    if let Some(count) = counts.get_mut(&network) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const LIMITS: HalfOpenLimits = HalfOpenLimits {
        total: 24,
        reserved: 6,
        per_address: 5,
    };

    /// An operation on the table.
    #[derive(Clone, Debug)]
    enum Step {
        /// A connection from an address, and whether the address is known.
        Admit(IpAddr, bool),
        /// An existing connection sends data.
        Speak(usize),
        /// An existing connection proves a key or leaves.
        Leave(usize),
    }

    /// Few enough networks for collisions: 2 /48 of 2 /56 of 2 /64, 3 /24 of 4 addresses.
    fn address() -> impl Strategy<Value = IpAddr> {
        let v6 = (0..2_u16, 0..2_u16, 0..2_u16, 0..3_u16).prop_map(|(wide, middle, low, host)| {
            let subnet = middle << 8 | low;
            IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, wide, subnet, 0, 0, 0, host))
        });
        let v4 = (0..3_u8, 0..4_u8).prop_map(|(net, host)| Ipv4Addr::new(192, 0, net, host).into());
        prop_oneof![v6, v4]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (address(), proptest::bool::weighted(0.2)).prop_map(|(ip, known)| Step::Admit(ip, known)),
            1 => any::<usize>().prop_map(Step::Speak),
            2 => any::<usize>().prop_map(Step::Leave),
        ]
    }

    /// The expected content of a table, as a plain list.
    #[derive(Debug, Default)]
    struct Model(BTreeMap<Place, (IpAddr, bool)>);

    impl Model {
        fn count(&self, is_reserved: bool, matches: impl Fn(IpAddr) -> bool) -> usize {
            let of_pool = self
                .0
                .values()
                .filter(|(_, reserved)| *reserved == is_reserved);
            of_pool.filter(|(ip, _)| matches(*ip)).count()
        }

        /// The pool's connections in the network of `ip` at this depth.
        fn beside(&self, is_reserved: bool, ip: IpAddr, depth: usize) -> usize {
            self.count(is_reserved, |other| {
                networks(other)[depth] == networks(ip)[depth]
            })
        }

        fn nth(&self, number: usize) -> Option<Place> {
            let place = self.0.keys().nth(number % self.0.len().max(1));
            place.copied()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn places_are_bounded_and_only_the_heaviest_network_loses_one(
            steps in proptest::collection::vec(step(), 1..150)
        ) {
            let mut table = Table::new(&LIMITS);
            let mut model = Model::default();
            for step in steps {
                match step {
                    Step::Speak(number) => {
                        if let Some(place) = model.nth(number) {
                            table.spoke(place);
                        }
                    }
                    Step::Leave(number) => {
                        if let Some(place) = model.nth(number) {
                            table.remove(place);
                            model.0.remove(&place);
                        }
                    }
                    Step::Admit(ip, is_known) => {
                        let admitted = table.admit(ip, is_known);
                        let reserved = admitted.is_reserved;
                        prop_assert!(is_known || !reserved, "an unknown address has a reserved place");
                        model.0.insert(admitted.place, (ip, reserved));
                        prop_assert!(admitted.evicted.len() <= 1);
                        for victim in admitted.evicted {
                            let (gone, of_reserved) = model.0[&victim];
                            prop_assert_eq!(of_reserved, reserved, "places are not mixed");
                            let of_host = model.beside(reserved, gone, 2);
                            if of_host <= LIMITS.per_address {
                                // Displaced by another host: then no network at its place holds
                                // more.
                                let heavier = model.0.values().any(|(other, pool)| {
                                    *pool == reserved
                                        && model.beside(reserved, *other, 0) > model.beside(reserved, gone, 0)
                                });
                                prop_assert!(!heavier, "{gone} goes beside a heavier network");
                                for depth in 1..3 {
                                    let wider = networks(gone)[depth - 1];
                                    let heavier = model.0.values().any(|(other, pool)| {
                                        *pool == reserved
                                            && networks(*other)[depth - 1] == wider
                                            && model.beside(reserved, *other, depth)
                                                > model.beside(reserved, gone, depth)
                                    });
                                    prop_assert!(!heavier, "{gone} goes beside a heavier neighbor");
                                }
                                prop_assert!(!reserved, "a host lost a reserved place to another one");
                            }
                            model.0.remove(&victim);
                        }
                    }
                }
                let strangers = model.count(false, |_| true);
                prop_assert_eq!(strangers, table.held_by_strangers());
                prop_assert!(strangers <= LIMITS.total - LIMITS.reserved);
                prop_assert!(model.count(true, |_| true) <= LIMITS.reserved);
                for (ip, pool) in model.0.values() {
                    prop_assert!(model.beside(*pool, *ip, 2) <= LIMITS.per_address);
                }
            }
            for place in model.0.keys() {
                table.remove(*place);
            }
            prop_assert!(table.is_empty());
        }
    }

    #[test]
    fn networks_match_usual_allocations() {
        let of = |text: &str| networks(text.parse().unwrap());
        let same = |a: &str, b: &str| of(a).iter().zip(of(b)).filter(|(a, b)| **a == *b).count();
        assert_eq!(same("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::1"), 3);
        assert_eq!(same("2001:db8:1:2::1", "2001:db8:1:3::1"), 2);
        assert_eq!(same("2001:db8:1:200::1", "2001:db8:1:300::1"), 1);
        assert_eq!(same("2001:db8:1::1", "2001:db8:2::1"), 0);
        assert_eq!(same("192.0.2.1", "::ffff:192.0.2.1"), 3);
        assert_eq!(same("192.0.2.1", "192.0.2.2"), 1);
        assert_eq!(same("192.0.2.1", "192.0.3.1"), 0);
    }

    #[test]
    fn silent_connections_of_a_host_are_evicted_first() {
        let mut table = Table::new(&LIMITS);
        let ip: IpAddr = "192.0.2.1".parse().unwrap();
        let places: Vec<Place> = (0..5).map(|_| table.admit(ip, false).place).collect();
        table.spoke(places[0]);
        assert_eq!(table.admit(ip, false).evicted, [places[1]]);
    }
}
