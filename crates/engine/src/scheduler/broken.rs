//! Schedulers that each break one rule, to prove that the checks of `conformance.rs` can fail.

use std::sync::atomic::{AtomicU64, Ordering};

use super::conformance::{faults_with, with_failed_path};
use super::*;
use crate::stream::Stream;

/// The faults of a scheduler with two megabytes written at once, which take its paths more than a
/// second.
fn faults(make: impl Fn() -> Box<dyn Scheduler>) -> Vec<&'static str> {
    faults_with(make, Vec::new())
}

/// Uses only the path that asks first.
#[derive(Debug, Default)]
struct Faithful(Option<PathId>);

impl Scheduler for Faithful {
    fn name(&self) -> &'static str {
        "faithful"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        match *self.0.get_or_insert(path) == path {
            true => lowest_unsent(view, budget),
            false => Pick::Idle,
        }
    }
}

#[test]
fn rejects_a_scheduler_that_relies_on_a_failed_path() {
    let faithful = || Box::<Faithful>::default() as Box<dyn Scheduler>;
    assert!(faults(faithful).is_empty());
    assert_eq!(faults_with(faithful, with_failed_path()), ["stuck"]);
}

/// Never sends.
#[derive(Debug)]
struct Mute;

impl Scheduler for Mute {
    fn name(&self) -> &'static str {
        "mute"
    }

    fn pick(&mut self, _path: PathId, _budget: u64, _view: &View<'_>) -> Pick {
        Pick::Idle
    }
}

#[test]
fn rejects_a_scheduler_that_never_sends() {
    assert_eq!(faults(|| Box::new(Mute)), ["stuck"]);
}

/// Sends each stream from its end, so that its head is last.
#[derive(Debug)]
struct BackFirst;

impl Scheduler for BackFirst {
    fn name(&self) -> &'static str {
        "backfirst"
    }

    fn pick(&mut self, _path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let end_of = |stream: &Stream| {
            let unsent = stream.unsent().within(0..view.sendable_end(stream));
            let last = { unsent }.next_back()?;
            Some(Pick::Send {
                stream: stream.id(),
                range: last.start.max(last.end.saturating_sub(budget))..last.end,
            })
        };
        view.ready_streams().find_map(end_of).unwrap_or(Pick::Idle)
    }
}

#[test]
fn rejects_a_scheduler_that_sends_the_head_last() {
    assert_eq!(faults(|| Box::new(BackFirst)), ["starves"]);
}

/// Sends in order, but finishes one stream before it starts the next.
#[derive(Debug)]
struct NoTurns;

impl Scheduler for NoTurns {
    fn name(&self) -> &'static str {
        "noturns"
    }

    fn pick(&mut self, _path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let stream = view.all_streams().find(|s| !s.unsent().is_empty());
        let first = stream.and_then(|s| Some((s.id(), s.unsent().first()?)));
        first.map_or(Pick::Idle, |(stream, first)| Pick::Send {
            stream,
            range: first.start..first.end.min(first.start + budget),
        })
    }
}

#[test]
fn rejects_a_scheduler_that_finishes_one_stream_before_the_next() {
    assert_eq!(faults(|| Box::new(NoTurns)), ["starves"]);
}

/// Every other pick repeats bytes in flight, regardless of their path and of its limit.
#[derive(Debug)]
struct Parrot {
    limit: RepeatLimit,
    again: bool,
}

impl Scheduler for Parrot {
    fn name(&self) -> &'static str {
        "parrot"
    }

    fn pick(&mut self, _path: PathId, budget: u64, view: &View<'_>) -> Pick {
        self.again = !self.again;
        let send = lowest_unsent(view, budget);
        if !self.again && send != Pick::Idle {
            return send;
        }
        let under_way = view.all_streams().find_map(|stream| {
            let sent = stream.acknowledged()..stream.highest_sent();
            let first = stream.unacknowledged(sent).into_iter().next()?;
            Some(Pick::Repeat {
                stream: stream.id(),
                range: first.start..first.end.min(first.start + budget),
            })
        });
        under_way.unwrap_or(send)
    }

    fn repeat_limit(&self) -> RepeatLimit {
        self.limit
    }
}

#[test]
fn rejects_a_scheduler_that_repeats_everything_with_any_limit() {
    for limit in [
        RepeatLimit::Nothing,
        RepeatLimit::Share,
        RepeatLimit::OncePerPath,
    ] {
        let parrot = || Box::new(Parrot { limit, again: true }) as Box<dyn Scheduler>;
        assert_eq!(faults(parrot), ["repeats"], "{limit:?}");
    }
}

/// Sends pieces with lengths from a counter that outlives it.
#[derive(Debug)]
struct Counting;

static COUNTER: AtomicU64 = AtomicU64::new(1000);

impl Scheduler for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn pick(&mut self, _path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let drawn = COUNTER.fetch_add(1, Ordering::Relaxed);
        lowest_unsent(view, budget.min(drawn))
    }
}

#[test]
fn rejects_a_scheduler_that_depends_on_hidden_state() {
    assert_eq!(faults(|| Box::new(Counting)), ["varies"]);
}
