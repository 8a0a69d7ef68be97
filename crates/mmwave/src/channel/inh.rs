//! 3GPP TR 38.901, "InH - Office": path loss (table 7.4.1-1), line-of-sight probability (7.4.2-1),
//! clusters (7.5-6).
//!
//! The thesis' channel is from this report (its reference 72); the office scenario is our reading.
//! Large-scale parameters are drawn independently of each other, without the report's correlations.
//! Oxygen absorption is omitted (0.4 dB at 25 m).

use sumlink_link::Random;

use super::{Channel, Ray};
use crate::error::{MmwaveError, positive, within};
use crate::geometry::{Direction, Point};
use crate::units::linear;

/// Type of office.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Office {
    /// Cubicles and corridors.
    #[default]
    Mixed,
    /// Few obstacles.
    Open,
}

/// Minimum distance of the model in meters; shorter distances count as this (table 7.4.1-1).
pub const NEAREST: f64 = 1.0;

/// Probability of a line of sight at that horizontal distance in meters (table 7.4.2-1).
///
/// # Errors
///
/// A distance that is negative or not finite.
pub fn los_probability(office: Office, distance_2d: f64) -> Result<f64, MmwaveError> {
    let d = distance(distance_2d)?;
    Ok(match office {
        Office::Mixed if d <= 1.2 => 1.0,
        Office::Mixed if d < 6.5 => (-(d - 1.2) / 4.7).exp(),
        Office::Mixed => 0.32 * (-(d - 6.5) / 32.6).exp(),
        Office::Open if d <= 5.0 => 1.0,
        Office::Open if d <= 49.0 => (-(d - 5.0) / 70.8).exp(),
        Office::Open => 0.54 * (-(d - 49.0) / 211.7).exp(),
    })
}

/// Path loss in dB over that many meters at that many GHz (table 7.4.1-1), with a line of sight or
/// without.
///
/// # Errors
///
/// A distance that is negative or not finite, a frequency that is not above 0.
pub fn path_loss_db(los: bool, distance_3d: f64, ghz: f64) -> Result<f64, MmwaveError> {
    let d = distance(distance_3d)?.max(NEAREST).log10();
    let f = positive("frequency in GHz", ghz)?.log10();
    let seen = 32.4 + 17.3 * d + 20.0 * f;
    Ok(if los {
        seen
    } else {
        seen.max(17.3 + 38.3 * d + 24.9 * f)
    })
}

fn distance(meters: f64) -> Result<f64, MmwaveError> {
    within("distance in meters", meters, (0.0, f64::MAX), "0 or more")
}

/// Mean and standard deviation.
type Normal = (f64, f64);

/// A column of table 7.5-6.
struct Table {
    clusters: usize,
    /// Log10 of the delay spread in seconds.
    delay: Normal,
    /// Log10 of the azimuth spreads in degrees, at the access point (D) and at the client (A).
    asd: Normal,
    asa: Normal,
    /// Log10 of the zenith spreads in degrees.
    zsd: Normal,
    zsa: Normal,
    /// Spreads of the rays of a cluster in degrees.
    c_asd: f64,
    c_asa: f64,
    c_zsa: f64,
    /// Delay proportionality factor.
    r_tau: f64,
    /// Shadowing of clusters in dB.
    cluster_shadow: f64,
    /// Shadow fading in dB.
    shadow: f64,
    /// Scaling factors of angles for that number of clusters, tables 7.5-2 and 7.5-4.
    c_phi: f64,
    c_theta: f64,
}

/// Ricean K in dB with a line of sight.
const RICEAN: Normal = (7.0, 4.0);

/// Offsets of the 20 rays within a cluster, for a spread of 1 (table 7.5-3); each with both signs.
const OFFSETS: [f64; 10] = [
    0.0447, 0.1413, 0.2492, 0.3715, 0.5129, 0.6797, 0.8844, 1.1481, 1.5195, 2.1551,
];

