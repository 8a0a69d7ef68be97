//! Duplicates: late bytes of another path, and races of bytes that must not wait.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::arrival::{delay, piece};
use super::memory::usual_memory;
use crate::path::{Flight, Path, REPORT_SLACK};
use crate::scheduler::{Pick, View};
use crate::stream::Stream;
use crate::{Class, Instant, PathId, StreamId};

/// Interval between searches of a path that found no late bytes.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A path that got no bytes for this long, while some were waiting, duplicates a piece, so that its
/// rate is measured again.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// Number of round trips after which a path is no longer new.
const KNOWN_AFTER: u32 = 10;

/// [`Path::unreliability`] above which a path counts as unreliable: 2 of 1000 segments are lost, or
/// it stalled within the last two minutes.
const UNRELIABLE: f64 = 0.02;

/// Smallest budget for a duplicate, in bytes.
pub(super) const SEGMENT: u64 = 1448;

/// Most pieces that wait to be raced.
const MAX_RACES: usize = 64;

/// The state of duplication.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Searches for late bytes of other paths.
    searches: Searches,
    /// Time at which each path last got stream bytes, or was first seen.
    carried: BTreeMap<PathId, Instant>,
    /// Pieces that should go over a second path at once, and the path that carries them.
    races: VecDeque<(PathId, StreamId, Range<u64>)>,
}

/// Time of each path's last fruitless search. A search examines all data in flight, and an idle
/// path asks at every change, so it is not repeated sooner than bytes can become late.
#[derive(Debug, Default)]
pub(super) struct Searches(BTreeMap<PathId, Instant>);

impl Searches {
    /// The result of `search` for the path, unless it recently found nothing.
    pub(super) fn unless_recent<T>(
        &mut self,
        path: PathId,
        now: Instant,
        search: impl FnOnce() -> Option<T>,
    ) -> Option<T> {
        let recently = |at: &Instant| now < *at + LOOK_INTERVAL;
        if self.0.get(&path).is_some_and(recently) {
            return None;
        }
        let found = search();
        if found.is_none() {
            self.0.insert(path, now);
        }
        found
    }

    /// A path joined, ended, stalled or recovered.
    pub(super) fn paths_changed(&mut self) {
        self.0.clear();
    }
}

impl Repeats {
    /// A path joined, ended, stalled or recovered.
    pub(super) fn paths_changed(&mut self) {
        self.searches.paths_changed();
    }

    /// A stream has ended.
    pub(super) fn stream_gone(&mut self, gone: StreamId) {
        self.races.retain(|(_, stream, _)| *stream != gone);
    }

    /// `path` is about to get `range`; `race` if a second path should carry it, too.
    pub(super) fn sent(
        &mut self,
        path: PathId,
        stream: StreamId,
        range: &Range<u64>,
        race: bool,
        view: &View<'_>,
    ) {
        self.carried.insert(path, view.now);
        if race && may_be_second(path, view).next().is_some() {
            if self.races.len() >= MAX_RACES {
                self.races.pop_front();
            }
            self.races.push_back((path, stream, range.clone()));
        }
    }

    /// `path` is about to get a duplicate that was not found here.
    pub(super) fn repeated(&mut self, path: PathId, view: &View<'_>) {
        self.carried.insert(path, view.now);
    }

    /// Bytes that `path` should carry as the second path of a race.
    pub(super) fn race(&mut self, path: &Path, view: &View<'_>) -> Option<(StreamId, Range<u64>)> {
        if self.races.is_empty() || view.race_budget() < SEGMENT {
            return None;
        }
        let index = self.races.iter().position(|(first, ..)| {
            second_for(*first, view).is_some_and(|second| second.id() == path.id())
        })?;
        let (_, stream, range) = self.races.remove(index)?;
        let missing = view.stream(stream)?.unacknowledged(range);
        let range = missing.into_iter().next()?;
        self.carried.insert(path.id(), view.now);
        let end = range.end.min(range.start + view.race_budget());
        Some((stream, range.start..end))
    }

