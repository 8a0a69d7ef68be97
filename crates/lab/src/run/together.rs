//! Several runs at once, where the machine has room for them.
//!
//! Each has namespaces and an emulator of its own, so that all they share is the machine. A run that found too little of
//! it left is done again alone, and from then on there are fewer at once: how much a machine carries, nobody knows before.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::error::LabError;
use crate::results::{Outcome, Run};

use super::once::{self, Company, Job};

/// What a processor carries of links' rates with room to spare: emulator, both ends of the system, and the traffic.
const RATE_OF_PROCESSOR: u64 = 140_000_000;
/// Above this a run is alone, however many processors there are.
const LIGHT: u64 = 400_000_000;
/// The most runs at once for each processor.
const RUNS_OF_PROCESSOR: usize = 4;
/// What is left of the room when it has proven too large for the machine.
const SHRINK: f64 = 0.75;

/// How much runs at once at the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Room {
    /// Number of runs.
    runs: usize,
    /// Sum of the rates of their links, in bit/s.
    rate: u64,
}

impl Room {
    /// One run after the other.
    pub(crate) const SINGLE: Self = Self { runs: 1, rate: 0 };

    /// What this machine has room for, and so many runs at the most.
    pub(crate) fn of_this_machine(most: Option<usize>) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::of(processors, most)
    }

    fn of(processors: usize, most: Option<usize>) -> Self {
        Self {
            runs: most.unwrap_or(RUNS_OF_PROCESSOR * processors),
            rate: RATE_OF_PROCESSOR * processors as u64,
        }
    }

    /// How many runs like this one there are at once.
    pub(crate) fn width(&self, job: &Job<'_>) -> usize {
        match self.share(job) {
            Some(rate) => {
                let fit = usize::try_from(self.rate / rate.max(1)).unwrap_or(usize::MAX);
                fit.min(self.runs).max(1)
            }
            None => 1,
        }
    }

    /// The rate of a run that has room beside another one of its kind.
    fn share(&self, job: &Job<'_>) -> Option<u64> {
        let fits = |rate: &u64| *rate <= LIGHT.min(self.rate / 2);
        job.rate.filter(fits).filter(|_| self.runs > 1)
    }
}

/// What the runs tell while they are done.
pub(super) enum News {
    /// A run has begun.
    Begun(usize),
    /// It is in the phase of that number, so many seconds into it.
    Comes(usize, usize, f64),
    /// It has ended.
    Done(usize, Box<Run>),
}

/// Does all jobs, in their order as far as possible; the first error ends it when the runs beside it have ended too.
pub(super) fn run(
    jobs: &[&Job<'_>],
    room: Room,
    tell: &mut dyn FnMut(News) -> Result<(), LabError>,
) -> Result<(), LabError> {
    thread::scope(|scope| {
        let (post, inbox) = mpsc::channel();
        let mut queue = Queue::new(jobs, room);
        let mut failure = None;
        loop {
            while failure.is_none() {
                let Some((index, company)) = queue.next() else {
                    break;
                };
                failure = tell(News::Begun(index)).err();
                let post = post.clone();
                scope.spawn(move || one(jobs[index], index, company, &post));
            }
            if queue.running.is_empty() {
                return failure.map_or(Ok(()), Err);
            }
            let told = match inbox.recv() {
                Ok(Message::Comes(index, phase, elapsed)) => {
                    tell(News::Comes(index, phase, elapsed))
                }
                Ok(Message::Ended(index, result)) => result
                    .and_then(|run| {
                        if queue.ended(index, &run) {
                            tell(News::Done(index, run))
                        } else {
                            Ok(())
                        }
                    })
                    .inspect_err(|_| queue.forget(index)),
                // There is a sender as long as this loop.
                Err(_) => Ok(()),
            };
            failure = failure.or(told.err());
        }
    })
}

enum Message {
    Comes(usize, usize, f64),
    Ended(usize, Result<Box<Run>, LabError>),
}

fn one(job: &Job<'_>, index: usize, company: Company, post: &Sender<Message>) {
    let mut tick = |phase, elapsed| {
        // Nobody listens any more once this has failed.
        let _ = post.send(Message::Comes(index, phase, elapsed));
    };
    // Whoever waits for this run must hear of its end.
    let result = catch_unwind(AssertUnwindSafe(|| once::run(job, company, &mut tick)));
    let result = result.unwrap_or_else(|_| Err(LabError::system("measuring", "a thread panicked")));
    let _ = post.send(Message::Ended(index, result.map(Box::new)));
}

/// What is to be done, and what is being done.
struct Queue<'a, 'j> {
    jobs: &'a [&'j Job<'j>],
    room: Room,
    waiting: VecDeque<usize>,
    /// Found too little room beside others.
    again: VecDeque<usize>,
    /// `None` for one that is alone.
    running: BTreeMap<usize, Option<Share>>,
}

/// A run beside others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    /// Its part of the room's rate.
    rate: u64,
    /// The room's rate when it began.
    room: u64,
}

