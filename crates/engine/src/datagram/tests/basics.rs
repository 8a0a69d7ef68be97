//! What every flow promises, whatever its policy.

use bytes::Bytes;

use super::model::{CLIENT, Link, MS, Pair, SERVER};
use crate::datagram::{CloseReason, FlowConfig, FlowError, FlowErrorCode};
use crate::{Class, Event};

fn config(source: u64) -> FlowConfig {
    FlowConfig {
        source,
        target: b"\x01\xc0\x00\x02\x07\x13\x88".to_vec(),
        class: Some(Class::Interactive),
        ..FlowConfig::default()
    }
}

#[test]
fn the_first_datagram_opens_the_flow_and_arrives_without_a_round_trip() {
    let mut pair = Pair::new(&[Link::new(100.0, 10)]);
    let flow = pair.sides[CLIENT].open_flow(config(7), pair.now).unwrap();
    pair.send(CLIENT, flow, "hello");
    pair.run(11 * MS);
    assert_eq!(pair.arrived[SERVER].len(), 1);
    assert_eq!(pair.arrived[SERVER][0].payload, "hello");
    let opened = Event::FlowOpened {
        flow,
        source: 7,
        target: config(7).target,
        class: Some(Class::Interactive),
    };
    assert_eq!(pair.events[SERVER], [opened]);
    // The answer needs no extra flow.
    pair.send(SERVER, flow, "world");
    pair.run(11 * MS);
    assert_eq!(pair.arrived[CLIENT][0].payload, "world");
    assert_eq!(pair.arrived[CLIENT][0].flow, flow);
}

#[test]
fn the_server_opens_flows_of_its_own_to_a_known_source() {
    let mut pair = Pair::new(&[Link::new(100.0, 10)]);
    let now = pair.clock(SERVER);
    let flow = pair.sides[SERVER].open_flow(config(7), now).unwrap();
    assert_eq!(flow % 2, 1);
    pair.send(SERVER, flow, "from another remote");
    pair.run(20 * MS);
    assert!(matches!(
        pair.events[CLIENT][..],
        [Event::FlowOpened { source: 7, .. }]
    ));
    assert_eq!(pair.count(CLIENT), 1);
}

#[test]
fn datagrams_of_every_size_arrive_or_are_refused() {
    let mut pair = Pair::new(&[Link::new(100.0, 10)]);
    let flow = pair.sides[CLIENT].open_flow(config(7), pair.now).unwrap();
    pair.send(CLIENT, flow, "first");
    pair.run(100 * MS);
    let most = match pair.sides[CLIENT].send_datagram(flow, vec![0; 65_507].into(), pair.now) {
        Err(FlowError::TooBig { most }) => most,
        other => panic!("{other:?}"),
    };
    assert!((2700..2800).contains(&most), "{most}");
    let sizes = [0, 1, 1300, 1385, 1386, 1390, 1399, 1400, 1401, 2000, most];
    for size in sizes {
        pair.send(CLIENT, flow, vec![7; size]);
        pair.run(MS);
    }
    let refused = pair.sides[CLIENT].send_datagram(flow, vec![0; most + 1].into(), pair.now);
    assert_eq!(refused, Err(FlowError::TooBig { most }));
    pair.run(200 * MS);
    let arrived = pair.arrived[SERVER][1..].iter();
    let arrived: Vec<usize> = arrived.map(|datagram| datagram.payload.len()).collect();
    assert_eq!(arrived, sizes);
}

#[test]
fn the_end_of_a_flow_reaches_the_peer_although_packets_are_lost() {
    let mut link = Link::new(100.0, 10);
    let mut pair = Pair::new(&[link]);
    let flow = pair.sides[CLIENT].open_flow(config(7), pair.now).unwrap();
    pair.send(CLIENT, flow, "hello");
    pair.run(100 * MS);
    link.loss = 0.5;
    pair.change(crate::PathId(0), |at| *at = link);
    let now = pair.clock(SERVER);
    pair.sides[SERVER].flow_failed(flow, FlowErrorCode::Refused, now);
    pair.sides[SERVER].close_flow(flow, now);
    pair.run(3000 * MS);
    let code = FlowErrorCode::Refused;
    let reason = CloseReason::Closed;
    assert_eq!(
        pair.events[CLIENT],
        [
            Event::FlowFailed { flow, code },
            Event::FlowClosed { flow, reason }
        ]
    );
    let gone = pair.sides[CLIENT].send_datagram(flow, Bytes::new(), pair.now);
    assert_eq!(gone, Err(FlowError::Unknown));
}
