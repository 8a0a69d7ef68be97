//! Links that share the air, and an interferer on their channel.

use std::thread;
use std::time::{Duration, Instant};

use sumlink_link::{Air, Interferer, ModelError};

use super::super::probe::LARGE;
use super::super::probes::Probes;
use super::{Check, Figure, delays, moments, one, rate_asked, rate_of, saturated, several};
use crate::config::{CouplingGroup, Direction, InterfererSpec, members};
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};

pub(super) const CHECKS: &[Check] = &[
    Check {
        subject: "coupling",
        config: coupled,
        measure: coupling,
    },
    Check {
        subject: "interferer",
        config: || {
            let spec = spec(Interferer::NONE, 16);
            Ok(LabConfig {
                interferers: vec![InterfererSpec {
                    changes: vec![(Duration::ZERO, Interferer::NONE), (COMES, NOISY)],
                    ..spec
                }],
                ..several(16, "rate=12mbit,queue=1MB")?
            })
        },
        measure: added_delay,
    },
    Check {
        subject: "interferer",
        config: || {
            let hidden = Interferer {
                deferral: 0.0,
                ..NOISY
            };
            Ok(LabConfig {
                interferers: vec![spec(hidden, 1)],
                ..several(1, "rate=1gbit,queue=100MB")?
            })
        },
        measure: repetitions,
    },
    Check {
        subject: "interferer",
        config: || {
            Ok(LabConfig {
                interferers: vec![spec(HEARD, 1)],
                ..several(1, "rate=20mbit,queue=10MB")?
            })
        },
        measure: share_of_time,
    },
];

fn wrong(error: ModelError) -> LabError {
    LabError::system("describing the air", error)
}

/// The radios of table 5.1 (80-80 MHz) in Li, "WhiteHaul-based Spectrum Aggregation in Wi-Fi
/// Bands": rate of each alone and at once, in Mbit/s.
const ALONE: [f64; 2] = [229.0, 261.0];
const AT_ONCE: [f64; 2] = [149.0, 258.0];

/// Transmissions have a fifth of their usual length, so that a short measurement contains many of
/// them. The shares do not depend on it.
fn coupled() -> Result<LabConfig, LabError> {
    let mut config = one("first:rate=229mbit,queue=10MB")?;
    config.links.push("second:rate=261mbit,queue=10MB".parse()?);
    let deferral = vec![vec![0.0, 0.90], vec![0.14, 0.0]];
    let air = Air::new(vec![Air::THETA; 2], deferral, Air::TRANSMISSION / 5).map_err(wrong)?;
    config.groups = Direction::BOTH
        .map(|direction| CouplingGroup {
            members: members(direction, ["first", "second"]),
            air: air.clone(),
        })
        .to_vec();
    Ok(config)
}

/// Mbit/s of each link, averaged over both directions, which are separate groups.
fn coupling(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    const AHEAD: u64 = 2_000;
    let settle = Duration::from_millis(100);
    let mut figures = Vec::new();
    for (link, asked) in ALONE.into_iter().enumerate() {
        let mut probes = Probes::of_link(lab, link)?;
        let rates = saturated(&mut probes, AHEAD, settle, Duration::from_millis(400))?;
        let name = format!("coupled, link {} alone", link + 1);
        figures.push(Figure::new(name, "Mbit/s", asked, moments(&rates).0));
    }
    let mut probes = Probes::new(lab)?;
    let rates = saturated(&mut probes, AHEAD, settle, Duration::from_secs(2))?;
    for (link, asked) in AT_ONCE.into_iter().enumerate() {
        let name = format!("coupled, link {} while both send", link + 1);
        let (mean, _) = moments(&rates[2 * link..2 * link + 2]);
        figures.push(Figure::new(name, "Mbit/s", asked, mean));
    }
    Ok(figures)
}

/// Start of the interference.
const COMES: Duration = Duration::from_millis(500);
/// Always present: links wait for it half of the time, and one attempt in five fails. With this
/// number of repetitions not one in 10^20 packets is lost.
const NOISY: Interferer = Interferer {
    occupancy: 1.0,
    burst: Duration::from_millis(1),
    deferral: 0.5,
    frame_error: 0.2,
    retry_limit: 30,
};
/// Present 40 % of the time, and always heard.
const HEARD: Interferer = Interferer {
    occupancy: 0.4,
    burst: Duration::from_micros(200),
    deferral: 1.0,
    ..Interferer::NONE
};

/// On both directions of this number of links.
fn spec(interferer: Interferer, links: usize) -> InterfererSpec {
    let names = (0..links).map(|link| format!("probe{link}"));
    InterfererSpec {
        members: names
            .flat_map(|name| Direction::BOTH.map(|direction| (name.clone(), direction)))
            .collect(),
        interferer,
        changes: Vec::new(),
    }
}

