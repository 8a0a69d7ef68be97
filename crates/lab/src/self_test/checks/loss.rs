//! Losses: their rate, and the length of bursts.

use super::super::probe::{Arrival, SMALL};
use super::super::probes::{Arrivals, Probes};
use super::{Check, Figure, one, word};
use crate::config::Direction;
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};

pub(super) const CHECKS: &[Check] = &[
    Check {
        subject: "loss",
        config: || one("probe:rate=1gbit,loss=10%,queue=100MB"),
        measure: independent_loss,
    },
    Check {
        subject: "loss",
        config: || one("probe:rate=1gbit,loss=burst:10%:4,queue=100MB"),
        measure: burst_loss,
    },
    Check {
        subject: "gso",
        config: || {
            Ok(LabConfig {
                gso: true,
                ..one("probe:rate=1gbit,loss=10%,queue=100MB")?
            })
        },
        measure: loss_from_super_packets,
    },
];

/// Sends `count` packets in each direction, in portions that fit into all buffers, and returns the
/// ones received.
fn survivors(lab: &Lab, count: u64) -> Result<(Vec<Direction>, Arrivals), LabError> {
    const PORTION: u64 = 20_000;
    let mut probes = Probes::new(lab)?;
    let mut arrivals = vec![Vec::new(); 2];
    for _ in 0..count / PORTION {
        probes.fill(PORTION, SMALL)?;
        for (all, portion) in arrivals.iter_mut().zip(probes.drain()?) {
            all.extend(portion);
        }
    }
    Ok((probes.directions().collect(), arrivals))
}

fn lost(count: u64, arrivals: &[Arrival]) -> f64 {
    (count - arrivals.len() as u64) as f64 / count as f64 * 100.0
}

/// Mean number of consecutive lost packets.
fn mean_run(arrivals: &Arrivals) -> f64 {
    let gaps = arrivals.iter().flat_map(|arrivals| arrivals.windows(2));
    let gaps = gaps.map(|pair| pair[1].number.saturating_sub(pair[0].number + 1));
    let gaps: Vec<_> = gaps.filter(|gap| *gap > 0).collect();
    gaps.iter().sum::<u64>() as f64 / gaps.len().max(1) as f64
}

fn independent_loss(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    // The standard deviation of the share is 0.75 % of it.
    let count = 160_000;
    let (directions, arrivals) = survivors(lab, count)?;
    let figure = |(direction, arrivals): (_, &Vec<_>)| {
        let name = format!("loss 10 %, {}", word(direction));
        Figure::new(name, "%", 10.0, lost(count, arrivals))
    };
    Ok(directions.into_iter().zip(&arrivals).map(figure).collect())
}

fn burst_loss(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    // Over both directions; the standard deviations are about 1 % of the share and 0.8 % of the
    // length.
    let count = 260_000;
    let (_, arrivals) = survivors(lab, count)?;
    let share = arrivals.iter().map(|a| lost(count, a)).sum::<f64>() / 2.0;
    let run = mean_run(&arrivals);
    Ok(vec![
        Figure::new("loss 10 % in bursts of 4: share", "%", 10.0, share),
        Figure::new("loss 10 % in bursts of 4: mean burst", "packets", 4.0, run),
    ])
}

/// The packets of a super-packet from the kernel are lost independently of each other.
fn loss_from_super_packets(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let count = 160_000;
    let (directions, arrivals) = survivors(lab, count)?;
    let mut figures: Vec<_> = directions
        .into_iter()
        .zip(&arrivals)
        .map(|(direction, arrivals)| {
            let name = format!("super-packets: loss 10 %, {}", word(direction));
            Figure::new(name, "%", 10.0, lost(count, arrivals))
        })
        .collect();
    // For independent losses: 1 / (1 - 0.1).
    let run = mean_run(&arrivals);
    let name = "super-packets: mean number lost in a row";
    figures.push(Figure::new(name, "packets", 1.0 / 0.9, run));
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn losses_in_a_row() {
        let arrive = |numbers: &[u64]| -> Vec<_> {
            let arrival = |number: &u64| Arrival {
                number: *number,
                sent: Duration::ZERO,
                received: Duration::ZERO,
            };
            numbers.iter().map(arrival).collect()
        };
        // 2, 3 and 7 are lost; 1, 2 and 3.
        let arrivals = vec![arrive(&[0, 1, 4, 5, 6, 8]), arrive(&[0, 4])];
        assert!((mean_run(&arrivals) - 2.0).abs() < 1e-9);
        assert_eq!(mean_run(&vec![arrive(&[0, 1])]), 0.0);
        assert!((lost(10, &arrivals[0]) - 40.0).abs() < 1e-9);
    }
}