/// Power of the weakest clusters kept, relative to the strongest (step 6).
const WEAKEST_DB: f64 = -25.0;

impl Table {
    fn new(los: bool, ghz: f64) -> Self {
        let f = (1.0 + ghz).log10();
        if los {
            Self {
                clusters: 15,
                delay: (-0.01 * f - 7.692, 0.18),
                asd: (1.60, 0.18),
                asa: (-0.19 * f + 1.781, 0.12 * f + 0.119),
                zsd: (-1.43 * f + 2.228, 0.13 * f + 0.30),
                zsa: (-0.26 * f + 1.44, -0.04 * f + 0.264),
                c_asd: 5.0,
                c_asa: 8.0,
                c_zsa: 9.0,
                r_tau: 3.6,
                cluster_shadow: 6.0,
                shadow: 3.0,
                c_phi: 1.211,
                c_theta: 1.1088,
            }
        } else {
            Self {
                clusters: 19,
                delay: (-0.28 * f - 7.173, 0.10 * f + 0.055),
                asd: (1.62, 0.25),
                asa: (-0.11 * f + 1.863, 0.12 * f + 0.059),
                zsd: (1.08, 0.36),
                zsa: (-0.15 * f + 1.387, -0.09 * f + 0.746),
                c_asd: 5.0,
                c_asa: 11.0,
                c_zsa: 9.0,
                r_tau: 3.0,
                cluster_shadow: 3.0,
                shadow: 8.03,
                c_phi: 1.273,
                c_theta: 1.184,
            }
        }
    }
}

/// Draws a channel between two points (clause 7.5, steps 2 to 9 without polarization and phases).
///
/// # Errors
///
/// A point that is not finite, a frequency that is not above 0.
pub fn draw(
    office: Office,
    ap: Point,
    client: Point,
    ghz: f64,
    random: &Random,
) -> Result<Channel, MmwaveError> {
    let mut random = random.clone();
    let chance = los_probability(office, ap.distance_2d(client))?;
    let los = random.next_f64() < chance;
    draw_with(los, ap, client, ghz, &mut random)
}

/// Draws a channel with or without a line of sight.
///
/// # Errors
///
/// The same as for [`draw`].
pub fn draw_with(
    los: bool,
    ap: Point,
    client: Point,
    ghz: f64,
    random: &mut Random,
) -> Result<Channel, MmwaveError> {
    positive("frequency in GHz", ghz)?;
    Shape::draw(los, ghz, random).between(ap, client)
}

/// The part of a channel that does not depend on the two points: shadowing, clusters, and rays
/// relative to the direct path. Neighboring points with the same shape have similar channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    los: bool,
    ghz: f64,
    /// In dB.
    shadow: f64,
    /// The direct ray's share of the power; 0 without a line of sight.
    direct: f64,
    rays: Vec<Offset>,
}

/// A ray of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Offset {
    /// Azimuth and elevation in radians, relative to the direct path.
    at_ap: (f64, f64),
    at_client: (f64, f64),
    /// Its cluster's share of the power.
    power: f64,
    delay_ns: f64,
    cluster: usize,
}

/// Rays of a cluster.
const RAYS: usize = 2 * OFFSETS.len();

impl Shape {
    /// The channel between two points.
    ///
    /// # Errors
    ///
    /// A point that is not finite, a frequency that is not above 0.
    pub fn between(&self, ap: Point, client: Point) -> Result<Channel, MmwaveError> {
        let loss = path_loss_db(self.los, ap.distance(client), self.ghz)? + self.shadow;
        let total = linear(-loss);
        let (ahead_ap, ahead_client) = (ap.direction_to(client), client.direction_to(ap));
        let beyond = |base: Direction, (azimuth, up): (f64, f64)| {
            Direction::folded(base.azimuth + azimuth, base.elevation + up)
        };
        let mut rays = Vec::with_capacity(self.rays.len() + 1);
        if self.los {
            rays.push(Ray {
                at_ap: ahead_ap,
                at_client: ahead_client,
                gain: total * self.direct,
                delay_ns: 0.0,
                cluster: 0,
            });
        }
        rays.extend(self.rays.iter().map(|ray| Ray {
            at_ap: beyond(ahead_ap, ray.at_ap),
            at_client: beyond(ahead_client, ray.at_client),
            gain: total * ray.power / RAYS as f64,
            delay_ns: ray.delay_ns,
            cluster: ray.cluster,
        }));
        let los = self.los;
        Ok(Channel { los, rays })
    }

