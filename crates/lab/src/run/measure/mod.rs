//! Records the traffic of a phase and computes its figures.

mod claims;
mod collect;
mod figures;
mod series;

use std::fs;
use std::thread;
use std::time::Duration;

use crate::config::InterfaceState;
use crate::error::LabError;
use crate::health::Health;
use crate::laboratory::{LinkStatus, WireSeries};
use crate::process::{Process, Usage};
use crate::results::{self, EndsRecord, Measurement, push_note};
use crate::scenario::{Scenario, Workload};
use crate::signals;
use crate::systems::{Running, Stage, System, kernel_counters};
use crate::traffic::{Window, now_ns};

use super::machine::Machine;
use super::workload;

pub(super) use crate::results::in_series;
pub(crate) use crate::results::join;
pub(crate) use figures::OTHERS_NOTE;

/// Time for the clients to start before the run begins.
const HEAD_START: Duration = Duration::from_millis(100);
/// Longest sleep, so that signals are noticed.
const MAX_SLEEP: Duration = Duration::from_millis(20);
/// Interval between checks of the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A system that is ready for traffic, with the server of the workload.
pub(super) struct Phase<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) stage: &'a Stage<'a>,
    pub(super) system: &'a dyn System,
    pub(super) server: Process,
    pub(super) running: Running,
    /// Start of the run on the monotonic clock; 0 while unknown.
    pub(super) epoch_ns: u64,
}

/// Observations during the traffic.
struct Observed {
    /// End of the traffic, in seconds since the start.
    end_s: f64,
    /// The links' counters at the end of the warm-up and at the end.
    counters: [Vec<LinkStatus>; 2],
    /// Bytes delivered by each direction of each link over time.
    series: Vec<WireSeries>,
    /// Usage of the system's processes at those two times.
    usage: [Vec<Usage>; 2],
    /// CPU seconds used by the workload's programs at those two times.
    traffic_cpu_s: [f64; 2],
    health: Health,
    machine: results::Machine,
}

