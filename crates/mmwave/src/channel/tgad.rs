//! The conference room of 802.11ad between an access point at the ceiling and a client on the table
//! (Maltsev et al., "Channel models for 60 GHz WLAN systems", IEEE 802.11-09/0334): 4 reflections
//! off one wall, 8 off two.
//!
//! The room measures 3 by 4.5 by 3 m: for clients some meters away, not for the thesis' cell of 25
//! m. Angles and delays are drawn from the model's own distributions around the direct path, not
//! computed from wall positions.

use core::f64::consts::PI;

use sumlink_link::Random;

use super::{Channel, Ray};
use crate::error::{MmwaveError, positive};
use crate::geometry::{Direction, Point};
use crate::units::{linear, wavelength};

/// Speed of light in meters per nanosecond.
const LIGHT_NS: f64 = 0.299_792_458;

/// Delays in ns after the direct path with their densities (piecewise linear, not normalized), for
/// reflections off one wall and off two.
const ONCE: [(f64, f64); 6] = [
    (1.0, 72.0),
    (3.0, 78_875.0),
    (5.0, 68_246.0),
    (7.0, 7_434.0),
    (18.0, 8_949.0),
    (20.0, 0.0),
];
const TWICE: [(f64, f64); 10] = [
    (4.0, 0.0),
    (6.0, 86_773.0),
    (8.0, 2_453.0),
    (13.0, 79_978.0),
    (16.0, 26_041.0),
    (20.0, 27_128.0),
    (23.0, 0.0),
    (25.0, 0.0),
    (28.0, 48_049.0),
    (30.0, 0.0),
];

/// Probability that the one wall that people may obstruct is free, and each path over two walls.
const ONCE_FREE: f64 = 0.874;
const TWICE_FREE: f64 = 0.93;

/// Loss in dB per reflection: mean, standard deviation; never above -2 dB.
const ONCE_LOSS: (f64, f64) = (-10.0, 4.0);
const TWICE_LOSS: (f64, f64) = (-16.0, 5.0);
const MIN_LOSS: f64 = -2.0;

/// Rays of a cluster before and after its central one: number, K in dB, decay in ns, arrivals per
/// ns.
const BEFORE: (usize, f64, f64, f64) = (6, 10.0, 3.7, 0.37);
const AFTER: (usize, f64, f64, f64) = (8, 14.2, 4.5, 0.31);
/// Standard deviation of their angles from the central ray in degrees.
const RAY_SPREAD: f64 = 5.0;

/// Draws a channel between two points, with or without the direct path.
///
/// # Errors
///
/// A frequency that is not above 0; identical points.
pub fn draw(
    los: bool,
    ap: Point,
    client: Point,
    ghz: f64,
    random: &Random,
) -> Result<Channel, MmwaveError> {
    let wave = wavelength(positive("frequency in GHz", ghz)?);
    let distance = positive("distance in meters", ap.distance(client))?;
    let mut random = random.clone();
    let (ahead_ap, ahead_client) = (ap.direction_to(client), client.direction_to(ap));
    // Friis over the length of the path.
    let friis = |delay_ns: f64| (wave / (4.0 * PI * (distance + LIGHT_NS * delay_ns))).powi(2);
    let mut rays = Vec::new();
    if los {
        rays.push(Ray {
            at_ap: ahead_ap,
            at_client: ahead_client,
            gain: friis(0.0),
            delay_ns: 0.0,
            cluster: 0,
        });
    }
    let blocked_wall = (random.next_f64() >= ONCE_FREE).then(|| (random.next_f64() * 4.0) as usize);
    let once = first_order(&mut random);
    let twice = second_order(&mut random);
    for (index, way) in once.into_iter().chain(twice).enumerate() {
        let first = index < 4;
        let delay = random_of(if first { &ONCE } else { &TWICE }, &mut random);
        let (mean, deviation) = if first { ONCE_LOSS } else { TWICE_LOSS };
        let loss = truncated(mean, deviation, MIN_LOSS, &mut random);
        let blocked = if first {
            blocked_wall == Some(index)
        } else {
            random.next_f64() >= TWICE_FREE
        };
        let blocked = if blocked { person(&mut random) } else { 0.0 };
        let cluster = Cluster {
            at_ap: offset(ahead_ap, way.at_ap, -way.elevation),
            at_client: offset(ahead_client, way.at_client, way.elevation),
            gain: friis(delay) * linear(loss + blocked),
            delay_ns: delay,
            number: index + 1,
        };
        cluster.rays(&mut random, &mut rays);
    }
    Ok(Channel { los, rays })
}

