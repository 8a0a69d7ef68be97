//! Blockers: blockage model A of 3GPP TR 38.901, clause 7.6.4.1.
//!
//! The thesis' own parameter is simpler: a probability for each client and beacon interval, see
//! [`Blockage`](crate::cell::Blockage).

use core::f64::consts::{FRAC_PI_2, PI};

use sumlink_link::Random;

use super::Channel;
use crate::error::{MmwaveError, within};
use crate::geometry::{Direction, Orientation, wrapped};
use crate::units::linear;

/// Regions blocked by other people (K of the clause).
const REGIONS: usize = 4;
/// Meters between client and blocker (table 7.6.4.1-2, indoor).
const BLOCKER_DISTANCE: f64 = 2.0;
/// Correlation distance of blockers in meters (table 7.6.4.1-3 has 5 m for the indoor office).
const CORRELATION_DISTANCE: f64 = 5.0;
/// Loss by the user's own body in dB.
const SELF_DB: f64 = 30.0;

/// Orientation of the device in the hand (table 7.6.4.1-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Upright.
    Portrait,
    /// On its side.
    Landscape,
}

/// Blockers around one client.
#[derive(Clone, Debug)]
pub struct Blockers {
    hold: Option<Hold>,
    wavelength: f64,
    regions: [Region; REGIONS],
    random: Random,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    /// Its azimuth as a standard normal, which is correlated in time.
    normal: f64,
    /// Widths in radians.
    across: f64,
    up: f64,
}

impl Blockers {
    /// Draws blockers; `hold` adds the user's own body.
    ///
    /// # Errors
    ///
    /// A wavelength that is not above 0.
    pub fn new(hold: Option<Hold>, wavelength: f64, random: &Random) -> Result<Self, MmwaveError> {
        let wavelength = crate::error::positive("wavelength in meters", wavelength)?;
        let mut random = random.clone();
        let regions = core::array::from_fn(|_| Region {
            normal: random.next_normal(),
            across: (15.0 + 30.0 * random.next_f64()).to_radians(),
            up: (5.0 + 10.0 * random.next_f64()).to_radians(),
        });
        Ok(Self {
            hold,
            wavelength,
            regions,
            random,
        })
    }

    /// Moves blockers and client by that many meters in total.
    ///
    /// # Errors
    ///
    /// A negative distance.
    pub fn advance(&mut self, meters: f64) -> Result<(), MmwaveError> {
        let meters = within("distance in meters", meters, (0.0, f64::MAX), "0 or more")?;
        // Uniform azimuths have a correlation of R if their normals have this one (clause 7.6.4.1).
        let r = (-meters / CORRELATION_DISTANCE).exp();
        let copula = (-0.069 * r * r + 1.074 * r - 0.002).clamp(0.0, 1.0);
        for region in &mut self.regions {
            let innovation = (1.0 - copula * copula).sqrt() * self.random.next_normal();
            region.normal = copula * region.normal + innovation;
        }
        Ok(())
    }

    /// Loss of a ray from that direction in dB, 0 or more.
    pub fn loss_db(&self, direction: Direction, orientation: Orientation) -> f64 {
        let others: f64 = self
            .regions
            .iter()
            .map(|region| region.loss_db(direction, self.wavelength))
            .sum();
        others + self.own_db(orientation.local(direction))
    }

    /// Transmitted share of each cluster's power, by its strongest ray.
    pub fn passes(&self, channel: &Channel, orientation: Orientation) -> Vec<f64> {
        let mut passes = vec![1.0; channel.clusters()];
        let mut strongest = vec![0.0; channel.clusters()];
        for ray in &channel.rays {
            if ray.gain > strongest[ray.cluster] {
                strongest[ray.cluster] = ray.gain;
                passes[ray.cluster] = linear(-self.loss_db(ray.at_client, orientation));
            }
        }
        passes
    }

    fn own_db(&self, local: Direction) -> f64 {
        let (azimuth, across, zenith, up) = match self.hold {
            None => return 0.0,
            Some(Hold::Portrait) => (260.0f64, 120.0, 100.0, 80.0),
            Some(Hold::Landscape) => (40.0, 160.0, 110.0, 75.0),
        };
        let beside = wrapped(local.azimuth - azimuth.to_radians())
            .abs()
            .to_degrees();
        let above = (90.0 - local.elevation.to_degrees() - zenith).abs();
        if beside < across / 2.0 && above < up / 2.0 {
            SELF_DB
        } else {
            0.0
        }
    }
}

impl Region {
    fn loss_db(&self, direction: Direction, wavelength: f64) -> f64 {
        let center = 2.0 * PI * share_below(self.normal);
        let beside = wrapped(direction.azimuth - center);
        // Blockers stand upright: their center is at zenith 90 degrees.
        let above = -direction.elevation;
        if beside.abs() >= self.across || above.abs() >= self.up {
            return 0.0;
        }
        let across = edges(beside, self.across, wavelength);
        let up = edges(above, self.up, wavelength);
        -20.0 * (1.0 - across * up).log10()
    }
}

