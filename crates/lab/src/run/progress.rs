//! How far a long series of runs is, and what is left: on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::results::{Outcome, Run, Spread};

/// What a run takes beside its duration, before any has been seen.
const SETTING_UP: f64 = 2.0;

/// A line that is overwritten on a terminal; elsewhere only finished runs are told.
pub(crate) struct Progress {
    live: bool,
    total: usize,
    done: usize,
    /// Planned seconds of traffic that are still to come, the current run included.
    traffic_left: f64,
    /// Runs still to come, the current one included.
    runs_left: usize,
    /// Seconds beside the traffic, and of how many runs.
    beside: (f64, usize),
    /// What runs now.
    label: String,
    planned: f64,
    /// Of one phase.
    duration: f64,
    started: Instant,
}

impl Progress {
    /// For so many runs, of which those with the given planned seconds are still to be done.
    pub(crate) fn new(total: usize, planned: &[f64]) -> Self {
        Self {
            live: io::stderr().is_terminal(),
            total,
            done: total - planned.len(),
            traffic_left: planned.iter().sum(),
            runs_left: planned.len(),
            beside: (0.0, 0),
            label: String::new(),
            planned: 0.0,
            duration: 0.0,
            started: Instant::now(),
        }
    }

    /// Runs that have ended, those of earlier calls included.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// A run begins.
    pub(crate) fn begin(
        &mut self,
        scenario: &str,
        seed: u64,
        system: &str,
        duration: f64,
        planned: f64,
    ) {
        self.label = format!("{scenario}, seed {seed}, {system}");
        self.duration = duration;
        self.planned = planned;
        self.started = Instant::now();
        self.show(0, 0.0);
    }

    /// It has come so far.
    pub(crate) fn show(&self, phase: usize, elapsed: f64) {
        if !self.live {
            return;
        }
        // Phases may be shorter than the scenario says.
        let done = (phase as f64 * self.duration + elapsed).min(self.planned);
        let left = duration_in_words(self.left(done));
        let mut err = io::stderr().lock();
        let number = self.done + 1;
        let _ = write!(
            err,
            "\r\x1b[K[{number}/{}] {}: {done:.0} of {:.0} s, about {left} left",
            self.total, self.label, self.planned
        );
        let _ = err.flush();
    }

    /// Seconds that everything still takes, when so many of the current run have passed.
    fn left(&self, done: f64) -> f64 {
        let beside = match self.beside {
            (_, 0) => SETTING_UP,
            (sum, runs) => sum / runs as f64,
        };
        (self.traffic_left - done).max(0.0) + beside * self.runs_left as f64
    }

    /// The run has ended like this.
    pub(crate) fn finish(&mut self, run: &Run) {
        let took = self.started.elapsed().as_secs_f64();
        if matches!(run.outcome, Outcome::Measured(_)) {
            self.beside.0 += (took - self.planned).max(0.0);
            self.beside.1 += 1;
        }
        self.done += 1;
        self.traffic_left -= self.planned;
        self.runs_left = self.runs_left.saturating_sub(1);
        let clear = if self.live { "\r\x1b[K" } else { "" };
        let outcome = describe(&run.outcome);
        let left = match self.runs_left {
            0 => String::new(),
            _ => format!(" ({} left)", duration_in_words(self.left(0.0))),
        };
        eprintln!(
            "{clear}[{}/{}] {}: {outcome}{left}",
            self.done, self.total, self.label
        );
    }

    /// Clears the line.
    pub(crate) fn end(&self) {
        if self.live {
            eprint!("\r\x1b[K");
        }
    }
}

/// One line for an outcome.
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

/// A duration as people say it.
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
    fn what_is_left_learns_from_what_was() {
        let mut progress = Progress::new(5, &[10.0, 10.0, 20.0]);
        assert_eq!(progress.done, 2);
        assert_eq!(progress.left(0.0), 40.0 + 3.0 * SETTING_UP);
        assert_eq!(progress.left(4.0), 36.0 + 3.0 * SETTING_UP);
        progress.beside = (1.0, 2);
        assert_eq!(progress.left(0.0), 41.5);
    }

    #[test]
    fn times_are_said_in_words() {
        assert_eq!(duration_in_words(42.7), "42 s");
        assert_eq!(duration_in_words(301.0), "6 min");
        assert_eq!(duration_in_words(7200.0), "2.0 h");
    }
}
