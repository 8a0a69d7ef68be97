//! The queueing model of the paper (section III-B, equations 1 and 2, figure 3): how long the queues before two links are on
//! average, by the policy that fills them.
//!
//! Packets arrive in a Poisson stream of rate lambda and are served in exponentially distributed times; each queue is
//! M/M/1/N: it holds N packets, the one in service included, and drops what comes when it is full. Rates are in packets per
//! second, or in any other unit that is the same for all of them.

/// One link: how fast it serves, and what its queue holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// mu: packets that it serves per second, above 0.
    pub rate: f64,
    /// N (or M): packets that it holds, the one in service included, at least 1.
    pub capacity: u32,
}

impl Server {
    /// Mean number of packets in it, 0 to N, if `arrivals` come per second:
    ///
    /// L = rho / (1 - rho) - (N + 1) rho^(N+1) / (1 - rho^(N+1)), rho = lambda / mu
    pub fn mean_length(&self, arrivals: f64) -> f64 {
        let load = arrivals / self.rate;
        let places = f64::from(self.capacity) + 1.0;
        // Both terms grow without bound near rho = 1, where L tends to N / 2. Its derivative there is N (N + 2) / 12.
        if (load - 1.0).abs() * places < 1e-4 {
            return (places - 1.0) / 2.0 + (load - 1.0) * (places - 1.0) * (places + 1.0) / 12.0;
        }
        // rho^(N+1) / (1 - rho^(N+1)), written so that nothing overflows for rho > 1
        let tail = if load < 1.0 {
            let power = load.powf(places);
            power / (1.0 - power)
        } else {
            1.0 / (load.powf(-places) - 1.0)
        };
        load / (1.0 - load) - places * tail
    }

    /// Share of the arrivals that find it full and are turned away, 0 to 1: (1 - rho) rho^N / (1 - rho^(N+1)).
    pub fn turned_away(&self, arrivals: f64) -> f64 {
        let load = arrivals / self.rate;
        let capacity = f64::from(self.capacity);
        if (load - 1.0).abs() < 1e-9 {
            return 1.0 / (capacity + 1.0);
        }
        if load < 1.0 {
            (1.0 - load) * load.powf(capacity) / (1.0 - load.powf(capacity + 1.0))
        } else {
            (1.0 - 1.0 / load) / (1.0 - load.powf(-capacity - 1.0))
        }
    }
}

/// Equation 1: mean number of packets in both queues if the first one is filled first.
///
/// The paper finds lambda_LTE "by equating L to N", which no finite rate does. It is read as what the rule brings about: all
/// arrivals are offered to the first queue, and those that find it full go to the second. Equation 1 then takes that overflow
/// for a Poisson stream. It comes in bursts, so that the true second queue is longer; the tests have the difference.
pub fn lrtt(arrivals: f64, first: Server, second: Server) -> f64 {
    first.mean_length(arrivals) + second.mean_length(arrivals * first.turned_away(arrivals))
}

/// Equation 2: mean number of packets in both queues if arrivals are split in proportion to the service rates. Both queues then
/// have the same load, lambda / (mu_LTE + mu_WiFi).
pub fn qdepl(arrivals: f64, first: Server, second: Server) -> f64 {
    let load = arrivals / (first.rate + second.rate);
    first.mean_length(load * first.rate) + second.mean_length(load * second.rate)
}

/// One point of figure 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// lambda over the sum of the service rates, 0 to 1.
    pub load: f64,
    /// Mean number of packets with L-RTT.
    pub lrtt: f64,
    /// And with Q-Depl.
    pub qdepl: f64,
}

/// Figure 3: both means for `steps` arrival rates, evenly from 0 to the sum of the service rates. The paper draws their
/// distributions over that range: sorted, each is one of its two curves.
pub fn figure3(first: Server, second: Server, steps: u32) -> Vec<Point> {
    let sum = first.rate + second.rate;
    let point = |step: u32| {
        let load = f64::from(step) / f64::from(steps.max(1));
        Point {
            load,
            lrtt: lrtt(load * sum, first, second),
            qdepl: qdepl(load * sum, first, second),
        }
    };
    (0..=steps).map(point).collect()
}

#[cfg(test)]
mod tests {
    use sumlink_link::Random;

    use super::*;

    const LTE: Server = Server {
        rate: 100.0,
        capacity: 100,
    };
    const WIFI: Server = Server {
        rate: 60.0,
        capacity: 100,
    };

    /// From the probabilities themselves: rho^k / sum.
    fn by_states(server: Server, arrivals: f64) -> (f64, f64) {
        let load = arrivals / server.rate;
        let weights: Vec<f64> = (0..=server.capacity).map(|k| load.powi(k as i32)).collect();
        let sum: f64 = weights.iter().sum();
        let mean: f64 = weights.iter().enumerate().map(|(k, w)| k as f64 * w).sum();
        (mean / sum, weights.last().unwrap() / sum)
    }

    #[test]
    fn the_closed_forms_are_those_of_the_states() {
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
        assert_eq!(LTE.mean_length(1e9).round(), 100.0, "nothing overflows");
    }

    #[test]
    fn equation_2_is_as_printed() {
        let (lambda, sum): (f64, f64) = (120.0, LTE.rate + WIFI.rate);
        let power = (lambda / sum).powi(101);
        let printed = 2.0 * lambda / (sum - lambda) - 2.0 * 101.0 * power / (1.0 - power);
        assert!((qdepl(lambda, LTE, WIFI) - printed).abs() < 1e-9);
    }

    /// Who gets an arrival.
    #[derive(Clone, Copy, PartialEq)]
    enum Rule {
        FirstFirst,
        Proportional,
    }

    /// Mean lengths of the two queues over some million events of the Markov chain.
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

    #[test]
    fn simulation_agrees_with_equation_2_and_with_the_first_queue_of_equation_1() {
        let servers = [
            Server {
                rate: 100.0,
                capacity: 40,
            },
            Server {
                rate: 60.0,
                capacity: 40,
            },
        ];
        for load in [0.5, 0.7, 0.9] {
            let arrivals = 160.0 * load;
            let simulated: f64 = simulate(Rule::Proportional, arrivals, servers, 1)
                .iter()
                .sum();
            let computed = qdepl(arrivals, servers[0], servers[1]);
            assert!(
                (simulated / computed - 1.0).abs() < 0.05,
                "Q-Depl at {load}: {simulated} and {computed}"
            );
            let [first, second] = simulate(Rule::FirstFirst, arrivals, servers, 2);
            let computed = servers[0].mean_length(arrivals);
            assert!(
                (first / computed - 1.0).abs() < 0.05,
                "L-RTT at {load}: {first} and {computed}"
            );
            let overflow = arrivals * servers[0].turned_away(arrivals);
            let computed = servers[1].mean_length(overflow);
            println!("load {load}: second queue of L-RTT {second:.2}, by equation 1 {computed:.2}");
            if computed > 0.1 {
                assert!(
                    second >= computed * 0.95,
                    "an overflow that comes in bursts makes no shorter queue"
                );
            }
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
}
