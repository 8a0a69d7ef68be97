//! Both ends of a connection over links that lose, delay, reorder and change: every byte arrives
//! once and in order, and the simulation does not livelock.

use std::time::Duration;

use proptest::prelude::*;
use sumlink_link::{Change, Jitter, LinkConfig, LinkId, LinkState, Loss, Network, QueueLimit};
use sumlink_sim::clock::{MILLISECOND, Nanos, SECOND, duration, nanos};
use sumlink_sim::tcp::{Packet, Side, Tcp, TcpConfig};

/// A connection over one link each way.
struct Pair {
    now: Nanos,
    ends: [Tcp; 2],
    network: Network<Packet>,
    ids: [LinkId; 2],
    /// Bytes that each end has received in order.
    received: [u64; 2],
    steps: u64,
}

impl Pair {
    fn new(rate: u64, delay: Duration, congestion: &str, seed: u64) -> Self {
        let config = TcpConfig {
            congestion: congestion.to_owned(),
            ..TcpConfig::default()
        };
        Self::between([&config, &config], rate, delay, seed)
    }

    /// Creates two ends with different configurations.
    fn between(configs: [&TcpConfig; 2], rate: u64, delay: Duration, seed: u64) -> Self {
        let mut network = Network::new(seed);
        let ids = [0, 1].map(|seed| {
            network.add(LinkConfig {
                rate,
                delay,
                loss: 0.0,
                queue: QueueLimit::Time(Duration::from_millis(50)),
                seed,
            })
        });
        let mut ends = Side::BOTH.map(|side| Tcp::new(0, side, configs[side.index()]).unwrap());
        ends[0].connect(0);
        Self {
            now: 0,
            ends,
            network,
            ids,
            received: [0; 2],
            steps: 0,
        }
    }

    fn change(&mut self, change: &Change) {
        for id in self.ids {
            self.network.set(duration(self.now), id, change.clone());
        }
    }

    fn flush(&mut self) {
        for side in Side::BOTH {
            while let Some(packet) = self.ends[side.index()].poll_transmit(self.now) {
                let id = self.ids[side.index()];
                self.network.enqueue(duration(self.now), id, packet);
                self.steps += 1;
            }
        }
    }

    /// Runs until `until`; the programs read arrived data if `reads`.
    fn run_until(&mut self, until: Nanos, reads: bool) {
        loop {
            self.flush();
            let ends = self.ends.iter().filter_map(Tcp::deadline);
            let network = self.network.next_deadline().map(nanos);
            let next = ends.chain(network).min().filter(|at| *at <= until);
            let Some(at) = next else {
                self.now = until;
                return;
            };
            assert!(at >= self.now || self.ends.iter().any(|e| e.deadline() == Some(at)));
            self.now = self.now.max(at);
            while let Some((id, delivery)) = self.network.poll(duration(self.now)) {
                // The client's packets go to the server, and vice versa.
                let to = 1 - self.ids.iter().position(|own| *own == id).unwrap();
                self.ends[to].receive(&delivery.packet, self.now);
                let received = self.ends[to].received();
                assert!(received >= self.received[to], "received bytes decreased");
                assert!(
                    received <= self.ends[1 - to].written(),
                    "more bytes received than written"
                );
                self.received[to] = received;
                if reads {
                    self.ends[to].read(received, self.now);
                }
            }
            for end in &mut self.ends {
                if end.deadline().is_some_and(|at| at <= self.now) {
                    end.on_time(self.now);
                }
            }
            self.steps += 1;
            assert!(self.steps < 3_000_000, "livelock");
        }
    }

    fn is_done(&self) -> bool {
        (0..2).all(|to| self.received[to] == self.ends[1 - to].written())
    }
}

/// An event of the test.
enum What<'a> {
    Change(&'a Change),
    Write(usize, u64),
}

