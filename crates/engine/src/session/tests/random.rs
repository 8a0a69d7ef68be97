//! Random operations on two sessions: whatever links and programs do, every byte arrives once and
//! in order.
//!
//! The number of cases is small, so that every build can afford them; `PROPTEST_CASES` raises it. A
//! failure found here becomes a named test in `corners.rs`. Crates with schedulers of their own run
//! the same operations with those.

use std::time::Duration;

use proptest::prelude::*;

use super::{Pair, Side};
use crate::testing::{Candidates, case_count, property};
use crate::{Class, Config, Event, PathId, PathPolicy, PeerPolicy, Priority, Role, StreamId};

/// Number of random cases, unless `PROPTEST_CASES` is set.
const CASES: u32 = 1000;

/// An operation on a session. Streams and paths are chosen by index among the existing ones.
#[derive(Clone, Debug)]
enum Op {
    Open,
    Write {
        side: Side,
        stream: usize,
        len: usize,
        finish: bool,
    },
    Stall {
        side: Side,
        stream: usize,
    },
    Resume {
        side: Side,
        stream: usize,
    },
    Reset {
        side: Side,
        stream: usize,
    },
    Abandon {
        side: Side,
        stream: usize,
    },
    KillPath {
        path: usize,
    },
    KillPathOnOneSide {
        side: Side,
        path: usize,
    },
    AddPath {
        mbit: f64,
        ms: u64,
    },
    Blackhole {
        path: usize,
        on: bool,
    },
    Change {
        path: usize,
        mbit: f64,
        ms: u64,
    },
    /// One side sets a policy, for itself or for the other.
    Policy {
        side: Side,
        path: usize,
        policy: PathPolicy,
        tell: bool,
    },
    Cut {
        at: usize,
    },
    Wait {
        us: u64,
    },
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Client), Just(Side::Server)]
}

fn mbit() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.5), 1.0..20.0f64, 20.0..500.0f64]
}

fn ms() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..20u64, 1 => 20..300u64]
}

fn policy() -> impl Strategy<Value = PathPolicy> {
    let priority = proptest::sample::select(Priority::ALL.to_vec());
    let latency = proptest::option::of(0..100u64);
    (priority, any::<bool>(), latency).prop_map(|(priority, metered, latency)| PathPolicy {
        priority,
        metered,
        max_added_latency: latency.map(Duration::from_millis),
    })
}

fn op() -> impl Strategy<Value = Op> {
    let stream = 0..8usize;
    let path = 0..5usize;
    let len = prop_oneof![0..5usize, 0..20_000usize, 0..400_000usize];
    prop_oneof![
        4 => Just(Op::Open),
        8 => (side(), stream.clone(), len, any::<bool>())
            .prop_map(|(side, stream, len, finish)| Op::Write { side, stream, len, finish }),
        1 => (side(), stream.clone()).prop_map(|(side, stream)| Op::Stall { side, stream }),
        1 => (side(), stream.clone()).prop_map(|(side, stream)| Op::Resume { side, stream }),
        1 => (side(), stream.clone()).prop_map(|(side, stream)| Op::Reset { side, stream }),
        1 => (side(), stream).prop_map(|(side, stream)| Op::Abandon { side, stream }),
        1 => path.clone().prop_map(|path| Op::KillPath { path }),
        1 => (side(), path.clone()).prop_map(|(side, path)| Op::KillPathOnOneSide { side, path }),
        2 => (mbit(), ms()).prop_map(|(mbit, ms)| Op::AddPath { mbit, ms }),
        2 => (path.clone(), any::<bool>()).prop_map(|(path, on)| Op::Blackhole { path, on }),
        2 => (side(), path.clone(), policy(), any::<bool>())
            .prop_map(|(side, path, policy, tell)| Op::Policy { side, path, policy, tell }),
        1 => (path, mbit(), ms()).prop_map(|(path, mbit, ms)| Op::Change { path, mbit, ms }),
        1 => prop_oneof![Just(1usize), 1..100usize, Just(usize::MAX)].prop_map(|at| Op::Cut { at }),
        10 => prop_oneof![0..2_000u64, 0..100_000u64, 0..1_000_000u64]
            .prop_map(|us| Op::Wait { us }),
    ]
}

/// With timers that fire within the few seconds of a run.
const SELECTORS: &[&str] = &[
    "none",
    "base:probe=300ms",
    "global:probe=300ms",
    "trials:budget=0.1",
];

#[derive(Clone, Debug)]
struct Setup {
    scheduler: &'static str,
    /// The scheduler for conversational traffic, which may be the same.
    urgent: &'static str,
    selector: &'static str,
    paths: Vec<(f64, u64)>,
    tight: bool,
    ops: Vec<Op>,
}

