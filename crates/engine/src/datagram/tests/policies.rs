//! What each policy promises.

use std::time::Duration;

use super::model::{CLIENT, Link, MS, Pair, SERVER, Traffic};
use crate::datagram::{DatagramPolicy, FlowConfig, FlowId};
use crate::policy::{PathPolicy, Priority};
use crate::{Class, PathId};

const A: PathId = PathId(0);
const B: PathId = PathId(1);

/// The two links of the call bars.
fn two_links() -> [Link; 2] {
    [Link::new(50.0, 20), Link::new(50.0, 30)]
}

fn open(pair: &mut Pair, policy: DatagramPolicy, class: Option<Class>) -> FlowId {
    let config = FlowConfig {
        source: 1,
        target: b"\x01\xc0\x00\x02\x07\x13\x88".to_vec(),
        class,
        policy,
    };
    pair.sides[CLIENT].open_flow(config, pair.now).unwrap()
}

fn policy_of(pair: &Pair, side: usize, flow: FlowId) -> (DatagramPolicy, String) {
    let stats = pair.sides[side].flow_stats().find(|stats| stats.id == flow);
    let stats = stats.unwrap();
    (stats.policy, stats.reason)
}

/// Speech: 50 datagrams of 200 bytes a second in both directions.
fn call(flow: FlowId) -> [Traffic; 2] {
    [CLIENT, SERVER].map(|side| Traffic::new(side, flow, 200, 20 * MS))
}

#[test]
fn a_call_survives_the_death_of_a_link_without_a_long_gap() {
    for policy in [DatagramPolicy::Auto, DatagramPolicy::Pinned] {
        let mut pair = Pair::new(&two_links());
        let flow = open(&mut pair, policy, Some(Class::Conversational));
        let mut traffic = call(flow);
        pair.drive(&mut traffic, 3000 * MS);
        pair.blackhole(A, 5000 * MS);
        pair.drive(&mut traffic, 5000 * MS);
        pair.drive(&mut traffic, 5000 * MS);
        pair.run(500 * MS);
        for one in &traffic {
            let gap = one.longest_gap(&pair);
            assert!(gap <= 150 * MS, "{policy:?} {gap:?}");
            assert!(one.is_exactly_once(&pair));
            assert!(one.lost(&pair) <= 1, "{policy:?} {}", one.lost(&pair));
        }
    }
}

#[test]
fn duplicate_loses_nothing_to_the_death_of_a_link() {
    let mut pair = Pair::new(&two_links());
    let flow = open(&mut pair, DatagramPolicy::Duplicate, None);
    let mut traffic = [Traffic::new(CLIENT, flow, 200, 20 * MS)];
    pair.drive(&mut traffic, 2000 * MS);
    pair.blackhole(A, 5000 * MS);
    pair.drive(&mut traffic, 8000 * MS);
    pair.run(500 * MS);
    let [traffic] = traffic;
    assert_eq!(traffic.lost(&pair), 0);
    assert!(traffic.is_exactly_once(&pair));
    let gap = traffic.longest_gap(&pair);
    assert!(gap <= 31 * MS, "{gap:?}");
    let (policy, reason) = policy_of(&pair, CLIENT, flow);
    assert_eq!(policy, DatagramPolicy::Duplicate);
    assert!(reason.contains("paths 0 and 1"), "{reason}");
}

#[test]
fn a_pinned_flow_comes_back_after_its_path_has_proved_itself() {
    let mut pair = Pair::new(&two_links());
    let flow = open(&mut pair, DatagramPolicy::Pinned, Some(Class::Interactive));
    let mut traffic = [Traffic::new(CLIENT, flow, 400, 10 * MS)];
    let path = |pair: &Pair| pair.sides[CLIENT].flow_stats().next().unwrap().paths[0];
    pair.drive(&mut traffic, 1000 * MS);
    assert_eq!(path(&pair), A);
    pair.blackhole(A, 500 * MS);
    pair.drive(&mut traffic, 500 * MS);
    assert_eq!(path(&pair), B);
    pair.drive(&mut traffic, 1000 * MS);
    assert_eq!(path(&pair), B, "not at once");
    let (_, reason) = policy_of(&pair, CLIENT, flow);
    assert!(reason.contains("path 0 did not deliver"), "{reason}");
    pair.drive(&mut traffic, 4000 * MS);
    assert_eq!(path(&pair), A);
    pair.run(500 * MS);
    let [traffic] = traffic;
    assert_eq!(traffic.lost(&pair), 0, "the lost ones were rescued");
    assert!(traffic.is_exactly_once(&pair));
}

