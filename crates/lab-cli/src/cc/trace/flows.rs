//! Statistics and points of each traced connection, for the summary and the chart.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sumlink_kernel::Record;
use sumlink_lab::{WindowFlow, WindowPoint, draw_windows};

use sumlink::error::CliError;

/// Most points of one flow kept for the chart; when they are reached, every second point is
/// dropped.
const MAX_POINTS: usize = 1 << 18;

/// The connections of a trace.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Number of acknowledgments.
    pub(super) records: u64,
    /// By socket number.
    flows: BTreeMap<u64, Flow>,
}

/// One connection.
#[derive(Debug)]
struct Flow {
    name: String,
    points: Vec<WindowPoint>,
    /// Records per kept point.
    every: u64,
    seen: u64,
}

impl Account {
    /// Counts a record, and keeps it for the chart if `plot`.
    pub(super) fn take(&mut self, record: &Record, plot: bool) {
        self.records += 1;
        let flow = self.flows.entry(record.socket).or_insert_with(|| Flow {
            name: format!(
                "{} to {}, {}",
                record.local, record.remote, record.congestion
            ),
            points: Vec::new(),
            every: 1,
            seen: 0,
        });
        flow.seen += 1;
        if !plot || !flow.seen.is_multiple_of(flow.every) {
            return;
        }
        flow.points.push(WindowPoint {
            time: record.time.as_secs_f64(),
            cwnd: record.cwnd.into(),
            ssthresh: record.ssthresh.map(f64::from),
            srtt: record.srtt.as_secs_f64(),
        });
        if flow.points.len() >= MAX_POINTS {
            let mut keeps = false;
            flow.points.retain(|_| {
                keeps = !keeps;
                keeps
            });
            flow.every *= 2;
        }
    }

    /// Number of connections.
    pub(super) fn connections(&self) -> usize {
        self.flows.len()
    }

    /// Draws the chart beside the records; returns its path.
    pub(super) fn draw(&self, records: &Path) -> Result<PathBuf, CliError> {
        let path = records.with_extension("svg");
        let flows: Vec<WindowFlow> = self
            .flows
            .values()
            .map(|flow| WindowFlow {
                name: flow.name.clone(),
                points: flow.points.clone(),
            })
            .collect();
        let title = "Congestion window, threshold and round-trip time";
        let picture = draw_windows(title, &flows);
        match std::fs::write(&path, picture) {
            Ok(()) => Ok(path),
            Err(reason) => Err(CliError::Write { path, reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::sample;
    use super::*;

    #[test]
    fn pictures_of_long_traces_take_bounded_memory() {
        let mut account = Account::default();
        let record = sample();
        for _ in 0..3 * MAX_POINTS {
            account.take(&record, true);
        }
        let flow = &account.flows[&7];
        assert!(flow.points.len() < MAX_POINTS);
        assert!(flow.points.len() > MAX_POINTS / 4);
        assert_eq!(account.records, 3 * MAX_POINTS as u64);
    }
}
