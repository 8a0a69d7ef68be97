//! Many flows: limits, fairness, and memory.

use super::model::{CLIENT, Link, MS, Pair, SERVER, Traffic};
use crate::datagram::{CloseReason, DatagramPolicy, FlowConfig, FlowError, FlowId};
use crate::{Class, Event, PathId};

fn open(pair: &mut Pair, side: usize, source: u64, class: Option<Class>) -> FlowId {
    let config = FlowConfig {
        source,
        target: b"\x01\xc0\x00\x02\x07\x13\x88".to_vec(),
        class,
        policy: DatagramPolicy::Auto,
    };
    let now = pair.clock(side);
    pair.sides[side].open_flow(config, now).unwrap()
}

#[test]
fn the_links_of_a_call_are_known_until_it_is_over() {
    let links = [Link::new(20.0, 10), Link::new(20.0, 30)];
    let carrying = |pair: &Pair, side: usize| {
        let now = pair.clock(side);
        [0, 1].map(|link| pair.sides[side].carries_call(link, now))
    };
    let mut pair = Pair::new(&links);
    let bulk = open(&mut pair, CLIENT, 1, Some(Class::Background));
    pair.drive(&mut [Traffic::new(CLIENT, bulk, 1200, MS)], 1000 * MS);
    assert_eq!(carrying(&pair, CLIENT), [false, false]);
    assert!(!pair.sides[CLIENT].has_calls(pair.clock(CLIENT)));
    let flow = open(&mut pair, CLIENT, 2, Some(Class::Conversational));
    let (now, pinned) = (pair.clock(CLIENT), DatagramPolicy::Pinned);
    pair.sides[CLIENT]
        .set_flow_policy(flow, pinned, now)
        .unwrap();
    let mut call = [CLIENT, SERVER].map(|side| Traffic::new(side, flow, 200, 20 * MS));
    pair.drive(&mut call, 1000 * MS);
    assert_eq!(carrying(&pair, CLIENT), [true, false], "pinned");
    assert_eq!(carrying(&pair, SERVER), [true, true], "duplicated");
    pair.run(1900 * MS);
    assert_eq!(carrying(&pair, CLIENT), [true, false], "a pause");
    pair.run(200 * MS);
    for side in [CLIENT, SERVER] {
        assert_eq!(carrying(&pair, side), [false, false], "over");
    }
    let mut pair = Pair::with(&links, |config| config.datagrams.yield_to_calls = false);
    let flow = open(&mut pair, CLIENT, 1, Some(Class::Conversational));
    let mut call = [CLIENT, SERVER].map(|side| Traffic::new(side, flow, 200, 20 * MS));
    pair.drive(&mut call, 1000 * MS);
    assert_eq!(carrying(&pair, CLIENT), [false, false], "switched off");
}

#[test]
fn a_hundred_thousand_flows_leave_a_call_and_the_memory_unharmed() {
    let mut pair = Pair::new(&[Link::new(100.0, 10), Link::new(100.0, 15)]);
    let flow = open(&mut pair, CLIENT, 1, Some(Class::Conversational));
    let mut call = [CLIENT, SERVER].map(|side| Traffic::new(side, flow, 200, 20 * MS));
    pair.drive(&mut call, 200 * MS);
    for burst in 0..200 {
        for index in 0..500 {
            let other = open(&mut pair, CLIENT, 2 + burst * 500 + index, None);
            pair.send(CLIENT, other, vec![0; 100]);
        }
        pair.drive(&mut call, 20 * MS);
        for side in [CLIENT, SERVER] {
            let stats = pair.sides[side].datagram_stats();
            assert!(stats.flows <= 4096, "{stats:?}");
            assert!(stats.queued_bytes <= 16 << 20, "{stats:?}");
            // Nothing else grows with the number of flows.
            pair.arrived[SERVER].retain(|arrived| arrived.flow == flow);
            pair.events[side]
                .retain(|event| matches!(event, Event::FlowClosed { flow: of, .. } if *of == flow));
            assert!(pair.events[side].is_empty(), "the call continues");
        }
    }
    pair.run(500 * MS);
    for one in &call {
        assert_eq!(one.lost(&pair), 0);
        assert!(
            one.highest_delay(&pair) <= 25 * MS,
            "{:?}",
            one.highest_delay(&pair)
        );
    }
    assert!(pair.sides[CLIENT].datagram_stats().flows_evicted >= 95_000);
}