/// Loss in dB by a person in a reflected path: a mixture of two normal distributions, never a gain.
pub fn person(random: &mut Random) -> f64 {
    let (mean, deviation) = if random.next_f64() < 0.83 {
        (-18.2, 8.3)
    } else {
        (-47.2, 10.0)
    };
    truncated(mean, deviation, 0.0, random)
}

/// Angles of a path in degrees, relative to the direct one.
#[derive(Clone, Copy)]
struct Way {
    at_ap: f64,
    at_client: f64,
    elevation: f64,
}

fn first_order(random: &mut Random) -> Vec<Way> {
    // A small and a large azimuth on either side.
    let mut sides = Vec::with_capacity(4);
    for sign in [1.0, -1.0] {
        let (small, large) = loop {
            let small = 90.0 * random.next_f64();
            let large = 135.0 / 80.0 * small + 45.0 + 35.0 * random.next_f64();
            if large <= 180.0 {
                break (small, large);
            }
        };
        sides.extend([sign * small, sign * large]);
    }
    // At the other end the order of the walls is rotated by two.
    let ways = (0..4).map(|index| Way {
        at_ap: sides[index],
        at_client: sides[(index + 2) % 4],
        elevation: 0.0,
    });
    ways.collect()
}

fn second_order(random: &mut Random) -> Vec<Way> {
    let ways = (0..8).map(|index| {
        let side = if index < 4 { -180.0 } else { 0.0 };
        let at_ap = side + 180.0 * random.next_f64();
        // Of the twelve paths, 5 and 6 leave on the negative side and arrive rotated by 180
        // degrees, 9 and 10 likewise.
        let at_client = match index {
            0 | 1 => at_ap + 180.0,
            4 | 5 => at_ap - 180.0,
            _ => at_ap,
        };
        let elevation = stepwise(random);
        Way {
            at_ap,
            at_client,
            elevation,
        }
    });
    ways.collect()
}

/// Elevation of paths over two walls: uniform in pieces of -34, -20, -12, -8 degrees with densities
/// 3/154, 6/77, 2/77.
fn stepwise(random: &mut Random) -> f64 {
    let pieces = [
        (-34.0, -20.0, 3.0 / 154.0),
        (-20.0, -12.0, 6.0 / 77.0),
        (-12.0, -8.0, 2.0 / 77.0),
    ];
    let total: f64 = pieces
        .iter()
        .map(|(from, to, density)| (to - from) * density)
        .sum();
    let mut left = random.next_f64() * total;
    for (from, to, density) in pieces {
        let part = (to - from) * density;
        if left < part {
            return from + left / density;
        }
        left -= part;
    }
    -8.0
}

/// A central ray and the rays around it.
struct Cluster {
    at_ap: Direction,
    at_client: Direction,
    gain: f64,
    delay_ns: f64,
    number: usize,
}

impl Cluster {
    /// Appends its rays; their powers sum to the cluster's.
    fn rays(&self, random: &mut Random, rays: &mut Vec<Ray>) {
        let mut parts = vec![(0.0, 1.0)];
        for (side, (count, k, decay, arrivals)) in [(-1.0, BEFORE), (1.0, AFTER)] {
            let mut at = 0.0;
            for _ in 0..count {
                at += random.next_exponential() / arrivals;
                // Rayleigh amplitudes are exponential powers.
                let power = linear(-k) * (-at / decay).exp() * random.next_exponential();
                parts.push((side * at, power));
            }
        }
        let sum: f64 = parts.iter().map(|(_, power)| power).sum();
        for (index, (delay, power)) in parts.into_iter().enumerate() {
            let mut near = |direction: Direction| {
                if index == 0 {
                    return direction;
                }
                let (azimuth, up) = (random.next_normal(), random.next_normal());
                offset(direction, RAY_SPREAD * azimuth, RAY_SPREAD * up)
            };
            rays.push(Ray {
                at_ap: near(self.at_ap),
                at_client: near(self.at_client),
                gain: self.gain * power / sum,
                delay_ns: (self.delay_ns + delay).max(0.0),
                cluster: self.number,
            });
        }
    }
}

