//! The schedulers of a session: one for all traffic, or several for different classes.
//!
//! Classes with the same scheduler share one instance of it, a lane. Each lane sees only the
//! streams of its classes, but all paths. When a path asks, the lanes are asked in the order of the
//! service that they have had (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996), and
//! the first one with bytes for the path is served. A lane's service is the bytes that it sent,
//! divided by the number of its ready streams. So streams get equal shares of the session whichever
//! lane they are in, as they do within one. A lane that had nothing to send accumulates no claim. A
//! lane with a scheduler that waits for a better path than the asking one does, up to [`DEBT`].

use super::budget::RepeatBudget;
use super::view::{ClassSet, View};
use super::{Pick, RepeatLimit, Scheduler};
use crate::{Class, Config, ConfigError, Instant, PathId, Redundancy, StreamId};

/// The lanes; every class belongs to one of them.
#[derive(Debug)]
pub(crate) struct Schedulers {
    lanes: Vec<Lane>,
    /// Number of changes of the session that may lead to another pick.
    changes: u64,
}

#[derive(Debug)]
struct Lane {
    /// The name by which the scheduler was chosen.
    name: String,
    scheduler: Box<dyn Scheduler>,
    classes: ClassSet,
    /// The scheduler's budget for duplicates.
    redundancy: RepeatBudget,
    /// Bytes sent per ready stream.
    service: f64,
    /// The stream whose turn it is, and the bytes that it has sent in it.
    turn: (StreamId, u64),
}

/// Length of a stream's turn in bytes; it also ends when the stream has nothing left. The rest of a
/// path's budget may be a few bytes. If those were a full turn, one of several streams might never
/// get more.
const TURN: u64 = 8 * 1024;

/// Largest claim of a lane that waits for a better path, in bytes per stream.
const DEBT: f64 = 256.0 * 1024.0;

impl Schedulers {
    pub(crate) fn new(config: &Config, now: Instant) -> Result<Self, ConfigError> {
        let mut lanes: Vec<Lane> = Vec::new();
        for class in Class::ALL {
            let name = config.scheduler_of(class);
            let index = lanes.iter().position(|lane| lane.name == name);
            let index = match index {
                Some(index) => index,
                None => {
                    let scheduler = config.own_schedulers.make(name, config.role);
                    let scheduler = scheduler.ok_or_else(|| config.unknown_scheduler(name))?;
                    lanes.push(Lane::new(name, scheduler, config.redundancy, now));
                    lanes.len() - 1
                }
            };
            lanes[index].classes = lanes[index].classes.with(class);
        }
        Ok(Self { lanes, changes: 0 })
    }

    /// Picks the bytes that `path` sends next; the module documentation describes the order of the
    /// lanes.
    pub(crate) fn pick(&mut self, path: PathId, budget: u64, view: &mut View<'_>) -> Pick {
        if let [lane] = &mut self.lanes[..] {
            return lane.pick(path, budget, view);
        }
        let mut order: Vec<usize> = (0..self.lanes.len()).collect();
        order.sort_by(|&a, &b| self.lanes[a].service.total_cmp(&self.lanes[b].service));
        for (passed, &index) in order.iter().enumerate() {
            let begin = self.lanes[index].service;
            let pick = self.lanes[index].pick(path, budget, view);
            if pick != Pick::Idle {
                for &index in &order[..passed] {
                    let lane = &mut self.lanes[index];
                    view.classes = lane.classes;
                    let debt = if view.can_send() { DEBT } else { 0.0 };
                    lane.service = lane.service.max(begin - debt);
                }
                return pick;
            }
        }
        Pick::Idle
    }

    pub(crate) fn paths_changed(&mut self) {
        self.note_change();
        self.each(|scheduler| scheduler.paths_changed());
    }

    /// Records a change after which waiting paths are asked again.
    pub(crate) fn note_change(&mut self) {
        self.changes += 1;
    }

    /// Number of recorded changes.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn stream_ready(&mut self, stream: StreamId) {
        self.each(|scheduler| scheduler.stream_ready(stream));
    }

    pub(crate) fn stream_gone(&mut self, stream: StreamId) {
        // In every lane, since a stream may have changed its class.
        self.each(|scheduler| scheduler.stream_gone(stream));
    }

    /// The lowest limit on the number of paths, and the scheduler that sets it.
    pub(crate) fn max_paths(&self) -> Option<(usize, &'static str)> {
        let limits = self.lanes.iter().filter_map(|lane| {
            let most = lane.scheduler.max_paths()?;
            Some((most, lane.scheduler.name()))
        });
        limits.min()
    }

    /// Whether any of them needs the length of the interfaces' queues.
    pub(crate) fn read_local_queue(&self) -> bool {
        self.lanes
            .iter()
            .any(|lane| lane.scheduler.reads_local_queue())
    }

    fn each(&mut self, act: impl Fn(&mut dyn Scheduler)) {
        self.lanes
            .iter_mut()
            .for_each(|lane| act(lane.scheduler.as_mut()));
    }
}

impl Lane {
    fn new(
        name: &str,
        scheduler: Box<dyn Scheduler>,
        redundancy: Redundancy,
        now: Instant,
    ) -> Self {
        Self {
            name: name.to_owned(),
            scheduler,
            classes: ClassSet::NONE,
            redundancy: RepeatBudget::new(redundancy, now),
            service: 0.0,
            turn: (0, TURN),
        }
    }

