//! Floods from both sides, and random operations.

use std::collections::HashSet;

use super::*;
use crate::udp::limits::Budget;
use proptest::prelude::*;

fn address(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddr::from(([45, a, b, c], 1000))
}

fn policy(text: &str) -> EgressPolicy {
    EgressPolicy::new(text.split_terminator(';').map(|rule| rule.parse().unwrap()))
}

#[test]
fn a_call_survives_100_000_other_remotes() {
    let budget = Budget::new(1 << 20);
    let mut account = Account::new(&budget);
    let (mut remotes, policy) = (Remotes::new(1000, 100), policy("allow *"));
    let mut now = Instant::now();
    let call = SocketAddr::from(([198, 51, 100, 7], 5004));
    let target = Target::from(call);
    for number in 0..100_000 {
        now += Duration::from_millis(1);
        let other = address(number);
        let (allow, hear) = (Outbound::Allowed, Inbound::Solicited(&target));
        let sent = remotes.outbound(other, &other.into(), &policy, &mut account, now);
        assert_eq!(sent, allow);
        if number % 20 == 0 {
            let sent = remotes.outbound(call, &target, &policy, &mut account, now);
            assert_eq!(sent, allow);
            assert_eq!(remotes.inbound(call, &policy, &mut account, now), hear);
        }
        assert!(remotes.solicited.len() <= 1000 && budget.used() <= 1 << 20);
    }
}

#[test]
fn a_flood_of_strangers_neither_grows_nor_displaces_anything() {
    let budget = Budget::new(1 << 20);
    let mut account = Account::new(&budget);
    let (mut remotes, policy) = (Remotes::new(10, 100), policy("allow *"));
    let now = Instant::now();
    let own: Vec<SocketAddr> = (0..10).map(address).collect();
    for address in &own {
        let target = Target::from(*address);
        remotes.outbound(*address, &target, &policy, &mut account, now);
    }
    let mut passed = 0;
    for number in 1000..101_000 {
        match remotes.inbound(address(number), &policy, &mut account, now) {
            Inbound::Unsolicited(_) => passed += 1,
            other => assert_eq!(other, Inbound::Full),
        }
    }
    assert_eq!((passed, entries(&remotes)), (100, 110));
    for address in &own {
        let heard = remotes.inbound(*address, &policy, &mut account, now);
        assert!(matches!(heard, Inbound::Solicited(_)));
    }
    // A known stranger still passes, and a silent one makes room.
    let heard = remotes.inbound(address(1000), &policy, &mut account, now);
    assert!(matches!(heard, Inbound::Unsolicited(_)));
    let later = now + UNSOLICITED_LIFETIME;
    let heard = remotes.inbound(address(200_000), &policy, &mut account, later);
    assert!(matches!(heard, Inbound::Unsolicited(_)));
    assert_eq!(entries(&remotes), 110);
}

fn entries(remotes: &Remotes) -> usize {
    remotes.solicited.len() + remotes.unsolicited.len()
}

#[test]
fn a_refused_remote_is_reported_at_intervals() {
    let budget = Budget::new(1 << 20);
    let mut account = Account::new(&budget);
    let (mut remotes, policy) = (Remotes::new(10, 10), policy("deny *"));
    let now = Instant::now();
    let mut report = |number, now| {
        let (address, target) = (address(number), address(number).into());
        match remotes.outbound(address, &target, &policy, &mut account, now) {
            Outbound::Refused { report } => report,
            other => panic!("{other:?}"),
        }
    };
    assert!(report(1, now) && report(2, now) && !report(1, now));
    let later = now + REPORT_PAUSE;
    assert!(report(1, later) && !report(1, later));
    for number in 0..100_000 {
        report(number, later);
    }
    assert!(remotes.refused.len() <= MAX_REFUSED);
    assert_eq!(budget.used(), 0);
}

#[derive(Clone, Debug)]
enum Operation {
    Send(u32, bool),
    Hear(u32),
    Policy(bool),
    Wait(u64),
}

fn operation() -> impl Strategy<Value = Operation> {
    let number = 0..30u32;
    prop_oneof![
        4 => (number.clone(), any::<bool>()).prop_map(|(n, named)| Operation::Send(n, named)),
        4 => number.prop_map(Operation::Hear),
        1 => any::<bool>().prop_map(Operation::Policy),
        1 => (0..40_000u64).prop_map(Operation::Wait),
    ]
}

proptest! {
    #[test]
    fn the_policy_holds_limits_hold_and_memory_is_accounted(
        operations in proptest::collection::vec(operation(), 0..300),
        memory in prop_oneof![Just(usize::MAX), 0..4000usize],
    ) {
        let budget = Budget::new(memory);
        let mut account = Account::new(&budget);
        let mut remotes = Remotes::new(8, 4);
        let mut now = Instant::now();
        let policies = [policy("deny 45.0.0.0/30;allow *"), policy("allow *")];
        let mut rules = &policies[0];
        let is_allowed = |rules: &EgressPolicy, remote: SocketAddr| {
            rules.check(remote.ip(), remote.port()).is_ok()
        };
        for operation in operations {
            match operation {
                Operation::Send(number, is_named) => {
                    let remote = address(number);
                    let target = match is_named {
                        true => Target::new(&format!("host-{number}"), 1000).unwrap(),
                        false => remote.into(),
                    };
                    let sent = remotes.outbound(remote, &target, rules, &mut account, now);
                    match sent {
                        Outbound::Allowed => {
                            prop_assert!(is_allowed(rules, remote));
                            prop_assert_eq!(remotes.target(&remote), Some(&target));
                        }
                        Outbound::Refused { .. } => prop_assert!(!is_allowed(rules, remote)),
                        Outbound::Full => prop_assert!(memory < usize::MAX),
                    }
                }
                Operation::Hear(number) => {
                    let remote = address(number);
                    let known = remotes.target(&remote).cloned();
                    match remotes.inbound(remote, rules, &mut account, now) {
                        Inbound::Solicited(target) => {
                            prop_assert_eq!(Some(target), known.as_ref());
                            prop_assert!(is_allowed(rules, remote));
                        }
                        Inbound::Unsolicited(target) => {
                            prop_assert_eq!(target, &Target::from(remote));
                            prop_assert_eq!(known, None);
                            prop_assert!(is_allowed(rules, remote));
                        }
                        Inbound::Refused => prop_assert!(!is_allowed(rules, remote)),
                        Inbound::Full => prop_assert_eq!(known, None),
                    }
                }
                Operation::Policy(wide) => {
                    rules = &policies[usize::from(wide)];
                    remotes.policy_changed();
                }
                Operation::Wait(millis) => now += Duration::from_millis(millis),
            }
            prop_assert!(remotes.solicited.len() <= 8 && remotes.unsolicited.len() <= 4);
            let solicited: HashSet<_> = remotes.solicited.iter().map(|(a, _)| *a).collect();
            prop_assert!(remotes.unsolicited.iter().all(|(a, _)| !solicited.contains(a)));
            let entries = remotes.solicited.iter().chain(remotes.unsolicited.iter());
            let held: usize = entries.map(|(_, remote)| cost(&remote.target)).sum();
            prop_assert_eq!(budget.used(), held);
        }
        drop(account);
        prop_assert_eq!(budget.used(), 0);
    }
}
