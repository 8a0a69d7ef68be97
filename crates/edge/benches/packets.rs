//! Cost of the node's work per packet: data of 1448 bytes for a user, and an acknowledgment for
//! every second packet.
//!
//! `cargo bench -p sumlink-edge`. At 1 Gbit/s a packet of 1500 bytes may take 12 us. A second
//! benchmark measures how long a dying link blocks the node.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use etherparse::PacketBuilder;
use sumlink_edge::{Config, Edge, LinkId, Mode};

const LEN: u32 = 1448;

/// Packets per measurement: half of them wait for the acknowledgment of the others.
const PACKETS: u32 = 64;

fn data(flow: u16, sequence: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4([192, 0, 2, 1], [10, 0, 0, 2], 64);
    let builder = builder.tcp(443, flow, sequence, 60_000).ack(1);
    builder.write(&mut packet, &[0; LEN as usize]).unwrap();
    packet
}

fn acknowledgment(flow: u16, number: u32) -> Vec<u8> {
    let mut packet = Vec::new();
    let builder = PacketBuilder::ipv4([10, 0, 0, 2], [192, 0, 2, 1], 64);
    builder
        .tcp(flow, 443, 1, 60_000)
        .ack(number)
        .write(&mut packet, &[])
        .unwrap();
    packet
}

fn packets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packets");
    group.throughput(Throughput::Bytes(u64::from(PACKETS * (LEN + 40))));
    for (name, mode) in Mode::NAMES {
        for flows in [1u16, 10_000] {
            let mut edge = Edge::new(Config {
                mode,
                ..Config::default()
            })
            .unwrap();
            let mut now = Duration::ZERO;
            for flow in 0..flows {
                edge.handle_user(acknowledgment(flow, 0), now);
            }
            while edge.poll_far().is_some() {}
            let mut turn = 0u32;
            // The packets are built outside the timed section.
            let make = || {
                turn += 1;
                let flow = (turn % u32::from(flows)) as u16;
                let first = (turn / u32::from(flows)).wrapping_mul(PACKETS * LEN);
                let number = |n: u32| first.wrapping_add(n * LEN);
                let down: Vec<_> = (0..PACKETS).map(|n| data(flow, number(n))).collect();
                let up: Vec<_> = (1..=PACKETS / 2)
                    .map(|n| acknowledgment(flow, number(2 * n)))
                    .collect();
                (down, up)
            };
            let pass = |(down, up): (Vec<Vec<u8>>, Vec<Vec<u8>>)| {
                now += Duration::from_millis(1);
                for packet in down {
                    edge.handle_far(packet, now);
                    for link in [LinkId(0), LinkId(1)] {
                        black_box(edge.poll_link(link, now));
                    }
                }
                for packet in up {
                    edge.handle_user(packet, now);
                    black_box(edge.poll_far());
                }
            };
            let label = format!("{name}, flows: {flows}");
            let mut routine = (make, pass);
            group.bench_function(label, |bencher| {
                bencher.iter_batched(
                    &mut routine.0,
                    &mut routine.1,
                    criterion::BatchSize::SmallInput,
                );
            });
        }
    }
    group.finish();
}

/// A link dies and comes back, with a full flow table and a copy for each flow. The other link
/// takes the packets that are sent again each time.
fn a_link_that_dies(criterion: &mut Criterion) {
    const FLOWS: u32 = 100_000;
    const BYTES: usize = 400;
    let mut edge = Edge::new(Config::default()).unwrap();
    let now = Duration::from_millis(1);
    for flow in 0..FLOWS {
        let (user, port) = ([10, 0, (flow >> 15) as u8, 2], 1 + (flow & 0x7fff) as u16);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        let builder = PacketBuilder::ipv4(user, [192, 0, 2, 1], 64);
        let builder = builder.tcp(port, 443, 1, 60_000).ack(1);
        builder.write(&mut up, &[]).unwrap();
        let builder = PacketBuilder::ipv4([192, 0, 2, 1], user, 64);
        let builder = builder.tcp(443, port, 1, 60_000).ack(1);
        builder.write(&mut down, &[0; BYTES]).unwrap();
        edge.handle_user(up, now);
        edge.handle_far(down, now);
        while edge.poll_far().is_some() {}
        for link in [LinkId(0), LinkId(1)] {
            black_box(edge.poll_link(link, now));
        }
    }
    let counters = edge.counters();
    assert_eq!(counters.flows, FLOWS as usize);
    assert!(counters.kept_bytes >= FLOWS as usize * BYTES);
    criterion.bench_function(
        "a link that dies and comes back, flows: 100000",
        |bencher| {
            bencher.iter(|| {
                edge.link_down(LinkId(1), now);
                edge.link_up(LinkId(1), now);
                while edge.poll_event().is_some() {}
                for link in [LinkId(0), LinkId(1)] {
                    while edge.poll_link(link, now).is_some() {}
                }
            });
        },
    );
    assert!(edge.counters().repaired_late > 0);
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    packets(&mut criterion);
    a_link_that_dies(&mut criterion);
    criterion.final_summary();
}
