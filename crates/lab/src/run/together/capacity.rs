//! How many runs fit on the machine at once; learned from the runs themselves.

use std::thread;

use super::super::job::Job;
use crate::results::Machine;

/// Share of each processor that concurrent runs may use, in thousandths: the rest is reserved for
/// bursts.
const LOAD_OF_PROCESSOR: u64 = 500;
/// Largest share of the capacity for a single run, in percent: a larger one leaves nothing for
/// others.
const LARGEST_SHARE: u64 = 80;
/// Runs at higher rates (bit/s) are always alone, however many processors there are.
const LIGHT: u64 = 400_000_000;
/// Maximum number of concurrent runs for each processor.
const RUNS_OF_PROCESSOR: usize = 4;
/// Factor for the capacity when it has proven too large for the machine.
const SHRINK: f64 = 0.75;
/// Factor for the capacity when runs that filled it used less than [`IDLE`] of the machine, and the
/// maximum relative to the initial estimate: loads are estimated for a slow machine.
const GROW: f64 = 1.25;
const IDLE: f64 = 0.3;
const LARGEST: u64 = 2;
/// Above this utilization the capacity has grown too large, although no run needs a repetition yet.
const HIGH_LOAD: f64 = 0.5;

/// Capacity for concurrent runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Capacity {
    /// Number of runs.
    runs: usize,
    /// Sum of their loads, in thousandths of a processor.
    pub(super) load: u64,
    /// The initial estimate of the load.
    smallest: u64,
    /// Number of reductions so far.
    shrunk: u32,
}

/// Load figures of a run that shares the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Share {
    /// The run's load.
    pub(super) load: u64,
    /// The capacity when it began, and the number of reductions before.
    capacity: u64,
    shrunk: u32,
    /// The load in use at that time, including this run.
    taken: u64,
}

/// Upper estimate of the load of a run at that rate (bit/s), in thousandths of a processor:
/// emulator, both ends of the system, and the traffic. A single packet costs one or two wake-ups;
/// the busier a link is, the more packets share them.
fn load(rate: u64) -> u64 {
    let mbit = rate / 1_000_000;
    (10 * mbit).min(600 + mbit * 3 / 2)
}

impl Capacity {
    /// The capacity of this machine, for at most this number of runs.
    pub(crate) fn of_this_machine(most: Option<usize>) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::of(processors, most)
    }

    pub(super) fn of(processors: usize, most: Option<usize>) -> Self {
        Self {
            runs: most.unwrap_or(RUNS_OF_PROCESSOR * processors),
            load: LOAD_OF_PROCESSOR * processors as u64,
            smallest: LOAD_OF_PROCESSOR * processors as u64,
            shrunk: 0,
        }
    }

    /// Reduces the capacity after an overload, at least to `least`, and rules out further growth.
    fn shrink(&mut self, least: u64) {
        self.load = ((self.load as f64 * SHRINK) as u64).max(least);
        self.shrunk += 1;
        let processors = self.load as f64 / 1000.0;
        tracing::info!("reducing concurrent runs to a load of {processors:.2} processors");
    }

    /// Increases the capacity after runs that filled it left the machine idle.
    pub(super) fn grow(&mut self) {
        if self.shrunk == 0 {
            self.load = ((self.load as f64 * GROW) as u64).min(LARGEST * self.smallest);
        }
    }

    /// The share of a run beside others with the load `taken`; `None` if it must be alone.
    pub(super) fn share(&self, job: &Job<'_>, taken: u64) -> Option<Share> {
        let load = self.load_of(job)?;
        Some(Share {
            load,
            capacity: self.load,
            shrunk: self.shrunk,
            taken: taken + load,
        })
    }

    /// Whether a run with this share may begin beside this number of others.
    pub(super) fn has_room(&self, running: usize, share: &Share) -> bool {
        running < self.runs && share.taken <= self.load
    }

    /// A run with this share got too little of the machine.
    pub(super) fn refused(&mut self, share: &Share) {
        // Concurrent runs report the same overload; only the first report counts.
        if share.shrunk == self.shrunk {
            self.shrink(0);
        }
    }

    /// A run with this share has measured the use of the machine; `of_a_link` is whether it was a
    /// run of a single link alone.
    pub(super) fn used(&mut self, share: &Share, machine: Machine, of_a_link: bool) {
        let used = machine.runs_share;
        let is_grown = self.load > self.smallest;
        // Runs at the same capacity report the same utilization.
        if used > HIGH_LOAD && is_grown && share.shrunk == self.shrunk {
            self.shrink(self.smallest);
        } else if share.capacity == self.load && !of_a_link {
            // Extrapolates to full capacity; a nearly empty machine allows no conclusion. A single
            // link is cheaper than the load was estimated for.
            let part = share.taken as f64 / share.capacity as f64;
            let busy = (used + machine.others_share) / part;
            if part > 0.5 && used > 0.0 && busy < IDLE {
                self.grow();
            }
        }
    }

    /// Number of runs like this one that fit at once.
    pub(crate) fn width(&self, job: &Job<'_>) -> usize {
        match self.load_of(job) {
            Some(load) => {
                let fit = usize::try_from(self.load / load.max(1)).unwrap_or(usize::MAX);
                fit.min(self.runs).max(1)
            }
            None => 1,
        }
    }

    /// The load of a run that may share the machine.
    fn load_of(&self, job: &Job<'_>) -> Option<u64> {
        let rate = job.rate.filter(|rate| *rate <= LIGHT && self.runs > 1)?;
        Some(load(rate)).filter(|load| *load <= self.load * LARGEST_SHARE / 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads measured on two processors, in processors: the estimate must not be lower.
    #[test]
    fn the_load_is_not_underestimated() {
        for (mbit, measured) in [
            (10, 0.10),
            (50, 0.44),
            (62, 0.59),
            (105, 0.72),
            (110, 0.75),
            (330, 1.02),
        ] {
            let estimated = load(mbit * 1_000_000) as f64 / 1000.0;
            assert!(
                (measured..measured + 0.15).contains(&estimated),
                "{mbit}: {estimated}"
            );
        }
    }
}
