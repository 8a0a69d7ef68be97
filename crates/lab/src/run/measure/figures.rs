//! From records and counters to figures.

use std::time::Duration;

use crate::error::LabError;
use crate::results::{Completion, Flow, LinkSeries, Measurement, Process as ProcessResult};
use crate::scenario::Workload;
use crate::traffic::{FlowRecord, ObjectRecord};

use super::series::{direction_name, link_series, rate, series, set_shares, sum_series};
use super::{Phase, Watched};

/// Above this share of the processors other programs are worth a note.
const OTHERS_LIMIT: f64 = 0.1;
/// How such a note begins.
pub(crate) const OTHERS_NOTE: &str = "other programs used";

impl Phase<'_> {
    pub(super) fn assemble(
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
            let link = record.link.clone();
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
            if record.rival {
                let bps = measurement.rival_bps.get_or_insert(0.0);
                *bps += rate(bytes, seconds);
                continue;
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
            let delays: Vec<f64> = messages.map(|(_, delay)| *delay).collect();
            measurement.message_delays_ms.extend(&delays);
            if let Some(link) = link.filter(|_| !delays.is_empty()) {
                let of_link = measurement.link_delays_ms.entry(link).or_default();
                of_link.extend(delays);
            }
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
            let note = format!("{OTHERS_NOTE} {share:.0} % of the machine meanwhile");
            push_note(&mut measurement.note, &note);
        }
        if let Workload::Files {
            sizes,
            count,
            limit,
            ..
        } = &scenario.workload
        {
            let flows = records.iter().filter(|record| !record.rival).count();
            let all = sizes.len() as u64 * count * flows as u64;
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
        let [before, after] = watched.traffic_cpu_s;
        measurement.traffic_cpu_s = Some((after - before).max(0.0));
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
        if !record.connected && record.link.is_none() {
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
pub(in crate::run) fn join(mut a: Measurement, b: Measurement) -> Measurement {
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
    a.reorder_peak_bytes = a.reorder_peak_bytes.max(b.reorder_peak_bytes);
    a.rival_bps = a.rival_bps.or(b.rival_bps);
    for (link, delays) in b.link_delays_ms {
        a.link_delays_ms.entry(link).or_default().extend(delays);
    }
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
    a.traffic_cpu_s = a.traffic_cpu_s.zip(b.traffic_cpu_s).map(|(a, b)| a + b);
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

/// Two parts of one phase, one after the other: bytes and time add up, and goodput is the mean.
pub(in crate::run) fn in_series(a: Measurement, b: Measurement) -> Measurement {
    let seconds = [a.duration_s, b.duration_s];
    let flows = a.flows.iter().zip(&b.flows).map(|(first, second)| Flow {
        goodput_bps: mean([first.goodput_bps, second.goodput_bps], seconds),
        goodput: sum_series([&first.goodput, &second.goodput].into_iter()),
        ..first.clone()
    });
    let flows = flows.collect();
    Measurement {
        goodput_bps: mean([a.goodput_bps, b.goodput_bps], seconds),
        duration_s: seconds.iter().sum(),
        flows,
        ..join(a, b)
    }
}

/// The mean rate over two times.
fn mean(rates: [f64; 2], seconds: [f64; 2]) -> f64 {
    let whole: f64 = seconds.iter().sum();
    let bits = rates[0] * seconds[0] + rates[1] * seconds[1];
    if whole > 0.0 { bits / whole } else { 0.0 }
}

/// Adds a note for the reader.
pub(super) fn push_note(all: &mut String, note: &str) {
    if !all.is_empty() {
        all.push_str("; ");
    }
    all.push_str(note);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_phase_have_the_mean_of_their_goodput() {
        let part = |duration_s: f64, goodput_bps: f64| Measurement {
            duration_s,
            goodput_bps,
            bytes: (duration_s * goodput_bps / 8.0) as u64,
            flows: vec![Flow {
                link: Some("wifi".to_owned()),
                goodput_bps,
                ..Flow::default()
            }],
            ..Measurement::default()
        };
        let both = in_series(part(1.0, 8e6), part(3.0, 16e6));
        assert_eq!((both.duration_s, both.goodput_bps), (4.0, 14e6));
        assert_eq!((both.bytes, both.flows.len()), (7_000_000, 1));
        assert_eq!(both.flows[0].goodput_bps, 14e6);
        // Links that were measured one after the other add up instead.
        assert_eq!(join(part(1.0, 8e6), part(3.0, 16e6)).goodput_bps, 24e6);
        assert_eq!(in_series(part(0.0, 0.0), part(0.0, 0.0)).goodput_bps, 0.0);
    }
}