#[test]
fn spread_adds_two_unequal_links_in_order_and_without_loss() {
    let links = [Link::new(40.0, 10), Link::new(20.0, 30)];
    for policy in [DatagramPolicy::Spread, DatagramPolicy::Auto] {
        let mut pair = Pair::new(&links);
        let flow = open(&mut pair, policy, Some(Class::Background));
        // 1,250 bytes at 55 Mbit/s.
        let every = Duration::from_secs_f64(1250.0 * 8.0 / 55e6);
        let mut traffic = [Traffic::new(CLIENT, flow, 1250, every)];
        pair.drive(&mut traffic, 3000 * MS);
        let (used, reason) = policy_of(&pair, CLIENT, flow);
        assert_eq!(used, DatagramPolicy::Spread, "{reason}");
        pair.run(500 * MS);
        let [traffic] = traffic;
        assert_eq!(traffic.lost(&pair), 0, "{policy:?}");
        assert!(
            traffic.is_exactly_once(&pair) && traffic.is_in_order(&pair),
            "{policy:?}"
        );
        let delay = traffic.highest_delay(&pair);
        assert!(delay <= 60 * MS, "{policy:?} {delay:?}");
    }
}

#[test]
fn spread_repairs_lost_datagrams_in_order() {
    let mut links = [Link::new(40.0, 10), Link::new(20.0, 30)];
    links.iter_mut().for_each(|link| link.loss = 0.01);
    let mut pair = Pair::new(&links);
    let flow = open(&mut pair, DatagramPolicy::Spread, Some(Class::Background));
    let every = Duration::from_secs_f64(1250.0 * 8.0 / 50e6);
    let mut traffic = [Traffic::new(CLIENT, flow, 1250, every)];
    pair.drive(&mut traffic, 3000 * MS);
    pair.run(500 * MS);
    let [traffic] = traffic;
    let lost = traffic.lost(&pair) as f64 / traffic.sent.len() as f64;
    assert!(lost < 0.0005, "{lost}");
    assert!(traffic.is_in_order(&pair) && traffic.is_exactly_once(&pair));
    let delay = traffic.highest_delay(&pair);
    assert!(delay <= 220 * MS, "{delay:?}");
}

#[test]
fn spread_gives_up_a_datagram_when_no_repair_can_come() {
    let mut pair = Pair::new(&[Link::new(40.0, 10), Link::new(20.0, 30)]);
    let flow = open(&mut pair, DatagramPolicy::Spread, Some(Class::Background));
    let every = Duration::from_secs_f64(1250.0 * 8.0 / 50e6);
    let mut traffic = [Traffic::new(CLIENT, flow, 1250, every)];
    pair.drive(&mut traffic, 1000 * MS);
    for path in [A, B] {
        pair.change(path, |link| link.loss = 0.8);
    }
    pair.drive(&mut traffic, 500 * MS);
    for path in [A, B] {
        pair.change(path, |link| link.loss = 0.0);
    }
    pair.drive(&mut traffic, 1500 * MS);
    pair.run(1000 * MS);
    let [traffic] = traffic;
    assert!(traffic.lost(&pair) > 0);
    assert!(traffic.is_exactly_once(&pair));
    let delay = traffic.highest_delay(&pair);
    assert!(delay <= 900 * MS, "{delay:?}");
}

