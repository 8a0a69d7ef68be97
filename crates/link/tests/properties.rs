//! Invariants of every link under arbitrary operations.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use sumlink_link::{Change, Counters, Link, LinkConfig, LinkState, Policer, QueueLimit};

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Send(usize),
    Poll,
    Rate(u64),
    Delay(u64),
    Loss(f64),
    Queue(u64),
    Burst(u64),
    Policer(Option<Policer>),
    State(LinkState),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..3_000_000).prop_map(Step::Wait),
        10 => (1usize..1501).prop_map(Step::Send),
        6 => Just(Step::Poll),
        1 => prop_oneof![Just(0), 1_000u64..2_000_000_000].prop_map(Step::Rate),
        1 => (0u64..50_000_000).prop_map(Step::Delay),
        1 => (0.0f64..=1.0).prop_map(Step::Loss),
        1 => (0u64..100_000).prop_map(Step::Queue),
        1 => (0u64..50_000).prop_map(Step::Burst),
        1 => proptest::option::of(policer()).prop_map(Step::Policer),
        1 => prop_oneof![Just(LinkState::Up), Just(LinkState::Down), Just(LinkState::Blackhole)]
            .prop_map(Step::State),
    ]
}

fn policer() -> impl Strategy<Value = Policer> {
    (0u64..2_000_000_000, 0u64..50_000).prop_map(|(rate, burst)| Policer { rate, burst })
}

fn config() -> impl Strategy<Value = LinkConfig> {
    let queue = prop_oneof![
        (0u64..100_000).prop_map(QueueLimit::Bytes),
        (0u64..100).prop_map(|ms| QueueLimit::Time(Duration::from_millis(ms))),
    ];
    (
        0u64..2_000_000_000,
        0u64..50_000_000,
        0.0f64..=1.0,
        queue,
        any::<u64>(),
    )
        .prop_map(|(rate, delay, loss, queue, seed)| LinkConfig {
            rate,
            delay: Duration::from_nanos(delay),
            loss,
            queue,
            seed,
        })
}

fn conserved(counters: Counters) {
    assert_eq!(
        counters.accounted_packets(),
        counters.offered_packets,
        "{counters:?}"
    );
    assert_eq!(
        counters.accounted_bytes(),
        counters.offered_bytes,
        "{counters:?}"
    );
}

/// A packet that carries its number in its first eight bytes, if it is long enough.
fn numbered(number: u64, len: usize) -> Vec<u8> {
    let mut packet = vec![0; len.max(8)];
    packet[..8].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[..8].try_into().unwrap())
}

