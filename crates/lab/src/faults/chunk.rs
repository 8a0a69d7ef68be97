//! A laboratory in which a link fails repeatedly under load.

use std::slice;
use std::thread;
use std::time::Duration;

use sumlink_link::Random;
use sumlink_scenario::lan::LanConfig;
use tempfile::TempDir;

use super::kind::{LINKS, Load, NAMES, RATE, way};
use super::measure::{carries_again, longest_gap};
use super::records::{Chunk, Fault, Seen};
use super::task::Task;
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};
use crate::scenario::Classes;
use crate::signals;
use crate::systems::{self, Running, Stage, System};
use crate::traffic::{Arrival, Live, Pace, Route, now_ns};

/// The system under test; all systems use the same congestion control.
const SYSTEM: &str = "sumlink:fbdt";
const CONGESTION: &str = "cubic";
/// The flow's port on the server's side.
const PORT: u16 = 5001;

/// Sampling interval of the links' bytes.
const INTERVAL: Duration = Duration::from_millis(10);
/// Pause between a link's return and the next fault, in seconds: a minimum, and the range of the
/// random addition.
const REST: [f64; 2] = [0.6, 0.6];
/// Duration of a lasting fault, in seconds: a minimum, and the range of the random addition.
const LASTS: [f64; 2] = [0.5, 3.0];
/// Longest wait for a link's return before the next fault, in seconds.
const PATIENCE: f64 = 6.0;
/// Observation time after the end of a fault on a link without bulk load, in seconds.
const AFTER: f64 = 1.5;
/// A flapping link spends this time in each state, in seconds. The number of cycles follows from
/// the requested faults: 75 of 4 s for 100 faults, which is 5 minutes.
const FLAP: f64 = 2.0;
const FLAPS: f64 = 0.75;
/// Slow start and measurement of the steady link alone, in seconds.
const ALONE: [f64; 2] = [2.0, 12.0];
/// The messages of an interactive stream.
const MESSAGE: Pace = Pace::Messages {
    bytes: 100,
    every: Duration::from_millis(20),
};
/// Longest sleep, so that signals are noticed.
const MAX_SLEEP: Duration = Duration::from_millis(10);

/// Runs the measurement.
pub(super) fn measure(task: &Task<'_>) -> Result<Seen, LabError> {
    let alone_bps = match task.kind.load {
        Load::Flapping => Some(alone(task)?),
        _ => None,
    };
    let system = systems::parse(SYSTEM).map_err(LabError::Usage)?;
    in_laboratory(task, system.as_ref(), None, |stage, running| {
        let run = Run::begin(task, stage, running)?;
        run.carry_out(alone_bps, |running| {
            let evidence = system.evidence(stage, running)?;
            Ok(evidence.duplicates_bytes)
        })
    })
}

/// Goodput in bit/s of plain TCP over the steady link alone.
fn alone(task: &Task<'_>) -> Result<f64, LabError> {
    let system = systems::parse("alone").map_err(LabError::Usage)?;
    in_laboratory(task, system.as_ref(), Some(NAMES[1]), |stage, running| {
        let route = first_route(&running)?;
        let flow = Live::start(stage.lab, route, task.direction, Pace::Bulk)?;
        let zero_ns = now_ns();
        sleep_until(zero_ns, ALONE[1])?;
        let arrivals = flow.finish()?;
        Ok(goodput(&arrivals, zero_ns, ALONE))
    })
}

