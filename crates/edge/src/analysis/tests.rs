//! The model compared with its Markov chain, with simulation, and with the node's policies.

use std::sync::Arc;
use std::time::Duration;

use sumlink_link::Random;

use super::*;
use crate::LinkId;
use crate::queue::LinkQueue;
use crate::steering::{self, Offer};

const LTE: Server = Server {
    rate: 100.0,
    capacity: 100,
};
const WIFI: Server = Server {
    rate: 60.0,
    capacity: 100,
};

/// Computed from the state probabilities: rho^k / sum.
fn by_states(server: Server, arrivals: f64) -> (f64, f64) {
    let load = arrivals / server.rate;
    let weights: Vec<f64> = (0..=server.capacity).map(|k| load.powi(k as i32)).collect();
    let sum: f64 = weights.iter().sum();
    let mean: f64 = weights.iter().enumerate().map(|(k, w)| k as f64 * w).sum();
    (mean / sum, weights.last().unwrap() / sum)
}

#[test]
fn closed_forms_match_the_state_probabilities() {
    for capacity in [1, 5, 40, 100] {
        let server = Server {
            rate: 50.0,
            capacity,
        };
        for load in [
            0.0,
            0.3,
            0.9,
            0.999,
            0.999_999_9,
            1.0,
            1.000_000_1,
            1.01,
            1.5,
            3.0,
        ] {
            let (mean, full) = by_states(server, load * server.rate);
            let close = |a: f64, b: f64| (a - b).abs() < 1e-6 * b.max(1.0);
            assert!(
                close(server.mean_length(load * 50.0), mean),
                "L of {capacity} at {load}"
            );
            assert!(
                close(server.turned_away(load * 50.0), full),
                "P_N of {capacity} at {load}"
            );
        }
    }
    assert_eq!(LTE.mean_length(1e9).round(), 100.0, "no overflow");
}

#[test]
fn equation_2_matches_the_paper() {
    let (lambda, sum): (f64, f64) = (120.0, LTE.rate + WIFI.rate);
    let power = (lambda / sum).powi(101);
    let printed = 2.0 * lambda / (sum - lambda) - 2.0 * 101.0 * power / (1.0 - power);
    assert!((qdepl(lambda, LTE, WIFI) - printed).abs() < 1e-9);
}

/// Assigns an arrival to a queue.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    FirstFirst,
    Proportional,
}

/// Mean lengths of the two queues over a few million events of the Markov chain.
fn simulate(rule: Rule, arrivals: f64, servers: [Server; 2], seed: u64) -> [f64; 2] {
    let mut random = Random::new(seed);
    let mut length = [0u32; 2];
    let (mut time, mut area) = (0.0, [0.0; 2]);
    for event in 0..3_000_000 {
        let busy = [0, 1].map(|n| if length[n] > 0 { servers[n].rate } else { 0.0 });
        let total = arrivals + busy[0] + busy[1];
        let stay = -(1.0 - random.next_f64()).ln() / total;
        if event >= 300_000 {
            time += stay;
            for (area, length) in area.iter_mut().zip(length) {
                *area += stay * f64::from(length);
            }
        }
        let what = random.next_f64() * total;
        if what < arrivals {
            let n = match rule {
                Rule::FirstFirst => usize::from(length[0] >= servers[0].capacity),
                Rule::Proportional => usize::from(
                    random.next_f64() * (servers[0].rate + servers[1].rate) >= servers[0].rate,
                ),
            };
            length[n] = (length[n] + 1).min(servers[n].capacity);
        } else {
            length[usize::from(what >= arrivals + busy[0])] -= 1;
        }
    }
    area.map(|area| area / time)
}