    /// Bytes in flight on another path that would arrive sooner over this one; with `urgent` only
    /// those that no other data can replace.
    pub(super) fn late(&mut self, path: &Path, urgent: bool, view: &View<'_>) -> Option<Pick> {
        let holds_up_reader = || others(path, view).any(|other| holds_up_reader(other, view));
        let budget_of = |stream: &Stream| budget_of(stream, path, view);
        let most = match path.standing.policy.metered {
            true => view.repeat_budget(),
            false => view.race_budget(),
        };
        if most < SEGMENT || urgent && !holds_up_reader() {
            return None;
        }
        let is_wanted = |s: &Stream| (!urgent || is_urgent(s)) && budget_of(s) > 0;
        let search = || late_bytes(path, is_wanted, view);
        let found = self.searches.unless_recent(path.id(), view.now, search);
        let (stream, range) = found?;
        self.carried.insert(path.id(), view.now);
        let state = view.stream(stream)?;
        let range = range.start..range.end.min(range.start + budget_of(state));
        Some(match is_urgent(state) && !path.standing.policy.metered {
            true => Pick::Race { stream, range },
            false => Pick::Repeat { stream, range },
        })
    }

    /// A piece for a path that has had none for a long time because its rate seems too low.
    ///
    /// That rate was measured when the path was last used. Without a probe an improvement of the
    /// link would go unnoticed. A metered path is not probed, because its bytes cost money.
    pub(super) fn probe(&mut self, path: &Path, view: &View<'_>) -> Option<Pick> {
        if path.standing.policy.metered {
            return None;
        }
        let since = *self.carried.entry(path.id()).or_insert(view.now);
        let idle = view.now.saturating_sub(since) >= PROBE_AFTER && path.flights().next().is_none();
        if !idle || view.ready_count() == 0 || view.repeat_budget() < SEGMENT {
            return None;
        }
        let newest = others(path, view).filter_map(|other| other.flights().next_back());
        let in_bulk = |flight: &&Flight| {
            let stream = view.stream(flight.stream);
            !flight.repeated && stream.is_some_and(|stream| !is_urgent(stream))
        };
        let flight = newest.filter(in_bulk).max_by_key(|flight| flight.sent_at)?;
        let range = flight.range.start..flight.range.end.min(flight.range.start + piece(path));
        let missing = view.stream(flight.stream)?.unacknowledged(range);
        let range = missing.into_iter().next()?;
        self.carried.insert(path.id(), view.now);
        Some(Pick::Repeat {
            stream: flight.stream,
            range: range.start..range.end.min(range.start + view.repeat_budget()),
        })
    }
}

/// The path on which the bytes of `first` arrive soonest, of those that can take them now: a copy
/// that waits for a full or suspect path is useless.
fn second_for<'a>(first: PathId, view: &View<'a>) -> Option<&'a Path> {
    let free =
        may_be_second(first, view).filter(|path| !path.sample().full && !path.has_max_flights());
    free.min_by_key(|other| (delay(other, view), other.id()))
}

/// The paths on which the bytes of `first` may be raced: paths of other links, since another
/// carrier of the same link has the same queue and the same outages, and no metered paths.
fn may_be_second<'a>(first: PathId, view: &View<'a>) -> impl Iterator<Item = &'a Path> + use<'a> {
    let first_path = view.paths.get(&first);
    view.active_paths().filter(move |other| {
        let on_another = first_path.is_none_or(|first| !first.shares_link(other));
        other.id() != first && on_another && !other.standing.policy.metered
    })
}

/// Whether data on `path` is likely to be late: it has recently had losses or stalls, or is too
/// new.
///
/// On a reliable path the race of a small message would bring nothing but a second copy.
pub(super) fn is_unreliable(path: &Path, view: &View<'_>) -> bool {
    let age = view.now.saturating_sub(path.joined());
    !path.is_proven()
        || age < KNOWN_AFTER * path.srtt()
        || path.unreliability(view.now) > UNRELIABLE
}