/// Starts a system over both links in its own laboratory.
fn in_laboratory<T>(
    task: &Task<'_>,
    system: &dyn System,
    link: Option<&str>,
    job: impl FnOnce(&Stage<'_>, Running) -> Result<T, LabError>,
) -> Result<T, LabError> {
    let links = LINKS.iter().map(|link| link.parse());
    let mut config = LabConfig::new(links.collect::<Result<_, _>>()?);
    config.seed = task.number + 1;
    config.congestion = CONGESTION.to_owned();
    config.sample_interval = INTERVAL;
    config.lan = task.lan.then(LanConfig::default);
    let lab = Lab::start(config)?;
    let directory = TempDir::with_prefix("sumlink-lab-faults-")
        .map_err(|error| LabError::system("making a temporary directory", error))?;
    let stage = Stage {
        lab: &lab,
        near: lab.ends()[0],
        serving: lab.ends()[1],
        directory: directory.path(),
        program: task.program,
        congestion: CONGESTION,
        port: PORT,
        trace: None,
        directions: slice::from_ref(&task.direction),
        link,
        classes: Classes::default(),
        needs_udp: false,
        connections: 0,
        // A gateway waits for a server of these programs, and here none listens yet.
        has_own_programs: !task.lan,
        far: Duration::ZERO,
    };
    let running = system.start(&stage)?;
    job(&stage, running)
}

fn first_route(running: &Running) -> Result<&Route, LabError> {
    running.routes.first().ok_or_else(|| LabError::Failed {
        what: "the system has no route to the destination".to_owned(),
        log: String::new(),
    })
}

/// A flow over both links, and the faults so far.
struct Run<'a> {
    task: &'a Task<'a>,
    lab: &'a Lab,
    running: Running,
    flow: Live,
    random: Random,
    /// Time zero on the monotonic clock.
    zero_ns: u64,
    faults: Vec<Fault>,
}

impl<'a> Run<'a> {
    fn begin(task: &'a Task<'a>, stage: &'a Stage<'a>, running: Running) -> Result<Self, LabError> {
        let pace = match task.kind.load {
            Load::Interactive => MESSAGE,
            Load::Bulk | Load::Flapping => Pace::Bulk,
        };
        let flow = Live::start(stage.lab, first_route(&running)?, task.direction, pace)?;
        stage.lab.begin()?;
        let purpose = format!("{} {}", task.kind.name, way(task.direction));
        let purpose = purpose.bytes().fold(task.number, |sum, byte| {
            sum.wrapping_mul(257).wrapping_add(byte.into())
        });
        Ok(Self {
            task,
            lab: stage.lab,
            running,
            flow,
            random: Random::new(purpose),
            zero_ns: now_ns(),
            faults: Vec::new(),
        })
    }

    fn carry_out(
        mut self,
        alone_bps: Option<f64>,
        duplicates: impl FnOnce(&mut Running) -> Result<Option<u64>, LabError>,
    ) -> Result<Seen, LabError> {
        if self.task.kind.load == Load::Flapping {
            self.flap()?;
        } else {
            for _ in 0..self.task.faults {
                self.one_fault()?;
            }
        }
        let end = self.now();
        let mut health = self.lab.health()?;
        if self.task.kind.takes_the_carrier() {
            // Drops of an interface without a carrier are part of the fault.
            health.overruns = 0;
        }
        let lost_to_machine = health.objection();
        let series = self.lab.series()?;
        let duplicates = duplicates(&mut self.running)?;
        let arrivals = self.flow.finish()?;
        let interval = INTERVAL.as_secs_f64();
        for fault in &mut self.faults {
            let during = fault.begun_s..fault.over_s;
            let gap = longest_gap(&arrivals, self.zero_ns, during);
            (fault.gap_ms, fault.gap_from_s) = gap.unwrap_or_default();
            let before = fault.rested_s..fault.begun_s;
            let gap = longest_gap(&arrivals, self.zero_ns, before);
            fault.steady_gap_ms = gap.unwrap_or_default().0;
            let of_link = series.iter().find(|series| {
                series.link == fault.link && series.direction == self.task.direction
            });
            if let Some(series) = of_link.filter(|_| self.task.kind.load != Load::Interactive) {
                let bytes = &series.wire_bytes;
                fault.back_ms = carries_again(bytes, interval, RATE, fault.ended_s, fault.over_s);
            }
        }
        let bytes: u64 = arrivals.iter().map(|arrival| arrival.bytes).sum();
        let chunk = Chunk {
            kind: self.task.kind.name.to_owned(),
            direction: way(self.task.direction).to_owned(),
            number: self.task.number,
            asked: self.task.faults,
            seconds: end,
            bytes,
            goodput_bps: goodput(&arrivals, self.zero_ns, [0.0, end]),
            alone_bps,
            duplicates_bytes: duplicates,
            objection: lost_to_machine,
            faults: self.faults,
        };
        let since = |arrival: &Arrival| (arrival.at_ns.saturating_sub(self.zero_ns), arrival.bytes);
        Ok(Seen {
            chunk,
            arrivals: arrivals.iter().map(since).collect(),
        })
    }

