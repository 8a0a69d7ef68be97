//! Forward and backward data transmission (FBDT).
//!
//! Source: the thesis in docs/algorithms.md, chapter 4. A stream is cut into transmission windows. One path, the
//! most reliable, takes a window's bytes from the front upwards; every other path takes the bytes of its segment
//! from the back downwards. The ends move towards each other and meet wherever the paths' real rates let them
//! meet: the split needs no prediction. Predictions only place the segments (eq. 4.4 and 4.5) and keep a path from
//! taking bytes that would arrive sooner without it.
//!
//! Where the text is silent: when a path has nothing to take in the open windows, the next window opens, as far as
//! credit allows, so that no path idles while there is data; and a window is at least twice the bandwidth-delay
//! product of all paths together.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::path::Path;
use crate::scheduler::{Pick, Scheduler, View};
use crate::stream::Stream;
use crate::{Class, Instant, PathId, StreamId};

/// See the module.
#[derive(Debug, Default)]
pub struct Fbdt {
    /// The open windows of each stream, oldest first.
    windows: BTreeMap<StreamId, VecDeque<Window>>,
    /// The forward path, and since when.
    forward: Option<(PathId, Instant)>,
    /// Counts changes among the paths: segments made under an older count are made anew.
    generation: u64,
    /// When each path last looked for late bytes of the others in vain.
    looked: BTreeMap<PathId, Instant>,
}

/// A contiguous range of a stream that the paths work on at once.
#[derive(Debug)]
struct Window {
    range: Range<u64>,
    /// Each path's share of what was unsent when the window was aligned, ascending; the first one is forward.
    segments: Vec<(PathId, Range<u64>)>,
    generation: u64,
}

/// Smallest and largest window in bytes; the largest also stays below a part of the session's memory.
const WINDOW: Range<u64> = 64 * 1024..64 << 20;

/// Smallest and largest piece that a path takes at once: small enough that the ends meet closely, large enough
/// that a fast path fills its records and offload batches.
const PIECE: Range<u64> = 8 * 1024..64 * 1024;

/// A piece lasts about this long on its path.
const PIECE_TIME: Duration = Duration::from_millis(2);

/// A path becomes forward only when the present one is more doubtful by this much ...
const DOUBT_MARGIN: f64 = 0.25;

/// ... or, at equal reliability, slower by this factor.
const DELAY_MARGIN: f64 = 1.5;

/// A forward path stays for at least this long while it is active.
const FORWARD_STAYS: Duration = Duration::from_millis(500);

impl Scheduler for Fbdt {
    fn name(&self) -> &'static str {
        "fbdt"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        self.choose_forward(view);
        for stream in view.ready_streams() {
            if let Some(range) = self.pick_in(stream, asking, budget, view) {
                return Pick::Send {
                    stream: stream.id(),
                    range,
                };
            }
        }
        self.repeat(asking, view).unwrap_or(Pick::Idle)
    }

    fn paths_changed(&mut self) {
        self.generation += 1;
        self.looked.clear();
    }

    fn stream_gone(&mut self, stream: StreamId) {
        self.windows.remove(&stream);
    }
}