impl Phase<'_> {
    /// Runs the traffic and returns the figures.
    pub(super) fn measure(mut self, tick: &mut dyn FnMut(f64)) -> Result<Measurement, LabError> {
        let scenario = self.scenario;
        let interval = scenario.interval();
        let epoch_ns = now_ns() + HEAD_START.as_nanos() as u64;
        let window = Window {
            epoch_ns,
            duration_ms: u64::try_from(scenario.duration.as_millis()).unwrap_or(u64::MAX),
        };
        self.epoch_ns = epoch_ns;
        let mptcp = self.system.is_mptcp();
        let mut clients = workload::start_clients(
            scenario,
            self.stage,
            &self.running,
            mptcp,
            epoch_ns,
            interval,
        )?;
        let watched = self.watch(window, &mut clients, tick)?;
        // Requested before any process ends, while they still answer.
        let evidence = self.system.evidence(self.stage, &mut self.running)?;
        let retransmissions = self.running.is_tcp.then(|| retransmissions(self.stage));
        let records = self.collect(&mut clients)?;
        // Where the traffic programs use the library, they are also the system's ends.
        let own = records.iter().filter(|record| !record.rival);
        let ends = own.map(|record| record.ends).collect::<Option<Vec<_>>>();
        let ends = ends.and_then(|ends| ends.into_iter().reduce(EndsRecord::and));
        let mut measurement = self.assemble(records, &watched, interval)?;
        self.check_links(&measurement, &watched)?;
        measurement.retransmissions = retransmissions.transpose()?;
        let duplicates = evidence.duplicates_bytes;
        measurement.first_byte_s = self.running.first_byte_s;
        measurement.duplicates_bytes = duplicates.or(ends.map(|ends| ends.duplicates_bytes));
        let reorder_peak = evidence.reorder_peak_bytes;
        measurement.reorder_peak_bytes = reorder_peak.or(ends.map(|ends| ends.reorder_peak_bytes));
        let wait = evidence.in_order_wait_p99_s;
        measurement.in_order_wait_p99_s = wait.or(ends.map(|ends| ends.in_order_wait_p99_s));
        measurement.rested = evidence.rested;
        if !evidence.note.is_empty() {
            push_note(&mut measurement.note, &evidence.note);
        }
        Ok(measurement)
    }

    /// Checks the figures against the links' counters.
    fn check_links(&self, measurement: &Measurement, watched: &Observed) -> Result<(), LabError> {
        let carried = watched.counters[1].iter().map(|link| {
            let ways = || {
                self.stage
                    .directions
                    .iter()
                    .map(|way| &link.directions[way.index()])
            };
            let counted = claims::Counted {
                bytes: ways().map(|way| way.delivered_bytes).sum(),
                is_usable: link.state == InterfaceState::Up && ways().all(|way| way.rate_bps > 0),
            };
            (link.name.clone(), counted)
        });
        let routes = self.running.routes.iter();
        let bound: Vec<_> = routes.filter_map(|route| route.link.as_deref()).collect();
        claims::check(measurement, self.stage.link, &bound, &carried.collect())
    }

    /// Watches until the run is over, or the user's programs have exited.
    fn watch(
        &mut self,
        window: Window,
        clients: &mut [Process],
        tick: &mut dyn FnMut(f64),
    ) -> Result<Observed, LabError> {
        let is_command = matches!(self.scenario.workload, Workload::Command { .. });
        let has_an_end = is_command || matches!(self.scenario.workload, Workload::Files { .. });
        let lab = self.stage.lab;
        let warmup_s = self.scenario.warmup.as_secs_f64();
        while now_ns() < window.epoch_ns {
            signals::check()?;
            let left = Duration::from_nanos(window.epoch_ns.saturating_sub(now_ns()));
            thread::sleep(MAX_SLEEP.min(left));
        }
        // Time zero of the events, the traces, the links' series and the traffic.
        lab.begin()?;
        let mut at_warmup = None;
        let mut machine = Machine::now();
        let mut next = 0.0;
        while let Some(left) = window.left() {
            signals::check()?;
            let elapsed = window.elapsed_s();
            if at_warmup.is_none() && elapsed >= warmup_s {
                lab.reset_health()?;
                machine = Machine::now();
                let used = (self.usage(), self.traffic_cpu_s(clients));
                at_warmup = Some((lab.status()?, used, lab.health()?.overruns));
            }
            if elapsed >= next {
                next = elapsed + POLL_INTERVAL.as_secs_f64();
                tick(elapsed);
                self.check_alive(clients, is_command)?;
                if has_an_end && ended(clients)? {
                    break;
                }
            }
            thread::sleep(MAX_SLEEP.min(left));
        }
        // Read first, so that it matches the time of the byte counters.
        let used = (self.usage(), self.traffic_cpu_s(clients));
        let now = Machine::now();
        let mut health = lab.health()?;
        let (links, before, overruns) = at_warmup.unwrap_or_default();
        health.overruns = health.overruns.saturating_sub(overruns);
        Ok(Observed {
            end_s: window.elapsed_s(),
            counters: [links, lab.status()?],
            series: lab.series()?,
            usage: [before.0, used.0],
            traffic_cpu_s: [before.1, used.1],
            health,
            machine: results::Machine {
                // Overwritten at the end if several runs shared the machine.
                runs_at_once: 1,
                runs_share: machine.ours_since(now),
                others_share: machine.others_since(now),
            },
        })
    }

    fn usage(&self) -> Vec<Usage> {
        self.running.processes.iter().map(Process::usage).collect()
    }

    /// Includes clients that have exited but whose exit status has not been collected.
    fn traffic_cpu_s(&self, clients: &[Process]) -> f64 {
        let all = clients.iter().chain([&self.server]);
        all.map(|process| process.usage().cpu_s).sum()
    }

    fn check_alive(&mut self, clients: &mut [Process], is_command: bool) -> Result<(), LabError> {
        for process in &mut self.running.processes {
            process.check_alive()?;
        }
        if matches!(self.scenario.workload, Workload::Video(_)) {
            // The camera runs until it is stopped.
            for client in &mut *clients {
                client.check_alive()?;
            }
        }
        if !is_command {
            self.server.check_alive()?;
            for client in clients {
                // A workload of files may end early.
                if let Some(status) = client.status()?.filter(|status| !status.success()) {
                    return Err(client.failed(format!("failed ({status})")));
                }
            }
        }
        Ok(())
    }
}

/// Segments retransmitted by TCP in all namespaces, which are as old as the run.
fn retransmissions(stage: &Stage<'_>) -> Result<u64, LabError> {
    let mut sum = 0;
    for side in stage.lab.sides() {
        sum += stage.lab.run(*side, || {
            let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
            let counters = kernel_counters(&text, "Tcp:");
            counters.get("RetransSegs").copied().unwrap_or(0)
        })?;
    }
    Ok(sum)
}

/// Whether all clients have exited; an exit code other than 0 is an error.
fn ended(clients: &mut [Process]) -> Result<bool, LabError> {
    let mut all = true;
    for client in clients {
        match client.status()? {
            None => all = false,
            Some(status) if status.success() => {}
            Some(status) => return Err(client.failed(format!("failed ({status})"))),
        }
    }
    Ok(all)
}
