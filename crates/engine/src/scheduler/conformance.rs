//! What every scheduler must keep, whatever its rule is.
//!
//! The paths here are model carriers: a rate, a delay, a socket that takes a little more than is under way. Sessions with
//! frames, losses of paths and hostile timing are in `session/tests`, which run for every scheduler as well.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;

use super::fixture::Fixture;
use super::*;
use crate::pages::Spare;
use crate::{Class, Config, ConfigError, PathRefused, Role, Session};

/// What a model carrier takes at most before its bytes have left.
const SOCKET: u64 = 32 * 1024;

const TICK: Duration = Duration::from_millis(1);

/// A scheduler, and model carriers that deliver what it has them send.
struct Model {
    scheduler: Box<dyn Scheduler>,
    fixture: Fixture,
    carriers: BTreeMap<PathId, Carrier>,
    /// Bytes sent for the first time, and again.
    sent: u64,
    repeated: u64,
    /// Every answer but Idle, and who got it.
    picks: Vec<(u32, Pick)>,
    /// Since when the lowest unacknowledged byte of some stream has waited unsent, and the longest such time.
    head_waits: Option<Duration>,
    longest_wait: Duration,
}

struct Carrier {
    rate: f64,
    rtt: Duration,
    /// When all that was handed over has left.
    busy_until: Duration,
    /// Whose acknowledgement is under way, and when it arrives.
    flying: Vec<(Duration, StreamId, Range<u64>)>,
    /// Until when it takes nothing.
    blocked_until: Duration,
    /// What it has carried of each stream.
    carried: BTreeMap<StreamId, crate::RangeSet>,
}

impl Model {
    fn new(name: &str, links: &[(f64, u64)]) -> Self {
        let mut fixture = Fixture::new(links);
        fixture.repeat_budget = 128 * 1024;
        let carriers = fixture.paths.keys().zip(links).map(|(id, &(mbit, ms))| {
            let carrier = Carrier {
                rate: mbit * 1e6 / 8.0,
                rtt: Duration::from_millis(ms) + Duration::from_micros(500),
                busy_until: fixture.now,
                flying: Vec::new(),
                blocked_until: Duration::ZERO,
                carried: BTreeMap::new(),
            };
            (*id, carrier)
        });
        Self {
            scheduler: by_name(name).unwrap(),
            carriers: carriers.collect(),
            fixture,
            sent: 0,
            repeated: 0,
            picks: Vec::new(),
            head_waits: None,
            longest_wait: Duration::ZERO,
        }
    }

    /// One moment: what is due arrives, and all carriers with room ask until none gets anything.
    fn tick(&mut self) {
        self.fixture.now += TICK;
        let now = self.fixture.now;
        for (id, carrier) in &mut self.carriers {
            let (due, flying) = std::mem::take(&mut carrier.flying)
                .into_iter()
                .partition(|(at, ..)| *at <= now);
            carrier.flying = flying;
            let path = self.fixture.paths.get_mut(id).unwrap();
            for (_, stream, range) in due {
                path.flights.pop_front();
                path.confirmed += range.end - range.start;
                let stream = self.fixture.streams.get_mut(&stream).unwrap();
                stream.send.acknowledge(range, &mut Spare::default());
            }
        }
        let ids: Vec<PathId> = self.carriers.keys().copied().collect();
        loop {
            ids.iter().for_each(|id| self.sample(*id));
            if !ids.iter().any(|id| self.ask(*id)) {
                break;
            }
        }
        self.look_at_heads();
    }

    fn sample(&mut self, id: PathId) {
        let (carrier, now) = (&self.carriers[&id], self.fixture.now);
        let waiting = carrier.busy_until.saturating_sub(now).as_secs_f64() * carrier.rate;
        let flying: u64 = carrier.flying.iter().map(|(_, _, r)| r.end - r.start).sum();
        let blocked = carrier.blocked_until > now;
        let rtt = carrier.rtt;
        self.fixture.change(id.0, |sample| {
            sample.srtt = rtt;
            sample.min_rtt = rtt;
            sample.rttvar = rtt / 8;
            sample.unsent = waiting as u64;
            sample.in_flight = flying.saturating_sub(waiting as u64);
            sample.full = blocked || waiting as u64 > SOCKET || flying >= sample.cwnd;
        });
    }