impl Fbdt {
    /// The bytes of `stream` that `path` should take, if any.
    fn pick_in(
        &mut self,
        stream: &Stream,
        path: &Path,
        budget: u64,
        view: &View<'_>,
    ) -> Option<Range<u64>> {
        let end = view.sendable_end(stream);
        // Whether a path is welcome must not depend on its momentary budget: a fast path with little room and a slow
        // one with much could each leave the last bytes to the other.
        let whole = piece(path);
        let piece = whole.min(budget).max(1);
        let forward = self.forward.map(|(id, _)| id);
        let generation = self.generation;
        let windows = self.windows.entry(stream.id()).or_default();
        // A window closes when the peer has all of it: a failed path may bring bytes back until then.
        while windows
            .front()
            .is_some_and(|window| window.range.end <= stream.acknowledged())
        {
            windows.pop_front();
        }
        let mut left_to_others = 0;
        let mut index = 0;
        loop {
            if index == windows.len() {
                let from = windows
                    .back()
                    .map_or(stream.acknowledged(), |window| window.range.end);
                if from >= end {
                    return None;
                }
                let to = end.min(from.saturating_add(window_size(stream.class(), view)));
                windows.push_back(Window {
                    range: from..to,
                    segments: Vec::new(),
                    generation,
                });
            }
            let window = &mut windows[index];
            let inside = window.range.start..window.range.end.min(end);
            let unsent = stream.unsent().total_within(inside.clone());
            left_to_others += unsent;
            if unsent > 0 && is_welcome(path, whole.min(unsent), left_to_others, view) {
                let aligned = (window.generation == generation)
                    .then(|| window.part_of(path, stream, &inside))
                    .flatten();
                let part = aligned.or_else(|| {
                    window.generation = generation;
                    window.align(stream, forward, &inside, view);
                    // A fresh share of less than a piece is filled up from what lies beside it, or the last path that
                    // works on a window would halve it down to single bytes.
                    let part = window.part_of(path, stream, &inside);
                    let at_end = || stream.unsent().within(inside.clone()).next_back();
                    let part = part.or_else(at_end)?;
                    let around = stream
                        .unsent()
                        .within(inside.clone())
                        .find(|range| range.end >= part.end)?;
                    let start = part
                        .start
                        .min(part.end.saturating_sub(piece))
                        .max(around.start);
                    let end = part
                        .end
                        .max(part.start.saturating_add(piece))
                        .min(around.end);
                    Some(if forward == Some(path.id()) {
                        part.start..end
                    } else {
                        start..part.end
                    })
                })?;
                return Some(if forward == Some(path.id()) {
                    part.start..part.end.min(part.start + piece)
                } else {
                    part.start.max(part.end.saturating_sub(piece))..part.end
                });
            }
            index += 1;
        }
    }

    /// The most reliable path is forward; among equals the one of least delay. A change needs a margin.
    fn choose_forward(&mut self, view: &View<'_>) {
        let now = view.now;
        let present = self
            .forward
            .and_then(|(id, since)| Some((view.path(id)?, since)));
        let present = present.filter(|(path, _)| path.state() == crate::PathState::Active);
        if let Some((_, since)) = present
            && now.saturating_sub(since) < FORWARD_STAYS
        {
            return;
        }
        let doubt = |path: &Path| (path.unreliability(now) / DOUBT_MARGIN).floor();
        let best = view.active_paths().min_by(|a, b| {
            doubt(a)
                .total_cmp(&doubt(b))
                .then(a.srtt().cmp(&b.srtt()))
                .then(a.id().cmp(&b.id()))
        });
        let Some(best) = best else { return };
        let stays = present.is_some_and(|(path, _)| {
            path.id() == best.id()
                || (path.unreliability(now) - best.unreliability(now) < DOUBT_MARGIN
                    && path.srtt().as_secs_f64() < DELAY_MARGIN * best.srtt().as_secs_f64())
        });
        if !stays {
            self.forward = Some((best.id(), now));
            self.generation += 1;
        } else if let Some((id, _)) = self.forward {
            self.forward = Some((id, now));
        }
    }
}

impl Fbdt {
    /// Bytes under way on another path that would arrive sooner over this one.
    ///
    /// The search passes over everything under way, and an idle path asks at every change: it is not repeated sooner
    /// than bytes can become late.
    fn repeat(&mut self, path: &Path, view: &View<'_>) -> Option<Pick> {
        let recently = |at: &Instant| view.now < *at + LOOK_INTERVAL;
        if view.repeat_budget() == 0 || self.looked.get(&path.id()).is_some_and(recently) {
            return None;
        }
        let found = late_bytes(path, view);
        if found.is_none() {
            self.looked.insert(path.id(), view.now);
        }
        let (stream, range) = found?;
        let end = range.end.min(range.start + view.repeat_budget());
        Some(Pick::Repeat {
            stream,
            range: range.start..end,
        })
    }
}

