//! Random operations on two sessions: whatever happens, each datagram is delivered at most once,
//! flows with an order keep it, memory is bounded, and everything comes to rest.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::model::{CLIENT, Link, MS, Pair, SERVER};
use crate::datagram::{DatagramPolicy, FlowConfig, FlowErrorCode, FlowId};
use crate::{Class, PathId};

#[derive(Clone, Debug)]
enum Step {
    Open(usize, u8, u8),
    /// A burst of datagrams of one size.
    Send(usize, usize, usize, usize),
    Close(usize, usize),
    Fail(usize, usize),
    Policy(usize, usize, u8),
    Run(u64),
    Blackhole(u32, u64),
    OneWay(usize, u32, u64),
    Loss(u32, u8),
    Delay(u32, u64),
    Packet(u32, usize),
    Down(u32),
    Up(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let side = 0usize..2;
    let flow = 0usize..6;
    prop_oneof![
        2 => (side.clone(), 0u8..4, 0u8..5).prop_map(|(s, p, c)| Step::Open(s, p, c)),
        8 => (side.clone(), flow.clone(), 0usize..2600, 1usize..40)
            .prop_map(|(s, f, len, count)| Step::Send(s, f, len, count)),
        1 => (side.clone(), flow.clone()).prop_map(|(s, f)| Step::Close(s, f)),
        1 => (side.clone(), flow.clone()).prop_map(|(s, f)| Step::Fail(s, f)),
        1 => (side.clone(), flow, 0u8..4).prop_map(|(s, f, p)| Step::Policy(s, f, p)),
        8 => (0u64..60).prop_map(Step::Run),
        1 => (0u32..4, 0u64..2000).prop_map(|(p, ms)| Step::Blackhole(p, ms)),
        1 => (side, 0u32..4, 0u64..2000).prop_map(|(s, p, ms)| Step::OneWay(s, p, ms)),
        1 => (0u32..4, 0u8..30).prop_map(|(p, loss)| Step::Loss(p, loss)),
        1 => (0u32..4, 0u64..100).prop_map(|(p, ms)| Step::Delay(p, ms)),
        1 => (0u32..4, 300usize..1500).prop_map(|(p, size)| Step::Packet(p, size)),
        1 => (0u32..4).prop_map(Step::Down),
        1 => (1u64..60, 0u64..60).prop_map(|(mbit, ms)| Step::Up(mbit, ms)),
    ]
}

/// The state of a random run.
struct Run {
    pair: Pair,
    /// Flows that a side has opened, and its peer's as far as it knows them.
    flows: Vec<FlowId>,
    /// Datagrams sent on each side by flow.
    sent: BTreeMap<(usize, FlowId), u64>,
    next_path: u32,
}

const POLICIES: [DatagramPolicy; 4] = DatagramPolicy::ALL;

impl Run {
    fn new() -> Self {
        let links = [Link::new(20.0, 5), Link::new(8.0, 30)];
        Self {
            pair: Pair::with(&links, |config| {
                config.datagrams.queue_memory = 1 << 17;
                config.datagrams.reorder_memory = 1 << 17;
                config.datagrams.fragment_memory = 1 << 16;
            }),
            flows: Vec::new(),
            sent: BTreeMap::new(),
            next_path: 2,
        }
    }

    fn flow(&self, index: usize) -> Option<FlowId> {
        let latest = self.flows.iter().rev().take(6);
        latest.copied().nth(index % self.flows.len().clamp(1, 6))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Open(side, policy, class) => {
                let config = FlowConfig {
                    source: 1,
                    target: b"t\x01\x02".to_vec(),
                    class: Class::ALL.get(usize::from(class)).copied(),
                    policy: POLICIES[usize::from(policy)],
                };
                let now = self.pair.clock(side);
                self.flows
                    .extend(self.pair.sides[side].open_flow(config, now));
            }
            Step::Send(side, flow, len, count) => {
                for _ in 0..count {
                    self.send(side, flow, len);
                }
            }
            Step::Close(side, flow) => {
                let now = self.pair.clock(side);
                if let Some(flow) = self.flow(flow) {
                    self.pair.sides[side].close_flow(flow, now);
                }
            }
            Step::Fail(side, flow) => {
                let now = self.pair.clock(side);
                if let Some(flow) = self.flow(flow) {
                    self.pair.sides[side].flow_failed(flow, FlowErrorCode::Refused, now);
                }
            }
            Step::Policy(side, flow, policy) => {
                let now = self.pair.clock(side);
                if let Some(flow) = self.flow(flow) {
                    let policy = POLICIES[usize::from(policy)];
                    let _ = self.pair.sides[side].set_flow_policy(flow, policy, now);
                }
            }
            Step::Run(ms) => self.pair.run(ms as u32 * MS),
            Step::Blackhole(path, ms) => self.pair.blackhole(PathId(path), ms as u32 * MS),
            Step::OneWay(side, path, ms) => {
                self.pair.blackhole_way(side, PathId(path), ms as u32 * MS);
            }
            Step::Loss(path, loss) => {
                let loss = f64::from(loss) / 100.0;
                self.pair.change(PathId(path), |link| link.loss = loss);
            }
            Step::Delay(path, ms) => {
                let delay = ms as u32 * MS;
                self.pair.change(PathId(path), |link| link.delay = delay);
            }
            Step::Packet(path, size) => self.pair.change(PathId(path), |link| link.packet = size),
            Step::Down(path) => self.pair.path_down(PathId(path)),
            Step::Up(mbit, ms) => {
                let path = PathId(self.next_path);
                self.next_path += 1;
                self.pair.path_up(path, Link::new(mbit as f64, ms));
            }
        }
    }

