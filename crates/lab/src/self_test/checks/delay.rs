//! Delay, jitter and order.

use std::time::Duration;

use sumlink_link::{Distribution, Jitter};

use super::super::median;
use super::super::probe::SMALL;
use super::super::probes::Probes;
use super::{Check, Figure, delays, moments, ms, one, overtaken, several, word};
use crate::error::LabError;
use crate::laboratory::Lab;

pub(super) const CHECKS: &[Check] = &[
    Check {
        subject: "delay",
        config: || one("probe:rate=100mbit,delay=20ms"),
        measure: delay,
    },
    Check {
        subject: "delay",
        config: || one("probe:rate=100mbit,delay=250ms"),
        measure: delay,
    },
    Check {
        subject: "jitter",
        config: || one("probe:rate=1gbit,delay=50ms,jitter=normal:5ms:reorder"),
        measure: jitter,
    },
    Check {
        subject: "jitter",
        config: || one("probe:rate=1gbit,delay=50ms,jitter=10ms:reorder"),
        measure: jitter,
    },
    Check {
        subject: "order",
        config: || several(8, "rate=100mbit,delay=20ms,jitter=1ms"),
        measure: jitter_in_order,
    },
];

/// Standard deviation of a standard normal distribution truncated at three.
const CUT_NORMAL: f64 = 0.986_6;

fn delay(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probes = Probes::new(lab)?;
    probes.send_paced(300, SMALL, Duration::from_millis(2))?;
    let arrivals = probes.drain()?;
    let shape = &lab.links()[0].shapes[0];
    let transmission = (SMALL * 8) as f64 / shape.rate as f64;
    let asked = ms(shape.delay) + transmission * 1e3;
    let figure = |(direction, arrivals)| {
        let name = format!("delay {:.0} ms, {}", ms(shape.delay), word(direction));
        Figure::new(name, "ms", asked, median(delays([arrivals])))
    };
    Ok(probes.directions().zip(&arrivals).map(figure).collect())
}

/// The name of a distribution and its standard deviation in milliseconds.
fn expected(jitter: Jitter) -> (&'static str, f64) {
    match jitter.distribution {
        Distribution::Normal(deviation) => ("normal", ms(deviation) * CUT_NORMAL),
        Distribution::Uniform(spread) => ("uniform", ms(spread) / 3f64.sqrt()),
        _ => ("no", 0.0),
    }
}

fn jitter(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probes = Probes::new(lab)?;
    probes.send_paced(10_000, SMALL, Duration::from_micros(100))?;
    let shape = &lab.links()[0].shapes[0];
    let (mean, deviation) = moments(&delays(&probes.drain()?));
    let (name, asked) = expected(shape.jitter);
    let figure = |what: &str, asked, measured| {
        Figure::new(format!("{name} jitter: {what}"), "ms", asked, measured)
    };
    Ok(vec![
        figure("mean delay", ms(shape.delay), mean),
        figure("standard deviation", asked, deviation),
    ])
}

/// Packets spaced so far apart that jitter cannot reorder them show the whole distribution; closer
/// packets must not overtake each other.
fn jitter_in_order(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let shape = &lab.links()[0].shapes[0];
    let (_, asked) = expected(shape.jitter);
    let mut probes = Probes::new(lab)?;
    probes.send_paced(500, SMALL, Duration::from_millis(2))?;
    let (mean, deviation) = moments(&delays(&probes.drain()?));
    probes.send_paced(1000, SMALL, Duration::from_micros(250))?;
    let dense = probes.drain()?;
    let overtaken: usize = dense.iter().map(|arrivals| overtaken(arrivals)).sum();
    Ok(vec![
        Figure::new("jitter in order: mean delay", "ms", ms(shape.delay), mean),
        Figure::new(
            "jitter in order: standard deviation",
            "ms",
            asked,
            deviation,
        ),
        Figure::new(
            "jitter in order: overtaken",
            "packets",
            0.0,
            overtaken as f64,
        ),
        Figure::new(
            "jitter in order: lost",
            "packets",
            0.0,
            probes.missing() as f64,
        ),
    ])
}