proptest! {
    #[test]
    fn packets_are_conserved_and_keep_their_order(
        config in config(),
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut link = Link::new(config);
        let mut now = Duration::ZERO;
        let mut sent = 0;
        let mut last = None;
        let mut last_due = Duration::ZERO;
        for step in steps {
            match step {
                Step::Wait(nanos) => now += Duration::from_nanos(nanos),
                Step::Send(len) => {
                    link.enqueue(now, numbered(sent, len));
                    sent += 1;
                }
                Step::Poll => {
                    let deadline = link.next_deadline();
                    while let Some(delivery) = link.poll(now) {
                        let is_due = deadline.is_some_and(|d| d <= delivery.due);
                        prop_assert!(is_due, "due before the deadline");
                        prop_assert!(delivery.due <= now && delivery.due >= last_due);
                        last_due = delivery.due;
                        let number = number(&delivery.packet);
                        prop_assert!(last.is_none_or(|last| last < number), "order kept");
                        last = Some(number);
                    }
                    prop_assert!(link.next_deadline().is_none_or(|d| d > now), "drained");
                }
                Step::Rate(rate) => link.set_rate(now, rate),
                Step::Delay(nanos) => link.set_delay(now, Duration::from_nanos(nanos)),
                Step::Loss(probability) => link.set_loss(now, probability),
                Step::Queue(bytes) => link.set_queue(now, QueueLimit::Bytes(bytes)),
                Step::Burst(bytes) => link.set(now, Change::Burst(bytes)),
                Step::Policer(policer) => link.set(now, Change::Policer(policer)),
                Step::State(state) => {
                    link.set_state(now, state);
                    last_due = Duration::ZERO;
                }
            }
            conserved(link.counters());
        }
    }

    #[test]
    fn the_rate_is_never_exceeded_and_the_delay_never_undercut(
        rate in 1_000_000u64..1_000_000_000,
        delay_us in 0u64..20_000,
        packets in proptest::collection::vec((0u64..2_000_000, 8usize..1501), 1..200),
    ) {
        let delay = Duration::from_micros(delay_us);
        let mut link = Link::new(LinkConfig {
            rate, delay, loss: 0.0, queue: QueueLimit::Bytes(u64::MAX), seed: 0,
        });
        let mut now = Duration::ZERO;
        let mut arrivals = VecDeque::new();
        for (number, (gap, len)) in packets.iter().enumerate() {
            now += Duration::from_nanos(*gap);
            link.enqueue(now, numbered(number as u64, *len));
            arrivals.push_back((now, *len));
        }
        // An ideal fluid server of that rate, in exact integers (unit: ns * rate).
        let mut free_at: u128 = 0;
        while let Some(deadline) = link.next_deadline() {
            while let Some(delivery) = link.poll(deadline) {
                let (arrived, len) = arrivals.pop_front().unwrap();
                let start = free_at.max(arrived.as_nanos() * u128::from(rate));
                let end = start + len as u128 * 8 * 1_000_000_000;
                free_at = end;
                let left = (delivery.due - delay).as_nanos() * u128::from(rate);
                prop_assert!(left >= end, "left {} ns*rate too early", end - left);
                prop_assert!(left < end + u128::from(rate) , "left more than 1 ns late");
            }
        }
        prop_assert!(arrivals.is_empty(), "all packets were delivered");
    }

    #[test]
    fn no_interval_passes_more_than_burst_and_rate(
        policed in any::<bool>(),
        rate in 1_000_000u64..1_000_000_000,
        burst in 1_501u64..60_000,
        packets in proptest::collection::vec((0u64..2_000_000, 8usize..1501), 1..200),
    ) {
        // A policer at the full rate of a fast link, or a slow link with a bucket.
        let (line, change) = if policed {
            (u64::MAX, Change::Policer(Some(Policer { rate, burst })))
        } else {
            (rate, Change::Burst(burst))
        };
        let mut link = Link::new(LinkConfig {
            rate: line,
            delay: Duration::ZERO,
            loss: 0.0,
            queue: QueueLimit::Bytes(u64::MAX),
            seed: 0,
        });
        link.set(Duration::ZERO, change);
        let mut now = Duration::ZERO;
        let mut offered = Vec::new();
        for (number, (gap, len)) in packets.iter().enumerate() {
            now += Duration::from_nanos(*gap);
            link.enqueue(now, numbered(number as u64, *len));
            offered.push((now, *len));
        }
        let mut passed = Vec::new();
        while let Some(deadline) = link.next_deadline() {
            while let Some(delivery) = link.poll(deadline) {
                let (arrived, len) = offered[number(&delivery.packet) as usize];
                // A policer delays nothing; the fast link takes less than 1 ns.
                prop_assert!(!policed || delivery.due - arrived <= Duration::from_nanos(1));
                passed.push((delivery.due, len));
            }
        }
        for first in 0..passed.len() {
            let mut bytes = 0;
            for (due, len) in &passed[first..] {
                bytes += *len as u128;
                // Times are rounded up to a nanosecond.
                let nanos = (*due - passed[first].0).as_nanos() + 1;
                let most = u128::from(burst) * 8 * 1_000_000_000 + u128::from(rate) * nanos;
                prop_assert!(bytes * 8 * 1_000_000_000 <= most);
            }
        }
        prop_assert_eq!(link.counters().policed_packets, (offered.len() - passed.len()) as u64);
    }

    #[test]
    fn the_moments_of_polling_do_not_change_what_is_delivered(
        config in config(),
        packets in proptest::collection::vec((0u64..2_000_000, 8usize..1501), 1..100),
        polls in proptest::collection::vec(any::<bool>(), 100),
    ) {
        let run = |poll_at: &dyn Fn(usize) -> bool| {
            let mut link = Link::new(config.clone());
            let mut now = Duration::ZERO;
            let mut out = Vec::new();
            for (i, (gap, len)) in packets.iter().enumerate() {
                now += Duration::from_nanos(*gap);
                if poll_at(i) {
                    out.extend(std::iter::from_fn(|| link.poll(now)));
                }
                link.enqueue(now, numbered(i as u64, *len));
            }
            out.extend(std::iter::from_fn(|| link.poll(now + Duration::from_secs(3600))));
            out
        };
        prop_assert_eq!(run(&|_| false), run(&|i| polls[i]));
    }
}
