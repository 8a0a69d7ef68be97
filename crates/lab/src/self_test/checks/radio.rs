//! Virtual interfaces on one radio: hotspots that are visited in turn.

use std::time::Duration;

use sumlink_link::{Radio, Schedule};

use super::super::probe::{Arrival, SMALL};
use super::super::probes::Probes;
use super::{Check, Figure, moments, ms, open, saturated, several};
use crate::config::RadioSpec;
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};

pub(super) const CHECKS: &[Check] = &[Check {
    subject: "radio",
    config: hotspots,
    measure: turns,
}];

const HOTSPOTS: usize = 3;
/// Wi-Fi rate between the card and the current hotspot in bit/s, both directions together.
const WIFI: u64 = 120_000_000;
/// Time that the card spends with each hotspot, and the part of it lost to switching.
const TURN: Duration = Duration::from_millis(20);
const SWITCHING: Duration = Duration::from_millis(2);

/// At first the links behind the hotspots are faster than the Wi-Fi.
fn hotspots() -> Result<LabConfig, LabError> {
    let mut config = several(HOTSPOTS, "rate=800mbit,queue=4MB")?;
    config.radios.push(RadioSpec {
        links: config.links.iter().map(|link| link.name.clone()).collect(),
        radio: Radio {
            rate: WIFI,
            switching: SWITCHING,
            card_queue: 4_000_000,
            hotspot_buffer: 4_000_000,
            schedule: Schedule::Fixed(vec![TURN; HOTSPOTS]),
        },
    });
    Ok(config)
}

fn turns(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let cycle = TURN * HOTSPOTS as u32;
    let usable = TURN - SWITCHING;
    let (settle, window) = (cycle * 3, cycle * 10);
    let mut probes = Probes::new(lab)?;
    probes.set(&open(lab.links()[0].shapes[0].rate))?;

    // Single packets at 599 points of the cycle: they wait for the card, and for packets queued
    // before them, in both directions.
    let (cycles, places) = (14, 599);
    let tick = cycle * cycles / places;
    probes.send_paced(places, SMALL, tick)?;
    let arrivals = probes.drain()?;
    let away = cycle - usable;
    let waited_with = away.as_secs_f64() / tick.as_secs_f64();
    let on_air = (SMALL * 8) as f64 / WIFI as f64 * 1e3;
    let wait = ms(away) / 2.0 + waited_with * on_air;
    let asked = wait * away.as_secs_f64() / cycle.as_secs_f64();
    let mut figures = vec![Figure::new(
        "radio, 3 hotspots: mean delay",
        "ms",
        asked,
        arrivals.iter().map(|a| mean_over(cycle, a)).sum::<f64>() / arrivals.len() as f64,
    )];
    // The Wi-Fi is the bottleneck: each hotspot gets its turn minus the switching, half of it in
    // each direction.
    let share = usable.as_secs_f64() / cycle.as_secs_f64();
    let rates = saturated(&mut probes, 300, settle, window)?;
    let asked = WIFI as f64 / 1e6 * share / 2.0;
    figures.extend(extremes("share of the Wi-Fi", asked, &rates));

    // The links behind the hotspots are the bottleneck, and continue while the card is elsewhere.
    let behind = 4;
    probes.set(&open(behind * 1_000_000))?;
    let rates = saturated(&mut probes, 100, settle, window)?;
    figures.extend(extremes("rates add up", behind as f64, &rates));
    let name = "radio, 3 hotspots: lost while the card is away";
    figures.push(Figure::new(name, "packets", 0.0, probes.missing() as f64));
    Ok(figures)
}

/// Mean delay in milliseconds, with equal weight for every part of the cycle: a sender that was
/// late for a while has sent more packets in some parts than in others.
fn mean_over(cycle: Duration, arrivals: &[Arrival]) -> f64 {
    const PARTS: usize = 60;
    let mut parts = vec![Vec::new(); PARTS];
    for arrival in arrivals {
        let place = (arrival.sent.as_nanos() % cycle.as_nanos()) as f64;
        let part = place / cycle.as_nanos() as f64 * PARTS as f64;
        parts[(part as usize).min(PARTS - 1)].push(ms(arrival.delay()));
    }
    parts.retain(|part| !part.is_empty());
    let means: Vec<_> = parts.iter().map(|part| moments(part).0).collect();
    moments(&means).0
}

/// The minimum and the maximum over all directions of all hotspots.
fn extremes(what: &str, asked: f64, rates: &[f64]) -> [Figure; 2] {
    let figure = |which: &str, pick: fn(f64, f64) -> f64| {
        let measured = rates.iter().copied().reduce(pick).unwrap_or_default();
        let name = format!("radio, 3 hotspots: {what}, {which} of {}", rates.len());
        Figure::new(name, "Mbit/s", asked, measured)
    };
    [figure("least", f64::min), figure("most", f64::max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_cycle_have_equal_weight() {
        let cycle = Duration::from_millis(60);
        let arrival = |sent: u64, delay: u64| Arrival {
            number: 0,
            sent: Duration::from_millis(sent),
            received: Duration::from_millis(sent + delay),
        };
        let mut arrivals = vec![arrival(5, 10), arrival(130, 20)];
        arrivals.extend([arrival(65, 10); 50]);
        assert!((mean_over(cycle, &arrivals) - 15.0).abs() < 1e-9);
        assert_eq!(mean_over(cycle, &[]), 0.0);
    }
}
