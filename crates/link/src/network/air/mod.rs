//! Links that hear each other: they share air time by carrier sense.
//!
//! The model is the idealized CSMA network of Laufer and Kleinrock ("The capacity of wireless
//! CSMA/CA networks", IEEE/ACM ToN 2016) with a directed conflict: a link with packets backs off
//! for a random time, sends for a random time, and backs off again. While another link sends, its
//! back-off counter runs slower by the factor `1 - d`, down to a stop, as the counter of 802.11
//! does while the medium is busy. Both times are exponential, so the sets of sending links are the
//! states of a Markov chain: set A turns into A with i at the rate `lambda_i * product over j in A
//! of (1 - d_ij)` and into A without i at the rate `mu_i`, with `theta_i = lambda_i / mu_i`.
//!
//! # Validity of the parameters
//!
//! The parameters are fitted to Li, "WhiteHaul-based Spectrum Aggregation in Wi-Fi Bands"
//! (Edinburgh 2023). In table 5.1 (80-80 MHz, clean) two radios carry 229 and 261 Mbit/s alone, 149
//! and 258 Mbit/s at once; `theta` = 9, `d_12` = 0.90, `d_21` = 0.14 reproduce that. For table 5.2,
//! with 253 and 195 Mbit/s alone and 204 and 195 at once, `d_12` = 0.76, `d_21` = 0 do. This fits
//! two numbers with two parameters each: it shows that the model can be that asymmetric, and
//! validates nothing.

mod chain;
mod group;

use core::time::Duration;

use crate::ModelError;
use crate::error::share;

pub(crate) use group::AirGroup;

/// How the links of a coupling group share the air; see
/// [`Network::couple`](crate::Network::couple).
#[derive(Clone, Debug, PartialEq)]
pub struct Air {
    /// For each link, the mean length of a transmission over the mean length of a back-off, above
    /// 0.
    theta: Vec<f64>,
    /// `deferral[i][j]`: the degree to which link i waits while link j sends.
    deferral: Vec<Vec<f64>>,
    /// Mean length of a transmission.
    transmission: Duration,
}

impl Air {
    /// The `theta` that the fitted deferrals assume.
    pub const THETA: f64 = 9.0;

    /// Default mean length of a transmission: a typical channel access of an 802.11ac radio.
    pub const TRANSMISSION: Duration = Duration::from_millis(1);

    /// The largest group for which [`Air::shares`] solves the chain.
    pub const MAX_SOLVED: usize = 12;

    /// Creates a group with arbitrary parameters. `theta` has one entry for each link, above 0 and
    /// at most
    /// 1000. `deferral[i][j]`, from 0 (link i does not hear link j) to 1 (it waits as long as link
    ///       j sends), has one row and one column for each link; the diagonal is ignored.
    ///       `transmission` is the mean length of a transmission.
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

    /// Every link defers to every other one by the same share: 0 is no coupling, 1 full mutual
    /// exclusion.
    pub fn uniform(links: usize, deferral: f64) -> Result<Self, ModelError> {
        Self::new(
            vec![Self::THETA; links],
            vec![vec![deferral; links]; links],
            Self::TRANSMISSION,
        )
    }

    /// Two links: the first defers to the second by `d12`, the second to the first by `d21`.
    pub fn pair(d12: f64, d21: f64) -> Result<Self, ModelError> {
        Self::new(
            vec![Self::THETA; 2],
            vec![vec![0.0, d12], vec![d21, 0.0]],
            Self::TRANSMISSION,
        )
    }

    /// Number of links in the group.
    pub fn links(&self) -> usize {
        self.theta.len()
    }

    /// Throughput of each link while exactly the given links always have packets to send, as a
    /// share of its throughput alone: from the stationary distribution of the chain. At most
    /// [`Self::MAX_SOLVED`] links.
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
        Ok(chain::shares(self, backlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_parameters_are_rejected() {
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