/// Bytes of `stream` that `path` may duplicate now; 0 for less than a segment, since tiny frames
/// cost more than they carry. A metered path has no budget for races, but still carries data that
/// another path failed to deliver.
fn budget_of(stream: &Stream, path: &Path, view: &View<'_>) -> u64 {
    let budget = if is_urgent(stream) && !path.standing.policy.metered {
        view.race_budget()
    } else {
        view.repeat_budget()
    };
    if budget < SEGMENT { 0 } else { budget }
}

/// All paths but `path`.
pub(super) fn others<'a>(path: &Path, view: &View<'a>) -> impl Iterator<Item = &'a Path> + use<'a> {
    let id = path.id();
    view.paths.values().filter(move |other| other.id() != id)
}

/// Whether the data of `path` is late and its receiver can use nothing else meanwhile.
fn holds_up_reader(path: &Path, view: &View<'_>) -> bool {
    let oldest = path.late_flight(view.now).or(path.flights().next());
    path.is_late(view.now)
        && oldest.is_some_and(|flight| view.stream(flight.stream).is_some_and(is_urgent))
}

/// While more data follows, the receiver keeps the bytes behind a gap. At the end of an object, and
/// for speech, it waits.
fn is_urgent(stream: &Stream) -> bool {
    stream.class() == Class::Conversational || stream.unsent().is_empty()
}

/// Whether the peer has all bytes that it permits `stream`, or will have them soon, and few of them
/// wait behind a gap: the credit is that of a slow reader.
fn waits_for_reader(stream: &Stream, view: &View<'_>) -> bool {
    let unsent = stream.unsent().first();
    unsent.is_some_and(|unsent| unsent.start >= view.sendable_end(stream))
        && stream.held_back() <= usual_memory(view)
}

