//! Computes figures from the records of flows.

use std::time::Duration;

use super::record::{DatagramsRecord, FlowRecord, ObjectRecord};
use super::series::{rate, series, sum_series};
use super::{Completion, Datagrams, Flow, Measured, Measurement};
use crate::scenario::{Scenario, Workload, probe_schedule};

/// The figures from the records of a run's receivers, with intervals of that length; figures of the
/// links and the system are added elsewhere. The error is the system's failure.
pub fn assemble(
    scenario: &Scenario,
    records: &[FlowRecord],
    interval: Duration,
) -> Result<Measurement, String> {
    let mut measurement = Measurement::default();
    let skip = scenario.warmup.as_nanos().div_ceil(interval.as_nanos()) as usize;
    let mut flows = Vec::new();
    for record in records {
        check(record)?;
        let link = record.link.clone();
        let direction = if record.flow.is_multiple_of(2) {
            "down"
        } else {
            "up"
        };
        let bytes: u64 = record.buckets.iter().skip(skip).sum();
        let mut seconds = record.buckets.len().saturating_sub(skip) as f64 * interval.as_secs_f64();
        if let Workload::Files { .. } = scenario.workload {
            // Bytes after the last object do not belong to it.
            let end = |object: &ObjectRecord| object.start_s + object.duration_s;
            let end = record.objects.iter().map(end).fold(0.0, f64::max);
            seconds = seconds.min((end - scenario.warmup.as_secs_f64()).max(0.0));
        }
        if record.rival {
            let bps = measurement.rival_bps.get_or_insert(0.0);
            *bps += rate(bytes, seconds);
            continue;
        }
        if let Some(datagrams) = &record.datagrams {
            let of_flow = datagram_figures(scenario, datagrams);
            measurement.datagrams.push(Datagrams {
                link: link.clone(),
                direction: if datagrams.echo { "echo" } else { direction }.to_owned(),
                ..of_flow
            });
        }
        // Probes are not the traffic that is measured.
        if record
            .datagrams
            .as_ref()
            .is_some_and(|datagrams| datagrams.echo)
        {
            continue;
        }
        if let Some(of_flow) = record.connections {
            let all = measurement.connections.get_or_insert_default();
            *all = all.and(of_flow);
        }
        measurement.duration_s = measurement.duration_s.max(seconds);
        measurement.bytes += bytes;
        flows.push(Flow {
            link: link.clone(),
            direction: direction.to_owned(),
            goodput_bps: rate(bytes, seconds),
            goodput: series(&record.buckets, interval),
            arrivals: record.arrivals.clone(),
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
    measurement.goodput = sum_series(flows.iter().map(|flow| &flow.goodput));
    measurement.goodput_bps = rate(measurement.bytes, measurement.duration_s);
    measurement.flows = flows;
    note_objects(&mut measurement, scenario, records);
    note_connections(&mut measurement, &scenario.workload);
    Ok(measurement)
}

/// The figures of a flow of datagrams, without its link and direction.
fn datagram_figures(scenario: &Scenario, record: &DatagramsRecord) -> Datagrams {
    let (schedule, playout) = match &scenario.workload {
        Workload::Datagrams(datagrams) if !record.echo => {
            (datagrams.schedule.clone(), datagrams.playout)
        }
        _ => (probe_schedule(), None),
    };
    let measured = Measured {
        from_s: scenario.warmup.as_secs_f64(),
        until_s: scenario.duration.as_secs_f64(),
    };
    let due = schedule.due_s(scenario.duration);
    Datagrams::of(&due, &record.arrivals, measured, playout)
}

/// Adds a note on how many objects arrived, and how many in time.
fn note_objects(measurement: &mut Measurement, scenario: &Scenario, records: &[FlowRecord]) {
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
}

/// Adds a note on the numbers of connections or questions.
fn note_connections(measurement: &mut Measurement, workload: &Workload) {
    let Some(all) = measurement.connections else {
        return;
    };
    let note = match workload {
        Workload::Connections { answer, .. } => {
            // Every connection brings one answer.
            let rate = measurement.goodput_bps / 8.0 / *answer as f64;
            format!("{rate:.0} new connections a second, {} failed", all.failed)
        }
        Workload::Open { .. } => {
            format!(
                "{} connections open at the end, {} failed",
                all.open, all.failed
            )
        }
        _ => format!("{} questions answered, {} lost", all.answered, all.failed),
    };
    push_note(&mut measurement.note, &note);
}

/// Fails for a flow with an error, which is the system's failure; a single link that does not
/// connect has a valid figure of 0.
fn check(record: &FlowRecord) -> Result<(), String> {
    if let Some(error) = &record.error {
        return Err(format!("flow {}: {error}", record.flow));
    }
    if !record.connected && record.link.is_none() {
        return Err("it did not connect before the run was over".to_owned());
    }
    Ok(())
}

/// Appends a remark.
pub fn push_note(all: &mut String, note: &str) {
    if !all.is_empty() {
        all.push_str("; ");
    }
    all.push_str(note);
}
