//! Progress of a long series of runs, on standard error.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::prose::{note, note_raw};
use crate::results::{Outcome, Run, Spread};

/// Initial estimate of a run's overhead beyond its duration, in seconds.
const SETTING_UP: f64 = 1.0;

/// A status line that is overwritten on a terminal; elsewhere only finished runs are reported.
pub(crate) struct Progress {
    live: bool,
    total: usize,
    done: usize,
    /// Remaining seconds of traffic; a run that shares the machine counts with its share.
    traffic_left: f64,
    /// Remaining runs, counted likewise.
    runs_left: f64,
    /// Overhead in seconds so far, and the number of runs that it belongs to.
    beside: (f64, usize),
    /// Current runs by number.
    running: BTreeMap<usize, Now>,
}

/// A run in progress.
struct Now {
    label: String,
    /// Planned seconds of traffic.
    planned: f64,
    /// Number of concurrent runs.
    width: f64,
    /// Seconds of one phase.
    duration: f64,
    /// Seconds of traffic so far.
    passed: f64,
    started: Instant,
}

impl Progress {
    /// For `total` runs; `costs` lists the remaining ones with their planned seconds and
    /// concurrency.
    pub(crate) fn new(total: usize, costs: &[(f64, usize)]) -> Self {
        Self {
            live: io::stderr().is_terminal(),
            total,
            done: total - costs.len(),
            traffic_left: costs.iter().map(|(s, width)| s / *width as f64).sum(),
            runs_left: costs.iter().map(|(_, width)| 1.0 / *width as f64).sum(),
            beside: (0.0, 0),
            running: BTreeMap::new(),
        }
    }

    /// Finished runs, those of earlier calls included.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// A run begins.
    pub(crate) fn begin(
        &mut self,
        number: usize,
        label: String,
        duration: f64,
        (planned, width): (f64, usize),
    ) {
        let now = Now {
            label,
            planned,
            width: width as f64,
            duration,
            passed: 0.0,
            started: Instant::now(),
        };
        self.running.insert(number, now);
        self.show(number, 0, 0.0);
    }

    /// Reports the progress of a run.
    pub(crate) fn show(&mut self, number: usize, phase: usize, elapsed: f64) {
        let Some(now) = self.running.get_mut(&number) else {
            return;
        };
        // Phases may be shorter than the scenario's duration.
        now.passed = (phase as f64 * now.duration + elapsed).min(now.planned);
        if !self.live {
            return;
        }
        let left = duration_in_words(self.left());
        let runs = self.running.len();
        let beside = match runs {
            1 => String::new(),
            _ => format!(" ({} in parallel)", runs - 1),
        };
        // The oldest run, so that the line does not jump.
        if let Some(now) = self.running.values().next() {
            let mut err = io::stderr().lock();
            let _ = write!(
                err,
                "\r\x1b[K[{}/{}] {}: {:.0} of {:.0} s{beside}, about {left} left",
                self.done + 1,
                self.total,
                now.label,
                now.passed,
                now.planned
            );
            let _ = err.flush();
        }
    }

    /// Estimated remaining seconds.
    fn left(&self) -> f64 {
        let beside = match self.beside {
            (_, 0) => SETTING_UP,
            (sum, runs) => sum / runs as f64,
        };
        let passed = self.running.values().map(|now| now.passed / now.width);
        (self.traffic_left - passed.sum::<f64>()).max(0.0) + beside * self.runs_left
    }

    /// Reports the end of a run.
    pub(crate) fn finish(&mut self, number: usize, run: &Run) {
        let Some(now) = self.running.remove(&number) else {
            return;
        };
        let took = now.started.elapsed().as_secs_f64();
        if matches!(run.outcome, Outcome::Measured(_)) {
            self.beside.0 += (took - now.planned).max(0.0);
            self.beside.1 += 1;
        }
        self.done += 1;
        self.traffic_left -= now.planned / now.width;
        self.runs_left -= 1.0 / now.width;
        let clear = if self.live { "\r\x1b[K" } else { "" };
        let outcome = describe(&run.outcome);
        let left = match self.total - self.done {
            0 => String::new(),
            _ => format!(" ({} left)", duration_in_words(self.left())),
        };
        note!(
            "{clear}[{}/{}] {}: {outcome}{left}",
            self.done,
            self.total,
            now.label
        );
    }

    /// Clears the line.
    pub(crate) fn end(&self) {
        if self.live {
            note_raw("\r\x1b[K");
        }
    }
}

/// Formats an outcome on one line.
pub(crate) fn describe(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured(figures) => {
            let mut text = format!("{:.1} Mbit/s", figures.goodput_bps / 1e6);
            let times = figures.completions.iter().map(|object| object.duration_s);
            if let Some(spread) = Spread::of(times) {
                text.push_str(&format!(", objects in {:.2} s (median)", spread.median));
            }
            match figures.over_limit {
                Some(0) => text.push_str(", all within the limit"),
                Some(over) => text.push_str(&format!(", {over} over the limit")),
                None => {}
            }
            if figures.flows.len() > 1 {
                let flows: Vec<_> = figures
                    .flows
                    .iter()
                    .map(|flow| {
                        let name = flow.link.as_deref().unwrap_or(&flow.direction);
                        format!("{name} {:.1}", flow.goodput_bps / 1e6)
                    })
                    .collect();
                text.push_str(&format!(" ({})", flows.join(", ")));
            }
            text
        }
        Outcome::Skipped { reason } => format!("skipped: {reason}"),
        Outcome::Refused { reason } => format!("refused: {reason}"),
        Outcome::Failed { reason } => {
            format!("failed: {}", reason.lines().next().unwrap_or_default())
        }
    }
}

/// Formats a duration in words.
pub(crate) fn duration_in_words(seconds: f64) -> String {
    let seconds = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_adapts_to_finished_runs() {
        let mut progress = Progress::new(5, &[(10.0, 1), (10.0, 1), (20.0, 1)]);
        assert_eq!(progress.done, 2);
        assert_eq!(progress.left(), 40.0 + 3.0 * SETTING_UP);
        progress.begin(0, String::new(), 10.0, (10.0, 1));
        progress.show(0, 0, 4.0);
        assert_eq!(progress.left(), 36.0 + 3.0 * SETTING_UP);
        progress.beside = (1.0, 2);
        assert_eq!(progress.left(), 37.5);
    }

    #[test]
    fn concurrent_runs_count_with_their_share() {
        let mut progress = Progress::new(4, &[(10.0, 4); 4]);
        assert_eq!(progress.left(), 10.0 + SETTING_UP);
        for number in 0..4 {
            progress.begin(number, String::new(), 10.0, (10.0, 4));
            progress.show(number, 0, 5.0);
        }
        assert_eq!(progress.left(), 5.0 + SETTING_UP);
    }

    #[test]
    fn durations_are_formatted_in_words() {
        assert_eq!(duration_in_words(42.7), "42 s");
        assert_eq!(duration_in_words(301.0), "6 min");
        assert_eq!(duration_in_words(7200.0), "2.0 h");
    }
}
