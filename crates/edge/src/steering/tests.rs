//! All policies on a model of two queues, whose links take one packet after another at a fixed
//! rate.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::Instant;

const BYTES: usize = 1000;

/// Two links and the number of packets that each has carried.
struct Model {
    queues: Vec<LinkQueue>,
    /// Service time per packet of each link.
    service: Vec<Duration>,
    ready: Vec<Instant>,
    carried: Vec<u64>,
    dropped: u64,
    now: Instant,
}

impl Model {
    fn new(packets_per_second: &[u32]) -> Self {
        let n = packets_per_second.len();
        Self {
            queues: vec![LinkQueue::new(40, None); n],
            service: packets_per_second
                .iter()
                .map(|&rate| Duration::from_secs(1) / rate)
                .collect(),
            ready: vec![Duration::ZERO; n],
            carried: vec![0; n],
            dropped: 0,
            now: Duration::ZERO,
        }
    }

    fn offer(&mut self, policy: &mut dyn Steering, flow: u64) {
        match policy.pick(&Offer { bytes: BYTES, flow }, &self.queues) {
            Some(LinkId(n)) => self.queues[usize::from(n)]
                .push(Arc::from(vec![0; BYTES]), self.now)
                .unwrap(),
            None => self.dropped += 1,
        }
        self.serve();
    }

    /// Lets every idle link take its next packet.
    fn serve(&mut self) {
        for n in 0..self.queues.len() {
            while self.ready[n] <= self.now && self.queues[n].is_up() {
                if self.queues[n].pop(self.ready[n]).is_none() {
                    self.ready[n] = self.now + Duration::from_nanos(1);
                    break;
                }
                self.carried[n] += 1;
                self.ready[n] += self.service[n];
            }
        }
    }

    /// Offers `load` packets per second for `seconds`.
    fn run(&mut self, policy: &mut dyn Steering, load: u32, seconds: u32, flows: u64) {
        for n in 0..load * seconds {
            self.now += Duration::from_secs(1) / load;
            self.serve();
            self.offer(policy, u64::from(n) % flows);
        }
    }

    fn share(&self, link: usize) -> f64 {
        self.carried[link] as f64 / self.carried.iter().sum::<u64>() as f64
    }
}

#[test]
fn every_policy_uses_only_links_that_are_up_and_have_room() {
    for (name, ..) in POLICIES {
        let mut policy = build(name).unwrap();
        assert_eq!(policy.name(), *name);
        let mut model = Model::new(&[1000, 1000, 1000]);
        model.queues[1].set_up(false);
        for flow in 0..100 {
            model.offer(policy.as_mut(), flow);
        }
        assert!(model.queues[1].is_empty(), "{name} uses a dead link");
        model
            .queues
            .iter_mut()
            .for_each(|queue| queue.set_up(false));
        assert_eq!(
            policy.pick(&Offer { bytes: 1, flow: 1 }, &model.queues),
            None,
            "{name}"
        );
    }
    assert!(build("nothing").is_none());
}

#[test]
fn round_robin_halves_and_the_slow_half_overflows() {
    let mut model = Model::new(&[1000, 100]);
    model.run(&mut RoundRobin::default(), 800, 10, 1);
    // The slow link is full most of the time; its turns then go to the fast one.
    assert!(model.queues[1].len() >= 39);
    assert_eq!(model.dropped, 0);
}

#[test]
fn qdepl_finds_the_proportion_of_the_rates() {
    for rates in [[1000, 1000], [1000, 250], [100, 1000]] {
        let mut policy = QDepl::default();
        let mut model = Model::new(&rates);
        // Backlogged, so that the rates are measured.
        model.run(&mut policy, rates.iter().sum::<u32>() * 3 / 2, 5, 1);
        model.carried.fill(0);
        model.run(&mut policy, rates.iter().sum::<u32>() * 8 / 10, 20, 1);
        let expected = f64::from(rates[0]) / f64::from(rates[0] + rates[1]);
        assert!(
            (model.share(0) - expected).abs() < 0.02,
            "{rates:?}: {} instead of {expected}",
            model.share(0)
        );
    }
}

/// A rate estimated from a link's load instead of its capacity would stay with the first link used.
#[test]
fn qdepl_does_not_lock_onto_a_link_and_follows_a_change() {
    let mut policy = QDepl::default();
    let mut model = Model::new(&[1000, 100]);
    model.run(&mut policy, 1650, 5, 1);
    model.service.swap(0, 1);
    model.run(&mut policy, 1050, 5, 1);
    let before = model.dropped;
    model.carried.fill(0);
    model.run(&mut policy, 1050, 20, 1);
    assert!(model.share(1) > 0.88, "{}", model.share(1));
    let lost = (model.dropped - before) as f64 / (1050.0 * 20.0);
    assert!(lost < 0.01, "{lost} of the links' capacity was dropped");
}

#[test]
fn lrtt_fills_the_near_link_before_it_uses_the_far_one() {
    let mut model = Model::new(&[500, 500]);
    model.queues[0].trip_sample(Duration::from_millis(30));
    model.queues[1].trip_sample(Duration::from_millis(10));
    let mut policy = LRtt::default();
    model.run(&mut policy, 400, 5, 1);
    assert_eq!(model.carried[0], 0);
    model.run(&mut policy, 800, 5, 1);
    assert!(model.queues[1].len() >= 39, "the near link is full");
    assert!(model.carried[0] > 1000, "and the far link gets the rest");
}

#[test]
fn flow_hash_keeps_flows_together_and_spreads_them() {
    let mut model = Model::new(&[100_000, 100_000, 100_000]);
    let mut policy = FlowHash;
    let link = |policy: &mut FlowHash, model: &Model, flow| {
        policy
            .pick(&Offer { bytes: 1, flow }, &model.queues)
            .unwrap()
    };
    let before: Vec<LinkId> = (0..3000)
        .map(|flow| link(&mut policy, &model, flow))
        .collect();
    for n in 0..3 {
        let count = before.iter().filter(|&&id| id == LinkId(n)).count();
        assert!(
            (900..1100).contains(&count),
            "{count} of 3000 flows on one of three links"
        );
    }
    model.queues[1].set_up(false);
    for (flow, &was) in before.iter().enumerate() {
        let is = link(&mut policy, &model, flow as u64);
        assert!(
            is == was || was == LinkId(1),
            "only flows of the dead link move"
        );
    }
}