fn offset(direction: Direction, azimuth: f64, elevation: f64) -> Direction {
    Direction::folded(
        direction.azimuth + azimuth.to_radians(),
        direction.elevation + elevation.to_radians(),
    )
}

/// A normal distribution truncated above `most`.
fn truncated(mean: f64, deviation: f64, most: f64, random: &mut Random) -> f64 {
    loop {
        let value = mean + deviation * random.next_normal();
        if value <= most {
            return value;
        }
    }
}

/// A number with a piecewise linear density, by rejection.
fn random_of(density: &[(f64, f64)], random: &mut Random) -> f64 {
    let (from, to) = (density[0].0, density[density.len() - 1].0);
    let highest = density.iter().map(|point| point.1).fold(0.0, f64::max);
    loop {
        let x = from + (to - from) * random.next_f64();
        let next = density
            .partition_point(|point| point.0 <= x)
            .min(density.len() - 1);
        let ((x0, y0), (x1, y1)) = (density[next - 1], density[next]);
        let y = y0 + (y1 - y0) * (x - x0) / (x1 - x0);
        if random.next_f64() * highest < y {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{CENTRE_GHZ, decibels};

    fn room(distance: f64) -> (Point, Point) {
        (Point::new(0.0, 0.0, 2.9), Point::new(distance, 0.0, 1.0))
    }

    #[test]
    fn the_direct_path_is_friis_and_reflections_are_ten_decibels_weaker() {
        let (ap, client) = room(3.0);
        let length = (9.0f64 + 1.9 * 1.9).sqrt();
        let friis = -20.0 * (wavelength(CENTRE_GHZ) / (4.0 * PI * length)).log10();
        let mut reflected = 0.0;
        for seed in 0..500 {
            let channel = draw(true, ap, client, CENTRE_GHZ, &Random::new(seed)).unwrap();
            assert!((-decibels(channel.rays[0].gain) - friis).abs() < 1e-9);
            assert_eq!(channel.rays.len(), 1 + 12 * 15);
            assert_eq!(channel.clusters(), 13);
            reflected += decibels((channel.gain() - channel.rays[0].gain) / channel.rays[0].gain);
        }
        // Twelve reflections of -10 and -16 dB over longer paths, some of them blocked.
        let mean = reflected / 500.0;
        assert!((-9.0..-3.0).contains(&mean), "{mean}");
    }

    #[test]
    fn without_the_direct_path_only_reflections_remain() {
        let (ap, client) = room(3.0);
        let channel = draw(false, ap, client, CENTRE_GHZ, &Random::new(5)).unwrap();
        assert!(!channel.los && channel.rays.iter().all(|ray| ray.cluster > 0));
        let same = draw(true, ap, client, CENTRE_GHZ, &Random::new(5)).unwrap();
        assert_eq!(same.rays[1..], channel.rays[..]);
    }

    #[test]
    fn people_cost_eighteen_or_forty_seven_decibels() {
        let mut random = Random::new(1);
        let all: Vec<f64> = (0..4000).map(|_| person(&mut random)).collect();
        assert!(all.iter().all(|db| *db <= 0.0));
        // The first normal loses the 1.4 % above 0: -18.2 - 8.3 * 0.036 = -18.5.
        let expected = 0.83 * -18.5 + 0.17 * -47.2;
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - expected).abs() < 1.0, "{mean}");
    }

    #[test]
    fn delays_follow_the_model() {
        let mut random = Random::new(2);
        let delays: Vec<f64> = (0..4000).map(|_| random_of(&ONCE, &mut random)).collect();
        assert!(delays.iter().all(|delay| (1.0..=20.0).contains(delay)));
        // By the areas below the pieces: 78947, 147121, 75680, 90107 (each halved and times its
        // width), 8949.
        let early = delays.iter().filter(|delay| **delay < 5.0).count() as f64 / 4000.0;
        let areas = [78_947.0, 147_121.0, 75_680.0, 90_106.5, 8_949.0];
        let expected = (areas[0] + areas[1]) / areas.iter().sum::<f64>();
        assert!((early - expected).abs() < 0.03, "{early} {expected}");
    }

    #[test]
    fn two_devices_at_one_point_are_rejected() {
        let ap = Point::new(1.0, 1.0, 1.0);
        assert!(draw(true, ap, ap, CENTRE_GHZ, &Random::new(1)).is_err());
    }
}
