//! What the emulator does, by datagrams, against what it was asked for.

use std::thread;
use std::time::Duration;

use sumlink_link::{Distribution, Trace};

use super::Figure;
use super::probe::{Arrival, LARGE, Probe, SMALL, wall_clock};
use crate::config::{Direction, LinkChange, PlannedChange, Setting};
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};

/// A measurement with a laboratory of its own.
pub(super) struct Check {
    /// What it is about, for choosing it.
    pub(super) subject: &'static str,
    /// The link, as on the command line.
    pub(super) link: &'static str,
    pub(super) measure: fn(&Lab) -> Result<Vec<Figure>, LabError>,
}

/// All of them.
pub(super) const CHECKS: &[Check] = &[
    Check {
        subject: "delay",
        link: "probe:rate=100mbit,delay=20ms",
        measure: delay,
    },
    Check {
        subject: "delay",
        link: "probe:rate=100mbit,delay=250ms",
        measure: delay,
    },
    Check {
        subject: "jitter",
        link: "probe:rate=1gbit,delay=50ms,jitter=normal:5ms:reorder",
        measure: jitter,
    },
    Check {
        subject: "jitter",
        link: "probe:rate=1gbit,delay=50ms,jitter=10ms:reorder",
        measure: jitter,
    },
    Check {
        subject: "order",
        link: "probe:rate=1gbit,delay=20ms,jitter=10ms",
        measure: order,
    },
    Check {
        subject: "rate",
        link: "probe:rate=10mbit,queue=100MB",
        measure: rate,
    },
    Check {
        subject: "rate",
        link: "probe:rate=100mbit,queue=100MB",
        measure: rate,
    },
    Check {
        subject: "rate",
        link: "probe:rate=1gbit,queue=100MB",
        measure: rate,
    },
    Check {
        subject: "trace",
        link: "probe:rate=100mbit,queue=100MB",
        measure: trace,
    },
    Check {
        subject: "loss",
        link: "probe:rate=1gbit,loss=10%,queue=100MB",
        measure: independent_loss,
    },
    Check {
        subject: "loss",
        link: "probe:rate=1gbit,loss=burst:10%:4,queue=100MB",
        measure: burst_loss,
    },
    Check {
        subject: "queue",
        link: "probe:rate=10mbit,queue=150000B",
        measure: queue_in_bytes,
    },
    Check {
        subject: "queue",
        link: "probe:rate=10mbit,queue=100ms",
        measure: queue_in_time,
    },
    Check {
        subject: "plan",
        link: "probe:rate=100mbit,delay=10ms",
        measure: planned_change,
    },
];

/// What the laboratory of a check is made of.
pub(super) fn config(check: &Check, seed: u64) -> Result<LabConfig, LabError> {
    let mut config = LabConfig::new(vec![check.link.parse()?]);
    config.seed = seed;
    config.timeline.push(PlannedChange {
        at: PLANNED,
        link: "probe".to_owned(),
        change: up(Setting::Delay(Duration::from_millis(40))),
    });
    Ok(config)
}

/// When the delay grows, in the laboratory that makes use of its timeline.
const PLANNED: Duration = Duration::from_millis(500);

/// Standard deviation of a standard normal distribution that is cut off at three.
const CUT_NORMAL: f64 = 0.986_6;

fn up(setting: Setting) -> LinkChange {
    LinkChange {
        direction: Some(Direction::Up),
        setting,
    }
}

fn set(lab: &Lab, setting: Setting) -> Result<(), LabError> {
    lab.set("probe", &[up(setting)])
}

fn delay(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probe = Probe::new(lab)?;
    let count = 300;
    probe.send_paced(count, SMALL, Duration::from_millis(2))?;
    let arrivals = probe.receive(count as usize)?;
    let shape = &lab.links()[0].shapes[0];
    let transmission = (SMALL * 8) as f64 / shape.rate as f64;
    let asked = shape.delay.as_secs_f64() + transmission;
    let delays = arrivals.iter().map(|a| a.delay().as_secs_f64());
    Ok(vec![Figure::new(
        format!("delay {:.0} ms", shape.delay.as_secs_f64() * 1e3),
        "ms",
        asked * 1e3,
        super::median(delays.collect()) * 1e3,
    )])
}

