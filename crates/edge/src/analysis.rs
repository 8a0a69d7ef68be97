//! The queueing model of the paper (section III-B, equations 1 and 2, figure 3): the mean length of
//! the queues in front of two links under each steering policy.
//!
//! Packets arrive in a Poisson stream of rate lambda; service times are exponentially distributed.
//! Each queue is M/M/1/N: it holds N packets, including the one in service, and drops arrivals when
//! it is full. Rates are in packets per second, or in any other unit that all of them share.

/// One link: its service rate and the capacity of its queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Server {
    /// mu: service rate in packets per second, above 0.
    pub rate: f64,
    /// N (or M): queue capacity in packets, including the one in service; at least 1.
    pub capacity: u32,
}

impl Server {
    /// Mean number of packets in the queue, 0 to N, at `arrivals` packets per second:
    ///
    /// L = rho / (1 - rho) - (N + 1) rho^(N+1) / (1 - rho^(N+1)), rho = lambda / mu
    pub fn mean_length(&self, arrivals: f64) -> f64 {
        let load = arrivals / self.rate;
        let places = f64::from(self.capacity) + 1.0;
        // Both terms grow without bound near rho = 1, where L tends to N / 2 with derivative N (N +
        // 2) / 12.
        if (load - 1.0).abs() * places < 1e-4 {
            return (places - 1.0) / 2.0 + (load - 1.0) * (places - 1.0) * (places + 1.0) / 12.0;
        }
        // rho^(N+1) / (1 - rho^(N+1)), written so that it does not overflow for rho > 1
        let tail = if load < 1.0 {
            let power = load.powf(places);
            power / (1.0 - power)
        } else {
            1.0 / (load.powf(-places) - 1.0)
        };
        load / (1.0 - load) - places * tail
    }

    /// Share of the arrivals dropped because the queue is full, 0 to 1: (1 - rho) rho^N / (1 -
    /// rho^(N+1)).
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
/// The paper finds lambda_LTE "by equating L to N", which no finite rate satisfies. This code
/// models the effect of the rule: all arrivals are offered to the first queue, and those that find
/// it full go to the second. Equation 1 then treats that overflow as a Poisson stream. In reality
/// it is bursty, so the second queue is longer; the tests quantify the difference.
pub fn lrtt(arrivals: f64, first: Server, second: Server) -> f64 {
    first.mean_length(arrivals) + second.mean_length(arrivals * first.turned_away(arrivals))
}

/// Equation 2: mean number of packets in both queues if arrivals are split in proportion to the
/// service rates. Both queues then have the same load, lambda / (mu_LTE + mu_WiFi).
pub fn qdepl(arrivals: f64, first: Server, second: Server) -> f64 {
    let load = arrivals / (first.rate + second.rate);
    first.mean_length(load * first.rate) + second.mean_length(load * second.rate)
}

/// One point of figure 3.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// lambda divided by the sum of the service rates, 0 to 1.
    pub load: f64,
    /// Mean number of packets with L-RTT.
    pub lrtt: f64,
    /// Mean number of packets with Q-Depl.
    pub qdepl: f64,
}

/// Figure 3: both means for `steps` arrival rates, evenly spaced from 0 to the sum of the service
/// rates. The paper draws the distribution of the means over that range: each of its two curves is
/// one of these series, sorted.
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
mod tests;
