use proptest::prelude::*;

use super::*;

const SYN: Flags = Flags {
    syn: true,
    ack: false,
    fin: false,
    rst: false,
};
const ACK: Flags = Flags {
    syn: false,
    ack: true,
    fin: false,
    rst: false,
};
const FIN: Flags = Flags { fin: true, ..ACK };
const RST: Flags = Flags { rst: true, ..ACK };

fn flow(port: u16) -> Flow {
    Flow {
        source: SocketAddr::from(([10, 0, 0, 1], port)),
        destination: SocketAddr::from(([203, 0, 113, 7], 443)),
    }
}

fn nat(most: usize) -> Nat<u16> {
    let peers = |last: u8| IpAddr::from([198, 18, 74, last]);
    Nat::new(vec![peers(2), peers(3)], Vec::new(), most)
}

/// A connection that is relayed.
fn open(nat: &mut Nat<u16>, port: u16, now: Instant) -> (u64, SocketAddr) {
    assert_eq!(nat.outbound(&flow(port), SYN, now), Verdict::New);
    let number = nat.insert(flow(port), port, now).unwrap();
    let peer = nat.connecting(&flow(port), number).unwrap();
    assert_eq!(nat.accepted(peer), Some((flow(port), port)));
    (number, peer)
}

#[test]
fn a_connection_lives_from_its_first_segment_until_a_while_after_its_end() {
    let (mut nat, now) = (nat(9), Instant::now());
    let (number, peer) = open(&mut nat, 5, now);
    assert_eq!(nat.outbound(&flow(5), ACK, now), Verdict::Pass(peer));
    assert_eq!(nat.inbound(peer, FIN, now), Some(flow(5)));
    assert_eq!(nat.outbound(&flow(5), FIN, now), Verdict::Pass(peer));
    nat.ended(&flow(5), number, now);
    nat.expire(now + CLOSED - Duration::from_millis(1));
    assert_eq!(nat.outbound(&flow(5), ACK, now), Verdict::Pass(peer));
    nat.expire(now + CLOSED);
    assert_eq!(nat.outbound(&flow(5), ACK, now), Verdict::Unknown);
    assert!(nat.is_empty() && nat.by_peer.is_empty());
}

#[test]
fn a_half_closed_connection_is_kept_longer_and_while_it_has_traffic() {
    let (mut nat, now) = (nat(9), Instant::now());
    let (number, peer) = open(&mut nat, 5, now);
    nat.inbound(peer, FIN, now);
    nat.ended(&flow(5), number, now);
    let late = now + CLOSED * 2;
    nat.expire(late);
    assert_eq!(nat.outbound(&flow(5), ACK, late), Verdict::Pass(peer));
    nat.expire(now + HALF_CLOSED);
    assert_eq!(nat.len(), 1);
    nat.expire(late + HALF_CLOSED);
    assert!(nat.is_empty());
}

#[test]
fn the_first_segment_is_kept_back_until_the_target_has_answered() {
    let (mut nat, now) = (nat(9), Instant::now());
    let number = nat.insert(flow(5), 5, now).unwrap();
    assert_eq!(nat.outbound(&flow(5), SYN, now), Verdict::Repeated);
    assert_eq!(nat.outbound(&flow(5), ACK, now), Verdict::Unknown);
    let peer = nat.by_peer.keys().copied().next().unwrap();
    assert_eq!(nat.accepted(peer), None);
    assert_eq!(nat.opening(&flow(5), number), Some(&mut 5));
    assert_eq!(nat.connecting(&flow(5), number), Some(peer));
    assert_eq!(nat.outbound(&flow(5), SYN, now), Verdict::Pass(peer));
}

#[test]
fn a_program_that_gives_up_leaves_nothing() {
    let (mut nat, now) = (nat(9), Instant::now());
    nat.insert(flow(5), 5, now).unwrap();
    assert_eq!(nat.outbound(&flow(5), RST, now), Verdict::Canceled);
    let number = nat.insert(flow(6), 6, now).unwrap();
    let peer = nat.connecting(&flow(6), number).unwrap();
    assert_eq!(nat.outbound(&flow(6), RST, now), Verdict::Pass(peer));
    assert!(nat.is_empty() && nat.by_peer.is_empty());
}

#[test]
fn a_port_that_is_used_again_gets_another_peer() {
    let (mut nat, now) = (nat(9), Instant::now());
    let (number, peer) = open(&mut nat, 5, now);
    nat.ended(&flow(5), number, now);
    assert_eq!(nat.outbound(&flow(5), SYN, now), Verdict::New);
    let (_, again) = open(&mut nat, 5, now);
    assert_ne!(peer, again);
    // The end of the first one says nothing about the second.
    nat.ended(&flow(5), number, now);
    nat.refused(&flow(5), number);
    nat.expire(now + HALF_CLOSED * 9);
    assert_eq!(nat.outbound(&flow(5), ACK, now), Verdict::Pass(again));
}