fn jitter(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probe = Probe::new(lab)?;
    let count = 20_000;
    probe.send_paced(count, SMALL, Duration::from_micros(100))?;
    let arrivals = probe.receive(count as usize)?;
    let shape = &lab.links()[0].shapes[0];
    let n = arrivals.len().max(1) as f64;
    let delays = || arrivals.iter().map(|a| a.delay().as_secs_f64() * 1e3);
    let mean = delays().sum::<f64>() / n;
    let variance = delays().map(|d| (d - mean).powi(2)).sum::<f64>() / n;
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (name, deviation) = match shape.jitter.distribution {
        Distribution::Normal(deviation) => ("normal jitter", ms(deviation) * CUT_NORMAL),
        Distribution::Uniform(spread) => ("uniform jitter", ms(spread) / 3f64.sqrt()),
        _ => ("no jitter", 0.0),
    };
    Ok(vec![
        Figure::new(format!("{name}: mean delay"), "ms", ms(shape.delay), mean),
        Figure::new(
            format!("{name}: standard deviation"),
            "ms",
            deviation,
            variance.sqrt(),
        ),
    ])
}

fn order(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probe = Probe::new(lab)?;
    let count = 10_000;
    probe.send_paced(count, SMALL, Duration::from_micros(50))?;
    let arrivals = probe.receive(count as usize)?;
    let overtaken = arrivals
        .windows(2)
        .filter(|pair| pair[1].number < pair[0].number)
        .count();
    Ok(vec![
        Figure::new(
            "order with jitter 10 ms: overtaken",
            "packets",
            0.0,
            overtaken as f64,
        ),
        Figure::new(
            "order with jitter 10 ms: arrived",
            "packets",
            f64::from(count),
            arrivals.len() as f64,
        ),
    ])
}

/// Fills the queue while nothing passes, and measures how fast it drains: no sender has to keep up.
fn drain(lab: &Lab, count: u64, open: Setting) -> Result<Vec<Arrival>, LabError> {
    set(lab, Setting::Rate(0))?;
    let mut probe = Probe::new(lab)?;
    probe.fill(count, LARGE)?;
    set(lab, open)?;
    probe.receive(count as usize)
}

/// Bits per second from the first arrival to the last.
fn rate_of(arrivals: &[Arrival]) -> f64 {
    let span = |first: &Arrival, last: &Arrival| last.received.saturating_sub(first.received);
    let time = match (arrivals.first(), arrivals.last()) {
        (Some(first), Some(last)) => span(first, last).as_secs_f64(),
        _ => 0.0,
    };
    (arrivals.len().saturating_sub(1) * LARGE * 8) as f64 / time.max(1e-9)
}

fn rate(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let rate = lab.links()[0].shapes[0].rate;
    let count = (rate / 8 / LARGE as u64).clamp(1000, 30_000);
    let arrivals = drain(lab, count, Setting::Rate(rate))?;
    let megabits = rate as f64 / 1e6;
    Ok(vec![Figure::new(
        format!("rate {megabits:.0} Mbit/s"),
        "Mbit/s",
        megabits,
        rate_of(&arrivals) / 1e6,
    )])
}

fn trace(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    // 96 Mbit/s, 24 Mbit/s, nothing, 200 ms each; the last stamp is the period.
    let fast = (1..=1600).map(|i| i * 125);
    let slow = (1..=400).map(|i| 200_000 + i * 500);
    let stamps: Vec<_> = fast.chain(slow).chain([600_000]).collect();
    let (step, periods) = (Duration::from_millis(200), 3);
    let per_period = stamps.len() as u64;
    let trace =
        Trace::from_micros(stamps).map_err(|error| LabError::system("making a trace", error))?;
    let arrivals = drain(lab, periods * per_period + 1, Setting::Trace(trace.clone()))?;
    let fast = {
        let first = arrivals.first().map(|a| a.received).unwrap_or_default();
        let within = |a: &&Arrival| {
            let since = a.received.saturating_sub(first);
            since.as_nanos() % (3 * step).as_nanos() < step.as_nanos()
        };
        arrivals.iter().filter(within).count()
    };
    let seconds = step.as_secs_f64() * periods as f64;
    Ok(vec![
        Figure::new(
            "trace: mean rate",
            "Mbit/s",
            trace.mean_rate() as f64 / 1e6,
            rate_of(&arrivals) / 1e6,
        ),
        Figure::new(
            "trace: rate of its 96 Mbit/s part",
            "Mbit/s",
            96.0,
            (fast * LARGE * 8) as f64 / seconds / 1e6,
        ),
    ])
}

