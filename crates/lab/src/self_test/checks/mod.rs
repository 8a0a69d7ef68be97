//! Compares the emulator with its settings, by datagrams in both directions.
//!
//! The number of packets in each check is chosen so that the standard deviation of a random figure
//! is at most 1 % of it. The median of three has two thirds of that: the tolerance is at least
//! three of its standard deviations.

use std::time::Duration;

use super::Figure;
use super::probe::{Arrival, LARGE, wall_clock};
use super::probes::Probes;
use crate::config::{Direction, LinkSpec, Setting};
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};

mod air;
mod delay;
mod events;
mod loss;
mod radio;
mod rate;

/// A measurement in a separate laboratory.
pub(super) struct Check {
    /// Subject, by which it can be selected.
    pub(super) subject: &'static str,
    /// The laboratory.
    pub(super) config: fn() -> Result<LabConfig, LabError>,
    pub(super) measure: fn(&Lab) -> Result<Vec<Figure>, LabError>,
}

/// All checks, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Check> {
    [
        delay::CHECKS,
        rate::CHECKS,
        loss::CHECKS,
        events::CHECKS,
        air::CHECKS,
        radio::CHECKS,
    ]
    .into_iter()
    .flatten()
}

/// A laboratory with one link.
fn one(link: &str) -> Result<LabConfig, LabError> {
    Ok(LabConfig::new(vec![link.parse()?]))
}

/// A laboratory with several equal links.
fn several(count: usize, settings: &str) -> Result<LabConfig, LabError> {
    let link = |i| format!("probe{i}:{settings}").parse();
    let links: Result<Vec<LinkSpec>, _> = (0..count).map(link).collect();
    Ok(LabConfig::new(links?))
}

/// The rate of the first link.
fn rate_asked(lab: &Lab) -> u64 {
    lab.links()[0].shapes[0].rate
}

fn open(rate: u64) -> Setting {
    Setting::Rate(rate)
}

/// Suffix of a figure's name.
fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Mean and standard deviation; 0 without values.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

/// Delays of all arrivals, in milliseconds.
fn delays<'a>(arrivals: impl IntoIterator<Item = &'a Vec<Arrival>>) -> Vec<f64> {
    let all = arrivals.into_iter().flatten();
    all.map(|arrival| ms(arrival.delay())).collect()
}

/// Number of packets that arrived before one that was sent earlier.
fn overtaken(arrivals: &[Arrival]) -> usize {
    let pairs = arrivals.windows(2);
    pairs.filter(|pair| pair[1].number < pair[0].number).count()
}

/// Mbit/s from the first arrival to the last, for packets of the largest size.
fn rate_of(arrivals: &[Arrival]) -> f64 {
    let time = match (arrivals.first(), arrivals.last()) {
        (Some(first), Some(last)) => last.received.saturating_sub(first.received),
        _ => Duration::ZERO,
    };
    megabits(arrivals.len().saturating_sub(1), time)
}

/// Mbit/s of the arrivals within a time window, for packets of the largest size.
fn rate_within(arrivals: &[Arrival], from: Duration, length: Duration) -> f64 {
    let within = |a: &&Arrival| (from..from + length).contains(&a.received);
    megabits(arrivals.iter().filter(within).count(), length)
}

/// Mbit/s of each probe while its link has `ahead` packets queued: within a time window, after a
/// time in which the links settle.
fn saturated(
    probes: &mut Probes<'_>,
    ahead: u64,
    settle: Duration,
    window: Duration,
) -> Result<Vec<f64>, LabError> {
    let from = wall_clock() + settle;
    // Packets queued by the last refill arrive after the window.
    let arrivals = probes.saturate(ahead, settle + window)?;
    let rest = probes.drain()?;
    let rate = |(during, rest): (Vec<Arrival>, Vec<Arrival>)| {
        let all: Vec<_> = during.into_iter().chain(rest).collect();
        rate_within(&all, from, window)
    };
    Ok(arrivals.into_iter().zip(rest).map(rate).collect())
}

fn megabits(packets: usize, time: Duration) -> f64 {
    (packets * LARGE * 8) as f64 / 1e6 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_a_laboratory_that_can_be_built() {
        for check in all() {
            let config = (check.config)().unwrap();
            config.check().unwrap();
            assert_eq!(config.warning(), None, "{}", check.subject);
        }
    }

    #[test]
    fn rates_and_order_of_arrivals() {
        let arrival = |number: u64, at_ms: u64| Arrival {
            number,
            sent: Duration::ZERO,
            received: Duration::from_millis(at_ms),
        };
        let arrivals = [(0, 10), (2, 11), (1, 12), (3, 20)].map(|(n, at)| arrival(n, at));
        assert_eq!(overtaken(&arrivals), 1);
        // Three packets of 12000 bits in the 10 ms after the first one.
        assert!((rate_of(&arrivals) - 3.6).abs() < 1e-9);
        let window = rate_within(
            &arrivals,
            Duration::from_millis(11),
            Duration::from_millis(9),
        );
        assert!((window - 2.0 * 12e3 / 9e3).abs() < 1e-9);
        assert_eq!(rate_of(&[]), 0.0);
        assert_eq!(moments(&[1.0, 3.0]), (2.0, 1.0));
        assert_eq!(moments(&[]), (0.0, 0.0));
    }
}
