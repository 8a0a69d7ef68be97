//! Links that hear each other: they share air time by carrier sense.
//!
//! The model is the idealised CSMA network of Laufer and Kleinrock ("The capacity of wireless CSMA/CA
//! networks", IEEE/ACM ToN 2016) with a directed conflict: a link with packets backs off for a random
//! time, sends for a random time, and backs off again. While another link sends, its back-off counter
//! runs slower by the factor `1 - d`, up to standing still, as the counter of 802.11 does while the medium
//! is busy. Both times are exponential, so the sets of sending links are the states of a Markov chain:
//! set A turns into A with i at the rate `lambda_i * product over j in A of (1 - d_ij)` and into A without
//! i at the rate `mu_i`, with `theta_i = lambda_i / mu_i`.
//!
//! # How contention becomes time
//!
//! The chain is not solved but run, event by event, next to the packets: a link sends at full speed
//! during its transmissions and not at all between them. Fluid rates by the set of backlogged links would
//! give the same mean rates for less work, but neither the waiting of a packet for its turn nor the
//! bursts that make one link's delay depend on the other's load; and what an unsaturated link does would
//! need a second formula. A transmission stands for what a radio sends in one access, an aggregate of
//! packets rather than one: a packet may start in one transmission and end in the next. There are about
//! two events in each of them however many packets it carries. A transmission ends early when the queue
//! is empty.
//!
//! The rate of a coupled link is what it carries **alone**, its back-off included, because that is what
//! people measure. While it sends it is faster by `1 + 1/theta`; an opportunity of a trace is larger by as
//! much.
//!
//! # What the parameters are worth
//!
//! `theta` = 9, `d_12` = 0.90, `d_21` = 0.14 turn what the two radios of table 5.1 (80-80 MHz, clean) in Li,
//! "WhiteHaul-based Spectrum Aggregation in Wi-Fi Bands" (Edinburgh 2023), carry alone, 229 and
//! 261 Mbit/s, into what they carried at once, 149 and 258; `d_12` = 0.76, `d_21` = 0 give table 5.2's 253
//! and 195 alone, 204 and 195 at once. That is a fit of two numbers with two parameters each: it shows
//! that the model can be that lopsided, and validates nothing.

use core::time::Duration;

use crate::ModelError;
use crate::error::share;
use crate::random::Random;

/// How the links of a coupling group share the air; see [`Network::couple`](crate::Network::couple).
#[derive(Clone, Debug, PartialEq)]
pub struct Air {
    /// For each link the mean length of a transmission over the mean length of a back-off, above 0.
    theta: Vec<f64>,
    /// `deferral[i][j]`: how much link i waits while link j sends.
    deferral: Vec<Vec<f64>>,
    /// Mean length of a transmission.
    transmission: Duration,
}

impl Air {
    /// The ratio that goes with the fitted deferrals.
    pub const THETA: f64 = 9.0;

    /// The mean length of a transmission unless said otherwise: what an 802.11ac radio sends in one access.
    pub const TRANSMISSION: Duration = Duration::from_millis(1);

    /// The most links of which [`Air::shares`] solves the chain.
    pub const MAX_SOLVED: usize = 12;

    /// Any group. `theta` has one entry for each link, above 0 and at most 1000. `deferral[i][j]`, from 0
    /// (link i does not hear link j) to 1 (it waits as long as link j sends), has one row and one column
    /// for each link; the diagonal is of no importance. `transmission` is the mean length of a
    /// transmission.
    pub fn new(
        theta: Vec<f64>,
        deferral: Vec<Vec<f64>>,
        transmission: Duration,
    ) -> Result<Self, ModelError> {
        let count = |what, got| {
            let expected = theta.len();
            if got == expected {
                return Ok(());
            }
            Err(ModelError::WrongCount {
                what,
                got,
                expected,
            })
        };
        for theta in &theta {
            if !(*theta > 0.0 && *theta <= 1_000.0) {
                return Err(ModelError::OutOfRange {
                    what: "theta",
                    value: *theta,
                    range: "above 0 and at most 1000",
                });
            }
        }
        count("the deferral matrix", deferral.len())?;
        for row in &deferral {
            count("a row of the deferral matrix", row.len())?;
            for deferral in row {
                share("a deferral", *deferral)?;
            }
        }
        if transmission.is_zero() {
            return Err(ModelError::ZeroTime {
                what: "the mean length of a transmission",
                example: "1ms",
            });
        }
        Ok(Self {
            theta,
            deferral,
            transmission,
        })
    }

    /// Every link defers to every other one by the same share: 0 is no coupling, 1 full mutual exclusion.
    pub fn uniform(links: usize, deferral: f64) -> Result<Self, ModelError> {
        Self::new(
            vec![Self::THETA; links],
            vec![vec![deferral; links]; links],
            Self::TRANSMISSION,
        )
    }

    /// Two links, the first of which defers by `d12` to the second one and the second by `d21` to it.
    pub fn pair(d12: f64, d21: f64) -> Result<Self, ModelError> {
        Self::new(
            vec![Self::THETA; 2],
            vec![vec![0.0, d12], vec![d21, 0.0]],
            Self::TRANSMISSION,
        )
    }

    /// How many links the group has.
    pub fn links(&self) -> usize {
        self.theta.len()
    }

