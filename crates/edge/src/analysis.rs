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
mod tests;