    fn send(&mut self, side: usize, flow: usize, len: usize) {
        let Some(flow) = self.flow(flow) else {
            return;
        };
        let number = self.sent.get(&(side, flow)).copied().unwrap_or(0);
        let mut payload = vec![0; len.max(8)];
        payload[..8].copy_from_slice(&number.to_be_bytes());
        let now = self.pair.clock(side);
        let sent = self.pair.sides[side].send_datagram(flow, payload.into(), now);
        if sent.is_ok() {
            self.sent.insert((side, flow), number + 1);
        }
    }

    fn check_memory(&self) {
        for side in [CLIENT, SERVER] {
            let stats = self.pair.sides[side].datagram_stats();
            assert!(stats.queued_bytes <= 1 << 17, "{stats:?}");
            assert!(stats.reorder_bytes <= 1 << 17, "{stats:?}");
            assert!(stats.fragment_bytes <= 1 << 16, "{stats:?}");
            let queued = self.pair.sides[side].flow_stats();
            let (queued, held) = queued.fold((0, 0), |(queued, held), flow| {
                (queued + flow.queued_bytes, held + flow.reorder_bytes)
            });
            assert_eq!((queued, held), (stats.queued_bytes, stats.reorder_bytes));
        }
    }

    fn check_deliveries(&self) {
        for side in [CLIENT, SERVER] {
            let mut seen = BTreeSet::new();
            for arrived in &self.pair.arrived[side] {
                let number = u64::from_be_bytes(*arrived.payload.first_chunk().unwrap());
                assert!(seen.insert((arrived.flow, number)), "delivered twice");
                let sent = self.sent.get(&(1 - side, arrived.flow));
                assert!(sent.is_some_and(|sent| number < *sent), "never sent");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_flows_keep_their_promises(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut run = Run::new();
        for step in &steps {
            run.step(step);
            run.check_memory();
        }
        // At last, one good path is left, and everything that waits is sent or dropped.
        run.pair.path_up(PathId(run.next_path), Link::new(50.0, 5));
        run.pair.run(4000 * MS);
        run.check_memory();
        run.check_deliveries();
        for side in [CLIENT, SERVER] {
            let stats = run.pair.sides[side].datagram_stats();
            prop_assert_eq!(stats.reorder_bytes, 0);
            // A path that is dead may still hold copies for another two seconds.
            prop_assert_eq!(stats.queued_bytes, 0);
        }
    }

    /// One flow over two paths of any delays and rates: in order, unless a datagram came after it
    /// was given up, and all of them while there is room.
    #[test]
    fn a_spread_flow_keeps_its_order(
        links in [(2u64..60, 1u64..80), (2u64..60, 1u64..80)],
        bursts in proptest::collection::vec((1usize..30, 1u64..40), 1..60),
    ) {
        let links = links.map(|(mbit, ms)| Link::new(mbit as f64, ms));
        let mut pair = Pair::new(&links);
        let config = FlowConfig {
            class: Some(Class::Background),
            policy: DatagramPolicy::Spread,
            ..FlowConfig::default()
        };
        let flow = pair.sides[CLIENT].open_flow(config, pair.now).unwrap();
        let mut number = 0u64;
        for (count, ms) in bursts {
            for _ in 0..count {
                let mut payload = vec![0; 1200];
                payload[..8].copy_from_slice(&number.to_be_bytes());
                pair.send(CLIENT, flow, payload);
                number += 1;
            }
            pair.run(ms as u32 * MS);
        }
        pair.run(2000 * MS);
        let numbers: Vec<u64> = pair.arrived[SERVER]
            .iter()
            .map(|arrived| u64::from_be_bytes(*arrived.payload.first_chunk().unwrap()))
            .collect();
        let sender = pair.sides[CLIENT].flow_stats().next().unwrap();
        let receiver = pair.sides[SERVER].flow_stats().next().unwrap();
        let drops = sender.drops.codel + sender.drops.late + sender.drops.full;
        prop_assert_eq!(numbers.len() as u64 + drops, number);
        prop_assert!(receiver.late > 0 || numbers.is_sorted(), "{:?}", receiver);
        // A path becomes slower than it has ever been when the first burst arrives on it.
        prop_assert!(receiver.late <= 3 + number / 50, "{:?}", receiver);
    }
}