/// Mean lengths of the two L-RTT queues from the Markov chain: the probabilities of all states,
/// relaxed until they converge.
fn lrtt_by_states(arrivals: f64, [first, second]: [Server; 2]) -> [f64; 2] {
    let (n, m) = (first.capacity as usize, second.capacity as usize);
    let mut p = vec![vec![1.0; m + 1]; n + 1];
    for round in 0..20_000 {
        let mut change: f64 = 0.0;
        for a in 0..=n {
            for b in 0..=m {
                let mut come = 0.0;
                if a > 0 {
                    come += arrivals * p[a - 1][b];
                }
                if a == n && b > 0 {
                    come += arrivals * p[a][b - 1];
                }
                if a < n {
                    come += first.rate * p[a + 1][b];
                }
                if b < m {
                    come += second.rate * p[a][b + 1];
                }
                let is_full = a == n && b == m;
                let leave = if is_full { 0.0 } else { arrivals }
                    + if a > 0 { first.rate } else { 0.0 }
                    + if b > 0 { second.rate } else { 0.0 };
                let now = come / leave;
                change = change.max((now - p[a][b]).abs());
                p[a][b] = now;
            }
        }
        let sum: f64 = p.iter().flatten().sum();
        p.iter_mut().flatten().for_each(|p| *p /= sum);
        if round > 0 && change < 1e-12 {
            break;
        }
    }
    let mean = |length: fn(usize, usize) -> usize| -> f64 {
        let states = p.iter().enumerate();
        let means = states.flat_map(|(a, row)| row.iter().enumerate().map(move |(b, p)| (a, b, p)));
        means.map(|(a, b, p)| length(a, b) as f64 * p).sum()
    };
    [mean(|a, _| a), mean(|_, b| b)]
}

/// 40 packets each, mu 100 and 60.
const PAIR: [Server; 2] = [
    Server {
        rate: 100.0,
        capacity: 40,
    },
    Server {
        rate: 60.0,
        capacity: 40,
    },
];

fn is_within(share: f64, value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < share
}

#[test]
fn simulation_agrees_with_equation_2_and_with_the_first_queue_of_equation_1() {
    for load in [0.5, 0.7, 0.9] {
        let arrivals = 160.0 * load;
        let simulated: f64 = simulate(Rule::Proportional, arrivals, PAIR, 1).iter().sum();
        let computed = qdepl(arrivals, PAIR[0], PAIR[1]);
        assert!(
            is_within(0.05, simulated, computed),
            "Q-Depl at {load}: {simulated} and {computed}"
        );
        let [first, second] = simulate(Rule::FirstFirst, arrivals, PAIR, 2);
        let computed = PAIR[0].mean_length(arrivals);
        assert!(
            is_within(0.05, first, computed),
            "L-RTT at {load}: {first} and {computed}"
        );
        let exact = lrtt_by_states(arrivals, PAIR);
        assert!(is_within(0.001, exact[0], computed), "{exact:?}");
        // The simulation estimates rare events to a hundredth of a packet at best.
        assert!(
            (second - exact[1]).abs() < 0.1 * exact[1].max(0.1),
            "L-RTT's second queue at {load}: {second} and {exact:?}"
        );
    }
}

/// Figure 3 itself has queues of 100 packets.
#[test]
fn simulation_agrees_with_the_pair_of_figure_3() {
    for load in [0.3, 0.5, 0.7, 0.9] {
        let arrivals = 160.0 * load;
        let simulated: f64 = (simulate(Rule::Proportional, arrivals, [LTE, WIFI], 3).iter()).sum();
        let computed = qdepl(arrivals, LTE, WIFI);
        assert!(
            is_within(0.05, simulated, computed),
            "Q-Depl at {load}: {simulated} and {computed}"
        );
        let [first, _] = simulate(Rule::FirstFirst, arrivals, [LTE, WIFI], 4);
        let computed = LTE.mean_length(arrivals);
        assert!(
            is_within(0.05, first, computed),
            "L-RTT's first queue at {load}: {first} and {computed}"
        );
    }
}

/// The error of equation 1: the figures of docs/notes/edge-cost.md.
#[test]
fn equation_1_underestimates_the_second_queue_by_more_than_half() {
    for (load, true_length, by_equation) in [(0.7, 0.66, 0.25), (0.8, 2.4, 0.9), (0.9, 6.9, 2.75)] {
        let arrivals = 160.0 * load;
        let exact = lrtt_by_states(arrivals, PAIR)[1];
        let computed = PAIR[1].mean_length(arrivals * PAIR[0].turned_away(arrivals));
        println!("load {load}: second queue of L-RTT {exact:.2}, by equation 1 {computed:.2}");
        assert!(is_within(0.05, exact, true_length), "{exact}");
        assert!(is_within(0.05, computed, by_equation), "{computed}");
    }
}

