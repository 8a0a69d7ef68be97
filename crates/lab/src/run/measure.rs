//! What is recorded while traffic runs, and what becomes of it.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

use crate::config::Direction;
use crate::error::LabError;
use crate::health::Health;
use crate::laboratory::{DirectionReport, LinkStatus, WireSeries};
use crate::process::{Process, Usage};
use crate::results::{Completion, Flow, LinkSeries, Measurement, Process as ProcessResult, Series};
use crate::scenario::{Scenario, Workload};
use crate::signals;
use crate::systems::{Running, Stage, System, kernel_counters};
use crate::topology::Side;
use crate::traffic::{FlowRecord, ObjectRecord, Window, now_ns};

use super::machine::Machine;
use super::workload;

/// The clients get so long to start before the run begins.
const HEAD_START: Duration = Duration::from_millis(300);
/// And so long to end after it.
const TAIL: Duration = Duration::from_secs(5);
/// The longest sleep, so that signals are noticed.
const NAP: Duration = Duration::from_millis(20);
/// Above this share of the processors other programs are worth a note.
const OTHERS_LIMIT: f64 = 0.1;
/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A system that is ready, with the server of the workload.
pub(super) struct Phase<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) stage: &'a Stage<'a>,
    pub(super) system: &'a dyn System,
    pub(super) server: Process,
    pub(super) running: Running,
}

