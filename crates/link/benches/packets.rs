//! Cost of a packet: enqueueing, serving, delaying and polling it, with the deadline queries in
//! between.
//!
//! An emulator that carries 2.5 Gbit/s in packets of 1500 bytes has 4.8 us for each packet,
//! including reading and writing it. Throughput counts packets.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use sumlink_link::{
    Air, Change, GilbertElliott, Hotspot, Interferer, Jitter, LinkConfig, LinkId, Loss, Network,
    Packet, QueueLimit, Radio, Schedule, Trace,
};

/// Packets in one run, over all links.
const PACKETS: u64 = 100_000;

/// Bits per second over all links.
const RATE: u64 = 2_400_000_000;

#[derive(Clone, Copy)]
struct Full;

impl Packet for Full {
    fn wire_len(&self) -> usize {
        1500
    }
}

fn network(links: u64) -> (Network<Full>, Vec<LinkId>) {
    let mut network = Network::new(1);
    let ids = (0..links)
        .map(|_| {
            network.add(LinkConfig {
                rate: RATE / links,
                delay: Duration::from_millis(10),
                loss: 0.01,
                queue: QueueLimit::Time(Duration::from_millis(50)),
                seed: 0,
            })
        })
        .collect();
    (network, ids)
}

/// Offers exactly the load that the links carry, packet by packet, and polls whenever a packet is
/// due.
fn carry(mut network: Network<Full>, ids: &[LinkId]) -> u64 {
    let gap = Duration::from_nanos(12_000 * 1_000_000_000 / RATE);
    let mut now = Duration::ZERO;
    let mut delivered = 0;
    for i in 0..PACKETS {
        now += gap;
        network.enqueue(now, ids[i as usize % ids.len()], Full);
        while network.next_deadline().is_some_and(|at| at <= now) {
            delivered += u64::from(network.poll(now).is_some());
        }
    }
    delivered
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    let mut group = criterion.benchmark_group("network");
    group.throughput(Throughput::Elements(PACKETS));
    let mut bench = |name: &str, links: u64, set_up: &dyn Fn(&mut Network<Full>, &[LinkId])| {
        let (mut network, ids) = network(links);
        set_up(&mut network, &ids);
        group.bench_function(BenchmarkId::new(name, links), |b| {
            b.iter(|| carry(network.clone(), &ids));
        });
    };
    for links in [1, 2, 16, 128] {
        bench("plain", links, &|_, _| {});
    }
    bench("jitter and bursts of loss", 2, &|network, ids| {
        let bursts = GilbertElliott::bursts(0.05, 3.0).expect("the burst is long enough");
        for id in ids {
            let jitter = Jitter::normal(Duration::from_millis(1)).reordering();
            network.set(Duration::ZERO, *id, Change::Jitter(jitter));
            network.set(
                Duration::ZERO,
                *id,
                Change::Loss(Loss::GilbertElliott(bursts)),
            );
        }
    });
    bench("trace", 2, &|network, ids| {
        for id in ids {
            let trace = Trace::from_micros((1..=100_000).map(|i| 10 * i).collect());
            let trace = trace.expect("the stamps rise");
            network.set(Duration::ZERO, *id, Change::Trace(trace));
        }
    });
    for links in [2, 16] {
        bench("coupled and interfered", links, &|network, ids| {
            let air = Air::uniform(ids.len(), 0.5).expect("half is a share");
            network.couple(ids, air).expect("the links are free");
            let interferer = Interferer {
                occupancy: 0.2,
                deferral: 0.5,
                frame_error: 0.3,
                ..Interferer::NONE
            };
            network
                .interfere(ids, interferer)
                .expect("the links are free");
        });
    }
    bench("behind one radio", 16, &|network, ids| {
        let hotspots: Vec<_> = ids
            .chunks(2)
            .map(|pair| Hotspot {
                up: pair[0],
                down: pair[1],
            })
            .collect();
        let radio = Radio {
            rate: 2 * RATE,
            switching: Duration::from_millis(2),
            card_queue: 10_000_000,
            hotspot_buffer: 10_000_000,
            schedule: Schedule::Fixed(vec![Duration::from_millis(10); hotspots.len()]),
        };
        network.radio(&hotspots, radio).expect("the links are free");
    });
    group.finish();
    criterion.final_summary();
}