/// The lowest bytes of selected streams in flight on another path that would arrive sooner over
/// this one.
///
/// Only data that is predicted to be late by more than the duplicate takes is duplicated, each
/// piece once, and no data that has already reached the peer's host. A piece is late when its own
/// estimate has passed by more than a trip over this path takes, or is still further away than
/// that. For a stream that waits for its reader, only the first counts: bytes that arrive sooner
/// would wait for the reader, too.
pub(super) fn late_bytes(
    path: &Path,
    is_wanted: impl Fn(&Stream) -> bool,
    view: &View<'_>,
) -> Option<(StreamId, Range<u64>)> {
    let trip = path.likely_delay() + Duration::from_secs_f64(piece(path) as f64 / path.rate());
    let mut best: Option<(StreamId, Range<u64>)> = None;
    // A metered path does not carry data with which another path is merely late.
    let may_repeat =
        |other: &&Path| !path.standing.policy.metered || other.may_have_failed(view.now);
    for other in others(path, view).filter(may_repeat) {
        // A carrier delivers in order: data behind a late piece is as late as that piece.
        let oldest = other.first_in_flight();
        let oldest = oldest.filter(|_| other.is_late(view.now));
        let behind = oldest.map_or(Duration::ZERO, |oldest| {
            view.now.saturating_sub(oldest.expected_at)
        });
        let is_overdue = |flight: &Flight| match other.has_acknowledged(flight.record_end) {
            true => view.now >= other.late_at(flight),
            false => view.now >= flight.expected_at + flight.patience.max(trip),
        };
        let is_far = |flight: &Flight| {
            !other.has_acknowledged(flight.record_end)
                && flight.expected_at + behind > view.now + trip + REPORT_SLACK
        };
        for flight in other.flights().filter(|flight| !flight.repeated) {
            let place = (flight.stream, flight.range.start);
            let is_overdue = is_overdue(flight);
            if !is_overdue && !is_far(flight)
                || best.as_ref().is_some_and(|(s, r)| (*s, r.start) <= place)
            {
                continue;
            }
            let stream = view.stream(flight.stream);
            let Some(stream) = stream.filter(|stream| is_wanted(stream)) else {
                continue;
            };
            if !is_overdue && waits_for_reader(stream, view) {
                continue;
            }
            let missing = stream.unacknowledged(flight.range.clone());
            if let Some(missing) = missing.into_iter().next() {
                best = Some((flight.stream, missing));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::Fbdt;
    use super::*;
    use crate::pages::Spare;
    use crate::scheduler::fixture::Fixture;

    const BUDGET: u64 = 10_000;

    #[test]
    fn only_late_bytes_are_duplicated_once_and_within_the_budget() {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), Fbdt::default());
        fixture.write(0, 30_000);
        while fixture.unsent() > 0 {
            fixture.send(&mut fbdt, 1, BUDGET);
        }
        let path = PathId(0);
        let expect = |fixture: &mut Fixture, ms: u64| {
            let at = fixture.now + Duration::from_millis(ms);
            let flights = &mut fixture.paths.get_mut(&PathId(1)).unwrap().outbound.flights;
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
            "they arrive in time"
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
            Pick::Race {
                stream: 0,
                range: 0..4_000
            }
        );
        // The bytes after that, each once.
        let mut twice = 4_000;
        loop {
            fixture.repeat_budget = 4_000;
            next_look(&mut fixture);
            match fixture.pick(&mut fbdt, path, BUDGET) {
                Pick::Race { stream: 0, range } => {
                    assert_eq!(range.start, twice);
                    twice = range.end;
                }
                pick => break assert_eq!(pick, Pick::Idle, "only one copy"),
            }
        }
        assert_eq!(twice, 30_000);
    }

    #[test]
    fn overdue_bytes_are_duplicated_unless_acknowledged() {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), Fbdt::default());
        fixture.write(0, 30_000);
        while fixture.unsent() > 0 {
            fixture.send(&mut fbdt, 1, BUDGET);
        }
        fixture.repeat_budget = 100_000;
        assert_eq!(fixture.pick(&mut fbdt, PathId(0), BUDGET), Pick::Idle);
        fixture.now += Duration::from_millis(100);
        let spare = &mut Spare::default();
        fixture
            .streams
            .get_mut(&0)
            .unwrap()
            .send
            .acknowledge(0..10_000, spare);
        let repeat = fixture.pick(&mut fbdt, PathId(0), BUDGET);
        assert!(matches!(repeat, Pick::Race { stream: 0, range } if range.start >= 10_000));
    }

    /// A slow path has 30,000 bytes of a longer stream, a third of a second of its rate, and the
    /// peer permits no more. It has received `kept` bytes behind them.
    fn without_credit(kept: u64) -> (Fixture, Fbdt) {
        let (mut fixture, fbdt) = (Fixture::new(&[(80.0, 10), (0.8, 10)]), Fbdt::default());
        fixture.write(0, 2_000_000);
        fixture.take(1, 0, 0..30_000);
        let now = fixture.now;
        let flights = &mut fixture.paths.get_mut(&PathId(1)).unwrap().outbound.flights;
        flights[0].expected_at = now + Duration::from_millis(300);
        fixture.take(0, 0, 30_000..30_000 + kept);
        fixture
            .paths
            .get_mut(&PathId(0))
            .unwrap()
            .outbound
            .flights
            .clear();
        let stream = fixture.streams.get_mut(&0).unwrap();
        stream
            .send
            .acknowledge(30_000..30_000 + kept, &mut Spare::default());
        fixture.credit = 0;
        fixture.repeat_budget = 100_000;
        (fixture, fbdt)
    }

    #[test]
    fn bytes_for_a_slow_reader_are_duplicated_only_when_overdue() {
        let (mut fixture, mut fbdt) = without_credit(100_000);
        assert_eq!(fixture.pick(&mut fbdt, PathId(0), BUDGET), Pick::Idle);
        fixture.now += Duration::from_secs(1);
        let overdue = fixture.pick(&mut fbdt, PathId(0), BUDGET);
        assert!(
            matches!(overdue, Pick::Repeat { stream: 0, .. }),
            "{overdue:?}"
        );
    }

    #[test]
    fn a_gap_that_takes_the_credit_is_closed_before_its_bytes_are_overdue() {
        let (mut fixture, mut fbdt) = without_credit(600_000);
        let early = fixture.pick(&mut fbdt, PathId(0), BUDGET);
        assert!(matches!(early, Pick::Repeat { stream: 0, .. }), "{early:?}");
    }
}