#[test]
fn a_port_can_be_used_again_before_the_relay_has_noticed_the_end() {
    let (mut nat, now) = (nat(9), Instant::now());
    let (number, peer) = open(&mut nat, 5, now);
    // A repeated first segment, or one of a host that has restarted: the kernel challenges it.
    assert_eq!(nat.outbound(&flow(5), SYN, now), Verdict::Pass(peer));
    assert_eq!(nat.outbound(&flow(5), RST, now), Verdict::Pass(peer));
    let (_, again) = open(&mut nat, 5, now);
    assert_ne!(peer, again);
    nat.ended(&flow(5), number, now);
    assert_eq!(nat.outbound(&flow(5), ACK, now), Verdict::Pass(again));
    assert_eq!(nat.inbound(peer, ACK, now), None);
    nat.outbound(&flow(5), FIN, now);
    nat.inbound(again, FIN, now);
    assert_eq!(nat.outbound(&flow(5), SYN, now), Verdict::New);
}

#[test]
fn a_full_table_forgets_closed_connections_only() {
    let (mut nat, now) = (nat(2), Instant::now());
    let (number, _) = open(&mut nat, 1, now);
    open(&mut nat, 2, now);
    assert_eq!(nat.insert(flow(3), 3, now), None);
    nat.ended(&flow(1), number, now);
    assert!(nat.insert(flow(3), 3, now).is_some());
    assert_eq!(nat.outbound(&flow(1), ACK, now), Verdict::Unknown);
}

#[test]
fn all_ports_of_all_addresses_are_used_before_one_comes_again() {
    let mut peers = Peers::new(vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()]);
    let first = peers.free(0, |_| true).unwrap();
    let all = 2 * (usize::from(u16::MAX - FIRST_PORT) + 1);
    for _ in 1..all {
        assert_ne!(peers.free(0, |_| true), Some(first));
    }
    assert_eq!(peers.free(0, |_| true), Some(first));
    assert_eq!(peers.free(9, |_| false), None);
}

#[derive(Clone, Debug)]
enum Step {
    Outbound(u16, u8),
    Inbound(u16, u8),
    Answered(u16),
    Refused(u16),
    Accepted(u16),
    Ended(u16),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let port = 0..6u16;
    prop_oneof![
        4 => (port.clone(), 0..16u8).prop_map(|(port, flags)| Step::Outbound(port, flags)),
        2 => (port.clone(), 0..16u8).prop_map(|(port, flags)| Step::Inbound(port, flags)),
        3 => port.clone().prop_map(Step::Answered),
        1 => port.clone().prop_map(Step::Refused),
        3 => port.clone().prop_map(Step::Accepted),
        2 => port.prop_map(Step::Ended),
        1 => (0..100u64).prop_map(Step::Wait),
    ]
}

fn flags(bits: u8) -> Flags {
    Flags {
        syn: bits & 1 != 0,
        ack: bits & 2 != 0,
        fin: bits & 4 != 0,
        rst: bits & 8 != 0,
    }
}

proptest! {
    #[test]
    fn flows_and_peers_stay_one_to_one(steps in proptest::collection::vec(step(), 0..200)) {
        let most = 4;
        let (mut nat, mut now) = (nat(most), Instant::now());
        // The number of each port's last connection.
        let mut numbers: HashMap<u16, u64> = HashMap::new();
        for step in steps {
            let peer = |nat: &Nat<u16>, port| nat.entries.get(&flow(port)).map(|entry| entry.peer);
            match step {
                Step::Outbound(port, bits) => {
                    let before = peer(&nat, port);
                    match nat.outbound(&flow(port), flags(bits), now) {
                        Verdict::New => {
                            prop_assert!(peer(&nat, port).is_none());
                            if let Some(number) = nat.insert(flow(port), port, now) {
                                numbers.insert(port, number);
                            }
                        }
                        Verdict::Pass(to) => prop_assert_eq!(Some(to), before),
                        _ => {}
                    }
                }
                Step::Inbound(port, bits) => {
                    if let Some(peer) = peer(&nat, port) {
                        let found = nat.inbound(peer, flags(bits), now);
                        prop_assert_eq!(found, Some(flow(port)));
                    }
                }
                Step::Answered(port) => {
                    if let Some(number) = numbers.get(&port)
                        && nat.opening(&flow(port), *number).is_some()
                    {
                        prop_assert!(nat.connecting(&flow(port), *number).is_some());
                    }
                }
                Step::Refused(port) => {
                    if let Some(number) = numbers.get(&port)
                        && nat.opening(&flow(port), *number).is_some()
                    {
                        nat.refused(&flow(port), *number);
                        prop_assert!(peer(&nat, port).is_none());
                    }
                }
                Step::Accepted(port) => {
                    if let Some(peer) = peer(&nat, port)
                        && let Some((found, data)) = nat.accepted(peer)
                    {
                        prop_assert_eq!((found, data), (flow(port), port));
                        prop_assert!(nat.accepted(peer).is_none());
                    }
                }
                Step::Ended(port) => {
                    if let Some(number) = numbers.get(&port) {
                        nat.ended(&flow(port), *number, now);
                    }
                }
                Step::Wait(seconds) => {
                    now += Duration::from_secs(seconds);
                    nat.expire(now);
                }
            }
            prop_assert!(nat.len() <= most);
            prop_assert_eq!(nat.by_peer.len(), nat.entries.len());
            for (peer, flow) in &nat.by_peer {
                prop_assert_eq!(nat.entries[flow].peer, *peer);
            }
            let closing = nat.entries.values().filter(|e| matches!(e.state, State::Closing(_)));
            prop_assert_eq!(closing.count(), nat.closing.len());
        }
    }
}