    /// Lets a working link rest, brings about a fault, and waits for the link's return.
    fn one_fault(&mut self) -> Result<(), LabError> {
        let kind = self.task.kind;
        let link = NAMES[(self.random.next_u64() % NAMES.len() as u64) as usize];
        let rested_s = self.now();
        let rest = REST[0] + REST[1] * self.random.next_f64();
        self.sleep_until(rested_s + rest)?;
        let begun_s = self.now();
        self.lab.set(link, &kind.begin(link)?)?;
        let mut ended_s = begun_s;
        if kind.lasts() {
            let lasts = LASTS[0] + LASTS[1] * self.random.next_f64();
            self.sleep_until(begun_s + lasts)?;
            ended_s = self.now();
            self.lab.set(link, &kind.end(link)?)?;
        }
        match kind.load {
            Load::Interactive => self.sleep_until(ended_s + AFTER)?,
            Load::Bulk | Load::Flapping => self.wait_for(link, ended_s)?,
        }
        self.flow.check()?;
        self.note(link, rested_s, begun_s, ended_s);
        Ok(())
    }

    /// Waits until a link has carried its rate for a while, or gives up.
    fn wait_for(&self, link: &str, since: f64) -> Result<(), LabError> {
        let delivered = || -> Result<u64, LabError> {
            let status = self.lab.status()?;
            let of_link = status.iter().find(|status| status.name == link);
            let way = self.task.direction.index();
            Ok(of_link.map_or(0, |status| status.directions[way].delivered_bytes))
        };
        // The check is coarser than the later analysis and covers a longer time, so that the
        // analysis is sure to find the return.
        let mut counts = vec![(self.now(), delivered()?)];
        while self.now() < since + PATIENCE {
            self.sleep_until(self.now() + 0.02)?;
            counts.push((self.now(), delivered()?));
            let Some(&(now, bytes)) = counts.last() else {
                continue;
            };
            let before = counts.iter().rev().find(|(at, _)| now - at >= 0.2);
            if let Some((at, then)) = before
                && (bytes - then) as f64 * 8.0 >= 0.93 * RATE as f64 * (now - at)
            {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Brings link `a` down and up repeatedly.
    fn flap(&mut self) -> Result<(), LabError> {
        let (kind, link) = (self.task.kind, NAMES[0]);
        let flaps = (self.task.faults as f64 * FLAPS).ceil() as u64;
        for flap in 0..flaps {
            let rested_s = flap as f64 * 2.0 * FLAP;
            self.sleep_until(rested_s + FLAP)?;
            let begun_s = self.now();
            self.lab.set(link, &kind.begin(link)?)?;
            self.sleep_until(rested_s + 2.0 * FLAP)?;
            let ended_s = self.now();
            self.lab.set(link, &kind.end(link)?)?;
            self.flow.check()?;
            self.note(link, rested_s, begun_s, ended_s);
            // The observation after its return ends at the next fault.
            if let Some(last) = self.faults.last_mut() {
                last.over_s = ended_s + FLAP;
            }
        }
        self.sleep_until(self.now() + FLAP)
    }

    fn note(&mut self, link: &str, rested_s: f64, begun_s: f64, ended_s: f64) {
        self.faults.push(Fault {
            link: link.to_owned(),
            rested_s,
            begun_s,
            ended_s,
            over_s: self.now(),
            ..Fault::default()
        });
    }

    fn now(&self) -> f64 {
        now_ns().saturating_sub(self.zero_ns) as f64 / 1e9
    }

    fn sleep_until(&self, at: f64) -> Result<(), LabError> {
        sleep_until(self.zero_ns, at)
    }
}

fn sleep_until(zero_ns: u64, at: f64) -> Result<(), LabError> {
    loop {
        signals::check()?;
        let left = at - now_ns().saturating_sub(zero_ns) as f64 / 1e9;
        if left <= 0.0 {
            return Ok(());
        }
        thread::sleep(MAX_SLEEP.min(Duration::from_secs_f64(left)));
    }
}

/// Goodput in bit/s over a time range, in seconds since `zero_ns`.
fn goodput(arrivals: &[Arrival], zero_ns: u64, [from, to]: [f64; 2]) -> f64 {
    let inside = arrivals.iter().filter(|arrival| {
        let at = arrival.at_ns.saturating_sub(zero_ns) as f64 / 1e9;
        (from..to).contains(&at)
    });
    inside.map(|arrival| arrival.bytes).sum::<u64>() as f64 * 8.0 / (to - from)
}