#[test]
fn a_flow_that_fits_its_path_is_not_spread() {
    let links = [Link::new(40.0, 10), Link::new(20.0, 30)];
    let mut pair = Pair::new(&links);
    let flow = open(&mut pair, DatagramPolicy::Auto, Some(Class::Background));
    let every = Duration::from_secs_f64(1250.0 * 8.0 / 30e6);
    let mut traffic = [Traffic::new(CLIENT, flow, 1250, every)];
    pair.drive(&mut traffic, 1000 * MS);
    pair.run(200 * MS);
    let (used, reason) = policy_of(&pair, CLIENT, flow);
    assert_eq!(used, DatagramPolicy::Pinned, "{reason}");
    let [traffic] = traffic;
    assert!(traffic.highest_delay(&pair) <= 15 * MS);
    assert_eq!(traffic.lost(&pair), 0);
}

#[test]
fn a_spread_flow_is_pinned_again_once_one_path_suffices() {
    let links = [Link::new(40.0, 10), Link::new(20.0, 30)];
    let mut pair = Pair::new(&links);
    let flow = open(&mut pair, DatagramPolicy::Auto, Some(Class::Background));
    let fast = Duration::from_secs_f64(1250.0 * 8.0 / 55e6);
    let mut traffic = [Traffic::new(CLIENT, flow, 1250, fast)];
    pair.drive(&mut traffic, 500 * MS);
    assert_eq!(policy_of(&pair, CLIENT, flow).0, DatagramPolicy::Spread);
    traffic[0].every = 2 * fast;
    pair.drive(&mut traffic, 1500 * MS);
    assert_eq!(policy_of(&pair, CLIENT, flow).0, DatagramPolicy::Pinned);
}

#[test]
fn a_learned_call_is_duplicated_but_not_over_metered_links() {
    for metered in [false, true] {
        let mut pair = Pair::new(&two_links());
        let policy = PathPolicy {
            metered,
            ..PathPolicy::default()
        };
        for side in [CLIENT, SERVER] {
            let now = pair.clock(side);
            pair.sides[side].datagram_path_policy(B, policy, now);
        }
        let flow = open(&mut pair, DatagramPolicy::Auto, None);
        let mut traffic = call(flow);
        pair.drive(&mut traffic, 5000 * MS);
        for side in [CLIENT, SERVER] {
            let (used, reason) = policy_of(&pair, side, flow);
            match metered {
                false => assert_eq!(used, DatagramPolicy::Duplicate, "{reason}"),
                true => {
                    assert_eq!(used, DatagramPolicy::Pinned, "{reason}");
                    assert!(reason.contains("metered"), "{reason}");
                }
            }
        }
    }
}

#[test]
fn copies_of_a_call_stay_within_the_budget() {
    let mut pair = Pair::new(&two_links());
    let flow = open(&mut pair, DatagramPolicy::Auto, Some(Class::Conversational));
    // 800 kbit/s of "speech".
    let mut traffic = [Traffic::new(CLIENT, flow, 1000, 10 * MS)];
    pair.drive(&mut traffic, 5000 * MS);
    let paths = pair.sides[CLIENT].datagram_path_stats_all(pair.now);
    let copies = paths[1].bytes_sent;
    assert!((100_000..230_000).contains(&copies), "{copies}");
}

#[test]
fn backup_and_never_paths_carry_nothing_while_another_delivers() {
    let mut pair = Pair::new(&[Link::new(50.0, 40), Link::new(50.0, 10), Link::new(50.0, 5)]);
    for (path, priority) in [(1, Priority::Backup), (2, Priority::Never)] {
        let policy = PathPolicy {
            priority,
            ..PathPolicy::default()
        };
        pair.sides[CLIENT].datagram_path_policy(PathId(path), policy, pair.now);
    }
    let flow = open(&mut pair, DatagramPolicy::Spread, Some(Class::Interactive));
    let mut traffic = [Traffic::new(CLIENT, flow, 1000, 5 * MS)];
    pair.drive(&mut traffic, 1000 * MS);
    let data = |pair: &Pair, path: usize| {
        let stats = pair.sides[CLIENT].datagram_path_stats_all(pair.now);
        stats[path].bytes_sent > 50_000
    };
    assert_eq!(
        [0, 1, 2].map(|path| data(&pair, path)),
        [true, false, false]
    );
    pair.blackhole(PathId(0), 10_000 * MS);
    pair.drive(&mut traffic, 2000 * MS);
    assert_eq!([0, 1, 2].map(|path| data(&pair, path)), [true, true, false]);
    pair.run(500 * MS);
    assert_eq!(
        traffic[0].lost(&pair),
        0,
        "the interactive flow was rescued"
    );
}