    /// Whether it was given something.
    fn ask(&mut self, id: PathId) -> bool {
        if self.fixture.paths[&id].sample().full {
            return false;
        }
        if self.scheduler.repeat_limit() == RepeatLimit::OncePerPath {
            self.fixture.repeat_budget = u64::MAX;
        }
        let pick = self.fixture.pick(self.scheduler.as_mut(), id, 16 * 1024);
        let (Pick::Send { stream, range }
        | Pick::Repeat { stream, range }
        | Pick::Race { stream, range }) = pick.clone()
        else {
            return false;
        };
        let len = range.end - range.start;
        match pick {
            Pick::Repeat { .. } | Pick::Race { .. } => self.repeated += len,
            _ => self.sent += len,
        }
        self.picks.push((id.0, pick));
        let carrier = self.carriers.get_mut(&id).unwrap();
        let of = carrier.carried.entry(stream).or_default();
        let new = of.insert(range.clone());
        assert_eq!(new, len, "path {id:?} carries {range:?} of {stream} twice");
        let time = Duration::from_secs_f64(len as f64 / carrier.rate);
        carrier.busy_until = carrier.busy_until.max(self.fixture.now) + time;
        carrier
            .flying
            .push((carrier.busy_until + carrier.rtt, stream, range));
        self.fixture.paths.get_mut(&id).unwrap().sent += len;
        self.sample(id);
        true
    }

    /// How long the first byte that the peer waits for has been on no path while it may be sent.
    fn look_at_heads(&mut self) {
        let now = self.fixture.now;
        let waits = self.fixture.view(|view| {
            view.ready_streams().any(|stream| {
                let first = stream.unsent().first().map(|range| range.start);
                first == Some(stream.acknowledged()) && first < Some(view.sendable_end(stream))
            })
        });
        match (waits, self.head_waits) {
            (true, None) => self.head_waits = Some(now),
            (true, Some(since)) => self.longest_wait = self.longest_wait.max(now - since),
            (false, _) => self.head_waits = None,
        }
    }

    fn unacknowledged(&self) -> u64 {
        let streams = self.fixture.streams.values();
        streams.map(|stream| stream.send.buffered()).sum()
    }

    /// Ticks until all is acknowledged; fails when that takes longer than `most`.
    fn run(&mut self, most: Duration) {
        let end = self.fixture.now + most;
        while self.unacknowledged() > 0 {
            let name = self.scheduler.name();
            let (left, unsent) = (self.unacknowledged(), self.fixture.unsent());
            assert!(
                self.fixture.now < end,
                "{name}: {left} bytes unacknowledged, {unsent} unsent after {most:?}"
            );
            self.tick();
        }
    }
}

/// Names, each with a number of paths that it is made for.
fn paths_of(name: &str, links: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let most = most_paths(name).unwrap_or(usize::MAX);
    links[..links.len().min(most)].to_vec()
}

/// A bound on how long anything can take that waits for every other path once: a full round of the largest quotas over
/// the slowest of them, its socket, and some round trips.
fn patience(links: &[(f64, u64)]) -> Duration {
    let longest = links.iter().map(|l| l.1).max().unwrap_or_default();
    Duration::from_secs_f64((160e3 + SOCKET as f64) / slowest(links))
        + Duration::from_millis(4 * longest + 200)
}

/// The rate of the slowest path, in bytes per second.
fn slowest(links: &[(f64, u64)]) -> f64 {
    let rates = links.iter().map(|link| link.0 * 1e6 / 8.0);
    rates.fold(f64::MAX, f64::min)
}

fn links() -> impl Strategy<Value = Vec<(f64, u64)>> {
    let mbit = prop_oneof![0.5..5.0f64, 5.0..100.0f64, 100.0..1000.0f64];
    let ms = prop_oneof![3 => 0..30u64, 1 => 30..600u64];
    prop::collection::vec((mbit, ms), 1..=6)
}

/// Streams with a class, a length, and the moment when they are written.
fn writes() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    let len = prop_oneof![1..3_000usize, 3_000..300_000usize];
    prop::collection::vec((0..4u64, len, 0..300u64), 1..8)
}

/// Moments at which a path takes nothing for a while.
fn outages() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    prop::collection::vec((0..400u64, 0..6usize, 1..400u64), 0..6)
}