/// Mean number of repetitions of a packet.
fn repetitions_asked(interferer: &Interferer) -> f64 {
    let error = interferer.frame_error;
    (1..=interferer.retry_limit)
        .map(|k| error.powi(k as i32))
        .sum()
}

/// Mean milliseconds for which a packet occupies the link during interference, if it takes `alone`
/// without: its attempts, and before each repetition a back-off that is uniform between 0 and a
/// window of 16 slots of 9 us, doubled with each one up to 1024 (IEEE 802.11).
fn occupied(interferer: &Interferer, alone: f64) -> f64 {
    const SLOT_MS: f64 = 0.009;
    let back_off = |k: u32| {
        let window = 16u32 << (k - 1).min(6);
        interferer.frame_error.powi(k as i32) * f64::from(window - 1) / 2.0 * SLOT_MS
    };
    let back_offs: f64 = (1..=interferer.retry_limit).map(back_off).sum();
    let attempts = 1.0 + repetitions_asked(interferer);
    attempts * alone / (1.0 - interferer.deferral) + back_offs
}

/// Sends single packets before and during the interference.
fn added_delay(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    const TICK: Duration = Duration::from_millis(10);
    let mut probes = Probes::new(lab)?;
    lab.begin()?;
    let begun = Instant::now();
    probes.send_paced(40, LARGE, TICK)?;
    let before = probes.drain()?;
    let in_time = begun.elapsed() < COMES;
    thread::sleep((COMES + TICK).saturating_sub(begun.elapsed()));
    probes.send_paced(150, LARGE, TICK)?;
    let after = probes.drain()?;
    let mean = |arrivals| moments(&delays(arrivals)).0;
    let alone = (LARGE * 8) as f64 / rate_asked(lab) as f64 * 1e3;
    let added = if in_time {
        mean(&after) - mean(&before)
    } else {
        f64::NAN
    };
    let lost = probes.missing() as f64;
    Ok(vec![
        Figure::new(
            "interferer: added delay",
            "ms",
            occupied(&NOISY, alone) - alone,
            added,
        ),
        Figure::new("interferer: lost", "packets", 0.0, lost),
    ])
}

/// A full queue with an interferer that the link does not hear.
fn repetitions(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let interferer = Interferer {
        deferral: 0.0,
        ..NOISY
    };
    let repeated = || -> Result<u64, LabError> {
        let status = lab.status()?;
        let directions = &status[0].directions;
        Ok(directions.iter().map(|d| d.layer2_retransmissions).sum())
    };
    let rate = rate_asked(lab);
    let before = repeated()?;
    let mut probes = Probes::new(lab)?;
    let arrivals = probes.fill_and_drain(40_000, &super::open(rate))?;
    let grown = repeated()? - before;
    let alone = (LARGE * 8) as f64 / rate as f64 * 1e3;
    let asked = (LARGE * 8) as f64 / 1e3 / occupied(&interferer, alone);
    let rates: Vec<_> = arrivals.iter().map(|arrivals| rate_of(arrivals)).collect();
    let lost = probes.missing() as f64;
    Ok(vec![
        Figure::new(
            "interferer, not heard: repetitions of a packet",
            "",
            repetitions_asked(&interferer),
            grown as f64 / probes.sent() as f64,
        ),
        Figure::new(
            "interferer, not heard: rate",
            "Mbit/s",
            asked,
            moments(&rates).0,
        ),
        Figure::new("interferer, not heard: lost", "packets", 0.0, lost),
    ])
}

/// A link that always hears the interferer leaves it its share of the time.
fn share_of_time(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let settle = Duration::from_millis(100);
    let mut probes = Probes::new(lab)?;
    let rates = saturated(&mut probes, 500, settle, Duration::from_millis(1500))?;
    let asked = rate_asked(lab) as f64 / 1e6 * (1.0 - HEARD.occupancy);
    let measured = moments(&rates).0;
    Ok(vec![Figure::new(
        "interferer, heard 40 % of the time: rate",
        "Mbit/s",
        asked,
        measured,
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_matches_the_fitted_group() {
        let shares = Air::pair(0.90, 0.14).unwrap().shares(&[true; 2]).unwrap();
        for ((share, alone), at_once) in shares.into_iter().zip(ALONE).zip(AT_ONCE) {
            assert!((share * alone / at_once - 1.0).abs() < 1e-3);
        }
    }

    #[test]
    fn repetitions_occupy_the_link() {
        let quiet = Interferer {
            deferral: 0.5,
            ..Interferer::NONE
        };
        assert_eq!(occupied(&quiet, 1.0), 2.0);
        let one = Interferer {
            frame_error: 0.5,
            retry_limit: 1,
            ..Interferer::NONE
        };
        // Every second packet is sent twice, after 7.5 slots on average.
        assert!((occupied(&one, 1.0) - (1.5 + 0.5 * 7.5 * 0.009)).abs() < 1e-12);
        assert!((repetitions_asked(&NOISY) - 0.25).abs() < 1e-12);
    }
}