#[test]
fn a_dead_return_direction_does_not_stop_the_other_one() {
    let mut pair = Pair::new(&two_links());
    let flow = open(&mut pair, DatagramPolicy::Pinned, Some(Class::Interactive));
    let mut traffic = [Traffic::new(CLIENT, flow, 400, 10 * MS)];
    pair.drive(&mut traffic, 1000 * MS);
    pair.blackhole_way(SERVER, A, 3000 * MS);
    pair.drive(&mut traffic, 3000 * MS);
    pair.run(500 * MS);
    assert_eq!(traffic[0].lost(&pair), 0);
    let gap = traffic[0].longest_gap(&pair);
    assert!(gap <= 30 * MS, "{gap:?}");
}

#[test]
fn flows_of_a_path_that_ends_continue_on_another() {
    let mut pair = Pair::new(&two_links());
    let flow = open(&mut pair, DatagramPolicy::Pinned, Some(Class::Interactive));
    let mut traffic = [Traffic::new(CLIENT, flow, 400, 10 * MS)];
    pair.drive(&mut traffic, 1000 * MS);
    pair.path_down(A);
    pair.drive(&mut traffic, 1000 * MS);
    pair.run(500 * MS);
    assert_eq!(traffic[0].lost(&pair), 0);
    assert!(traffic[0].is_exactly_once(&pair));
    assert!(traffic[0].longest_gap(&pair) <= 60 * MS);
}

#[test]
fn a_game_has_the_delay_of_the_best_link() {
    let mut pair = Pair::new(&[Link::new(50.0, 10), Link::new(50.0, 30)]);
    let flow = open(&mut pair, DatagramPolicy::Auto, None);
    let mut traffic = [CLIENT, SERVER].map(|side| Traffic::new(side, flow, 120, 16 * MS));
    pair.drive(&mut traffic, 5000 * MS);
    pair.run(100 * MS);
    for one in &traffic {
        assert!(
            one.highest_delay(&pair) <= 11 * MS,
            "{:?}",
            one.highest_delay(&pair)
        );
        assert_eq!(one.lost(&pair), 0);
    }
}

#[test]
fn a_flow_that_is_not_spread_any_more_waits_for_no_repair() {
    let mut pair = Pair::new(&[Link::new(80.0, 10), Link::new(20.0, 30)]);
    let flow = open(&mut pair, DatagramPolicy::Spread, Some(Class::Streaming));
    // 40 Mbit/s in 20,000 datagrams a second: with 1 % loss, some repair is always awaited.
    let every = Duration::from_micros(50);
    let mut traffic = [Traffic::new(CLIENT, flow, 250, every)];
    pair.change(A, |link| link.loss = 0.01);
    pair.drive(&mut traffic, 1000 * MS);
    pair.path_down(B);
    pair.drive(&mut traffic, 4000 * MS);
    let mut late = [Traffic::new(CLIENT, flow, 250, every)];
    let before = pair.count(SERVER);
    pair.drive(&mut late, 500 * MS);
    let arrived = &pair.arrived[SERVER][before..];
    assert!(arrived.len() > 9000, "{}", arrived.len());
    let stats = pair.sides[SERVER].datagram_stats();
    assert_eq!(stats.reorder_bytes, 0, "nothing waits");
}