fn run(
    name: &str,
    links: &[(f64, u64)],
    writes: &[(u64, usize, u64)],
    outages: &[(u64, usize, u64)],
) -> Model {
    let links = paths_of(name, links);
    let mut model = Model::new(name, &links);
    let (mut bytes, start) = (0, model.fixture.now);
    for ms in 0..=400 {
        for (index, &(class, len, at)) in writes.iter().enumerate() {
            if at == ms {
                let class = Class::from_code(class);
                model.fixture.write_as(2 * index as u64, class, len);
                bytes += len as u64;
            }
        }
        for &(at, path, time) in outages {
            let id = PathId((path % links.len()) as u32);
            if at == ms
                && let Some(carrier) = model.carriers.get_mut(&id)
            {
                carrier.blocked_until = start + Duration::from_millis(ms + time);
            }
        }
        model.tick();
    }
    // No scheduler may be slower than everything over the slowest path, one after the other.
    let alone = Duration::from_secs_f64(bytes as f64 / slowest(&links));
    model.run(2 * alone + 4 * patience(&links) + Duration::from_secs(1));
    assert_eq!(model.sent, bytes, "{name}: every byte is sent once");
    model
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40),
        ..ProptestConfig::default()
    })]

    #[test]
    fn everything_is_delivered_and_the_same_way_again(
        links in links(),
        writes in writes(),
        outages in outages(),
    ) {
        for name in NAMES {
            let first = run(name, &links, &writes, &outages);
            let again = run(name, &links, &writes, &outages);
            prop_assert!(first.picks == again.picks, "{} is not deterministic", name);
        }
    }

    #[test]
    fn the_head_of_a_stream_is_not_starved(
        links in links(),
        writes in writes(),
        outages in outages(),
    ) {
        for name in NAMES {
            let model = run(name, &links, &writes, &outages);
            // Streams take turns. ECF may wait for the path of least round trip as long as there is anything to send,
            // and that may be the slowest one.
            let bytes: usize = writes.iter().map(|(_, len, _)| len).sum();
            let turns = Duration::from_secs_f64(bytes as f64 / slowest(&paths_of(name, &links)));
            let outages = outages.iter().map(|(_, _, time)| Duration::from_millis(*time));
            let most = patience(&links) + turns + outages.sum::<Duration>();
            prop_assert!(model.longest_wait <= most, "{}: {:?} of {:?}", name, model.longest_wait, most);
        }
    }

    #[test]
    fn duplicates_are_bounded(links in links(), writes in writes(), outages in outages()) {
        for name in NAMES {
            let model = run(name, &links, &writes, &outages);
            let paths = paths_of(name, &links).len() as u64;
            let most = match model.scheduler.repeat_limit() {
                RepeatLimit::Share => 128 * 1024,
                RepeatLimit::OncePerPath => (paths - 1) * model.sent,
            };
            prop_assert!(model.repeated <= most, "{}: {} of {}", name, model.repeated, model.sent);
        }
    }
}

#[test]
fn no_scheduler_exceeds_credit_or_leaves_it_unused() {
    for name in NAMES {
        let mut model = Model::new(name, &[(80.0, 10), (80.0, 10)]);
        model.fixture.write(0, 700_000);
        model.fixture.write(2, 700_000);
        let stream = model.fixture.streams.get_mut(&0).unwrap();
        stream.send.limit = 100_000;
        model.fixture.credit = 300_000;
        (0..500).for_each(|_| model.tick());
        // A stream whose reader has not been heard of leaves a ninth of the credit to others.
        let left = model.fixture.credit;
        assert!(left < 200_000 / 8, "{name} leaves credit unused: {left}");
        assert!(
            model.fixture.streams[&0].highest_sent() <= 100_000,
            "{name}"
        );
    }
}

#[test]
fn no_scheduler_gives_work_for_a_path_that_is_not_there() {
    for name in NAMES {
        let mut fixture = Fixture::new(&[]);
        fixture.write(0, 1000);
        let mut scheduler = by_name(name).unwrap();
        scheduler.stream_gone(0);
        scheduler.paths_changed();
        let pick = fixture.pick(scheduler.as_mut(), PathId(9), 1000);
        assert!(matches!(pick, Pick::Idle | Pick::Send { .. }), "{name}");
    }
}

#[test]
fn paths_that_have_not_been_measured_are_used() {
    for name in NAMES {
        let mut model = Model::new(name, &[(80.0, 0)]);
        let blank = crate::PathSample::default();
        model.fixture.change(0, |sample| *sample = blank);
        model.fixture.write(0, 10_000);
        let pick = model
            .fixture
            .pick(model.scheduler.as_mut(), PathId(0), 16_000);
        assert!(matches!(pick, Pick::Send { .. }), "{name}");
    }
}

#[test]
fn a_path_too_many_is_refused_in_one_line() {
    for name in NAMES {
        let mut config = Config::new(Role::Client);
        config.scheduler = (*name).to_owned();
        let now = Duration::from_secs(1);
        let mut session = Session::new(config, now).unwrap();
        let limit = most_paths(name).unwrap_or(32);
        for path in 0..32 {
            let refused = session.check_path();
            assert_eq!(refused.is_err(), path >= limit, "{name}, path {path}");
            session.path_up(PathId(path as u32), now);
        }
        assert_eq!(session.paths().count(), limit);
    }
    let refused = PathRefused::TooMany {
        scheduler: "musher",
        most: 2,
    };
    assert_eq!(
        refused.to_string(),
        "the scheduler musher takes 2 paths: name as many links, or choose another scheduler"
    );
}

#[test]
fn a_scheduler_of_a_class_must_exist() {
    let mut config = Config::new(Role::Client);
    let unknown = "fastest".to_owned();
    config
        .class_schedulers
        .insert(Class::Streaming, unknown.clone());
    assert_eq!(config.check(), Err(ConfigError::UnknownScheduler(unknown)));
}