/// Everything that was seen while the traffic ran.
struct Watched {
    /// When the traffic was over, in seconds since the start.
    end_s: f64,
    /// The links' counters at the end of the warm-up and at the end.
    counters: [Vec<LinkStatus>; 2],
    /// What each direction of each link delivered over time.
    series: Vec<WireSeries>,
    /// What the processes had used at those two times.
    usage: [Vec<Usage>; 2],
    health: Health,
    /// Share of all processors that programs of others used.
    others: f64,
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
        // Asked before anything is ended: afterwards nobody would answer.
        let evidence = self.system.evidence(self.stage, &mut self.running)?;
        let retransmissions = self.running.is_tcp.then(|| retransmissions(self.stage));
        let records = self.collect(&mut clients)?;
        let mut measurement = self.assemble(records, &watched, interval)?;
        measurement.retransmissions = retransmissions.transpose()?;
        measurement.duplicates_bytes = evidence.duplicates_bytes;
        if !evidence.note.is_empty() {
            push_note(&mut measurement.note, &evidence.note);
        }
        Ok(measurement)
    }

    /// Watches until the run is over, or the user's programs have ended.
    fn watch(
        &mut self,
        window: Window,
        clients: &mut [Process],
        tick: &mut dyn FnMut(f64),
    ) -> Result<Watched, LabError> {
        let is_command = matches!(self.scenario.workload, Workload::Command { .. });
        let has_an_end = is_command || matches!(self.scenario.workload, Workload::Files { .. });
        let lab = self.stage.lab;
        let warmup_s = self.scenario.warmup.as_secs_f64();
        while now_ns() < window.epoch_ns {
            signals::check()?;
            let left = Duration::from_nanos(window.epoch_ns.saturating_sub(now_ns()));
            thread::sleep(NAP.min(left));
        }
        // Events, traces and the links' series count from here, as the traffic does.
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
                at_warmup = Some((lab.status()?, self.usage(), lab.health()?.overruns));
            }
            if elapsed >= next {
                next = elapsed + LOOK.as_secs_f64();
                tick(elapsed);
                self.check_alive(clients, is_command)?;
                if has_an_end && ended(clients)? {
                    break;
                }
            }
            thread::sleep(NAP.min(left));
        }
        let mut health = lab.health()?;
        let (links, usage, overruns) = at_warmup.unwrap_or_default();
        health.overruns = health.overruns.saturating_sub(overruns);
        Ok(Watched {
            end_s: window.elapsed_s(),
            counters: [links, lab.status()?],
            series: lab.series()?,
            usage: [usage, self.usage()],
            health,
            others: machine.others_since(Machine::now()),
        })
    }

    fn usage(&self) -> Vec<Usage> {
        self.running.processes.iter().map(Process::usage).collect()
    }

    fn check_alive(&mut self, clients: &mut [Process], is_command: bool) -> Result<(), LabError> {
        for process in &mut self.running.processes {
            process.check_alive()?;
        }
        if !is_command {
            self.server.check_alive()?;
            for client in clients {
                // A workload of files may be done early.
                if let Some(status) = client.status()?.filter(|status| !status.success()) {
                    return Err(client.failed(format!("failed ({status})")));
                }
            }
        }
        Ok(())
    }

    /// What the flows' receivers recorded.
    fn collect(&mut self, clients: &mut [Process]) -> Result<Vec<FlowRecord>, LabError> {
        if matches!(self.scenario.workload, Workload::Command { .. }) {
            return Ok(Vec::new());
        }
        let mut records: Vec<FlowRecord> = Vec::new();
        for client in clients {
            let text = wait_for_end(client)?;
            let read: Vec<FlowRecord> = serde_json::from_str(text.trim())
                .map_err(|error| client.failed(format!("printed what cannot be read: {error}")))?;
            records.extend(read);
        }
        // Uploads are counted by the server; it ends them by its own clock, a moment later.
        let uploads = |record: &FlowRecord| record.flow % 2 == 1 && record.connected;
        let expected = records.iter().filter(|record| uploads(record)).count();
        let is_stream = !matches!(self.scenario.workload, Workload::Files { .. });
        let start = now_ns();
        let counted = loop {
            let counted = parse_lines(&self.server.output()?);
            let flows: std::collections::HashSet<_> = counted.iter().map(|r| r.flow).collect();
            let late = now_ns().saturating_sub(start) > TAIL.as_nanos() as u64;
            if !is_stream || flows.len() >= expected || late {
                break counted;
            }
            signals::check()?;
            thread::sleep(NAP);
        };
        for record in records.iter_mut().filter(|record| uploads(record)) {
            merge_upload(record, &counted);
        }
        Ok(records)
    }

    fn assemble(
        &self,
        records: Vec<FlowRecord>,
        watched: &Watched,
        interval: Duration,
    ) -> Result<Measurement, LabError> {
        let scenario = self.scenario;
        let skip = scenario.warmup.as_nanos().div_ceil(interval.as_nanos()) as usize;
        let mut flows = Vec::new();
        let mut measurement = Measurement {
            emulator: watched.health.clone(),
            ..Measurement::default()
        };
        for record in &records {
            self.check(record)?;
            let route = (record.flow / 2) as usize;
            let link = self.running.routes.get(route).and_then(|r| r.link.clone());
            let direction = if record.flow.is_multiple_of(2) {
                "down"
            } else {
                "up"
            };
            let bytes: u64 = record.buckets.iter().skip(skip).sum();
            let mut seconds =
                record.buckets.len().saturating_sub(skip) as f64 * interval.as_secs_f64();
            if let Workload::Files { .. } = scenario.workload {
                // What came after the last object is not part of it.
                let end = |object: &ObjectRecord| object.start_s + object.duration_s;
                let end = record.objects.iter().map(end).fold(0.0, f64::max);
                seconds = seconds.min((end - scenario.warmup.as_secs_f64()).max(0.0));
            }
            measurement.duration_s = measurement.duration_s.max(seconds);
            measurement.bytes += bytes;
            flows.push(Flow {
                link: link.clone(),
                direction: direction.to_owned(),
                goodput_bps: rate(bytes, seconds),
                goodput: series(&record.buckets, interval),
            });
            let from = scenario.warmup.as_secs_f64();
            let objects = record
                .objects
                .iter()
                .filter(|object| object.start_s >= from);
            measurement
                .completions
                .extend(objects.map(|object| Completion {
                    size_bytes: object.size,
                    start_s: object.start_s,
                    duration_s: object.duration_s,
                    link: link.clone(),
                }));
            let messages = record.messages.iter().filter(|(at, _)| *at >= from);
            measurement
                .message_delays_ms
                .extend(messages.map(|(_, delay)| *delay));
        }
        measurement
            .completions
            .sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        measurement.links = link_series(watched);
        if let Workload::Command { .. } = scenario.workload {
            self.command_figures(&mut measurement, watched);
        } else {
            measurement.goodput = sum_series(flows.iter().map(|flow| &flow.goodput));
            measurement.goodput_bps = rate(measurement.bytes, measurement.duration_s);
        }
        if watched.others > OTHERS_LIMIT {
            let share = watched.others * 100.0;
            let note = format!("other programs used {share:.0} % of the machine meanwhile");
            push_note(&mut measurement.note, &note);
        }
        if let Workload::Files {
            sizes,
            count,
            limit,
            ..
        } = &scenario.workload
        {
            let all = sizes.len() as u64 * count * records.len() as u64;
            let objects = || records.iter().flat_map(|record| &record.objects);
            let done = objects().count();
            if let Some(limit) = limit {
                let in_time = |object: &&ObjectRecord| object.duration_s <= limit.as_secs_f64();
                let within = objects().filter(in_time).count() as u64;
                measurement.over_limit = Some(all.saturating_sub(within));
                let limit = limit.as_secs_f64();
                let note = format!("{within} of {all} objects within the limit of {limit} s");
                push_note(&mut measurement.note, &note);
            }
            if (done as u64) < all {
                let note = format!("{done} of {all} objects arrived before the end of the run");
                push_note(&mut measurement.note, &note);
            }
        }
        measurement.flows = flows;
        measurement.processes = self
            .running
            .processes
            .iter()
            .zip(&watched.usage[1])
            .enumerate()
            .map(|(index, (process, after))| {
                let before = watched.usage[0].get(index).copied().unwrap_or_default();
                ProcessResult {
                    name: process.name().to_owned(),
                    cpu_s: (after.cpu_s - before.cpu_s).max(0.0),
                    peak_memory_bytes: after.peak_memory_bytes,
                }
            })
            .collect();
        Ok(measurement)
    }

    /// A flow that was not what it should be is the system's failure; that a link by itself does not
    /// connect is a figure, 0.
    fn check(&self, record: &FlowRecord) -> Result<(), LabError> {
        let failed = |what: String| LabError::Failed {
            what,
            log: String::new(),
        };
        if let Some(error) = &record.error {
            return Err(failed(format!("flow {}: {error}", record.flow)));
        }
        let by_itself = self
            .running
            .routes
            .get((record.flow / 2) as usize)
            .is_some_and(|route| route.link.is_some());
        if !record.connected && !by_itself {
            return Err(failed(
                "it did not connect before the run was over".to_owned(),
            ));
        }
        Ok(())
    }

    /// For programs of the user's the emulator's account must do.
    fn command_figures(&self, measurement: &mut Measurement, watched: &Watched) {
        let wanted: Vec<_> = self
            .scenario
            .traffic
            .directions()
            .iter()
            .map(|direction| direction_name(*direction))
            .collect();
        let links = || {
            let of_direction = |link: &&LinkSeries| wanted.contains(&link.direction.as_str());
            measurement.links.iter().filter(of_direction)
        };
        let bytes = links().map(|link| link.wire_bytes).sum();
        let series = sum_series(links().map(|link| &link.rate));
        let end = watched.end_s;
        measurement.duration_s = (end - self.scenario.warmup.as_secs_f64()).max(0.0);
        measurement.bytes = bytes;
        measurement.goodput = series;
        measurement.goodput_bps = rate(bytes, measurement.duration_s);
        measurement.completions = vec![Completion {
            size_bytes: bytes,
            start_s: 0.0,
            duration_s: end,
            link: None,
        }];
        let note = "a command's bytes are those on the links, with headers and what was sent again";
        push_note(&mut measurement.note, note);
    }
}