impl Window {
    /// Divides what is unsent among the active paths, in proportion to their rates.
    fn align(
        &mut self,
        stream: &Stream,
        forward: Option<PathId>,
        inside: &Range<u64>,
        view: &View<'_>,
    ) {
        let mut order: Vec<&Path> = view.active_paths().collect();
        order.sort_by_key(|path| (Some(path.id()) != forward, path.srtt(), path.id()));
        let all_rates: f64 = order.iter().map(|path| path.rate()).sum();
        let unsent: Vec<Range<u64>> = stream.unsent().within(inside.clone()).collect();
        let total: u64 = unsent.iter().map(|range| range.end - range.start).sum();
        // thesis eq. 4.4: a segment is the path's share of the rate times what is to be sent
        // thesis eq. 4.5: its offset is the sum of the segments before it
        let mut share = 0.0;
        let mut offset = inside.start;
        let last = order.len().saturating_sub(1);
        self.segments.clear();
        for (index, path) in order.iter().enumerate() {
            share += path.rate() / all_rates;
            let end = if index == last {
                inside.end
            } else {
                nth(&unsent, (share * total as f64) as u64)
            };
            let end = end.max(offset);
            self.segments.push((path.id(), offset..end));
            offset = end;
        }
    }

    /// The piece of unsent bytes at which `path` works: the first of its segment for the forward path, the last
    /// for the others.
    fn part_of(&self, path: &Path, stream: &Stream, inside: &Range<u64>) -> Option<Range<u64>> {
        let (index, (_, segment)) = self
            .segments
            .iter()
            .enumerate()
            .find(|(_, (id, _))| *id == path.id())?;
        let segment = segment.start..segment.end.min(inside.end);
        let mut parts = stream.unsent().within(segment);
        if index == 0 {
            parts.next()
        } else {
            parts.next_back()
        }
    }
}

/// The offset before which `count` bytes of `ranges` lie.
fn nth(ranges: &[Range<u64>], mut count: u64) -> u64 {
    for range in ranges {
        let len = range.end - range.start;
        if count < len {
            return range.start + count;
        }
        count -= len;
    }
    ranges.last().map_or(0, |range| range.end)
}

/// What a path takes at once.
fn piece(path: &Path) -> u64 {
    let by_time = path.rate() * PIECE_TIME.as_secs_f64();
    (by_time as u64).clamp(PIECE.start, PIECE.end)
}

/// Size of the next window: twice the bandwidth-delay product of all paths for bulk, a quarter of that for what
/// waits for answers.
fn window_size(class: Class, view: &View<'_>) -> u64 {
    let rate: f64 = view.active_paths().map(Path::rate).sum();
    let rtt = view
        .active_paths()
        .map(Path::srtt)
        .max()
        .unwrap_or_default();
    let factor = if class >= Class::Background { 2.0 } else { 0.5 };
    let most = WINDOW.end.min(view.memory() / 4).max(WINDOW.start);
    ((rate * rtt.as_secs_f64() * factor) as u64).clamp(WINDOW.start, most)
}

/// Whether `piece` bytes on `path` arrive no later than the `backlog` up to the end of their window would if the
/// other paths carried it all: only then the path brings delivery forward.
fn is_welcome(path: &Path, piece: u64, backlog: u64, view: &View<'_>) -> bool {
    // Streams take turns, so this one gets its part of the others' rate.
    let turns = view.ready_count().max(1) as u64;
    match arrival_without(path, piece, backlog * turns, view) {
        Some(there) => arrival(path, piece) <= there,
        None => true,
    }
}

/// Seconds until `piece` bytes handed to `path` now are at the peer.
fn arrival(path: &Path, piece: u64) -> f64 {
    path.delay().as_secs_f64() + piece as f64 / path.rate()
}

