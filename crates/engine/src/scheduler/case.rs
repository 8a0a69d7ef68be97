//! Random cases for the schedulers' tests, and what must hold in each.
//!
//! The paths here are model carriers (`model.rs`). `broken.rs` has schedulers that never send,
//! starve a head, repeat without end, or decide at random: the checks here reject them.

use std::time::Duration;

use proptest::prelude::*;

use super::model::{Model, PIECE, REPEATS, SOCKET, TICK};
use super::{RepeatLimit, Scheduler};
use crate::{Class, StreamId};

/// The conditions of a test case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// Mbit/s and milliseconds.
    pub(super) links: Vec<(f64, u64)>,
    /// Streams with a class, a length, and the time at which they are written.
    pub(super) writes: Vec<(Class, usize, u64)>,
    /// Times at which a path accepts no data for a while.
    pub(super) outages: Vec<(u64, usize, u64)>,
    /// Times at which paths fail, join, or get a queue of other traffic.
    pub(super) changes: Vec<(u64, Change)>,
    /// Most unacknowledged bytes of each stream, if limited.
    pub(super) window: Option<u64>,
}

/// A change of the paths. Paths are numbered among the existing ones.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// The path fails, unless it is the last one.
    Dies(usize),
    /// A path joins, with its Mbit/s and milliseconds, unless the scheduler supports no more.
    Joins((f64, u64)),
    /// From now on this many bytes of other traffic wait before the path's own.
    Queue(usize, u64),
}

