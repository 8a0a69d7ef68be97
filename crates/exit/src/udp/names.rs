//! The names to which a source sends, and the address of each.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tracing::debug;

use super::limits::Account;
use super::remotes::REMOTE_COST;
use crate::datagram::{Backlog, FlowFailure};
use crate::egress::EgressPolicy;
use crate::recent::Recent;
use crate::target::{MAX_NAME, Target};

/// Names of one source that are resolved at once.
const MAX_LOOK_UPS: usize = 64;

/// Pause after a failed lookup, in which datagrams to the name are dropped.
const FAILURE_PAUSE: Duration = Duration::from_secs(5);

/// Memory of a name in bytes: its entry, its place in an index and its text, twice.
const NAME_COST: usize = REMOTE_COST + 2 * MAX_NAME;

/// The names of one source. The name used least recently makes room for another.
#[derive(Debug)]
pub(super) struct Names {
    most: usize,
    entries: Recent<Target, Name>,
    /// Running lookups, including those for names that have been forgotten since.
    resolving: usize,
}

#[derive(Debug)]
enum Name {
    /// The lookup runs; these datagrams wait for it.
    Resolving(Backlog<Bytes>),
    /// The flow keeps this address, whatever else the name has or gets.
    Resolved(SocketAddr),
    /// No address; asked again after this time.
    Failed(Instant),
}

/// The fate of a datagram to a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// It is sent to this address.
    Resolved(SocketAddr, Bytes),
    /// It waits for the lookup that the caller starts now.
    LookUp,
    /// It waits for a lookup, or was dropped because the last one failed.
    Kept,
    /// There are too many lookups, or no memory is left.
    Full,
}

impl Names {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            entries: Recent::default(),
            resolving: 0,
        }
    }

    /// The client sends `payload` to `target`, a name.
    pub(super) fn outbound(
        &mut self,
        target: &Target,
        payload: Bytes,
        account: &mut Account,
        now: Instant,
    ) -> Named {
        match self.entries.touch(target) {
            Some(Name::Resolved(address)) => return Named::Resolved(*address, payload),
            Some(Name::Resolving(backlog)) => {
                if !account.charge(payload.len()) {
                    return Named::Full;
                }
                let length = payload.len();
                let freed = backlog.push(payload, length, now);
                account.release(freed);
                return Named::Kept;
            }
            Some(Name::Failed(until)) if now < *until => return Named::Kept,
            Some(Name::Failed(_)) => self.forget(target, account),
            None => {}
        }
        if self.resolving >= MAX_LOOK_UPS {
            return Named::Full;
        }
        if self.entries.len() >= self.most {
            self.forget_oldest(account);
        }
        while !account.charge(NAME_COST) {
            if !self.forget_oldest(account) {
                return Named::Full;
            }
        }
        let mut backlog = Backlog::default();
        if account.charge(payload.len()) {
            let length = payload.len();
            backlog.push(payload, length, now);
        }
        self.resolving += 1;
        self.entries
            .insert(target.clone(), Name::Resolving(backlog));
        Named::LookUp
    }

    /// A lookup has ended that [`Named::LookUp`] had requested. Returns the datagrams that are sent
    /// to its address.
    pub(super) fn resolved(
        &mut self,
        target: &Target,
        address: Option<SocketAddr>,
        account: &mut Account,
        now: Instant,
    ) -> Vec<Bytes> {
        self.resolving = self.resolving.saturating_sub(1);
        // A name that was forgotten in the meantime has no entry, or a newer one.
        let Some(entry @ Name::Resolving(_)) = self.entries.touch(target) else {
            return Vec::new();
        };
        let next = match address {
            Some(address) => Name::Resolved(address),
            None => Name::Failed(now + FAILURE_PAUSE),
        };
        let Name::Resolving(mut backlog) = std::mem::replace(entry, next) else {
            return Vec::new();
        };
        account.release(backlog.bytes());
        match address {
            Some(_) => backlog.take(now).collect(),
            None => Vec::new(),
        }
    }

    /// The policy refuses the name's address now. The name is resolved again later: another of its
    /// addresses may be allowed.
    pub(super) fn refused(&mut self, target: &Target, now: Instant) {
        if let Some(entry @ Name::Resolved(_)) = self.entries.touch(target) {
            *entry = Name::Failed(now + FAILURE_PAUSE);
        }
    }

    fn forget_oldest(&mut self, account: &mut Account) -> bool {
        let oldest = self.entries.oldest().map(|(target, _)| target.clone());
        if let Some(oldest) = &oldest {
            self.forget(oldest, account);
        }
        oldest.is_some()
    }

    fn forget(&mut self, target: &Target, account: &mut Account) {
        match self.entries.remove(target) {
            Some(Name::Resolving(backlog)) => account.release(NAME_COST + backlog.bytes()),
            Some(_) => account.release(NAME_COST),
            None => {}
        }
    }
}

/// The address for all datagrams of a flow: the first one that the policy allows and to which this
/// machine has a route, or else the first allowed one. The resolver has sorted them (RFC 6724).
pub(super) fn choose(
    target: &Target,
    addresses: Vec<SocketAddr>,
    policy: &EgressPolicy,
) -> Result<SocketAddr, FlowFailure> {
    let mut first = None;
    for address in addresses {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if let Err(why) = policy.check(address.ip(), address.port()) {
            debug!(%target, %address, %why, "egress policy refuses the address");
        } else if has_route(address) {
            return Ok(address);
        } else {
            first = first.or(Some(address));
        }
    }
    first.ok_or(FlowFailure::NotAllowed)
}