#[test]
fn a_program_gets_an_error_when_only_calls_are_left() {
    let mut pair = Pair::with(&[Link::new(100.0, 10)], |config| {
        config.datagrams.max_flows = 2
    });
    let class = Some(Class::Conversational);
    let flows = [1, 2].map(|source| open(&mut pair, CLIENT, source, class));
    for flow in flows {
        pair.send(CLIENT, flow, "speech");
    }
    let now = pair.now;
    let refused = pair.sides[CLIENT].open_flow(FlowConfig::default(), now);
    assert_eq!(refused, Err(FlowError::NoMoreFlows));
    pair.run(31_000 * MS);
    let third = open(&mut pair, CLIENT, 3, None);
    let reason = CloseReason::Evicted;
    pair.exchange();
    assert_eq!(
        pair.events[CLIENT],
        [Event::FlowClosed {
            flow: flows[0],
            reason
        }]
    );
    pair.send(CLIENT, third, "hello");
    pair.run(50 * MS);
    let closed = Event::FlowClosed {
        flow: flows[0],
        reason,
    };
    assert!(pair.events[SERVER].contains(&closed));
}

#[test]
fn small_datagrams_do_not_wait_behind_the_bulk_of_another_flow() {
    let mut pair = Pair::new(&[Link::new(20.0, 10)]);
    let bulk = open(&mut pair, CLIENT, 1, Some(Class::Background));
    let ping = open(&mut pair, CLIENT, 2, Some(Class::Interactive));
    // 30 Mbit/s for a link of 20.
    let every = std::time::Duration::from_secs_f64(1250.0 * 8.0 / 30e6);
    let mut traffic = [
        Traffic::new(CLIENT, bulk, 1250, every),
        Traffic::new(CLIENT, ping, 64, 100 * MS),
    ];
    pair.drive(&mut traffic, 3000 * MS);
    pair.run(500 * MS);
    assert!(traffic[1].highest_delay(&pair) <= 14 * MS);
    assert_eq!(traffic[1].lost(&pair), 0);
    let stats = pair.sides[CLIENT].flow_stats().next().unwrap();
    assert!(stats.drops.codel > 0, "{:?}", stats.drops);
    // The rest of the overload waits until the queue is full.
    let carried = traffic[0].arrivals(&pair).len() as f64 * 1250.0 * 8.0 / 3.0;
    assert!((18e6..24e6).contains(&carried), "{carried}");
}

#[test]
fn two_bulk_flows_share_a_path_equally_whatever_their_rates() {
    let mut pair = Pair::new(&[Link::new(20.0, 10)]);
    let flows = [1, 2].map(|source| open(&mut pair, CLIENT, source, Some(Class::Background)));
    let every = |mbit: f64| std::time::Duration::from_secs_f64(1250.0 * 8.0 / (mbit * 1e6));
    let mut traffic = [
        Traffic::new(CLIENT, flows[0], 1250, every(15.0)),
        Traffic::new(CLIENT, flows[1], 1250, every(60.0)),
    ];
    pair.drive(&mut traffic, 3000 * MS);
    let [slow, fast] = traffic.map(|one| one.arrivals(&pair).len() as f64);
    assert!((0.9..1.1).contains(&(slow / fast)), "{slow} {fast}");
}

#[test]
fn an_unknown_flow_is_closed_at_its_sender() {
    let mut pair = Pair::new(&[Link::new(100.0, 10)]);
    let flow = open(&mut pair, CLIENT, 1, None);
    pair.send(CLIENT, flow, "hello");
    pair.run(100 * MS);
    // The server forgets it without a word.
    let now = pair.clock(SERVER);
    pair.blackhole_way(SERVER, PathId(0), 40_000 * MS);
    pair.sides[SERVER].close_flow(flow, now);
    pair.run(40_000 * MS);
    assert!(pair.events[CLIENT].is_empty());
    for _ in 0..3 {
        pair.send(CLIENT, flow, "anyone there?");
        pair.run(100 * MS);
        if !pair.events[CLIENT].is_empty() {
            break;
        }
    }
    let events = &pair.events[CLIENT];
    assert!(
        matches!(events[..], [Event::FlowClosed { .. }]),
        "{events:?}"
    );
}

#[test]
fn datagrams_that_are_rescued_stay_within_the_memory_of_queues() {
    let links = [Link::new(20.0, 5), Link::new(8.0, 30)];
    let mut pair = Pair::with(&links, |config| config.datagrams.queue_memory = 1 << 17);
    let classes = [Class::Conversational, Class::Streaming];
    let flows = classes.map(|class| open(&mut pair, CLIENT, 1, Some(class)));
    for _ in 0..35 {
        pair.send(CLIENT, flows[0], vec![0; 1365]);
    }
    pair.run(41 * MS);
    for _ in 0..32 {
        pair.send(CLIENT, flows[1], vec![0; 2559]);
    }
    pair.path_down(PathId(1));
    let stats = pair.sides[CLIENT].datagram_stats();
    assert!(stats.queued_bytes <= 1 << 17, "{stats:?}");
}