    /// Draws a shape for a channel with or without a line of sight at a frequency above 0.
    pub fn draw(los: bool, ghz: f64, random: &mut Random) -> Self {
        let table = Table::new(los, ghz);
        let shadow = table.shadow * random.next_normal();
        let ricean = los.then(|| RICEAN.0 + RICEAN.1 * random.next_normal());
        let spread = |random: &mut Random, (mean, deviation): Normal| {
            10f64.powf(mean + deviation * random.next_normal())
        };
        let delay_spread = spread(random, table.delay);
        // Step 4 limits azimuth spreads to 104 and zenith spreads to 52 degrees.
        let [asd, asa] = [table.asd, table.asa].map(|normal| spread(random, normal).min(104.0));
        let [zsd, zsa] = [table.zsd, table.zsa].map(|normal| spread(random, normal).min(52.0));

        // Steps 5 and 6: delays and powers.
        let mut delays: Vec<f64> = (0..table.clusters)
            .map(|_| table.r_tau * delay_spread * random.next_exponential())
            .collect();
        delays.sort_by(f64::total_cmp);
        let first = delays[0];
        let decay = (table.r_tau - 1.0) / (table.r_tau * delay_spread);
        let mut powers: Vec<f64> = delays
            .iter()
            .map(|delay| {
                let shadow = table.cluster_shadow * random.next_normal();
                (-(delay - first) * decay).exp() * linear(-shadow)
            })
            .collect();
        let sum: f64 = powers.iter().sum();
        let seen = ricean.map_or(0.0, |k| linear(k) / (linear(k) + 1.0));
        for power in &mut powers {
            *power *= (1.0 - seen) / sum;
        }
        // The direct ray counts as part of the first cluster for the choice of angles and of the
        // weakest clusters.
        let mut weights = powers.clone();
        weights[0] += seen;
        let strongest = weights.iter().copied().fold(0.0, f64::max);
        let kept = |weight: f64| weight >= strongest * linear(WEAKEST_DB);

        // Step 7: angles.
        let (c_phi, c_theta) = match ricean {
            None => (table.c_phi, table.c_theta),
            Some(k) => (
                table.c_phi * (1.1035 - 0.028 * k - 0.002 * k * k + 0.0001 * k * k * k),
                table.c_theta * (1.3086 + 0.0339 * k - 0.0077 * k * k + 0.0002 * k * k * k),
            ),
        };
        let mut azimuths = |spread: f64| {
            let width =
                |weight: f64| 2.0 * spread / 1.4 * (-(weight / strongest).ln()).sqrt() / c_phi;
            angles(&weights, width, spread, los, random)
        };
        let (from_ap, from_client) = (azimuths(asd), azimuths(asa));
        let mut zeniths = |spread: f64| {
            let width = |weight: f64| -spread * (weight / strongest).ln() / c_theta;
            angles(&weights, width, spread, los, random)
        };
        let (up_ap, up_client) = (zeniths(zsd), zeniths(zsa));
        // Step 7, eq. 7.5-20: the spread of a cluster's rays at the access point follows the mean
        // of lg ZSD.
        let c_zsd = 3.0 / 8.0 * 10f64.powf(table.zsd.0);

        let mut rays = Vec::with_capacity(table.clusters * RAYS);
        // Clusters that are kept are numbered without gaps; the direct ray belongs to the first.
        let mut cluster = 0;
        for n in 0..table.clusters {
            if !kept(weights[n]) {
                continue;
            }
            // The offset of each ray, in its four angles.
            let orders: [_; 4] = core::array::from_fn(|_| shuffled(random));
            let coupled = |ray: usize| orders.map(|order| signed(order[ray]));
            for offsets in (0..RAYS).map(coupled) {
                let beyond = |azimuth: f64, up: f64| (azimuth.to_radians(), up.to_radians());
                let offset = |which: usize, spread: f64| spread * offsets[which];
                rays.push(Offset {
                    at_ap: beyond(
                        from_ap[n] + offset(0, table.c_asd),
                        up_ap[n] + offset(1, c_zsd),
                    ),
                    at_client: beyond(
                        from_client[n] + offset(2, table.c_asa),
                        up_client[n] + offset(3, table.c_zsa),
                    ),
                    power: powers[n],
                    delay_ns: (delays[n] - first) * 1e9,
                    cluster,
                });
            }
            cluster += 1;
        }
        Self {
            los,
            ghz,
            shadow,
            direct: seen,
            rays,
        }
    }
}