/// Seconds until all paths but `path` together have delivered `backlog` bytes; nothing if there are no others.
///
/// The least T at which the sum of rate * (T - delay) over the others reaches the backlog. Bytes travel in pieces, so
/// it is no sooner than the soonest whole piece: without that bound equal paths would leave the last piece to each
/// other for ever.
fn arrival_without(path: &Path, piece: u64, backlog: u64, view: &View<'_>) -> Option<f64> {
    let others = || view.active_paths().filter(|other| other.id() != path.id());
    let soonest_piece = others()
        .map(|other| arrival(other, piece))
        .min_by(f64::total_cmp)?;
    let (mut rate, mut weighted, mut together) = (0.0, 0.0, f64::INFINITY);
    let mut before = None;
    // In ascending order of delay, each path once; there are few, and this is asked for every piece.
    while let Some(other) = others()
        .filter(|o| before < Some((o.delay(), o.id())))
        .min_by_key(|o| (o.delay(), o.id()))
    {
        before = Some((other.delay(), other.id()));
        let delay = other.delay().as_secs_f64();
        if delay >= together {
            break;
        }
        rate += other.rate();
        weighted += other.rate() * delay;
        together = (backlog as f64 + weighted) / rate;
    }
    Some(together.max(soonest_piece))
}

/// The lowest bytes under way on another path that would arrive sooner over this one.
///
/// Only what is predicted to be late by more than the repetition takes is repeated, each piece once, within the
/// budget. A path is late when its own estimate has passed, or is still further away than a trip over this path.
fn late_bytes(path: &Path, view: &View<'_>) -> Option<(StreamId, Range<u64>)> {
    let here = view.now + path.delay() + Duration::from_secs_f64(piece(path) as f64 / path.rate());
    let mut best: Option<(StreamId, Range<u64>)> = None;
    for other in view.paths.values().filter(|other| other.id() != path.id()) {
        let overdue_by = other.srtt() / 2 + 2 * other.sample().rttvar + REPORT_SLACK;
        for flight in other.flights().filter(|flight| !flight.repeated) {
            let late = flight.expected_at > here + REPORT_SLACK
                || view.now > flight.expected_at + overdue_by && path.srtt() < 2 * overdue_by;
            if !late
                || best
                    .as_ref()
                    .is_some_and(|(s, r)| (*s, r.start) <= (flight.stream, flight.range.start))
            {
                continue;
            }
            let Some(stream) = view.stream(flight.stream) else {
                continue;
            };
            if let Some(missing) = stream
                .unacknowledged(flight.range.clone())
                .into_iter()
                .next()
            {
                best = Some((flight.stream, missing));
            }
        }
    }
    best
}

