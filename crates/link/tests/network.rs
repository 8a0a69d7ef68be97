//! Several links under one clock.

use std::time::Duration;

use sumlink_link::{Change, LinkConfig, LinkState, Network, QueueLimit};

const MS: Duration = Duration::from_millis(1);

fn config(rate: u64, delay: Duration) -> LinkConfig {
    LinkConfig {
        rate,
        delay,
        loss: 0.0,
        queue: QueueLimit::Bytes(1_000_000),
        seed: 0,
    }
}

#[test]
fn packets_are_delivered_in_the_order_of_their_due_times() {
    let mut network = Network::new(1);
    let slow = network.add(config(6_000_000, 10 * MS));
    let fast = network.add(config(12_000_000, MS));
    assert_eq!(network.next_deadline(), None);
    for tag in 0..3 {
        network.enqueue(Duration::ZERO, slow, vec![tag; 1500]);
    }
    for tag in 0..3 {
        network.enqueue(9 * MS, fast, vec![10 + tag; 1500]);
    }
    assert_eq!(network.next_deadline(), Some(11 * MS));
    assert!(network.poll(11 * MS - Duration::from_nanos(1)).is_none());
    // The first poll comes 1 s late.
    let order: Vec<_> = std::iter::from_fn(|| network.poll(1000 * MS))
        .map(|(id, delivery)| (id, delivery.packet[0], delivery.due.as_millis()))
        .collect();
    assert_eq!(
        order,
        [
            (fast, 10, 11),
            (slow, 0, 12),
            (fast, 11, 12),
            (fast, 12, 13),
            (slow, 1, 14),
            (slow, 2, 16)
        ]
    );
    assert_eq!(network.next_deadline(), None);
}

#[test]
fn a_change_affects_only_its_link() {
    let mut network = Network::new(1);
    let a = network.add(config(12_000_000, MS));
    let b = network.add(config(12_000_000, MS));
    network.enqueue(Duration::ZERO, a, vec![0; 1500]);
    network.enqueue(Duration::ZERO, b, vec![0; 1500]);
    network.set(Duration::ZERO, a, Change::State(LinkState::Blackhole));
    assert_eq!(network.state(a), LinkState::Blackhole);
    assert_eq!(network.poll(10 * MS).unwrap().0, b);
    assert!(network.poll(10 * MS).is_none());
    assert_eq!(network.counters(a).discarded_packets, 1);
    assert_eq!(network.counters(b).delivered_packets, 1);
}

#[test]
fn links_of_the_same_description_lose_different_packets() {
    let mut network = Network::new(7);
    let lossy = LinkConfig {
        loss: 0.5,
        ..config(1_000_000_000, Duration::ZERO)
    };
    let ids = [network.add(lossy.clone()), network.add(lossy)];
    for i in 0..64 {
        for id in ids {
            network.enqueue(i * MS, id, vec![i as u8; 100]);
        }
    }
    let mut came = [Vec::new(), Vec::new()];
    while let Some((id, delivery)) = network.poll(1000 * MS) {
        came[id.index()].push(delivery.packet[0]);
    }
    assert_ne!(came[0], came[1]);
}