impl<'a, 'j> Queue<'a, 'j> {
    fn new(jobs: &'a [&'j Job<'j>], room: Room) -> Self {
        Self {
            jobs,
            room,
            waiting: (0..jobs.len()).collect(),
            again: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// The job to begin now, if there is one.
    fn next(&mut self) -> Option<(usize, Company)> {
        let is_quiet = self.running.is_empty();
        if is_quiet && let Some(index) = self.again.pop_front() {
            self.running.insert(index, None);
            return Some((index, Company::Alone));
        }
        let index = *self.waiting.front()?;
        let share = self.room.share(self.jobs[index]).map(|rate| Share {
            rate,
            room: self.room.rate,
        });
        let has_room = match share {
            None => is_quiet,
            Some(Share { rate, .. }) => {
                let rates = self
                    .running
                    .values()
                    .map(|share| Some(share.as_ref()?.rate));
                let taken: Option<u64> = rates.sum();
                self.running.len() < self.room.runs
                    && taken.is_some_and(|taken| taken + rate <= self.room.rate)
            }
        };
        if !has_room {
            return None;
        }
        self.waiting.pop_front();
        self.running.insert(index, share);
        let company = match share {
            None => Company::Alone,
            Some(_) => Company::Others,
        };
        Some((index, company))
    }

    /// A run has ended; whether that was the last of it.
    fn ended(&mut self, index: usize, run: &Run) -> bool {
        let shared = self.running.remove(&index).flatten();
        match (&run.outcome, shared) {
            (Outcome::Refused { reason }, Some(share)) => {
                let (scenario, system) = (&run.scenario, &run.system);
                tracing::info!(%scenario, %system, seed = run.seed, %reason, "to be done again alone");
                self.again.push_back(index);
                // Those that were with it say the same thing once more.
                if share.room == self.room.rate {
                    self.room.rate = (self.room.rate as f64 * SHRINK) as u64;
                    let mbit = self.room.rate / 1_000_000;
                    tracing::info!("fewer runs at once from now on: of {mbit} Mbit/s");
                }
                false
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
    use crate::results::Run;
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
            Some(70),
            Some(70),
            Some(140),
            Some(70),
            None,
            Some(70),
            Some(300),
        ];
        let jobs = rates.map(|rate| job(&scenario, rate));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let room = Room::of(2, None);
        let mut queue = Queue::new(&jobs, room);
        let good = run(Outcome::Measured(Box::default()));
        assert_eq!(begun(&mut queue), [0, 1, 2]);
        assert!(queue.ended(1, &good));
        assert_eq!(begun(&mut queue), [3]);
        for index in [0, 2] {
            queue.ended(index, &good);
            assert_eq!(begun(&mut queue), [] as [usize; 0]);
        }
        queue.ended(3, &good);
        // Alone, as is whoever takes more than half of the room.
        assert_eq!(begun(&mut queue), [4]);
        queue.ended(4, &good);
        assert_eq!(begun(&mut queue), [5]);
        queue.ended(5, &good);
        assert_eq!(begun(&mut queue), [6]);
        assert_eq!(queue.running, BTreeMap::from([(6, None)]));
        assert_eq!(
            rates.map(|rate| room.width(&job(&scenario, rate))),
            [4, 4, 2, 4, 1, 4, 1]
        );
        assert_eq!(Room::of(2, Some(3)).width(jobs[0]), 3);
        assert_eq!(Room::SINGLE.width(jobs[0]), 1);
        assert_eq!(Room::of(64, None).width(&job(&scenario, Some(500))), 1);
    }

    #[test]
    fn what_was_refused_beside_others_is_done_again_alone() {
        let scenario = scenario();
        let jobs = [1; 3].map(|mbit| job(&scenario, Some(mbit)));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let mut queue = Queue::new(&jobs, Room::of(1, Some(2)));
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
        assert_eq!(queue.room.rate, 105_000_000);
        assert!(queue.ended(0, &refused()), "alone it is refused for good");
        assert_eq!(queue.room.rate, 105_000_000);
        assert_eq!(begun(&mut queue), [] as [usize; 0]);
    }

    #[test]
    fn what_was_too_much_for_the_machine_is_not_tried_again() {
        let scenario = scenario();
        let jobs = [70; 12].map(|mbit| job(&scenario, Some(mbit)));
        let jobs: Vec<&Job<'_>> = jobs.iter().collect();
        let mut queue = Queue::new(&jobs, Room::of(2, None));
        let refused = run(Outcome::Refused {
            reason: String::new(),
        });
        let good = run(Outcome::Measured(Box::default()));
        assert_eq!(begun(&mut queue), [0, 1, 2, 3]);
        // Both were refused for the same reason: the room shrinks once, from 280 to 210 Mbit/s.
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
        assert_eq!(queue.room.rate, 157_500_000);
    }
}