/// Two phases of a run, one after the other; what is measured adds up.
pub(super) fn join(mut a: Measurement, b: Measurement) -> Measurement {
    a.goodput_bps += b.goodput_bps;
    a.bytes += b.bytes;
    a.goodput = sum_series([&a.goodput, &b.goodput].into_iter());
    a.flows.extend(b.flows);
    a.completions.extend(b.completions);
    a.message_delays_ms.extend(b.message_delays_ms);
    a.retransmissions = a.retransmissions.zip(b.retransmissions).map(|(a, b)| a + b);
    a.duplicates_bytes = a
        .duplicates_bytes
        .zip(b.duplicates_bytes)
        .map(|(a, b)| a + b);
    a.over_limit = a.over_limit.zip(b.over_limit).map(|(a, b)| a + b);
    // In its own phase a link carried something, in the others hardly anything.
    for (link, other) in a.links.iter_mut().zip(b.links) {
        link.wire_bytes += other.wire_bytes;
        link.lost_packets += other.lost_packets;
        link.dropped_packets += other.dropped_packets;
        link.rate = sum_series([&link.rate, &other.rate].into_iter());
    }
    set_shares(&mut a.links);
    a.processes.extend(b.processes);
    let health = &mut a.emulator;
    health.packets += b.emulator.packets;
    health.overruns += b.emulator.overruns;
    health.lateness_p50_us = health.lateness_p50_us.max(b.emulator.lateness_p50_us);
    health.lateness_p99_us = health.lateness_p99_us.max(b.emulator.lateness_p99_us);
    health.cpu_share = health.cpu_share.max(b.emulator.cpu_share);
    for note in b.note.split("; ").filter(|note| !note.is_empty()) {
        if !a.note.contains(note) {
            push_note(&mut a.note, note);
        }
    }
    a
}

