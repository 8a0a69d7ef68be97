//! Upper bound of the memory for 100,000 flows.

use std::net::{Ipv4Addr, SocketAddr};

use etherparse::TcpOptionElement as Option_;

use super::scripted::ms;
use crate::flow::FlowKey;
use crate::packet::fixture::{Draft, far};
use crate::{Config, Edge, LinkId};

const LINKS: [LinkId; 2] = [LinkId(0), LinkId(1)];

/// A node without room for copies; other tests cover their bound.
fn node() -> Edge {
    Edge::new(Config {
        kept: 0,
        kept_per_flow: 0,
        ..Config::default()
    })
    .unwrap()
}

/// An established flow with `gaps` gaps in the received data, and a SYN that waits for its
/// answer.
fn gaps(edge: &mut Edge, flow: u32, gaps: u32) -> FlowKey {
    let user = SocketAddr::from((
        Ipv4Addr::from(0x0a00_0000 + flow / 50_000),
        1000 + (flow % 50_000) as u16,
    ));
    let up = |sequence| Draft::between(user, far(), sequence);
    let down = |sequence| Draft::between(far(), user, sequence).ack(501);
    let scale = Option_::WindowScale(7);
    let now = ms(1);
    edge.handle_user(up(500).syn().option(scale.clone()).packet(), now);
    edge.handle_far(down(999).syn().option(scale).packet(), now);
    edge.handle_user(up(501).ack(1000).packet(), now);
    for n in 1..=gaps {
        edge.handle_far(down(1000 + 20 * n).payload(&[0; 10]).packet(), now);
        for link in LINKS {
            while edge.poll_link(link, now).is_some() {}
        }
    }
    edge.handle_user(up(900_000).syn().packet(), now);
    while edge.poll_far().is_some() {}
    FlowKey { far: far(), user }
}

#[test]
fn ranges_of_all_flows_are_bounded_and_each_keeps_a_few() {
    let mut edge = node();
    let flows = (super::super::MAX_RANGES / 100) as u32;
    for flow in 0..flows {
        gaps(&mut edge, flow, 120);
    }
    assert!(
        edge.ranges <= super::super::MAX_RANGES + 2 * flows as usize,
        "{}",
        edge.ranges
    );
    // The last flows keep few ranges, and still know the data received without a gap.
    let last = edge.flows.recent().next().unwrap().1;
    assert_eq!(last.ranges(), super::super::MIN_RANGES);
    assert_eq!(last.flow.outstanding(), 20 * 120 + 10);
    // Forgotten flows free their room.
    edge.handle_timeout(ms(1_000_000));
    assert_eq!((edge.counters().flows, edge.ranges), (0, 0));
}

/// The figures of docs/notes/edge.md.
#[test]
#[ignore = "a measurement of a minute for docs/notes/edge.md; make nightly runs it"]
fn memory_of_100_000_flows_with_gaps() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim()
            .trim_end_matches(" kB")
            .parse::<usize>()
            .unwrap()
            / 1024
    };
    let before = resident();
    let mut edge = node();
    for flow in 0..100_000 {
        gaps(&mut edge, flow, 130);
    }
    assert_eq!(edge.counters().flows, 100_000);
    let taken = resident() - before;
    println!("100,000 flows, {} ranges: {taken} MiB", edge.ranges);
    assert!(taken < 400, "{taken} MiB");
}
