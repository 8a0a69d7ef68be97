//! Computes figures from records and counters.

use std::time::Duration;

use crate::config::Direction;
use crate::error::LabError;
use crate::results::{
    self, Completion, Flow, FlowRecord, LinkSeries, Measurement, Process as ProcessResult,
    direction_name, push_note, rate, series, set_delays, sum_series,
};
use crate::scenario::{self, Workload};
use crate::video::receive;

use super::series::link_series;
use super::{Observed, Phase};

/// Above this share of the processors, other programs are mentioned in the notes.
const OTHERS_LIMIT: f64 = 0.1;
/// The beginning of that note.
pub(crate) const OTHERS_NOTE: &str = "other programs used";

impl Phase<'_> {
    pub(super) fn assemble(
        &self,
        records: Vec<FlowRecord>,
        watched: &Observed,
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
        set_delays(&mut measurement.links, scenario.links());
        if let Workload::Command { .. } = scenario.workload {
            self.command_figures(&mut measurement, watched);
        }
        if let Workload::Video(video) = &scenario.workload {
            self.video_figures(&mut measurement, video, watched.end_s, interval)?;
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

    /// The receiver's figures of the video; goodput is that of the video.
    fn video_figures(
        &self,
        measurement: &mut Measurement,
        video: &scenario::Video,
        end_s: f64,
        interval: Duration,
    ) -> Result<(), LabError> {
        let seen = receive::parse(&self.server.output()?);
        if seen.gaps > 0 && video.protocol != scenario::VideoProtocol::Srt {
            return Err(self.server.failed(format!(
                "lost packets of the transport stream {} times",
                seen.gaps
            )));
        }
        let frames = seen.frames(self.epoch_ns);
        let mut buckets = vec![0; (end_s / interval.as_secs_f64()).ceil() as usize];
        for frame in &frames {
            if let Some(bytes) =
                buckets.get_mut((frame.arrived_s / interval.as_secs_f64()) as usize)
            {
                *bytes += frame.bytes;
            }
        }
        let warmup = self.scenario.warmup;
        let mut watched = results::watch(frames, video, warmup, end_s);
        watched.link = self.stage.link.map(str::to_owned);
        measurement.duration_s = (end_s - warmup.as_secs_f64()).max(0.0);
        measurement.goodput_bps = watched.bitrate_bps;
        measurement.bytes = (watched.bitrate_bps * measurement.duration_s / 8.0) as u64;
        measurement.goodput = series(&buckets, interval);
        measurement.flows = vec![Flow {
            link: watched.link.clone(),
            direction: direction_name(Direction::Up).to_owned(),
            goodput_bps: watched.bitrate_bps,
            goodput: measurement.goodput.clone(),
            arrivals: Vec::new(),
        }];
        measurement.videos = vec![watched];
        Ok(())
    }

    /// For the user's programs only the emulator's counters are available.
    fn command_figures(&self, measurement: &mut Measurement, watched: &Observed) {
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
        let note =
            "a command's bytes are counted on the links, including headers and retransmissions";
        push_note(&mut measurement.note, note);
    }
}
