//! The stationary distribution of a coupling group: the long-term throughput of its links.

use super::Air;

/// Throughput of each link while exactly the links of `backlogged` always have packets to send, as
/// a share of its throughput alone. The work grows with two to the number of links.
pub(super) fn shares(air: &Air, backlogged: &[bool]) -> Vec<f64> {
    let links = air.links();
    let starts = |set: usize, link: usize| {
        let free = set & 1 << link == 0 && backlogged[link];
        let speed = |j: &usize| set & 1 << *j != 0;
        let slowed: f64 = (0..links)
            .filter(speed)
            .map(|j| 1.0 - air.deferral[link][j])
            .product();
        if free { air.theta[link] * slowed } else { 0.0 }
    };
    // Gauss-Seidel on the balance equation of each set, in units of a transmission.
    let mut pi = vec![1.0 / (1 << links) as f64; 1 << links];
    for _ in 0..100_000 {
        let mut change: f64 = 0.0;
        for set in 0..1usize << links {
            let (mut inflow, mut out) = (0.0, 0.0);
            for link in 0..links {
                let other = set ^ 1 << link;
                if set & 1 << link == 0 {
                    inflow += pi[other];
                    out += starts(set, link);
                } else {
                    inflow += pi[other] * starts(other, link);
                    out += 1.0;
                }
            }
            let new = if out > 0.0 {
                inflow / out
            } else {
                pi[set] + inflow
            };
            change = change.max((new - pi[set]).abs());
            pi[set] = new;
        }
        let sum: f64 = pi.iter().sum();
        pi.iter_mut().for_each(|p| *p /= sum);
        if change < 1e-12 {
            break;
        }
    }
    let of = |link: usize| -> f64 {
        let sending = |set: &usize| set & 1 << link != 0;
        let time: f64 = (0..1usize << links)
            .filter(sending)
            .map(|set| pi[set])
            .sum();
        time * (1.0 + 1.0 / air.theta[link])
    };
    (0..links).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_reproduces_the_fitted_tables() {
        let at_once = |d12, d21, alone: [f64; 2]| {
            let shares = Air::pair(d12, d21).unwrap().shares(&[true; 2]).unwrap();
            [shares[0] * alone[0], shares[1] * alone[1]]
        };
        let near = |got: [f64; 2], expected: [f64; 2]| {
            for (got, expected) in got.into_iter().zip(expected) {
                assert!((got / expected - 1.0).abs() < 0.01, "{got} for {expected}");
            }
        };
        near(at_once(0.90, 0.14, [229.0, 261.0]), [149.0, 258.0]);
        near(at_once(0.76, 0.0, [253.0, 195.0]), [204.0, 195.0]);
    }

    #[test]
    fn the_chain_between_exclusion_and_independence() {
        let shares = |deferral: f64, backlogged: &[bool]| {
            let air = Air::uniform(backlogged.len(), deferral).unwrap();
            air.shares(backlogged).unwrap()
        };
        let near = |got: &[f64], expected: &[f64]| {
            for (got, expected) in got.iter().zip(expected) {
                assert!((got - expected).abs() < 1e-6, "{got} for {expected}");
            }
        };
        near(&shares(0.0, &[true, true, true]), &[1.0, 1.0, 1.0]);
        // Full exclusion (Laufer and Kleinrock): pi(i) = theta / (1 + n theta).
        near(&shares(1.0, &[true, true]), &[10.0 / 19.0, 10.0 / 19.0]);
        near(&shares(1.0, &[true, false]), &[1.0, 0.0]);
        let three = 9.0 / 28.0 * 10.0 / 9.0;
        near(&shares(1.0, &[true, true, true]), &[three, three, three]);
    }
}
