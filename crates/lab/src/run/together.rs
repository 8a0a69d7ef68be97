//! Concurrent runs, as far as the machine has capacity for them.
//!
//! Each run has its own namespaces and emulator, so they share only the machine. A run that got too
//! little CPU time is repeated alone, and the number of concurrent runs is reduced from then on. As
//! long as this has not happened, the number grows whenever the runs leave the machine idle,
//! because its capacity is not known in advance.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::error::LabError;
use crate::results::{ALONE, Outcome, Run};

use super::once::{self, Concurrency, Job};

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
    load: u64,
    /// The initial estimate of the load.
    smallest: u64,
    /// Number of reductions so far.
    shrunk: u32,
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

    fn of(processors: usize, most: Option<usize>) -> Self {
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
    fn grow(&mut self) {
        if self.shrunk == 0 {
            self.load = ((self.load as f64 * GROW) as u64).min(LARGEST * self.smallest);
        }
    }

    /// Number of runs like this one that fit at once.
    pub(crate) fn width(&self, job: &Job<'_>) -> usize {
        match self.share(job) {
            Some(load) => {
                let fit = usize::try_from(self.load / load.max(1)).unwrap_or(usize::MAX);
                fit.min(self.runs).max(1)
            }
            None => 1,
        }
    }

    /// The load of a run that may share the machine.
    fn share(&self, job: &Job<'_>) -> Option<u64> {
        let rate = job.rate.filter(|rate| *rate <= LIGHT && self.runs > 1)?;
        Some(load(rate)).filter(|load| *load <= self.load * LARGEST_SHARE / 100)
    }
}

/// Progress reports of the runs.
pub(super) enum Update {
    /// A run has begun.
    Begun(usize),
    /// The run is in this phase, at this number of seconds.
    Comes(usize, usize, f64),
    /// The run has ended.
    Done(usize, Box<Run>),
}

/// Does all jobs, in order where possible; after the first error it waits for the concurrent runs
/// and returns.
pub(super) fn run(
    jobs: &[&Job<'_>],
    capacity: Capacity,
    report: &mut dyn FnMut(Update) -> Result<(), LabError>,
) -> Result<(), LabError> {
    thread::scope(|scope| {
        let (post, inbox) = mpsc::channel();
        let mut queue = Queue::new(jobs, capacity);
        let mut failure = None;
        loop {
            while failure.is_none() {
                let Some((index, concurrency)) = queue.next() else {
                    break;
                };
                failure = report(Update::Begun(index)).err();
                let post = post.clone();
                scope.spawn(move || one(jobs[index], index, concurrency, &post));
            }
            if queue.running.is_empty() {
                return failure.map_or(Ok(()), Err);
            }
            let message = match inbox.recv() {
                Ok(Message::Comes(index, phase, elapsed)) => {
                    report(Update::Comes(index, phase, elapsed))
                }
                Ok(Message::Ended(index, result)) => result
                    .and_then(|mut run| {
                        queue.note_company(index, &mut run);
                        if queue.ended(index, &run) {
                            report(Update::Done(index, run))
                        } else {
                            Ok(())
                        }
                    })
                    .inspect_err(|_| queue.forget(index)),
                // The sender outlives this loop.
                Err(_) => Ok(()),
            };
            failure = failure.or(message.err());
        }
    })
}

enum Message {
    Comes(usize, usize, f64),
    Ended(usize, Result<Box<Run>, LabError>),
}

fn one(job: &Job<'_>, index: usize, concurrency: Concurrency, post: &Sender<Message>) {
    let mut tick = |phase, elapsed| {
        // After a failure the receiver is gone.
        let _ = post.send(Message::Comes(index, phase, elapsed));
    };
    // A panic must be reported as well, since the main thread waits for the end of this run.
    let result = catch_unwind(AssertUnwindSafe(|| once::run(job, concurrency, &mut tick)));
    let result = result.unwrap_or_else(|_| Err(LabError::system("measuring", "a thread panicked")));
    let _ = post.send(Message::Ended(index, result.map(Box::new)));
}

/// Pending and current runs.
struct Queue<'a, 'j> {
    jobs: &'a [&'j Job<'j>],
    capacity: Capacity,
    waiting: VecDeque<usize>,
    /// Runs that got too little CPU time alongside others.
    again: VecDeque<usize>,
    running: BTreeMap<usize, Place>,
}

/// A run in progress.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    /// `None` for a run that is alone.
    share: Option<Share>,
    /// Peak number of concurrent runs since it began, this one included.
    most: usize,
}