/// Any change of a link.
fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (200_000u64..100_000_000).prop_map(Change::Rate),
        (0u64..150).prop_map(|ms| Change::Delay(Duration::from_millis(ms))),
        (0u64..40).prop_map(|ms| Change::Jitter(Jitter::uniform(Duration::from_millis(ms)))),
        (1u64..20).prop_map(|ms| {
            Change::Jitter(Jitter::uniform(Duration::from_millis(ms)).reordering())
        }),
        (0.0..0.3f64).prop_map(|share| Change::Loss(Loss::Independent(share))),
        (3_000u64..200_000).prop_map(|bytes| Change::Queue(QueueLimit::Bytes(bytes))),
        Just(Change::State(LinkState::Blackhole)),
        Just(Change::State(LinkState::Up)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_byte_arrives_once_and_in_order(
        seed in 0u64..1_000,
        congestion in prop_oneof![Just("cubic"), Just("reno")],
        sack: [bool; 2],
        undo: bool,
        writes in prop::collection::vec((0usize..2, 1u64..400_000, 0u64..800), 1..8),
        changes in prop::collection::vec((change(), 0u64..900), 0..10),
    ) {
        let configs = sack.map(|sack| TcpConfig {
            congestion: congestion.to_owned(),
            sack,
            undo,
            ..TcpConfig::default()
        });
        let delay = Duration::from_millis(20);
        let mut pair = Pair::between(configs.each_ref(), 10_000_000, delay, seed);
        let mut events: Vec<(Nanos, What<'_>)> = Vec::new();
        let mut at = 0;
        for (change, pause) in &changes {
            at += pause * MILLISECOND;
            events.push((at, What::Change(change)));
        }
        at = 0;
        for (side, bytes, pause) in &writes {
            at += pause * MILLISECOND;
            events.push((at, What::Write(*side, *bytes)));
        }
        events.sort_by_key(|(at, _)| *at);
        for (at, event) in events {
            pair.run_until(at, true);
            match event {
                What::Change(change) => pair.change(change),
                What::Write(side, bytes) => pair.ends[side].write(bytes),
            }
        }
        // In the end the link works again, and all losses are repaired within a timeout.
        for change in [
            Change::State(LinkState::Up),
            Change::Rate(10_000_000),
            Change::Delay(Duration::from_millis(20)),
            Change::Jitter(Jitter::NONE),
            Change::Loss(Loss::NONE),
            Change::Queue(QueueLimit::Time(Duration::from_millis(50))),
        ] {
            pair.change(&change);
        }
        pair.run_until(pair.now + 300 * SECOND, true);
        prop_assert!(pair.is_done(), "{:?} of {:?}", pair.received, pair.ends.each_ref().map(Tcp::written));
        // No end has anything left to do.
        prop_assert!(pair.ends.iter().all(|end| end.deadline().is_none()));
    }
}

#[test]
fn a_lost_tail_is_recovered_without_a_timeout() {
    let mut pair = Pair::new(100_000_000, Duration::from_millis(20), "cubic", 1);
    pair.run_until(SECOND, true);
    pair.ends[1].write(1_000_000);
    pair.run_until(3 * SECOND, true);
    assert!(pair.is_done());
    // Loses the last three of ten segments.
    let script = sumlink_link::LossScript {
        packets: Vec::from([7..8, 8..10]),
        times: Vec::new(),
    };
    let id = pair.ids[1];
    let change = Change::Loss(Loss::Script(script));
    pair.network.set(duration(pair.now), id, change);
    pair.ends[1].write(14_480);
    // The acknowledgment of the seventh segment is delayed by 40 ms; the tail is probed two round
    // trips later.
    pair.run_until(pair.now + 290 * MILLISECOND, true);
    assert!(pair.is_done(), "{:?}", pair.received);
    assert_eq!(pair.ends[1].counters().timeouts, 0);
}

/// RFC 6582: three duplicates reveal the first loss, partial acknowledgments the others.
#[test]
fn without_sack_each_round_trip_recovers_one_loss_without_a_timeout() {
    let with = TcpConfig::default();
    let without = TcpConfig {
        sack: false,
        ..TcpConfig::default()
    };
    let mut pair = Pair::between([&without, &with], 100_000_000, Duration::from_millis(20), 1);
    pair.run_until(SECOND, true);
    let script = sumlink_link::LossScript {
        packets: Vec::from([20..21, 24..25, 28..29]),
        times: Vec::new(),
    };
    let id = pair.ids[1];
    let change = Change::Loss(Loss::Script(script));
    pair.network.set(duration(pair.now), id, change);
    pair.ends[1].write(1_000_000);
    pair.run_until(3 * SECOND, true);
    assert!(pair.is_done(), "{:?}", pair.received);
    let counters = pair.ends[1].counters();
    assert_eq!((counters.retransmitted, counters.timeouts), (3, 0));
    assert_eq!(pair.ends[0].repeated(), 0);
}

#[test]
fn a_paused_reader_stops_the_sender_and_resumes_without_delay() {
    let mut pair = Pair::new(50_000_000, Duration::from_millis(10), "cubic", 1);
    pair.run_until(SECOND, true);
    pair.ends[1].write(30_000_000);
    pair.run_until(20 * SECOND, false);
    let stopped = pair.received[0];
    assert!(stopped < 200_000, "{stopped}");
    pair.run_until(40 * SECOND, false);
    assert_eq!(pair.received[0], stopped);
    let (received, now) = (pair.received[0], pair.now);
    pair.ends[0].read(received, now);
    pair.run_until(now + 10 * SECOND, true);
    assert!(pair.is_done());
}

#[test]
fn timeouts_double_while_nothing_gets_through() {
    let mut pair = Pair::new(10_000_000, Duration::from_millis(20), "cubic", 1);
    pair.run_until(SECOND, true);
    pair.change(&Change::State(LinkState::Blackhole));
    pair.ends[1].write(10_000);
    pair.run_until(31 * SECOND, true);
    let timeouts = pair.ends[1].counters().timeouts;
    // The first timeout is 0.24 s and each later one twice as long: 7 of them in 30 s.
    assert!((6..=8).contains(&timeouts), "{timeouts}");
    pair.change(&Change::State(LinkState::Up));
    pair.run_until(91 * SECOND, true);
    assert!(pair.is_done());
}
