//! From records and counters to figures.

use std::time::Duration;

use crate::error::LabError;
use crate::results::{
    self, Completion, FlowRecord, LinkSeries, Measurement, Process as ProcessResult,
    direction_name, push_note, rate, sum_series,
};
use crate::scenario::Workload;

use super::series::link_series;
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
        let mut measurement =
            results::assemble(scenario, &records, interval).map_err(|what| LabError::Failed {
                what,
                log: String::new(),
            })?;
        measurement.emulator = watched.health.clone();
        measurement.links = link_series(watched);
        if let Workload::Command { .. } = scenario.workload {
            self.command_figures(&mut measurement, watched);
        }
        measurement.machine = Some(watched.machine);
        if watched.machine.others_share > OTHERS_LIMIT {
            let share = watched.machine.others_share * 100.0;
            let note = format!("{OTHERS_NOTE} {share:.0} % of the machine meanwhile");
            push_note(&mut measurement.note, &note);
        }
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
