//! Golden timing: delivery times to the nanosecond.

use std::time::Duration;

use sumlink_link::{Link, LinkConfig, LinkState, QueueLimit};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// 12 Mbit/s, so that a full packet of 1500 bytes lasts 1 ms; 10 ms delay; queue of four full
/// packets.
fn link() -> Link<Vec<u8>> {
    Link::new(LinkConfig {
        rate: 12_000_000,
        delay: 10 * MS,
        loss: 0.0,
        queue: QueueLimit::Bytes(6_000),
        seed: 1,
    })
}

fn packet(tag: u8, len: usize) -> Vec<u8> {
    vec![tag; len]
}

/// Polls at every deadline until the link is empty; returns tag and microsecond of each packet.
fn drain(link: &mut Link<Vec<u8>>) -> Vec<(u8, u128)> {
    let mut out = Vec::new();
    while let Some(deadline) = link.next_deadline() {
        while let Some(delivery) = link.poll(deadline) {
            assert!(
                delivery.due >= deadline,
                "nothing is due before the deadline"
            );
            out.push((delivery.packet[0], delivery.due.as_micros()));
        }
    }
    out
}

#[test]
fn a_burst_leaves_back_to_back_and_its_tail_is_dropped() {
    let mut link = link();
    for tag in 0..6 {
        link.enqueue(Duration::ZERO, packet(tag, 1500));
    }
    assert_eq!(link.counters().dropped_queue_packets, 2);
    assert_eq!(
        drain(&mut link),
        [(0, 11_000), (1, 12_000), (2, 13_000), (3, 14_000)]
    );
}

#[test]
fn an_idle_link_starts_at_once() {
    let mut link = link();
    link.enqueue(Duration::ZERO, packet(0, 1500));
    link.enqueue(100 * MS, packet(1, 750));
    link.enqueue(100 * MS + 200 * US, packet(2, 1500));
    assert_eq!(drain(&mut link), [(0, 11_000), (1, 110_500), (2, 111_500)]);
}

#[test]
fn the_queue_empties_at_the_rate() {
    let mut link = link();
    for tag in 0..4 {
        link.enqueue(Duration::ZERO, packet(tag, 1500));
    }
    link.enqueue(MS - Duration::from_nanos(1), packet(4, 1500));
    link.enqueue(MS, packet(5, 1500));
    assert_eq!(link.counters().dropped_queue_packets, 1);
    let tags: Vec<u8> = drain(&mut link).into_iter().map(|(tag, _)| tag).collect();
    assert_eq!(tags, [0, 1, 2, 3, 5]);
}

#[test]
fn a_late_poll_changes_nothing_but_the_delivery() {
    let mut link = link();
    link.enqueue(Duration::ZERO, packet(0, 1500));
    link.enqueue(Duration::ZERO, packet(1, 1500));
    // The first poll comes 1 s late; the second packet was still due 1 ms after the first.
    let due: Vec<_> = std::iter::from_fn(|| link.poll(1000 * MS))
        .map(|d| d.due)
        .collect();
    assert_eq!(due, [11 * MS, 12 * MS]);
}

#[test]
fn a_rate_of_zero_stops_the_link() {
    let mut link = link();
    link.enqueue(Duration::ZERO, packet(0, 1500));
    link.enqueue(Duration::ZERO, packet(1, 1500));
    link.set_rate(500 * US, 0);
    assert_eq!(link.next_deadline(), None);
    assert!(link.poll(1000 * MS).is_none());
    link.set_rate(2000 * MS, 24_000_000);
    // Half of the first packet is left: 0.25 ms at the doubled rate; then 0.5 ms for the second.
    assert_eq!(drain(&mut link), [(0, 2_010_250), (1, 2_010_750)]);
}

#[test]
fn a_rate_of_zero_from_the_start_queues_packets() {
    let mut link = Link::new(LinkConfig {
        rate: 0,
        delay: MS,
        loss: 0.0,
        queue: QueueLimit::Time(50 * MS),
        seed: 1,
    });
    link.enqueue(Duration::ZERO, packet(0, 1500));
    link.enqueue(Duration::ZERO, packet(1, 1500));
    link.enqueue(Duration::ZERO, packet(2, 1500));
    assert_eq!(link.counters().dropped_queue_packets, 1);
    link.set_rate(10 * MS, 12_000_000);
    assert_eq!(drain(&mut link), [(0, 12_000), (1, 13_000)]);
}

#[test]
fn a_new_delay_applies_to_packets_that_have_not_departed() {
    let mut link = link();
    link.enqueue(Duration::ZERO, packet(0, 1500));
    link.enqueue(Duration::ZERO, packet(1, 1500));
    link.set_delay(MS + US, 20 * MS);
    link.enqueue(30 * MS, packet(2, 1500));
    link.set_delay(30 * MS, MS);
    assert_eq!(drain(&mut link), [(0, 11_000), (1, 22_000), (2, 32_000)]);
}

#[test]
fn a_link_discards_its_packets_when_it_goes_down() {
    for state in [LinkState::Down, LinkState::Blackhole] {
        let mut link = link();
        for tag in 0..3 {
            link.enqueue(Duration::ZERO, packet(tag, 1500));
        }
        link.set_state(MS + 500 * US, state);
        link.enqueue(2 * MS, packet(3, 1500));
        assert_eq!(link.next_deadline(), None);
        assert_eq!(link.counters().discarded_packets, 4);
        link.set_state(5 * MS, LinkState::Up);
        link.enqueue(6 * MS, packet(4, 1500));
        assert_eq!(drain(&mut link), [(4, 17_000)]);
    }
}

#[test]
fn time_does_not_run_backwards() {
    let mut link = link();
    link.enqueue(50 * MS, packet(0, 1500));
    link.enqueue(MS, packet(1, 1500));
    assert_eq!(drain(&mut link), [(0, 61_000), (1, 62_000)]);
}

#[test]
fn no_packet_is_sent_before_it_arrives_even_within_a_nanosecond() {
    let mut link = Link::new(LinkConfig {
        rate: 798_124_656,
        delay: Duration::ZERO,
        loss: 0.0,
        queue: QueueLimit::Bytes(6_000),
        seed: 1,
    });
    // The first packet ends at 7527.6 ns; the second one comes at 7528 ns and lasts 431.01 ns.
    link.enqueue(Duration::ZERO, packet(0, 751));
    link.enqueue(Duration::from_nanos(7_528), packet(1, 43));
    let due = |link: &mut Link<Vec<u8>>| {
        let deadline = link.next_deadline().unwrap();
        link.poll(deadline).unwrap().due.as_nanos()
    };
    assert_eq!((due(&mut link), due(&mut link)), (7_528, 7_960));
}