fn setup(schedulers: &'static [&'static str]) -> impl Strategy<Value = Setup> {
    let paths = proptest::collection::vec((mbit(), ms()), 1..=5);
    (
        proptest::sample::select(schedulers),
        proptest::sample::select(schedulers),
        proptest::sample::select(SELECTORS),
        paths,
        any::<bool>(),
        proptest::collection::vec(op(), 1..50),
    )
        .prop_map(|(scheduler, urgent, selector, paths, tight, ops)| Setup {
            scheduler,
            urgent,
            selector,
            paths,
            tight,
            ops,
        })
}

fn config(role: Role, setup: &Setup, candidates: &Candidates) -> Config {
    let mut config = candidates.config(role, setup.scheduler);
    let urgent = setup.urgent.to_owned();
    config
        .class_schedulers
        .insert(Class::Conversational, urgent);
    config.selector = setup.selector.parse().expect("the selector is known");
    config.session_timeout = Duration::from_secs(3600);
    if setup.tight {
        config.max_streams = 4;
        config.memory = Config::min_memory(4);
        config.stream_memory = 1 << 18;
    }
    config
}

/// Bytes that differ between streams, sides and offsets.
fn bytes(side: Side, stream: StreamId, from: usize, len: usize) -> Vec<u8> {
    let salt = stream * 2 + side as u64 + 1;
    (from..from + len)
        .map(|i| ((i as u64 + salt * 977).wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// Permits all paths: a scheduler for two paths refuses a third one, and both of the two may be
/// forbidden.
fn allow_all(pair: &mut Pair) {
    let paths: Vec<PathId> = pair.carriers.keys().copied().collect();
    let (policy, now) = (PathPolicy::default(), pair.now);
    for side in Side::BOTH {
        for &id in &paths {
            pair.session(side).set_policy(id, policy);
            let policy = PeerPolicy { policy, rate: None };
            pair.session(side).send_policy(id, policy, now);
        }
    }
}

fn run(setup: &Setup, candidates: &Candidates) {
    let [client, server] = [Role::Client, Role::Server].map(|role| config(role, setup, candidates));
    let mut pair = Pair::with(client, server);
    pair.connect(&setup.paths);
    let mut streams: Vec<StreamId> = Vec::new();
    let mut finished: Vec<(Side, StreamId)> = Vec::new();
    let mut asked: std::collections::BTreeMap<(Side, StreamId), usize> = Default::default();
    for op in &setup.ops {
        let paths: Vec<PathId> = pair.carriers.keys().copied().collect();
        let path_at = |index: usize| (!paths.is_empty()).then(|| paths[index % paths.len()]);
        let stream_at =
            |index: usize| (!streams.is_empty()).then(|| streams[index % streams.len()]);
        match *op {
            Op::Open => streams.extend(pair.try_open()),
            Op::Write {
                side,
                stream,
                len,
                finish,
            } => {
                if let Some(id) = stream_at(stream)
                    && !finished.contains(&(side, id))
                    && !pair.program(side, id).left
                {
                    let from = asked.entry((side, id)).or_default();
                    let data = bytes(side, id, *from, len);
                    *from += len;
                    pair.write(side, id, &data, finish);
                    if finish {
                        finished.push((side, id));
                    }
                }
            }
            Op::Stall { side, stream } => {
                if let Some(id) = stream_at(stream) {
                    pair.program(side, id).stalled = true;
                }
            }
            Op::Resume { side, stream } => {
                if let Some(id) = stream_at(stream) {
                    pair.resume(side, id);
                }
            }
            Op::Reset { side, stream } => {
                // A program has a stream only after the session has reported it.
                if let Some(id) = stream_at(stream).filter(|id| pair.knows(side, *id)) {
                    pair.reset(side, id, 3);
                }
            }
            Op::Abandon { side, stream } => {
                if let Some(id) = stream_at(stream).filter(|id| pair.knows(side, *id)) {
                    pair.abandon(side, id);
                }
            }
            Op::KillPath { path } => path_at(path).into_iter().for_each(|id| pair.kill_path(id)),
            Op::KillPathOnOneSide { side, path } => {
                // The other side notices slightly later.
                if let Some(id) = path_at(path) {
                    let now = pair.now;
                    pair.session(side).path_down(id, now);
                    pair.run_for(Duration::from_millis(30));
                    pair.kill_path(id);
                }
            }
            Op::AddPath { mbit, ms } => {
                if paths.len() < 5 {
                    pair.add_path(mbit, ms);
                }
            }
            Op::Blackhole { path, on } => {
                if let Some(carrier) = path_at(path).and_then(|id| pair.carriers.get_mut(&id)) {
                    carrier.blackhole = on;
                }
            }
            Op::Change { path, mbit, ms } => {
                if let Some(carrier) = path_at(path).and_then(|id| pair.carriers.get_mut(&id)) {
                    carrier.rate = mbit * 1e6 / 8.0;
                    carrier.delay = Duration::from_millis(ms);
                }
            }
            Op::Policy {
                side,
                path,
                policy,
                tell,
            } => {
                if let Some(id) = path_at(path) {
                    let now = pair.now;
                    match tell {
                        false => pair.session(side).set_policy(id, policy),
                        true => {
                            let policy = PeerPolicy { policy, rate: None };
                            pair.session(side).send_policy(id, policy, now);
                        }
                    }
                }
            }
            Op::Cut { at } => pair.cut = at,
            Op::Wait { us } => pair.run_for(Duration::from_micros(us)),
        }
    }
    // Links return, programs read and finish: everything must complete.
    pair.carriers
        .values_mut()
        .for_each(|carrier| carrier.blackhole = false);
    let added = pair.add_path(50.0, 10);
    if !pair.carriers.contains_key(&added) {
        allow_all(&mut pair);
    }
    for &id in &streams {
        for side in Side::BOTH {
            pair.resume(side, id);
            if !pair.program(side, id).left {
                pair.write(side, id, b"", true);
            }
        }
    }
    let over =
        |pair: &Pair| pair.client.stats().streams_open + pair.server.stats().streams_open == 0;
    assert!(
        pair.run_until(over, Duration::from_secs(1000)),
        "not done: {pair:?}"
    );
    for &id in &streams {
        for side in Side::BOTH {
            let written = pair.written(side.peer(), id).to_vec();
            let sender_left = pair.program(side.peer(), id).left;
            let broken = Side::BOTH
                .iter()
                .any(|&side| pair.program(side, id).reset == Some(3));
            let program = pair.program(side, id);
            assert!(
                written.starts_with(&program.received),
                "stream {id} at {side:?} differs"
            );
            let whole = program.finished && program.received == written;
            // A program that closed its end without a reset has its bytes delivered; a peer that
            // closed does not read them.
            let peers_left = program.left || sender_left;
            assert!(
                whole || broken || program.left || program.reset == Some(0) && peers_left,
                "stream {id} at {side:?}: {pair:?}"
            );
        }
    }
    pair.run_for(Duration::from_secs(1));
    pair.check_settled();
    let now = pair.now;
    pair.client.close(0, "done", now);
    let closed = |pair: &Pair| {
        pair.events.iter().any(|(side, event)| {
            *side == Side::Server && matches!(event, Event::Closed { code: 0, .. })
        })
    };
    assert!(
        pair.run_until(closed, Duration::from_secs(10)),
        "the peer received no CLOSE"
    );
}

/// Whatever links and programs do, every byte arrives once and in order, and the sessions end with
/// nothing left.
pub fn every_byte_arrives_once_and_in_order_whatever_happens(candidates: &Candidates) {
    let setups = setup(candidates.combined());
    property(file!(), case_count(CASES), setups, |setup| {
        run(&setup, candidates);
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::minrtt::MinRtt;
    use crate::scheduler::{OwnSchedulers, Pick, Scheduler, View};

    /// MinRTT for two paths.
    #[derive(Debug, Default)]
    struct ForTwo(MinRtt);

    impl Scheduler for ForTwo {
        fn name(&self) -> &'static str {
            "for_two"
        }

        fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
            self.0.pick(path, budget, view)
        }

        fn paths_changed(&mut self) {
            self.0.paths_changed();
        }

        fn max_paths(&self) -> Option<usize> {
            Some(2)
        }
    }

    /// A third path is refused, so a side that has data must be permitted one of the two again.
    #[test]
    fn data_written_while_every_path_is_forbidden_is_delivered_later() {
        let forbid = |path| Op::Policy {
            side: Side::Server,
            path,
            policy: PathPolicy {
                priority: Priority::Never,
                ..PathPolicy::default()
            },
            tell: false,
        };
        let write = Op::Write {
            side: Side::Server,
            stream: 0,
            len: 1,
            finish: false,
        };
        let setup = Setup {
            scheduler: "for_two",
            urgent: "fbdt",
            selector: "none",
            paths: vec![(0.5, 0), (0.5, 0)],
            tight: false,
            ops: vec![forbid(0), Op::Open, forbid(1), write],
        };
        let mut own = OwnSchedulers::default();
        own.add("for_two", |_| Box::<ForTwo>::default()).unwrap();
        run(&setup, &Candidates::new(&["for_two"], own));
    }
}