/// A path that found no late bytes looks for them again after this time.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Reports of what arrived take this much longer than a round trip at most.
const REPORT_SLACK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathState;
    use crate::scheduler::fixture::Fixture;

    const BUDGET: u64 = 10_000;

    #[test]
    fn forward_takes_the_front_and_backward_the_back_until_they_meet() {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
        fixture.write(0, 60_000);
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000));
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(50_000..60_000));
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(40_000..50_000));
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(10_000..20_000));
        fixture.queue_on(0, 1_000_000);
        // The backward path is faster this time: it takes what was meant for the other.
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(30_000..40_000));
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(20_000..30_000));
        assert_eq!(fixture.unsent(), 0);
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), None);
    }

    #[test]
    fn segments_and_offsets_follow_the_rates() {
        // thesis eq. 4.4: 10 : 30 : 60 Mbit/s; eq. 4.5: each begins where the one before ends.
        let mut fixture = Fixture::new(&[(10.0, 10), (30.0, 20), (60.0, 30)]);
        fixture.write(0, 100_000);
        let mut fbdt = Fbdt::default();
        assert_eq!(fixture.send(&mut fbdt, 0, 1000), Some(0..1000));
        let window = &fbdt.windows[&0][0];
        assert_eq!(window.range, 0..100_000);
        let segments = [
            (PathId(0), 0..10_000),
            (PathId(1), 10_000..40_000),
            (PathId(2), 40_000..100_000),
        ];
        assert_eq!(window.segments, segments);
        assert_eq!(fixture.send(&mut fbdt, 1, 1000), Some(39_000..40_000));
        assert_eq!(fixture.send(&mut fbdt, 2, 1000), Some(99_000..100_000));
    }

    #[test]
    fn a_finished_segment_leads_to_a_new_alignment_of_what_is_unsent() {
        let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 20), (80.0, 30)]);
        fixture.write(0, 90_000);
        let mut fbdt = Fbdt::default();
        fixture.queue_on(0, 1_000_000);
        fixture.queue_on(2, 1_000_000);
        for end in [60_000, 50_000, 40_000] {
            assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(end - 10_000..end));
        }
        // Path 1 is done with 30..60; unsent are 0..30 and 60..90, of which its third is now 20..30 and 60..70.
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(60_000..70_000));
        let segments: Vec<_> = fbdt.windows[&0][0]
            .segments
            .iter()
            .map(|(_, range)| range.clone())
            .collect();
        assert_eq!(segments, [0..20_000, 20_000..70_000, 70_000..90_000]);
        fixture.queue_on(1, 1_000_000);
        fixture.queue_on(2, 0);
        assert_eq!(fixture.send(&mut fbdt, 2, BUDGET), Some(80_000..90_000));
        fixture.queue_on(0, 0);
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000));
    }

    #[test]
    fn the_next_window_opens_when_the_open_ones_are_sent() {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
        fixture.write(0, 10_000_000);
        // Twice the bandwidth-delay product: 20 MB/s over 12 ms.
        let size = 480_000;
        assert_eq!(
            fixture.send(&mut fbdt, 1, BUDGET),
            Some(size - BUDGET..size)
        );
        let mut sent = BUDGET;
        while sent < size {
            let range = fixture.send(&mut fbdt, 0, BUDGET).unwrap();
            assert!(range.end <= size);
            sent += range.end - range.start;
        }
        assert_eq!(
            fixture.send(&mut fbdt, 0, BUDGET),
            Some(size..size + BUDGET)
        );
        assert_eq!(
            fixture.send(&mut fbdt, 1, BUDGET),
            Some(2 * size - BUDGET..2 * size)
        );
        assert_eq!(fbdt.windows[&0].len(), 2);
    }

    #[test]
    fn a_slow_path_is_left_idle_at_the_tail_of_an_object() {
        let links = [(80.0, 10), (8.0, 200)];
        for (len, welcome) in [
            (1_000, false),
            (100_000, false),
            (900_000, false),
            (3_000_000, true),
        ] {
            let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
            fixture.write(0, len);
            assert_eq!(
                fixture.send(&mut fbdt, 1, BUDGET).is_some(),
                welcome,
                "{len} bytes"
            );
            assert!(fixture.send(&mut fbdt, 0, BUDGET).is_some());
        }
        // The fast path is busy for longer than the slow one takes.
        let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
        fixture.write(0, 8_000);
        fixture.queue_on(0, 3_000_000);
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(0..8_000));
    }

    #[test]
    fn budgets_do_not_make_two_paths_leave_the_rest_to_each_other() {
        let links = [(800.0, 12), (8.0, 1)];
        let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
        fixture.write(0, 30_000);
        for _ in 0..100 {
            fixture.send(&mut fbdt, 0, 100);
            fixture.send(&mut fbdt, 1, 20_000);
        }
        assert!(fixture.unsent() < 30_000 - 100 * 100 / 2);
        let mut rounds = 0;
        while fixture.unsent() > 0 {
            let moved = [
                fixture.send(&mut fbdt, 0, 100),
                fixture.send(&mut fbdt, 1, 20_000),
            ];
            assert!(
                moved.iter().any(Option::is_some),
                "{} bytes are left to the other",
                fixture.unsent()
            );
            rounds += 1;
            assert!(rounds < 1000);
        }
    }

    #[test]
    fn only_late_bytes_are_repeated_each_once_and_within_the_budget() {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), Fbdt::default());
        fixture.write(0, 30_000);
        while fixture.unsent() > 0 {
            fixture.send(&mut fbdt, 1, BUDGET);
        }
        let path = PathId(0);
        let expect = |fixture: &mut Fixture, ms: u64| {
            let at = fixture.now + Duration::from_millis(ms);
            let flights = &mut fixture.paths.get_mut(&PathId(1)).unwrap().flights;
            flights
                .iter_mut()
                .for_each(|flight| flight.expected_at = at);
        };
        let next_look = |fixture: &mut Fixture| fixture.now += 2 * LOOK_INTERVAL;
        fixture.repeat_budget = 4_000;
        expect(&mut fixture, 8);
        assert_eq!(
            fixture.pick(&mut fbdt, path, BUDGET),
            Pick::Idle,
            "they arrive soon enough"
        );
        next_look(&mut fixture);
        expect(&mut fixture, 500);
        fixture.repeat_budget = 0;
        assert_eq!(
            fixture.pick(&mut fbdt, path, BUDGET),
            Pick::Idle,
            "no budget"
        );
        fixture.repeat_budget = 4_000;
        assert_eq!(
            fixture.pick(&mut fbdt, path, BUDGET),
            Pick::Repeat {
                stream: 0,
                range: 0..4_000
            }
        );
        fixture.repeat_budget = 4_000;
        next_look(&mut fixture);
        assert_eq!(
            fixture.pick(&mut fbdt, path, BUDGET),
            Pick::Idle,
            "once is enough"
        );
    }

    #[test]
    fn bytes_that_did_not_come_in_time_are_repeated_unless_acknowledged() {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), Fbdt::default());
        fixture.write(0, 30_000);
        while fixture.unsent() > 0 {
            fixture.send(&mut fbdt, 1, BUDGET);
        }
        fixture.repeat_budget = 100_000;
        assert_eq!(fixture.pick(&mut fbdt, PathId(0), BUDGET), Pick::Idle);
        fixture.now += Duration::from_millis(100);
        let spare = &mut crate::pages::Spare::default();
        fixture
            .streams
            .get_mut(&0)
            .unwrap()
            .send
            .acknowledge(0..10_000, spare);
        let repeat = fixture.pick(&mut fbdt, PathId(0), BUDGET);
        assert!(matches!(repeat, Pick::Repeat { stream: 0, range } if range.start >= 10_000));
    }

    #[test]
    fn the_forward_role_stays_until_another_path_is_clearly_better() {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
        fixture.write(0, 10_000_000);
        let forward = |fixture: &mut Fixture, fbdt: &mut Fbdt| {
            fixture.now += 2 * FORWARD_STAYS;
            fixture.send(fbdt, 0, 1000);
            fbdt.forward.map(|(id, _)| id.0)
        };
        assert_eq!(forward(&mut fixture, &mut fbdt), Some(0));
        let srtt = |fixture: &mut Fixture, ms: u64| {
            let path = fixture.paths.get_mut(&PathId(0)).unwrap();
            let sample = crate::PathSample {
                srtt: Duration::from_millis(ms),
                ..*path.sample()
            };
            path.update(sample);
        };
        srtt(&mut fixture, 17);
        assert_eq!(
            forward(&mut fixture, &mut fbdt),
            Some(0),
            "slower, but not by half"
        );
        srtt(&mut fixture, 19);
        assert_eq!(
            forward(&mut fixture, &mut fbdt),
            Some(1),
            "slower by more than half"
        );
        srtt(&mut fixture, 10);
        assert_eq!(
            forward(&mut fixture, &mut fbdt),
            Some(1),
            "better, but not by half"
        );
        let now = fixture.now;
        fixture.paths.get_mut(&PathId(1)).unwrap().note_stall(now);
        assert_eq!(
            forward(&mut fixture, &mut fbdt),
            Some(0),
            "a stall is reason enough"
        );
        fixture.paths.get_mut(&PathId(0)).unwrap().state = PathState::Stalled;
        fbdt.paths_changed();
        fixture.send(&mut fbdt, 1, 1000);
        assert_eq!(
            fbdt.forward.map(|(id, _)| id.0),
            Some(1),
            "a stalled path leads nobody"
        );
    }
}