    /// Picks among this lane's streams and updates its account.
    fn pick(&mut self, path: PathId, budget: u64, view: &mut View<'_>) -> Pick {
        view.classes = self.classes;
        (view.repeat_balance, view.race_budget) = self.repeat_budgets(view.now);
        if view
            .path(path)
            .is_some_and(|path| path.standing.policy.metered)
        {
            view.race_budget = 0;
        }
        view.advance = self.redundancy.advance();
        let (last, had) = self.turn;
        view.last_served = if had < TURN {
            last.wrapping_sub(1)
        } else {
            last
        };
        let pick = self.scheduler.pick(path, budget, view);
        if let Pick::Send { stream, range }
        | Pick::Repeat { stream, range }
        | Pick::Race { stream, range } = &pick
        {
            let len = range.end - range.start;
            let had = if *stream == last { had % TURN } else { 0 };
            self.turn = (*stream, had + len);
            self.service += len as f64 / view.ready_count().max(1) as f64;
            self.redundancy.note_sent(len);
            if !matches!(pick, Pick::Send { .. }) {
                let urgent = matches!(pick, Pick::Race { .. });
                self.redundancy.note_repeated(len, urgent);
            }
        }
        pick
    }

    /// The budgets for duplicates and for races.
    fn repeat_budgets(&mut self, now: Instant) -> (i64, u64) {
        match self.scheduler.repeat_limit() {
            RepeatLimit::Nothing => (0, 0),
            RepeatLimit::Share => (self.redundancy.other(now), self.redundancy.urgent(now)),
            RepeatLimit::OncePerPath => (i64::MAX, u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::fixture::Fixture;
    use super::*;
    use crate::Role;

    fn schedulers(classes: &[(Class, &str)]) -> Schedulers {
        let mut config = Config::new(Role::Client);
        config.scheduler = "minrtt".to_owned();
        config.class_schedulers = classes
            .iter()
            .map(|(class, name)| (*class, (*name).to_owned()))
            .collect();
        Schedulers::new(&config, Instant::ZERO).unwrap()
    }

    #[test]
    fn classes_of_one_scheduler_share_it() {
        assert_eq!(schedulers(&[]).lanes.len(), 1);
        assert_eq!(schedulers(&[]).lanes[0].classes, ClassSet::ALL);
        let same = [
            (Class::Interactive, "linux"),
            (Class::Conversational, "linux"),
        ];
        let schedulers = schedulers(&same);
        assert_eq!(schedulers.lanes.len(), 2);
        assert!(schedulers.lanes[0].classes.has(Class::Interactive));
        assert!(!schedulers.lanes[0].classes.has(Class::Background));
    }

    #[test]
    fn lanes_share_by_streams_and_a_late_one_has_no_claim() {
        let mut lanes = schedulers(&[(Class::Interactive, "linux")]);
        let mut fixture = Fixture::new(&[(80.0, 10)]);
        let mut sent: BTreeMap<StreamId, u64> = BTreeMap::new();
        let mut serve = |lanes: &mut Schedulers, fixture: &mut Fixture, rounds: usize| {
            for _ in 0..rounds {
                let Pick::Send { stream, range } = fixture.pick_of(lanes, PathId(0), 10_000) else {
                    panic!("data is waiting")
                };
                *sent.entry(stream).or_default() += range.end - range.start;
            }
            std::mem::take(&mut sent)
        };
        fixture.write(0, 8_000_000);
        fixture.write(2, 8_000_000);
        serve(&mut lanes, &mut fixture, 100);
        fixture.write_as(4, Class::Interactive, 8_000_000);
        let sent = serve(&mut lanes, &mut fixture, 300);
        for stream in [0, 2, 4] {
            let part = sent[&stream] as f64 / 1_000_000.0;
            assert!((part - 1.0).abs() < 0.05, "{sent:?}");
        }
    }

    #[test]
    fn a_metered_path_retransmits_for_a_failed_path_and_races_nothing() {
        let mut lanes = schedulers(&[(Class::Conversational, "fbdt")]);
        let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 10)]);
        fixture
            .paths
            .get_mut(&PathId(0))
            .unwrap()
            .standing
            .policy
            .metered = true;
        fixture.make_unreliable();
        fixture.write_as(0, Class::Conversational, 200);
        fixture.pick_of(&mut lanes, PathId(1), 10_000);
        let idle = fixture.pick_of(&mut lanes, PathId(0), 10_000);
        assert_eq!(idle, Pick::Idle);
        fixture.now += std::time::Duration::from_millis(200);
        let pick = fixture.pick_of(&mut lanes, PathId(0), 10_000);
        let repeat = Pick::Repeat {
            stream: 0,
            range: 0..200,
        };
        assert_eq!(pick, repeat);
    }

    #[test]
    fn each_lane_has_its_own_duplicate_budget() {
        let mut lanes = schedulers(&[(Class::Conversational, "redundant")]);
        let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 10)]);
        fixture.write_as(0, Class::Conversational, 1_000_000);
        let mut repeated = 0;
        for _ in 0..100 {
            for path in [PathId(0), PathId(1)] {
                if let Pick::Repeat { range, .. } = fixture.pick_of(&mut lanes, path, 10_000) {
                    repeated += range.end - range.start;
                }
            }
        }
        assert_eq!(repeated, 1_000_000);
        let now = fixture.now;
        let lanes = lanes.lanes.iter_mut();
        let budgets: Vec<_> = lanes.map(|lane| lane.repeat_budgets(now).1).collect();
        assert_eq!(budgets, [u64::MAX, Redundancy::default().floor]);
    }
}
