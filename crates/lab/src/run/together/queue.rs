//! The order of runs: each begins when the capacity permits it, and once more alone after an
//! overload.

use std::collections::{BTreeMap, VecDeque};

use super::super::job::Job;
use super::super::once::Concurrency;
use super::capacity::{Capacity, Share};
use crate::results::{ALONE, Outcome, Run};

/// Pending and current runs.
pub(super) struct Queue<'a, 'j> {
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

impl<'a, 'j> Queue<'a, 'j> {
    pub(super) fn new(jobs: &'a [&'j Job<'j>], capacity: Capacity) -> Self {
        Self {
            jobs,
            capacity,
            waiting: (0..jobs.len()).collect(),
            again: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// Whether no run is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// The next job to begin now, if any.
    pub(super) fn next(&mut self) -> Option<(usize, Concurrency)> {
        let is_quiet = self.is_idle();
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
        let share = self
            .capacity
            .share(self.jobs[index], taken.unwrap_or_default());
        let has_room = match &share {
            None => is_quiet,
            Some(share) => taken.is_some() && self.capacity.has_room(self.running.len(), share),
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
    pub(super) fn note_company(&self, index: usize, run: &mut Run) {
        if let Some(place) = self.running.get(&index)
            && let Outcome::Measured(figures) = &mut run.outcome
            && let Some(machine) = &mut figures.machine
        {
            machine.runs_at_once = place.most;
        }
    }

    /// Handles the end of a run; returns whether it is final.
    pub(super) fn ended(&mut self, index: usize, run: &Run) -> bool {
        let shared = self.running.remove(&index).and_then(|place| place.share);
        match (&run.outcome, shared) {
            (Outcome::Refused { reason }, Some(share)) => {
                let (scenario, system) = (&run.scenario, &run.system);
                tracing::info!(%scenario, %system, seed = run.seed, %reason, "the run will be \
                    repeated alone");
                self.again.push_back(index);
                self.capacity.refused(&share);
                false
            }
            (Outcome::Measured(figures), Some(share)) => {
                let machine = figures.machine.unwrap_or_default();
                self.capacity.used(&share, machine, run.system == ALONE);
                true
            }
            _ => true,
        }
    }

    /// Drops a run that ended with an error.
    pub(super) fn forget(&mut self, index: usize) {
        self.running.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::results::{Machine, Measurement};
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
