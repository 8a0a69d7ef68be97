//! Scheduled changes: whether they happen on time, in both directions.

use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::super::probe::{Arrival, SMALL, wall_clock};
use super::super::probes::Probes;
use super::{Check, Figure, ms, one, word};
use crate::config::{InterfaceState, LinkChange, PlannedChange, Setting};
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};
use crate::topology::Side;

pub(super) const CHECKS: &[Check] = &[
    Check {
        subject: "plan",
        config: || {
            let later = LinkChange {
                direction: None,
                setting: Setting::Delay(LATER),
            };
            planned("probe:rate=100mbit,delay=10ms", [(PLANNED, later)])
        },
        measure: planned_delay,
    },
    Check {
        subject: "blackhole",
        config: || {
            let plan = [
                (BLACKHOLE[0], LinkChange::state(InterfaceState::Blackhole)),
                (BLACKHOLE[1], LinkChange::state(InterfaceState::Up)),
            ];
            planned("probe:rate=100mbit", plan)
        },
        measure: blackhole,
    },
];

/// Time of the delay change, and the new delay.
const PLANNED: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_millis(40);
/// Start and end of the blackhole.
const BLACKHOLE: [Duration; 2] = [Duration::from_millis(300), Duration::from_millis(600)];
/// Interval between two packets of a probe.
const TICK: Duration = Duration::from_millis(1);

fn planned<const N: usize>(
    link: &str,
    plan: [(Duration, LinkChange); N],
) -> Result<LabConfig, LabError> {
    let mut config = one(link)?;
    config.timeline = plan
        .into_iter()
        .map(|(at, change)| PlannedChange {
            at,
            link: config.links[0].name.clone(),
            change,
        })
        .collect();
    Ok(config)
}

/// Starts the run and returns the time.
fn begin(lab: &Lab) -> Result<Duration, LabError> {
    let before = wall_clock();
    lab.begin()?;
    Ok((before + wall_clock()) / 2)
}

fn planned_delay(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probes = Probes::new(lab)?;
    // In repeated measurements the previous delay is still set.
    let earlier = lab.links()[0].shapes[0].delay;
    probes.set(&Setting::Delay(earlier))?;
    let begun = begin(lab)?;
    probes.send_paced(1000, SMALL, TICK)?;
    let arrivals = probes.drain()?;
    let figure = |(direction, arrivals): (_, &Vec<Arrival>)| {
        let mut after = arrivals.iter();
        let changed = after.find(|arrival| arrival.delay() > (earlier + LATER) / 2);
        let at = changed.map_or(0.0, |arrival| ms(arrival.sent.saturating_sub(begun)));
        let name = format!("delay changes at 500 ms, {}", word(direction));
        Figure::new(name, "ms", ms(PLANNED), at)
    };
    Ok(probes.directions().zip(&arrivals).map(figure).collect())
}

fn blackhole(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let [from, until] = BLACKHOLE;
    let mut probes = Probes::new(lab)?;
    let begun = begin(lab)?;
    let start = Instant::now();
    // Until the middle of the blackhole, and for the same time again.
    let half = ((from + until) / 2).as_millis() as u32;
    probes.send_paced(half, SMALL, TICK)?;
    let carriers = [Side::Client, Side::Server]
        .into_iter()
        .map(|side| has_carrier(lab, side))
        .collect::<Result<Vec<_>, _>>()?;
    let carriers = carriers.into_iter().filter(|carrier| *carrier).count();
    let in_time = start.elapsed() < until;
    probes.send_paced(half, SMALL, TICK)?;
    let arrivals = probes.drain()?;
    let mut figures = Vec::new();
    let mut survived = 0;
    for (direction, arrivals) in probes.directions().zip(&arrivals) {
        let hole = Gap::find(arrivals);
        survived += hole.survived;
        let since = |at: Duration| ms(at.saturating_sub(begun));
        let name = |what: &str| format!("blackhole {what}, {}", word(direction));
        let figure = |what: &str, asked, at| Figure::new(name(what), "ms", ms(asked), since(at));
        figures.push(figure("begins at 300 ms", from, hole.last_before));
        figures.push(figure("ends at 600 ms", until, hole.first_after));
    }
    let through = f64::from(survived);
    figures.push(Figure::new(
        "blackhole: passed packets",
        "packets",
        0.0,
        through,
    ));
    let up = if in_time { carriers as f64 } else { f64::NAN };
    figures.push(Figure::new("blackhole: ends with a carrier", "", 2.0, up));
    Ok(figures)
}

/// The gap of missing packets.
#[derive(Debug, Default, PartialEq)]
struct Gap {
    /// Send time of the last packet before the first missing one.
    last_before: Duration,
    /// Send time of the first packet after the last missing one.
    first_after: Duration,
    /// Packets received between the first and the last missing one.
    survived: u32,
}

impl Gap {
    /// All zeros if no packet is missing.
    fn find(arrivals: &[Arrival]) -> Self {
        let gap = |pair: &[Arrival]| pair[1].number != pair[0].number + 1;
        let first = arrivals.windows(2).position(gap);
        let last = arrivals.windows(2).rposition(gap);
        match (first, last) {
            (Some(first), Some(last)) => Self {
                last_before: arrivals[first].sent,
                first_after: arrivals[last + 1].sent,
                survived: (last - first) as u32,
            },
            _ => Self::default(),
        }
    }
}

/// Whether the first link's end on that side has a carrier.
fn has_carrier(lab: &Lab, side: Side) -> Result<bool, LabError> {
    let name = lab.links()[0].name.clone();
    let is_running = move || -> nix::Result<bool> {
        let mut own = getifaddrs()?.filter(|interface| interface.interface_name == name);
        Ok(own.any(|interface| interface.flags.contains(InterfaceFlags::IFF_RUNNING)))
    };
    lab.run(side, is_running)?
        .map_err(|error| LabError::system("listing interfaces", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_has_ends_and_may_contain_received_packets() {
        let arrive = |numbers: &[u64]| -> Vec<_> {
            let arrival = |number: &u64| Arrival {
                number: *number,
                sent: Duration::from_millis(*number),
                received: Duration::ZERO,
            };
            numbers.iter().map(arrival).collect()
        };
        let hole = Gap::find(&arrive(&[0, 1, 2, 6, 7, 9, 10]));
        let expected = Gap {
            last_before: Duration::from_millis(2),
            first_after: Duration::from_millis(9),
            survived: 2,
        };
        assert_eq!(hole, expected);
        assert_eq!(Gap::find(&arrive(&[0, 1, 2])), Gap::default());
        assert_eq!(Gap::find(&[]), Gap::default());
    }
}