/// A broken rule.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("{0}: {1} bytes unacknowledged, {2} unsent after {3:?}")]
    Stuck(&'static str, u64, u64, Duration),
    #[error("{0}: the head of stream {1} waits for {2:?}, more than {3:?}")]
    Starves(&'static str, StreamId, Duration, Duration),
    #[error("{0}: {1} bytes sent again (limit {2}), {3} over the path that had them")]
    Repeats(&'static str, u64, u64, u64),
    #[error("{0} is not deterministic")]
    Varies(&'static str),
}

impl Case {
    /// The links, limited to the number that the scheduler supports.
    fn links(&self, scheduler: &dyn Scheduler) -> &[(f64, u64)] {
        let most = scheduler.max_paths().unwrap_or(usize::MAX);
        &self.links[..self.links.len().min(most)]
    }

    /// Every link that may exist in the case, at its worst: queued bytes of other traffic lengthen
    /// its round trip.
    fn worst_links(&self, scheduler: &dyn Scheduler) -> Vec<(f64, u64)> {
        let joined = self.changes.iter().filter_map(|(_, change)| match change {
            Change::Joins(link) => Some(*link),
            Change::Dies(_) | Change::Queue(..) => None,
        });
        let queues = self.changes.iter().map(|(_, change)| match change {
            Change::Queue(_, bytes) => *bytes,
            Change::Dies(_) | Change::Joins(_) => 0,
        });
        let queue = queues.max().unwrap_or_default();
        let all = self.links(scheduler).iter().copied().chain(joined);
        let with_queue =
            |(mbit, ms): (f64, u64)| (mbit, ms + (queue as f64 * 8e-3 / mbit).ceil() as u64);
        all.map(with_queue).collect()
    }
}

/// Everything is delivered no later than if all of it had to go over the slowest path, one byte
/// after the other.
pub(super) fn deliver(scheduler: Box<dyn Scheduler>, case: &Case) -> Result<Model, Fault> {
    let name = scheduler.name();
    let links = case.links(scheduler.as_ref());
    let mut model = Model::new(scheduler, links);
    model.window = case.window;
    for ms in 0..=400 {
        for (index, &(class, len, at)) in case.writes.iter().enumerate() {
            if at == ms {
                model.fixture.write_as(2 * index as u64, class, len);
            }
        }
        for &(at, path, time) in &case.outages {
            if at == ms {
                let paths = model.paths();
                model.block(paths[path % paths.len()], Duration::from_millis(time));
            }
        }
        for &(_, change) in case.changes.iter().filter(|(at, _)| *at == ms) {
            apply_change(&mut model, change);
        }
        model.tick();
    }
    let bytes: u64 = case.writes.iter().map(|(_, len, _)| *len as u64).sum();
    let links = &case.worst_links(model.scheduler.as_ref())[..];
    let carried = bytes + model.lost;
    let waits = 4 * (1 + case.changes.len() as u32);
    let most = 2 * over(carried, links) + waits * patience(links) + Duration::from_secs(1);
    let end = model.fixture.now + most;
    while model.unacknowledged() > 0 {
        if model.fixture.now >= end {
            let (left, unsent) = (model.unacknowledged(), model.fixture.unsent());
            return Err(Fault::Stuck(name, left, unsent, most));
        }
        model.tick();
    }
    // Bytes of a failed path may have arrived over another one before their turn comes.
    assert!(
        (bytes..=bytes + model.lost).contains(&model.sent),
        "{name}: every byte is sent once, and again if it was lost"
    );
    Ok(model)
}

fn apply_change(model: &mut Model, change: Change) {
    let paths = model.paths();
    match change {
        Change::Dies(path) if paths.len() > 1 => model.die(paths[path % paths.len()]),
        Change::Joins(link) => {
            let most = model.scheduler.max_paths().unwrap_or(usize::MAX);
            if paths.len() < most {
                model.join(link);
            }
        }
        Change::Queue(path, bytes) => model.add_backlog(paths[path % paths.len()], bytes),
        Change::Dies(_) => {}
    }
}

/// A stream's reader waits for its head. The head may have to wait for a turn of each other stream,
/// for a free path and for outages, but not for the bytes behind it: a scheduler that sends a
/// stream from its end is rejected.
///
/// ECF and BLEST get no more time than the others. They leave slower paths idle while the fastest
/// one carries the bytes in order: the wait that their papers demand is for that path, and it ends
/// when the path takes a piece.
pub(super) fn check_heads(model: &Model, case: &Case) -> Result<(), Fault> {
    let scheduler = model.scheduler.as_ref();
    let (name, links) = (scheduler.name(), &case.worst_links(scheduler)[..]);
    let times = case.outages.iter().map(|outage| outage.2);
    let outages = Duration::from_millis(times.sum());
    for (&stream, &wait) in &model.waits {
        let own = (stream / 2) as usize;
        let turns = case.writes.iter().enumerate().map(|(other, write)| {
            let turn = turn(name, case.writes[own].0, write.0);
            if other == own {
                0
            } else {
                turn.min(write.1 as u64)
            }
        });
        // The chosen path may fail, and the choice then begins anew.
        let most = over(turns.sum(), links)
            + (1 + case.changes.len() as u32) * until_free(links)
            + outages;
        if wait > most {
            return Err(Fault::Starves(name, stream, wait, most));
        }
    }
    Ok(())
}

/// No more is sent again than the scheduler's limit permits, and nothing over a path that has
/// already carried it.
pub(super) fn check_repeats(model: &Model, case: &Case) -> Result<(), Fault> {
    let scheduler = model.scheduler.as_ref();
    let others = case.worst_links(scheduler).len() as u64 - 1;
    let most = match scheduler.repeat_limit() {
        RepeatLimit::Nothing => 0,
        RepeatLimit::Share => REPEATS,
        RepeatLimit::OncePerPath => others * model.sent,
    };
    if model.repeated > most || model.wasted > 0 {
        let name = scheduler.name();
        return Err(Fault::Repeats(name, model.repeated, most, model.wasted));
    }
    Ok(())
}

/// The same scheduler has decided the same both times.
pub(super) fn check_same(first: &Model, again: &Model) -> Result<(), Fault> {
    if first.picks != again.picks {
        return Err(Fault::Varies(first.scheduler.name()));
    }
    Ok(())
}

/// Bytes that another stream may send before the head of one: one piece. FBDT shares the paths by
/// weight. There the bound is a piece for each multiple of its weight that the other stream has,
/// and one more, since either stream may have been ahead.
fn turn(name: &str, own: Class, other: Class) -> u64 {
    let weight = |class| match class {
        Class::Conversational => 64,
        Class::Streaming => 16,
        Class::Interactive => 8,
        Class::Background => 1,
    };
    match name {
        "fbdt" => PIECE + (PIECE * weight(other)).div_ceil(weight(own)),
        _ => PIECE,
    }
}

/// Upper bound for the time that a scheduler waits for its chosen path. The data on that path must
/// leave, which is one piece more than its socket holds. If its window is full, it must also be
/// acknowledged. Another path may have been chosen before.
fn until_free(links: &[(f64, u64)]) -> Duration {
    over(SOCKET + PIECE, links) + 2 * longest(links) + 10 * TICK
}

/// Upper bound for the time until every other path has had its turn: a full round of the largest
/// quotas over the slowest of them, its socket, and some round trips.
fn patience(links: &[(f64, u64)]) -> Duration {
    over(160_000 + SOCKET, links) + 4 * longest(links) + Duration::from_millis(200)
}

/// Time for `bytes` over the slowest path. A tick lets a path's socket run empty, so no path is
/// faster than that.
fn over(bytes: u64, links: &[(f64, u64)]) -> Duration {
    let rates = links.iter().map(|link| link.0 * 1e6 / 8.0);
    let slowest = rates.fold(SOCKET as f64 / TICK.as_secs_f64(), f64::min);
    Duration::from_secs_f64(bytes as f64 / slowest)
}

/// The longest round trip.
fn longest(links: &[(f64, u64)]) -> Duration {
    Duration::from_millis(links.iter().map(|link| link.1).max().unwrap_or_default())
}

fn links() -> impl Strategy<Value = Vec<(f64, u64)>> {
    let mbit = prop_oneof![0.5..5.0f64, 5.0..100.0f64, 100.0..1000.0f64];
    let ms = prop_oneof![3 => 0..30u64, 1 => 30..600u64];
    prop::collection::vec((mbit, ms), 1..=6)
}

fn writes() -> impl Strategy<Value = Vec<(Class, usize, u64)>> {
    let class = prop::sample::select(Class::ALL.to_vec());
    let len = prop_oneof![1..3_000usize, 3_000..300_000usize];
    prop::collection::vec((class, len, 0..300u64), 1..8)
}

fn outages() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    prop::collection::vec((0..400u64, 0..6usize, 1..400u64), 0..6)
}

fn changes() -> impl Strategy<Value = Vec<(u64, Change)>> {
    let change = prop_oneof![
        (0..6usize).prop_map(Change::Dies),
        (0.5..200.0f64, 0..300u64).prop_map(Change::Joins),
        (0..6usize, 0..100_000u64).prop_map(|(path, bytes)| Change::Queue(path, bytes)),
    ];
    prop::collection::vec((0..400u64, change), 0..5)
}

/// Any case.
pub(super) fn cases() -> impl Strategy<Value = Case> {
    // Without a limit BLEST has nothing to weigh, and no window is ever full.
    let window = prop::option::of(60_000..1_000_000u64);
    let parts = (links(), writes(), outages(), changes(), window);
    parts.prop_map(|(links, writes, outages, changes, window)| Case {
        links,
        writes,
        outages,
        changes,
        window,
    })
}