/// F_1 + F_2 of equation 7.6-22: knife edges at both sides of a screen of that width, at an angle
/// from its center.
fn edges(angle: f64, width: f64, wavelength: f64) -> f64 {
    let edge = |distance: f64, sign: f64| {
        let path = (PI / wavelength * BLOCKER_DISTANCE * (1.0 / distance.cos() - 1.0)).sqrt();
        (sign * FRAC_PI_2 * path).atan() / PI
    };
    let half = width / 2.0;
    // Table 7.6.4.1-4: a ray beside the screen has passed the near edge.
    let first = if angle > half { -1.0 } else { 1.0 };
    let second = if angle <= -half { -1.0 } else { 1.0 };
    edge(angle - half, first) + edge(angle + half, second)
}

/// Cumulative distribution of a standard normal (Abramowitz and Stegun, 7.1.26; error at most
/// 1e-7).
fn share_below(x: f64) -> f64 {
    let z = x.abs() / core::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let poly = ((((1.061_405_429 * t - 1.453_152_027) * t + 1.421_413_741) * t - 0.284_496_736)
        * t
        + 0.254_829_592)
        * t;
    let tail = poly * (-z * z).exp() / 2.0;
    if x < 0.0 { tail } else { 1.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{CENTRE_GHZ, wavelength};

    const WAVE: f64 = 0.005;

    fn region(across: f64, up: f64) -> Region {
        Region {
            normal: 0.0,
            across: across.to_radians(),
            up: up.to_radians(),
        }
    }

    /// The region's center is at azimuth 180 degrees.
    fn seen(beside: f64, above: f64) -> Direction {
        Direction::from_degrees(180.0 + beside, above)
    }

    #[test]
    fn the_loss_is_largest_behind_the_center_of_a_screen() {
        // By hand for 15 by 5 degrees: edges of 0.439 and 0.332 on either side, 1 - 0.878 * 0.664 =
        // 0.417.
        let screen = region(15.0, 5.0);
        let middle = screen.loss_db(seen(0.0, 0.0), WAVE);
        assert!((middle - 7.6).abs() < 0.1, "{middle}");
        assert!(screen.loss_db(seen(5.0, 0.0), WAVE) < middle);
        assert_eq!(screen.loss_db(seen(16.0, 0.0), WAVE), 0.0);
        assert_eq!(screen.loss_db(seen(0.0, 5.5), WAVE), 0.0);
        // A larger screen blocks more.
        assert!(region(45.0, 15.0).loss_db(seen(0.0, 0.0), WAVE) > middle + 4.0);
    }

    #[test]
    fn the_edge_is_continuous_where_the_signs_change() {
        let screen = region(30.0, 10.0);
        for edge in [-15.0, 15.0] {
            let [inside, outside] =
                [-1e-6, 1e-6].map(|step| screen.loss_db(seen(edge + step, 0.0), WAVE));
            assert!((inside - outside).abs() < 1e-3, "{inside} {outside}");
        }
    }

    #[test]
    fn the_users_body_costs_30_db_in_its_direction() {
        let blockers = |hold| Blockers::new(hold, WAVE, &Random::new(1)).unwrap();
        let at = |hold, azimuth, elevation| {
            blockers(hold).own_db(Direction::from_degrees(azimuth, elevation))
        };
        assert_eq!(at(Some(Hold::Portrait), 260.0, -10.0), 30.0);
        assert_eq!(at(Some(Hold::Portrait), 0.0, 0.0), 0.0);
        assert_eq!(at(Some(Hold::Landscape), 40.0, -20.0), 30.0);
        assert_eq!(at(None, 260.0, -10.0), 0.0);
    }

    #[test]
    fn azimuths_are_uniform_and_decorrelate_with_distance() {
        let mut blockers = Blockers::new(None, wavelength(CENTRE_GHZ), &Random::new(3)).unwrap();
        let share = |blockers: &Blockers| share_below(blockers.regions[0].normal);
        let (mut sum, mut product, mut squares) = (0.0, 0.0, 0.0);
        let mut last = share(&blockers);
        let n = 40_000;
        for _ in 0..n {
            blockers.advance(1.0).unwrap();
            let now = share(&blockers);
            sum += now;
            product += (now - 0.5) * (last - 0.5);
            squares += (now - 0.5) * (now - 0.5);
            last = now;
        }
        assert!((sum / f64::from(n) - 0.5).abs() < 0.03);
        // exp(-1 m / 5 m) = 0.819
        assert!(
            (product / squares - 0.819).abs() < 0.02,
            "{}",
            product / squares
        );
        assert!((squares / f64::from(n) - 1.0 / 12.0).abs() < 0.005);
        assert!(blockers.advance(-1.0).is_err());
    }

    #[test]
    fn the_normal_distribution_is_right() {
        for (x, share) in [(0.0, 0.5), (1.0, 0.841_345), (-1.96, 0.024_998)] {
            assert!((share_below(x) - share).abs() < 1e-6);
        }
    }
}