/// Angles of the clusters in degrees, relative to the direct path (equations 7.5-11, 7.5-12,
/// 7.5-16, 7.5-17).
fn angles(
    weights: &[f64],
    width: impl Fn(f64) -> f64,
    spread: f64,
    los: bool,
    random: &mut Random,
) -> Vec<f64> {
    let mut all: Vec<f64> = weights
        .iter()
        .map(|weight| {
            let sign = if random.next_f64() < 0.5 { -1.0 } else { 1.0 };
            sign * width(*weight) + spread / 7.0 * random.next_normal()
        })
        .collect();
    if los {
        let first = all[0];
        for angle in &mut all {
            *angle -= first;
        }
    }
    all
}

/// The rays in a random order: their angles are coupled at random (step 8).
fn shuffled(random: &mut Random) -> [usize; 2 * OFFSETS.len()] {
    let mut order: [usize; 2 * OFFSETS.len()] = core::array::from_fn(|index| index);
    for last in (1..order.len()).rev() {
        let other = (random.next_f64() * (last + 1) as f64) as usize;
        order.swap(last, other);
    }
    order
}

fn signed(ray: usize) -> f64 {
    let offset = OFFSETS[ray / 2];
    if ray.is_multiple_of(2) {
        offset
    } else {
        -offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{CENTRE_GHZ, decibels};

    /// Radians between two azimuths.
    fn offset(base: Direction, other: Direction) -> f64 {
        crate::geometry::wrapped(other.azimuth - base.azimuth).abs()
    }

    /// An access point at 3 m and a client at 1 m, as in the oracle.
    fn points(distance_2d: f64) -> (Point, Point) {
        (Point::new(0.0, 0.0, 3.0), Point::new(distance_2d, 0.0, 1.0))
    }

    #[test]
    fn path_loss_and_line_of_sight_match_ns_3() {
        // Horizontal distances, path loss with a line of sight and without, probability of one
        // (mixed office): values of ns-3.37's ThreeGppIndoorOfficePropagationLossModel at 60 GHz,
        // rounded.
        for (distance, seen, hidden, chance) in [
            (1.0, 74.0, None, 1.0),
            (3.0, 77.6, Some(82.9), 0.68),
            (5.0, 80.6, Some(89.6), 0.45),
            (10.0, 85.4, Some(100.2), 0.29),
            (25.0, 92.2, Some(115.2), 0.18),
        ] {
            let (ap, client) = points(distance);
            let far = ap.distance(client);
            let loss = |los| path_loss_db(los, far, CENTRE_GHZ).unwrap();
            assert!(
                (loss(true) - seen).abs() < 0.06,
                "{distance}: {}",
                loss(true)
            );
            if let Some(hidden) = hidden {
                assert!(
                    (loss(false) - hidden).abs() < 0.06,
                    "{distance}: {}",
                    loss(false)
                );
            }
            let p = los_probability(Office::Mixed, distance).unwrap();
            assert!((p - chance).abs() < 0.006, "{distance}: {p}");
        }
        assert_eq!(los_probability(Office::Open, 5.0).unwrap(), 1.0);
        let far = los_probability(Office::Open, 49.0).unwrap();
        assert!((far - 0.537).abs() < 0.001);
    }

    #[test]
    fn distances_have_a_minimum() {
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(path_loss_db(true, bad, 60.0).is_err(), "{bad}");
            assert!(los_probability(Office::Mixed, bad).is_err(), "{bad}");
        }
        assert!(path_loss_db(true, 1.0, 0.0).is_err());
        // Less than 1 m counts as 1 m.
        assert_eq!(path_loss_db(true, 0.0, 60.0), path_loss_db(true, 1.0, 60.0));
    }

    #[test]
    fn channels_have_the_mean_loss_and_spread_of_the_report() {
        let (ap, client) = points(10.0);
        for (los, loss, shadow) in [(true, 85.4, 3.0), (false, 100.2, 8.03)] {
            let count = 2000;
            let losses: Vec<f64> = (0..count)
                .map(|seed| {
                    let mut random = Random::new(seed);
                    let channel = draw_with(los, ap, client, CENTRE_GHZ, &mut random).unwrap();
                    -decibels(channel.gain())
                })
                .collect();
            let mean = losses.iter().sum::<f64>() / count as f64;
            let variance = losses.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count as f64;
            // Omitting the weakest clusters costs a few hundredths of a dB.
            assert!(
                (mean - loss).abs() < 4.0 * shadow / (count as f64).sqrt() + 0.1,
                "{mean}"
            );
            assert!(
                (variance.sqrt() / shadow - 1.0).abs() < 0.08,
                "{}",
                variance.sqrt()
            );
        }
    }

    #[test]
    fn the_direct_ray_follows_ricean_k_and_angles_spread_as_in_the_table() {
        let (ap, client) = points(10.0);
        let count = 1000;
        let (mut k, mut spread) = (0.0, 0.0);
        for seed in 0..count {
            let mut random = Random::new(seed);
            let channel = draw_with(true, ap, client, CENTRE_GHZ, &mut random).unwrap();
            let direct = channel.rays[0];
            assert_eq!(direct.at_client, client.direction_to(ap));
            k += decibels(direct.gain / (channel.gain() - direct.gain));
            let ahead = client.direction_to(ap);
            let squares = channel
                .rays
                .iter()
                .map(|ray| ray.gain * offset(ahead, ray.at_client).to_degrees().powi(2));
            spread += (squares.sum::<f64>() / channel.gain()).sqrt().log10();
        }
        assert!(
            (k / f64::from(count as u32) - 7.0).abs() < 0.6,
            "{}",
            k / count as f64
        );
        // lg ASA = -0.19 lg(61) + 1.781 = 1.44, with a spread of 0.33 plus the effect of drawing 15
        // clusters.
        assert!(
            (spread / count as f64 - 1.44).abs() < 0.15,
            "{}",
            spread / count as f64
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_channel() {
        let (ap, client) = points(7.0);
        let draw = |seed| draw(Office::Mixed, ap, client, CENTRE_GHZ, &Random::new(seed)).unwrap();
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
        assert!(draw(3).clusters() <= 19);
        assert!(
            draw(3)
                .rays
                .iter()
                .all(|ray| ray.gain > 0.0 && ray.delay_ns >= 0.0)
        );
    }

    #[test]
    fn the_share_of_lines_of_sight_matches_its_probability() {
        let (ap, client) = points(5.0);
        let seen = (0..2000)
            .filter(|seed| {
                draw(Office::Mixed, ap, client, CENTRE_GHZ, &Random::new(*seed))
                    .unwrap()
                    .los
            })
            .count();
        assert!((seen as f64 / 2000.0 - 0.445).abs() < 0.04, "{seen}");
    }
}