/// Load figures of a run that shares the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    /// The run's load.
    load: u64,
    /// The capacity when it began, and the number of reductions before.
    capacity: u64,
    shrunk: u32,
    /// The load in use at that time, including this run.
    taken: u64,
}

impl<'a, 'j> Queue<'a, 'j> {
    fn new(jobs: &'a [&'j Job<'j>], capacity: Capacity) -> Self {
        Self {
            jobs,
            capacity,
            waiting: (0..jobs.len()).collect(),
            again: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// The next job to begin now, if any.
    fn next(&mut self) -> Option<(usize, Concurrency)> {
        let is_quiet = self.running.is_empty();
        if is_quiet && let Some(index) = self.again.pop_front() {
            self.begin(index, None);
            return Some((index, Concurrency::Alone));
        }
        let index = *self.waiting.front()?;
        let loads = self
            .running
            .values()
            .map(|place| Some(place.share.as_ref()?.load));
        let taken: Option<u64> = loads.sum();
        let share = self.capacity.share(self.jobs[index]).map(|load| Share {
            load,
            capacity: self.capacity.load,
            shrunk: self.capacity.shrunk,
            taken: taken.unwrap_or_default() + load,
        });
        let has_room = match share {
            None => is_quiet,
            Some(Share { taken: all, .. }) => {
                self.running.len() < self.capacity.runs
                    && taken.is_some()
                    && all <= self.capacity.load
            }
        };
        if !has_room {
            return None;
        }
        self.waiting.pop_front();
        self.begin(index, share);
        let concurrency = match share {
            None => Concurrency::Alone,
            Some(_) => Concurrency::Others,
        };
        Some((index, concurrency))
    }

    fn begin(&mut self, index: usize, share: Option<Share>) {
        self.running.insert(index, Place { share, most: 0 });
        let now = self.running.len();
        for place in self.running.values_mut() {
            place.most = place.most.max(now);
        }
    }

    /// Records the number of concurrent runs in a finished run: the machine's shares are for all of
    /// them together.
    fn note_company(&self, index: usize, run: &mut Run) {
        if let Some(place) = self.running.get(&index)
            && let Outcome::Measured(figures) = &mut run.outcome
            && let Some(machine) = &mut figures.machine
        {
            machine.runs_at_once = place.most;
        }
    }

    /// Handles the end of a run; returns whether it is final.
    fn ended(&mut self, index: usize, run: &Run) -> bool {
        let shared = self.running.remove(&index).and_then(|place| place.share);
        match (&run.outcome, shared) {
            (Outcome::Refused { reason }, Some(share)) => {
                let (scenario, system) = (&run.scenario, &run.system);
                tracing::info!(%scenario, %system, seed = run.seed, %reason, "the run will be \
                    repeated alone");
                self.again.push_back(index);
                // Concurrent runs report the same overload; only the first report counts.
                if share.shrunk == self.capacity.shrunk {
                    self.capacity.shrink(0);
                }
                false
            }
            (Outcome::Measured(figures), Some(share)) => {
                let machine = figures.machine.unwrap_or_default();
                let used = machine.runs_share;
                let is_grown = self.capacity.load > self.capacity.smallest;
                // Runs at the same capacity report the same utilization.
                if used > HIGH_LOAD && is_grown && share.shrunk == self.capacity.shrunk {
                    self.capacity.shrink(self.capacity.smallest);
                } else if share.capacity == self.capacity.load && run.system != ALONE {
                    // Extrapolates to full capacity; a nearly empty machine allows no conclusion. A
                    // single link is cheaper than the load was estimated for.
                    let part = share.taken as f64 / share.capacity as f64;
                    let busy = (used + machine.others_share) / part;
                    if part > 0.5 && used > 0.0 && busy < IDLE {
                        self.capacity.grow();
                    }
                }
                true
            }
            _ => true,
        }
    }

    fn forget(&mut self, index: usize) {
        self.running.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::results::{Machine, Measurement, Run};
    use crate::scenario::Scenario;

    fn scenario() -> Scenario {
        let text = "name = \"s\"\nduration = \"1s\"\n[[link]]\nname = \"a\"\nrate = \"1mbit\"\n";
        Scenario::parse(Path::new("s.toml"), text).unwrap()
    }

    fn job(scenario: &Scenario, mbit: Option<u64>) -> Job<'_> {
        Job {
            scenario,
            seed: 1,
            system: "alone".to_owned(),
            program: Path::new("x"),
            rate: mbit.map(|mbit| mbit * 1_000_000),
            trace: None,
        }
    }

    /// The numbers of the jobs that begin now.
    fn begun(queue: &mut Queue<'_, '_>) -> Vec<usize> {
        std::iter::from_fn(|| queue.next().map(|(index, _)| index)).collect()
    }

    fn run(outcome: Outcome) -> Run {
        Run::bare("x", 1, outcome)
    }

    #[test]
    fn light_runs_share_the_machine_and_others_do_not() {
        let scenario = scenario();
        let rates = [
            Some(25),
            Some(25),
            Some(50),
            Some(25),
            None,
            Some(25),
            Some(300),
        ];
        let jobs = rates.map(|rate| job(&scenario, rate));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let capacity = Capacity::of(2, None);
        let mut queue = Queue::new(&jobs, capacity);
        let good = run(Outcome::Measured(Box::default()));
        assert_eq!(begun(&mut queue), [0, 1, 2]);
        assert!(queue.ended(1, &good));
        assert_eq!(begun(&mut queue), [3]);
        for index in [0, 2] {
            queue.ended(index, &good);
            assert_eq!(begun(&mut queue), [] as [usize; 0]);
        }
        queue.ended(3, &good);
        // Alone, like every run that leaves no capacity.
        assert_eq!(begun(&mut queue), [4]);
        queue.ended(4, &good);
        assert_eq!(begun(&mut queue), [5]);
        queue.ended(5, &good);
        assert_eq!(begun(&mut queue), [6]);
        let alone = Place {
            share: None,
            most: 1,
        };
        assert_eq!(queue.running, BTreeMap::from([(6, alone)]));
        assert_eq!(
            rates.map(|rate| capacity.width(&job(&scenario, rate))),
            [4, 4, 2, 4, 1, 4, 1]
        );
        assert_eq!(Capacity::of(2, Some(3)).width(jobs[0]), 3);
        assert_eq!(Capacity::of(2, Some(1)).width(jobs[0]), 1);
        assert_eq!(Capacity::of(64, None).width(&job(&scenario, Some(500))), 1);
        // Large runs only share with small ones.
        assert_eq!(capacity.width(&job(&scenario, Some(105))), 1);
        let jobs = [Some(105), Some(20), Some(50)].map(|rate| job(&scenario, rate));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        assert_eq!(begun(&mut Queue::new(&jobs, capacity)), [0, 1]);
    }

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

    #[test]
    fn a_run_records_the_number_of_concurrent_runs() {
        let scenario = scenario();
        let jobs = [Some(25), Some(25), Some(50), None].map(|rate| job(&scenario, rate));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let mut queue = Queue::new(&jobs, Capacity::of(1, None));
        let measured = Measurement {
            machine: Some(Machine::default()),
            ..Measurement::default()
        };
        let end = |queue: &mut Queue<'_, '_>, index: usize| {
            let mut run = run(Outcome::Measured(Box::new(measured.clone())));
            queue.note_company(index, &mut run);
            assert!(queue.ended(index, &run));
            match run.outcome {
                Outcome::Measured(figures) => figures.machine.map(|machine| machine.runs_at_once),
                _ => None,
            }
        };
        assert_eq!(begun(&mut queue), [0, 1]);
        // The first run to end and the last: both shared the machine for a time.
        assert_eq!([1, 0].map(|index| end(&mut queue, index)), [Some(2); 2]);
        for index in [2, 3] {
            assert_eq!(begun(&mut queue), [index]);
            assert_eq!(end(&mut queue, index), Some(1));
        }
    }

    #[test]
    fn runs_refused_alongside_others_are_repeated_alone() {
        let scenario = scenario();
        let jobs = [1; 3].map(|mbit| job(&scenario, Some(mbit)));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let mut queue = Queue::new(&jobs, Capacity::of(1, Some(2)));
        let reason = String::new;
        let refused = || run(Outcome::Refused { reason: reason() });
        assert_eq!(begun(&mut queue), [0, 1]);
        assert!(!queue.ended(0, &refused()));
        assert_eq!(begun(&mut queue), [2]);
        for index in [1, 2] {
            assert!(queue.ended(index, &run(Outcome::Failed { reason: reason() })));
        }
        assert_eq!(queue.next().map(|(index, _)| index), Some(0));
        assert_eq!(begun(&mut queue), [] as [usize; 0]);
        assert_eq!(queue.capacity.load, 375);
        assert!(queue.ended(0, &refused()), "a refusal alone is final");
        assert_eq!(queue.capacity.load, 375);
        assert_eq!(begun(&mut queue), [] as [usize; 0]);
    }

    #[test]
    fn an_overload_is_not_repeated() {
        let scenario = scenario();
        let jobs = [25; 12].map(|mbit| job(&scenario, Some(mbit)));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let mut queue = Queue::new(&jobs, Capacity::of(2, None));
        let refused = run(Outcome::Refused {
            reason: String::new(),
        });
        let good = run(Outcome::Measured(Box::default()));
        assert_eq!(begun(&mut queue), [0, 1, 2, 3]);
        // Both were refused for the same reason: the capacity shrinks once, from 1 processor to
        // 0.75.
        for index in [0, 1] {
            assert!(!queue.ended(index, &refused));
        }
        assert_eq!(begun(&mut queue), [4]);
        for index in [2, 3, 4] {
            queue.ended(index, &good);
        }
        for index in [0, 1] {
            assert_eq!(begun(&mut queue), [index]);
            queue.ended(index, &good);
        }
        assert_eq!(begun(&mut queue), [5, 6, 7]);
        assert!(!queue.ended(5, &refused));
        assert_eq!(queue.capacity.load, 562);
        // No growth after an overload.
        queue.ended(6, &measured(0.1));
        queue.ended(7, &measured(0.1));
        assert_eq!(queue.capacity.load, 562);
    }

    fn measured(runs_share: f64) -> Run {
        let machine = Machine {
            runs_share,
            ..Machine::default()
        };
        run(Outcome::Measured(Box::new(Measurement {
            machine: Some(machine),
            ..Measurement::default()
        })))
    }

    #[test]
    fn an_idle_machine_gets_more_concurrent_runs() {
        let scenario = scenario();
        let jobs = [100; 12].map(|mbit| job(&scenario, Some(mbit)));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let mut queue = Queue::new(&jobs, Capacity::of(2, None));
        let capacity = |queue: &Queue<'_, '_>| queue.capacity.load;
        for (index, expected) in [(0, 1250), (1, 1562)] {
            assert_eq!(begun(&mut queue), [index]);
            queue.ended(index, &measured(0.14));
            assert_eq!(capacity(&queue), expected);
        }
        // Two runs together used the figure that one reports: the second report refers to the same
        // capacity.
        assert_eq!(begun(&mut queue), [2, 3]);
        queue.ended(3, &measured(0.28));
        queue.ended(2, &measured(0.28));
        assert_eq!(capacity(&queue), 1952);
        // Busy enough.
        assert_eq!(begun(&mut queue), [4, 5]);
        assert!(queue.ended(4, &measured(0.4)));
        assert_eq!(capacity(&queue), 1952);
        // Too busy: the run counts, and the capacity stays reduced.
        assert!(queue.ended(5, &measured(0.51)));
        assert_eq!(capacity(&queue), 1464);
        queue.capacity.grow();
        assert_eq!(capacity(&queue), 1464);
        // Half of the occupied capacity was idle, but a full one would not be.
        let mut queue = Queue::new(&jobs, Capacity::of(2, None));
        assert_eq!(begun(&mut queue), [0]);
        queue.ended(0, &measured(0.24));
        assert_eq!(capacity(&queue), 1000);
        // The initial estimate is only reduced by a refusal.
        queue.capacity.grow();
        assert_eq!(begun(&mut queue), [1]);
        assert!(queue.ended(1, &measured(0.6)));
        assert_eq!(capacity(&queue), 1000);
        // Growth ends at twice the initial estimate; without a refusal it never drops below the
        // estimate.
        let mut queue = Queue::new(&jobs, Capacity::of(2, None));
        for _ in 0..10 {
            queue.capacity.grow();
        }
        assert_eq!(capacity(&queue), 2000);
        let mut queue = Queue::new(&jobs, Capacity::of(2, None));
        assert_eq!(begun(&mut queue), [0]);
        assert!(queue.ended(0, &measured(0.6)));
        assert_eq!(capacity(&queue), 1000);
        // A small run alone allows no conclusion about a large capacity.
        let small = job(&scenario, Some(1));
        let jobs = [&small];
        let mut queue = Queue::new(&jobs, Capacity::of(2, None));
        assert_eq!(begun(&mut queue), [0]);
        queue.ended(0, &measured(0.01));
        assert_eq!(capacity(&queue), 1000);
    }
}
