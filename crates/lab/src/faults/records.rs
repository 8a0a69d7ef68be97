//! The records of each laboratory: its faults as JSON lines, and a separate file with every
//! arrival.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::kind::way;
use super::task::Task;
use crate::config::Direction;
use crate::error::LabError;
use crate::run::write_text;

/// A fault and its effects. Times are in seconds since the start of the laboratory's run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) link: String,
    /// Start of the undisturbed time, of the fault, its end, and the end of the observation.
    pub(super) rested_s: f64,
    pub(super) begun_s: f64,
    pub(super) ended_s: f64,
    pub(super) over_s: f64,
    /// The longest time without an arrival after the start of the fault, and its start.
    pub(super) gap_ms: f64,
    pub(super) gap_from_s: f64,
    /// The longest one before the fault.
    pub(super) steady_gap_ms: f64,
    /// From its end until the link carried its rate again; `None` if not observed.
    pub(super) back_ms: Option<f64>,
}

/// The records of one laboratory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Chunk {
    pub(super) kind: String,
    pub(super) direction: String,
    pub(super) number: u64,
    /// Number of requested faults.
    pub(super) asked: u64,
    /// Duration of the flow, and delivered bytes.
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    pub(super) goodput_bps: f64,
    /// Goodput of the steady link alone, where the bar refers to it.
    pub(super) alone_bps: Option<f64>,
    /// Duplicate bytes sent by both ends.
    pub(super) duplicates_bytes: Option<u64>,
    /// Why the figures are unreliable: the emulator was late.
    pub(super) objection: Option<String>,
    pub(super) faults: Vec<Fault>,
}

/// The recorded observations.
pub(super) struct Seen {
    pub(super) chunk: Chunk,
    /// Arrivals: nanoseconds since the start, and bytes.
    pub(super) arrivals: Vec<(u64, u64)>,
}

/// The directory of the chunks.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
}

impl Records {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
        }
    }

    /// The chunk of a task, if it exists.
    pub(super) fn read(&self, task: &Task<'_>) -> Option<Chunk> {
        let text = fs::read_to_string(self.path(task, "json")).ok()?;
        let chunk: Chunk = serde_json::from_str(&text).ok()?;
        (chunk.asked == task.faults).then_some(chunk)
    }

    /// All chunks of a kind and a direction by number, including those of other calls.
    pub(super) fn all(&self, kind: &str, direction: Direction) -> Vec<Chunk> {
        let directory = self.directory.join(of(kind, direction));
        let files = fs::read_dir(directory).into_iter().flatten().flatten();
        let chunks = files.filter_map(|file| {
            let is_json = file.path().extension().is_some_and(|e| e == "json");
            let text = fs::read_to_string(file.path()).ok().filter(|_| is_json)?;
            serde_json::from_str(&text).ok()
        });
        let mut chunks: Vec<Chunk> = chunks.collect();
        chunks.sort_by_key(|chunk| chunk.number);
        chunks
    }

    /// Stores the observations. Arrivals are written first, so that an existing chunk is complete.
    pub(super) fn write(&self, task: &Task<'_>, seen: &Seen) -> Result<(), LabError> {
        let mut lines = String::new();
        for (at_ns, bytes) in &seen.arrivals {
            let _ = writeln!(lines, "[{at_ns},{bytes}]");
        }
        write_text(&self.path(task, "arrivals.jsonl"), &lines)?;
        crate::run::write_json(&self.path(task, "json"), &seen.chunk)
    }

    fn path(&self, task: &Task<'_>, extension: &str) -> PathBuf {
        let directory = self.directory.join(of(task.kind.name, task.direction));
        directory.join(format!("{}.{extension}", task.number))
    }
}

/// File name for a kind in a direction.
pub(super) fn of(kind: &str, direction: Direction) -> String {
    format!("{kind}-{}", way(direction))
}

/// One JSON line for each fault, for docs/results.
pub(super) fn lines(chunks: &[Chunk]) -> String {
    let mut text = String::new();
    for chunk in chunks {
        for fault in &chunk.faults {
            let line = serde_json::json!({
                "kind": chunk.kind,
                "direction": chunk.direction,
                "chunk": chunk.number,
                "link": fault.link,
                "begun_s": rounded(fault.begun_s),
                "lasted_s": rounded(fault.ended_s - fault.begun_s),
                "gap_ms": rounded(fault.gap_ms),
                "gap_after_ms": rounded((fault.gap_from_s - fault.begun_s) * 1e3),
                "steady_gap_ms": rounded(fault.steady_gap_ms),
                "back_ms": fault.back_ms.map(rounded),
            });
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::kind::KINDS;

    #[test]
    fn kept_chunks_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::new(directory.path());
        let mut task = Task {
            kind: &KINDS[0],
            direction: Direction::Up,
            number: 3,
            faults: 1,
            program: Path::new("x"),
            lan: false,
        };
        assert_eq!(records.read(&task), None);
        let fault = Fault {
            link: "a".to_owned(),
            begun_s: 1.0,
            ended_s: 3.5,
            gap_ms: 123.456_7,
            back_ms: Some(400.0),
            ..Fault::default()
        };
        let chunk = Chunk {
            kind: KINDS[0].name.to_owned(),
            direction: "up".to_owned(),
            number: 3,
            asked: 1,
            seconds: 9.0,
            bytes: 10,
            goodput_bps: 1.0,
            alone_bps: None,
            duplicates_bytes: Some(5),
            objection: None,
            faults: vec![fault],
        };
        let seen = Seen {
            chunk: chunk.clone(),
            arrivals: vec![(5, 10)],
        };
        records.write(&task, &seen).unwrap();
        assert_eq!(records.read(&task).as_ref(), Some(&chunk));
        let kept = records.all(KINDS[0].name, Direction::Up);
        assert_eq!(kept, std::slice::from_ref(&chunk));
        assert_eq!(records.all(KINDS[0].name, Direction::Down), []);
        task.faults = 2;
        assert_eq!(records.read(&task), None, "more faults were requested");
        let line: serde_json::Value = serde_json::from_str(&lines(&kept)).unwrap();
        assert_eq!(line["gap_ms"], 123.457);
        assert_eq!(line["lasted_s"], 2.5);
    }
}