    /// What each link carries while exactly these always have something to send, as a share of what it
    /// carries alone: from the stationary distribution of the chain. At most [`Self::MAX_SOLVED`] links.
    pub fn shares(&self, backlogged: &[bool]) -> Result<Vec<f64>, ModelError> {
        let links = self.links();
        if backlogged.len() != links {
            return Err(ModelError::WrongCount {
                what: "the list of backlogged links",
                got: backlogged.len(),
                expected: links,
            });
        }
        if links > Self::MAX_SOLVED {
            return Err(ModelError::OutOfRange {
                what: "the number of links in a group to solve",
                value: links as f64,
                range: "at most 12",
            });
        }
        let starts = |set: usize, link: usize| {
            let free = set & 1 << link == 0 && backlogged[link];
            let speed = |j: &usize| set & 1 << *j != 0;
            let slowed: f64 = (0..links)
                .filter(speed)
                .map(|j| 1.0 - self.deferral[link][j])
                .product();
            if free { self.theta[link] * slowed } else { 0.0 }
        };
        // Gauss-Seidel on the balance of each set, in units of a transmission.
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
            let air: f64 = (0..1usize << links)
                .filter(sending)
                .map(|set| pi[set])
                .sum();
            air * (1.0 + 1.0 / self.theta[link])
        };
        Ok((0..links).map(of).collect())
    }
}

/// The chain of one group while it runs.
#[derive(Clone, Debug)]
pub(crate) struct AirGroup {
    air: Air,
    members: Vec<Member>,
    /// Up to when the back-off counters have been brought.
    at: Duration,
    /// The next event and whose it is.
    next: Option<(Duration, usize)>,
}

#[derive(Clone, Debug)]
struct Member {
    /// The number of the link in the network.
    link: usize,
    phase: Phase,
    /// Share of its back-off that runs off in the time that passes.
    speed: f64,
    /// Lengths of back-offs and transmissions.
    random: Random,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Nothing to send.
    Idle,
    /// Seconds left at full speed.
    BackOff(f64),
    /// Until then.
    Sending(Duration),
}

impl AirGroup {
    pub(crate) fn new(air: Air, links: &[usize], random: &Random) -> Self {
        let member = |link: &usize| Member {
            link: *link,
            phase: Phase::Idle,
            speed: 1.0,
            random: random.split(*link as u64),
        };
        Self {
            members: links.iter().map(member).collect(),
            air,
            at: Duration::ZERO,
            next: None,
        }
    }

    /// When somebody starts or stops next.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.next.map(|(at, _)| at)
    }

    /// Speed of a link's server now, as a share of what it carries alone.
    pub(crate) fn share(&self, member: usize) -> f64 {
        match self.members[member].phase {
            Phase::Sending(_) => 1.0 + 1.0 / self.air.theta[member],
            _ => 0.0,
        }
    }

    /// Takes note of whether a link has something to send.
    pub(crate) fn update(&mut self, now: Duration, member: usize, backlogged: bool) {
        if backlogged != (self.members[member].phase == Phase::Idle) {
            return;
        }
        self.settle(now);
        self.members[member].phase = if backlogged {
            self.back_off(member)
        } else {
            Phase::Idle
        };
        self.plan();
    }

    /// Lets the next event happen, which is due at `now`; returns the number of the link.
    pub(crate) fn fire(&mut self, now: Duration) -> Option<usize> {
        let (_, member) = self.next.take()?;
        self.settle(now);
        self.members[member].phase = match self.members[member].phase {
            Phase::BackOff(_) => {
                let length = self.members[member].random.next_exponential();
                Phase::Sending(now.saturating_add(self.air.transmission.mul_f64(length)))
            }
            _ => self.back_off(member),
        };
        self.plan();
        Some(self.members[member].link)
    }

    /// A new back-off.
    fn back_off(&mut self, member: usize) -> Phase {
        let mean = self.air.transmission.as_secs_f64() / self.air.theta[member];
        Phase::BackOff(mean * self.members[member].random.next_exponential())
    }

    /// Brings the back-off counters up to `now`.
    fn settle(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        for member in &mut self.members {
            if let Phase::BackOff(left) = &mut member.phase {
                *left = (*left - passed * member.speed).max(0.0);
            }
        }
    }

    /// Works out speeds and the next event.
    fn plan(&mut self) {
        self.next = None;
        for i in 0..self.members.len() {
            let event = match self.members[i].phase {
                Phase::Idle => continue,
                Phase::Sending(until) => until,
                Phase::BackOff(left) => {
                    let speed = self.speed(i);
                    self.members[i].speed = speed;
                    // A counter that stands still is planned again when somebody stops sending.
                    match Duration::try_from_secs_f64(left / speed) {
                        Ok(wait) => self.at.saturating_add(wait),
                        Err(_) => continue,
                    }
                }
            };
            if self.next.is_none_or(|(at, _)| event < at) {
                self.next = Some((event, i));
            }
        }
    }

    /// How fast the back-off of a member runs while those send that do.
    fn speed(&self, member: usize) -> f64 {
        let deferral = &self.air.deferral[member];
        self.members
            .iter()
            .zip(deferral)
            .filter(|(other, _)| matches!(other.phase, Phase::Sending(_)))
            .map(|(_, deferral)| 1.0 - deferral)
            .product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_gives_the_tables_it_was_fitted_to() {
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

    #[test]
    fn nonsense_is_refused() {
        let message = |air: Result<Air, ModelError>| air.unwrap_err().to_string();
        assert!(message(Air::pair(1.1, 0.0)).contains("a deferral is 1.1"));
        let ms = Duration::from_millis(1);
        assert!(message(Air::new(vec![0.0], vec![vec![0.0]], ms)).contains("theta is 0"));
        assert!(message(Air::new(vec![9.0], vec![vec![]], ms)).contains("has 0 entries"));
        let zero = Air::new(vec![9.0], vec![vec![0.0]], Duration::ZERO);
        assert!(message(zero).contains("transmission is zero"));
        assert!(Air::uniform(13, 0.5).unwrap().shares(&[true; 13]).is_err());
    }
}