fn push_note(all: &mut String, note: &str) {
    if !all.is_empty() {
        all.push_str("; ");
    }
    all.push_str(note);
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

fn series(buckets: &[u64], interval: Duration) -> Series {
    let seconds = interval.as_secs_f64();
    Series {
        start_s: 0.0,
        interval_s: seconds,
        bps: buckets.iter().map(|bytes| rate(*bytes, seconds)).collect(),
    }
}

fn sum_series<'a>(all: impl Iterator<Item = &'a Series>) -> Series {
    all.fold(Series::default(), |mut sum, series| {
        if sum.bps.len() < series.bps.len() {
            sum.bps.resize(series.bps.len(), 0.0);
        }
        for (total, value) in sum.bps.iter_mut().zip(&series.bps) {
            *total += value;
        }
        sum.start_s = series.start_s;
        sum.interval_s = series.interval_s;
        sum
    })
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

/// Both directions of every link.
fn link_series(watched: &Watched) -> Vec<LinkSeries> {
    let [first, last] = &watched.counters;
    let mut all: Vec<_> = watched
        .series
        .iter()
        .map(|series| {
            // Before the warm-up was over there may be no counters: the run ended early.
            let counters = |links: &[LinkStatus]| {
                let link = links.iter().find(|link| link.name == series.link)?;
                Some(link.directions[series.direction.index()].clone())
            };
            let grown = |count: fn(&DirectionReport) -> u64| {
                let of = |links: &[LinkStatus]| counters(links).as_ref().map_or(0, count);
                of(last).saturating_sub(of(first))
            };
            LinkSeries {
                link: series.link.clone(),
                direction: direction_name(series.direction).to_owned(),
                wire_bytes: grown(|report| report.delivered_bytes),
                share: 0.0,
                lost_packets: grown(|report| report.lost_packets),
                dropped_packets: grown(|report| report.dropped_queue_packets),
                rate: self::series(&series.wire_bytes, series.interval),
            }
        })
        .collect();
    set_shares(&mut all);
    all
}

/// Each link's part of what all carried in its direction.
fn set_shares(links: &mut [LinkSeries]) {
    let mut sums: HashMap<String, u64> = HashMap::new();
    for link in links.iter() {
        *sums.entry(link.direction.clone()).or_default() += link.wire_bytes;
    }
    for link in links {
        let sum = sums.get(&link.direction).copied().unwrap_or(0);
        link.share = if sum > 0 {
            link.wire_bytes as f64 / sum as f64
        } else {
            0.0
        };
    }
}

/// Segments that TCP has sent again, in both namespaces, which are as old as the run.
fn retransmissions(stage: &Stage<'_>) -> Result<u64, LabError> {
    let mut sum = 0;
    for side in [Side::Client, Side::Server] {
        sum += stage.lab.run(side, || {
            let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
            let counters = kernel_counters(&text, "Tcp:");
            counters.get("RetransSegs").copied().unwrap_or(0)
        })?;
    }
    Ok(sum)
}

/// Whether all have ended; an exit code other than 0 is a failure.
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

/// What a program has printed when it ends, which it must do by itself.
fn wait_for_end(client: &mut Process) -> Result<String, LabError> {
    let start = now_ns();
    loop {
        match client.status()? {
            Some(status) if status.success() => return client.output(),
            Some(status) => return Err(client.failed(format!("failed ({status})"))),
            None if now_ns().saturating_sub(start) > TAIL.as_nanos() as u64 => {
                return Err(client.failed("does not end".to_owned()));
            }
            None => {}
        }
        signals::check()?;
        thread::sleep(NAP.min(Duration::from_millis(10)));
    }
}

/// The server's records; other lines are complaints.
fn parse_lines(text: &str) -> Vec<FlowRecord> {
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// What the server counted of an upload, over all its connections.
fn merge_upload(record: &mut FlowRecord, counted: &[FlowRecord]) {
    let mut seen = false;
    for server in counted.iter().filter(|server| server.flow == record.flow) {
        seen = true;
        for (bucket, bytes) in record.buckets.iter_mut().zip(&server.buckets) {
            *bucket += bytes;
        }
        record.messages.extend(&server.messages);
        record.error = record.error.take().or_else(|| server.error.clone());
    }
    if !seen {
        record.connected = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series_of(bps: &[f64]) -> Series {
        Series {
            start_s: 0.0,
            interval_s: 0.1,
            bps: bps.to_vec(),
        }
    }

    #[test]
    fn series_add_up_whatever_their_lengths() {
        let (a, b) = (series_of(&[1.0, 2.0]), series_of(&[10.0, 20.0, 30.0]));
        assert_eq!(
            sum_series([&a, &b].into_iter()),
            series_of(&[11.0, 22.0, 30.0])
        );
        assert_eq!(sum_series([].into_iter()), Series::default());
    }

    #[test]
    fn shares_are_of_one_direction() {
        let link = |direction: &str, bytes| LinkSeries {
            direction: direction.to_owned(),
            wire_bytes: bytes,
            ..LinkSeries::default()
        };
        let mut links = vec![link("down", 300), link("down", 100), link("up", 0)];
        set_shares(&mut links);
        let shares: Vec<_> = links.iter().map(|link| link.share).collect();
        assert_eq!(shares, [0.75, 0.25, 0.0]);
    }

    #[test]
    fn an_upload_is_what_the_server_counted() {
        let mut record = FlowRecord {
            flow: 1,
            connected: true,
            buckets: vec![0, 0],
            ..FlowRecord::default()
        };
        let other = FlowRecord {
            buckets: vec![5, 6],
            ..record.clone()
        };
        merge_upload(&mut record, &[other.clone(), other]);
        assert_eq!(record.buckets, [10, 12]);
        merge_upload(&mut record, &[]);
        assert!(!record.connected);
    }
}