#[test]
fn flows_work_again_after_thirty_seconds_without_links() {
    let mut pair = Pair::new(&two_links());
    let call = open(&mut pair, DatagramPolicy::Auto, Some(Class::Conversational));
    let bulk = open(&mut pair, DatagramPolicy::Auto, Some(Class::Background));
    let mut traffic = [
        Traffic::new(CLIENT, call, 200, 20 * MS),
        Traffic::new(SERVER, call, 200, 20 * MS),
        Traffic::new(CLIENT, bulk, 1250, MS),
    ];
    pair.drive(&mut traffic, 1000 * MS);
    for path in [A, B] {
        pair.blackhole(path, 30_000 * MS);
    }
    pair.drive(&mut traffic, 30_000 * MS);
    for side in [CLIENT, SERVER] {
        let stats = pair.sides[side].datagram_stats();
        assert!(stats.queued_bytes <= 4 << 20, "{stats:?}");
    }
    // Probes of a silent path come every two seconds.
    pair.drive(&mut traffic, 3000 * MS);
    let before = [CLIENT, SERVER].map(|side| pair.count(side));
    pair.drive(&mut traffic, 1000 * MS);
    let after = [CLIENT, SERVER].map(|side| pair.count(side));
    assert!(after[CLIENT] - before[CLIENT] >= 49, "{before:?} {after:?}");
    assert!(
        after[SERVER] - before[SERVER] >= 1_040,
        "{before:?} {after:?}"
    );
    assert!(traffic.iter().all(|one| one.is_exactly_once(&pair)));
}

/// A flow of the client on one path, which loses 1 % of the packets.
fn on_lossy_path(policy: DatagramPolicy, class: Option<Class>) -> (Pair, FlowId) {
    let mut link = Link::new(40.0, 10);
    link.loss = 0.01;
    let mut pair = Pair::new(&[link]);
    let flow = open(&mut pair, policy, class);
    (pair, flow)
}

/// The datagrams that a transfer of 4 s loses on a path with 1 % loss, and those that arrive before
/// an earlier one.
fn lost_by_a_transfer(len: usize, every: Duration) -> (usize, usize) {
    let (mut pair, flow) = on_lossy_path(DatagramPolicy::Auto, None);
    let mut transfer = [Traffic::new(CLIENT, flow, len, every)];
    pair.drive(&mut transfer, 4000 * MS);
    pair.run(500 * MS);
    let arrivals = transfer[0].arrivals(&pair);
    let early = arrivals.windows(2).filter(|pair| pair[0].0 > pair[1].0);
    (transfer[0].lost(&pair), early.count())
}

#[test]
fn a_transfer_on_one_lossy_path_is_repaired_from_its_first_burst_on() {
    let (lost, early) = lost_by_a_transfer(1250, Duration::from_micros(500));
    assert!(lost <= 3 && early <= 1, "{lost} lost, {early} early");
}

#[test]
fn datagrams_in_two_parts_are_repaired_in_order() {
    let (lost, early) = lost_by_a_transfer(2400, MS);
    assert!(lost <= 4 && early <= 1, "{lost} lost, {early} early");
}

#[test]
fn pinned_flows_do_not_wait_on_a_lossy_path() {
    let (mut pair, flow) = on_lossy_path(DatagramPolicy::Pinned, Some(Class::Background));
    let mut video = [Traffic::new(CLIENT, flow, 1250, MS)];
    for _ in 0..200 {
        pair.drive(&mut video, 20 * MS);
        let stats = pair.sides[SERVER].flow_stats().next();
        assert_eq!(stats.map_or(0, |stats| stats.reorder_bytes), 0);
    }
    assert!(video[0].lost(&pair) > 20);
}

#[test]
fn bulk_on_one_lossy_path_is_repaired() {
    let (mut pair, flow) = on_lossy_path(DatagramPolicy::Auto, Some(Class::Background));
    let every = Duration::from_micros(500);
    let mut first = [Traffic::new(CLIENT, flow, 1250, every)];
    pair.drive(&mut first, 1000 * MS);
    pair.run(500 * MS);
    let before = first[0].lost(&pair);
    assert!(
        (1..=10).contains(&before),
        "{before} until the loss is known"
    );
    let stats = |pair: &Pair| pair.sides[SERVER].flow_stats().next().unwrap().received;
    let (received, mut second) = (stats(&pair), [Traffic::new(CLIENT, flow, 1250, every)]);
    pair.drive(&mut second, 4000 * MS);
    pair.run(500 * MS);
    let lost = second[0].sent.len() as u64 - (stats(&pair) - received);
    assert!(lost <= 2, "{lost} of {}", second[0].sent.len());
}