/// Mean lengths of the node's own queues under its own policy. A link carries one packet at a time,
/// for an exponentially distributed time, and the packet stays in its queue meanwhile.
fn steered(policy: &str, arrivals: f64, servers: [Server; 2], seed: u64) -> [f64; 2] {
    let mut random = Random::new(seed);
    let mut wait = |rate: f64| Duration::from_secs_f64(-(1.0 - random.next_f64()).ln() / rate);
    let mut steering = steering::build(policy).unwrap();
    // The initial rates are in bytes per second, with packets of one byte.
    let mut links =
        servers.map(|server| LinkQueue::new(server.capacity as usize, Some(server.rate)));
    // The first link is the shorter one, by more than any queue delay.
    links[0].trip_sample(Duration::from_secs(10));
    links[1].trip_sample(Duration::from_secs(20));
    let packet: Arc<[u8]> = Arc::from([0]);
    let offer = Offer { bytes: 1, flow: 1 };
    let (mut now, mut since, mut area) = (Duration::ZERO, Duration::ZERO, [0.0; 2]);
    let mut arrival = wait(arrivals);
    let mut served: [Option<Duration>; 2] = [None; 2];
    for event in 0..400_000 {
        let next = served
            .iter()
            .flatten()
            .copied()
            .fold(arrival, Duration::min);
        if event < 40_000 {
            since = next;
        } else {
            for (area, link) in area.iter_mut().zip(&links) {
                *area += (next - now).as_secs_f64() * link.len() as f64;
            }
        }
        now = next;
        if next == arrival {
            if let Some(LinkId(n)) = steering.pick(&offer, &links) {
                links[usize::from(n)].push(packet.clone(), now).unwrap();
            }
            arrival = now + wait(arrivals);
        }
        for n in 0..2 {
            if served[n] == Some(next) {
                links[n].pop(now).unwrap();
                served[n] = None;
            }
            if served[n].is_none() && !links[n].is_empty() {
                served[n] = Some(now + wait(servers[n].rate));
            }
        }
    }
    area.map(|area| area / (now - since).as_secs_f64())
}

/// Figure 3 with the policies in place of the model.
#[test]
fn policies_reproduce_the_queues_of_figure_3() {
    for load in [0.5, 0.7, 0.9] {
        let arrivals = 160.0 * load;
        let exact: f64 = lrtt_by_states(arrivals, PAIR).iter().sum();
        let by_lrtt: f64 = steered("lrtt", arrivals, PAIR, 3).iter().sum();
        let model = qdepl(arrivals, PAIR[0], PAIR[1]);
        let by_qdepl: f64 = steered("qdepl", arrivals, PAIR, 4).iter().sum();
        println!(
            "load {load}: L-RTT {by_lrtt:.2}, by its states {exact:.2}, by equation 1 {:.2}; \
             Q-Depl {by_qdepl:.2}, by equation 2 {model:.2}",
            lrtt(arrivals, PAIR[0], PAIR[1])
        );
        assert!(is_within(0.15, by_lrtt, exact), "{by_lrtt} and {exact}");
        // Q-Depl is not random: arrivals at a link are more even, and an idle link takes packets
        // that would wait.
        assert!(
            by_qdepl < model && by_qdepl > 0.4 * model,
            "{by_qdepl} and {model}"
        );
        assert!(by_qdepl < by_lrtt, "the paper has Q-Depl below L-RTT");
    }
}

#[test]
fn figure_3_has_lrtt_above_qdepl_wherever_both_links_are_needed() {
    let points = figure3(LTE, WIFI, 160);
    assert_eq!((points[0].lrtt, points[0].qdepl), (0.0, 0.0));
    for point in points
        .iter()
        .filter(|point| point.load > 0.05 && point.load < 1.0)
    {
        assert!(point.lrtt > point.qdepl || point.load < 0.4, "{point:?}");
    }
    let half = |value: fn(&Point) -> f64| {
        let mut values: Vec<f64> = points.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        [values[40], values[80], values[120]]
    };
    println!(
        "quartiles of figure 3: L-RTT {:.1?}, Q-Depl {:.1?}",
        half(|p| p.lrtt),
        half(|p| p.qdepl)
    );
}