/// Whether the kernel finds a route. Sends nothing.
fn has_route(address: SocketAddr) -> bool {
    let any = match address {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
    };
    UdpSocket::bind(any)
        .and_then(|socket| socket.connect(address))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::limits::Budget;
    use proptest::prelude::*;

    fn name(number: usize) -> Target {
        Target::new(&format!("host-{number}.example"), 53).unwrap()
    }

    fn address() -> SocketAddr {
        "192.0.2.1:53".parse().unwrap()
    }

    #[test]
    fn a_name_is_looked_up_once_and_keeps_its_address() {
        let budget = Budget::new(1 << 20);
        let (mut account, mut names) = (Account::new(&budget), Names::new(10));
        let now = Instant::now();
        let one = Bytes::from_static(b"1");
        let mut send =
            |names: &mut Names, now| names.outbound(&name(1), one.clone(), &mut account, now);
        assert_eq!(send(&mut names, now), Named::LookUp);
        assert_eq!(send(&mut names, now), Named::Kept);
        let mut account = Account::new(&budget);
        account.charge(1 << 10);
        let waiting = names.resolved(&name(1), Some(address()), &mut account, now);
        assert_eq!(waiting.len(), 2);
        // A late answer of a forgotten lookup changes nothing.
        let other = Some("192.0.2.2:53".parse().unwrap());
        assert!(
            names
                .resolved(&name(1), other, &mut account, now)
                .is_empty()
        );
        let sent = names.outbound(&name(1), one.clone(), &mut account, now);
        assert_eq!(sent, Named::Resolved(address(), one.clone()));
        // A refused name is asked again after a pause.
        names.refused(&name(1), now);
        let mut send = |now| names.outbound(&name(1), one.clone(), &mut account, now);
        assert_eq!(send(now), Named::Kept);
        assert_eq!(send(now + FAILURE_PAUSE), Named::LookUp);
    }

    #[test]
    fn a_forgotten_name_does_not_free_its_lookup() {
        let budget = Budget::new(1 << 20);
        let (mut account, mut names) = (Account::new(&budget), Names::new(1));
        let now = Instant::now();
        let mut started = 0;
        for number in 0..1000 {
            match names.outbound(&name(number), Bytes::new(), &mut account, now) {
                Named::LookUp => started += 1,
                other => assert_eq!(other, Named::Full),
            }
        }
        assert_eq!(started, MAX_LOOK_UPS);
        assert!(names.resolved(&name(0), None, &mut account, now).is_empty());
        let sent = names.outbound(&name(2000), Bytes::new(), &mut account, now);
        assert_eq!(sent, Named::LookUp);
    }

    #[test]
    fn the_first_allowed_address_with_a_route_is_chosen() {
        let policy = EgressPolicy::new(
            ["allow 127.0.0.0/8", "allow 255.255.255.255"].map(|rule| rule.parse().unwrap()),
        );
        let choose = |addresses: &[&str]| {
            let addresses = addresses.iter().map(|text| text.parse().unwrap());
            choose(&name(1), addresses.collect(), &policy)
        };
        let found = choose(&[
            "10.0.0.1:9",
            "255.255.255.255:9",
            "127.0.0.1:9",
            "127.0.0.2:9",
        ]);
        assert_eq!(found, Ok("127.0.0.1:9".parse().unwrap()));
        let found = choose(&["255.255.255.255:9"]);
        assert_eq!(found, Ok("255.255.255.255:9".parse().unwrap()));
        assert_eq!(choose(&["10.0.0.1:9"]), Err(FlowFailure::NotAllowed));
        assert_eq!(
            choose(&["[::ffff:127.0.0.1]:9"]),
            Ok("127.0.0.1:9".parse().unwrap())
        );
    }

    proptest! {
        #[test]
        fn names_lookups_and_memory_are_bounded(
            steps in proptest::collection::vec((0..200usize, 0..4u8, 0..6000u64), 0..400),
            memory in prop_oneof![Just(1usize << 24), 0..20_000usize],
        ) {
            let budget = Budget::new(memory);
            let (mut account, mut names) = (Account::new(&budget), Names::new(50));
            let mut now = Instant::now();
            let mut running = Vec::new();
            for (number, action, wait) in steps {
                match action {
                    0 if !running.is_empty() => {
                        let found = (number % 3 > 0).then(address);
                        let target = running.swap_remove(number % running.len());
                        names.resolved(&target, found, &mut account, now);
                    }
                    1 => names.refused(&name(number), now),
                    _ => {
                        let payload = Bytes::from(vec![0; number * 10]);
                        let sent = names.outbound(&name(number), payload, &mut account, now);
                        match sent {
                            Named::Resolved(to, _) => prop_assert_eq!(to, address()),
                            Named::LookUp => running.push(name(number)),
                            Named::Kept | Named::Full => {}
                        }
                    }
                }
                now += Duration::from_millis(wait);
                prop_assert!(names.entries.len() <= 50 && names.resolving <= MAX_LOOK_UPS);
                let resolving = names.entries.iter().filter_map(|(_, name)| match name {
                    Name::Resolving(backlog) => Some(backlog.bytes()),
                    _ => None,
                });
                let waiting: Vec<usize> = resolving.collect();
                prop_assert_eq!(running.len(), names.resolving);
                prop_assert!(waiting.len() <= running.len());
                let held = names.entries.len() * NAME_COST + waiting.iter().sum::<usize>();
                prop_assert_eq!(budget.used(), held);
            }
        }
    }
}