/// Which of `count` packets get through, in portions that no buffer on the way is too small for.
fn survivors(lab: &Lab, count: u64) -> Result<Vec<Arrival>, LabError> {
    const PORTION: u64 = 4_000;
    let mut probe = Probe::new(lab)?;
    let mut arrivals = Vec::new();
    for _ in 0..count / PORTION {
        crate::signals::check()?;
        probe.fill(PORTION, SMALL)?;
        probe.wait_until_empty()?;
        probe.receive_all(&mut arrivals)?;
    }
    Ok(arrivals)
}

fn independent_loss(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    // The standard deviation of the share is 0.47 % of it.
    let count = 400_000;
    let lost = count - survivors(lab, count)?.len() as u64;
    Ok(vec![Figure::new(
        "loss 10 %",
        "%",
        10.0,
        lost as f64 / count as f64 * 100.0,
    )])
}

fn burst_loss(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    // The standard deviations are about 1 % of the share and 0.7 % of the length.
    let count = 600_000;
    let arrivals = survivors(lab, count)?;
    let gaps: Vec<_> = arrivals
        .windows(2)
        .map(|pair| pair[1].number - pair[0].number - 1)
        .filter(|gap| *gap > 0)
        .collect();
    let lost = count - arrivals.len() as u64;
    Ok(vec![
        Figure::new(
            "loss 10 % in bursts of 4: share",
            "%",
            10.0,
            lost as f64 / count as f64 * 100.0,
        ),
        Figure::new(
            "loss 10 % in bursts of 4: mean burst",
            "packets",
            4.0,
            gaps.iter().sum::<u64>() as f64 / gaps.len().max(1) as f64,
        ),
    ])
}

fn queue_in_bytes(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let arrivals = drain(lab, 300, Setting::Rate(10_000_000))?;
    Ok(vec![Figure::new(
        "queue 150000 bytes",
        "bytes",
        150_000.0,
        (arrivals.len() * LARGE) as f64,
    )])
}

fn queue_in_time(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let arrivals = drain(lab, 300, Setting::Rate(10_000_000))?;
    // From when the link opened, one transmission before the first arrival.
    let transmissions = arrivals.len().max(2) as f64;
    let span = (transmissions - 1.0) * (LARGE * 8) as f64 / rate_of(&arrivals);
    Ok(vec![Figure::new(
        "queue 100 ms",
        "ms",
        100.0,
        span * transmissions / (transmissions - 1.0) * 1e3,
    )])
}

fn planned_change(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    // After an attempt that is repeated the new delay is still there.
    set(lab, Setting::Delay(lab.links()[0].shapes[0].delay))?;
    let mut probe = Probe::new(lab)?;
    let before = wall_clock();
    lab.begin()?;
    let begun = (before + wall_clock()) / 2;
    let count = 1000;
    probe.send_paced(count, SMALL, Duration::from_millis(1))?;
    thread::sleep(Duration::from_millis(50));
    let arrivals = probe.receive(count as usize)?;
    // Between the old delay of 10 ms and the new one of 40 ms.
    let changed = arrivals
        .iter()
        .find(|a| a.delay() > Duration::from_millis(25));
    let at = changed.map_or(0.0, |a| a.sent.saturating_sub(begun).as_secs_f64());
    Ok(vec![Figure::new(
        "planned change at 500 ms",
        "ms",
        PLANNED.as_secs_f64() * 1e3,
        at * 1e3,
    )])
}
