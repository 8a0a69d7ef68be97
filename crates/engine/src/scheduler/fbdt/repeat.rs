//! What is worth sending twice: bytes on another path that are late, or that are not to be waited for at all.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use super::arrival::{delay, piece};
use crate::path::{Flight, Path, REPORT_SLACK};
use crate::scheduler::{Pick, View};
use crate::stream::Stream;
use crate::{Class, Instant, PathId, StreamId};

/// A path that found no late bytes looks for them again after this time.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A path that had no bytes for so long, while there were some, repeats a piece, so that its rate is measured again.
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// A path is known after so many round trips.
const KNOWN_AFTER: u32 = 10;

/// [`Path::unreliability`] beyond which a path is doubted: 2 segments of 1000 are lost, or it stalled within the last
/// two minutes.
const DOUBT: f64 = 0.02;

/// Bytes that must be allowed, for any to be repeated.
pub(super) const SEGMENT: u64 = 1448;

/// Pieces that may wait to be raced.
const MAX_RACES: usize = 64;

/// What is known of repetitions.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// For late bytes of the others.
    searches: Searches,
    /// When each path last had stream bytes, or was first seen.
    carried: BTreeMap<PathId, Instant>,
    /// Pieces that are to go over a second path at once, and the path that has them.
    races: VecDeque<(PathId, StreamId, Range<u64>)>,
}

/// When each path last searched in vain: it passes over everything under way, and an idle path asks at every change, so it
/// is not done again sooner than bytes can become late.
#[derive(Debug, Default)]
pub(super) struct Searches(BTreeMap<PathId, Instant>);

impl Searches {
    /// What `search` finds for the path, unless it found nothing a moment ago.
    pub(super) fn unless_in_vain<T>(
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

    /// A path joined, left, stalled or recovered.
    pub(super) fn paths_changed(&mut self) {
        self.0.clear();
    }
}

impl Repeats {
    /// A path joined, left, stalled or recovered.
    pub(super) fn paths_changed(&mut self) {
        self.searches.paths_changed();
    }

    /// A stream is gone.
    pub(super) fn stream_gone(&mut self, gone: StreamId) {
        self.races.retain(|(_, stream, _)| *stream != gone);
    }

    /// `path` is about to get `range`; `race` if a second path is to have it, too.
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

    /// `path` is about to get bytes a second time, which were not found here.
    pub(super) fn repeated(&mut self, path: PathId, view: &View<'_>) {
        self.carried.insert(path, view.now);
    }

    /// Bytes that `path` should carry as the second one.
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

    /// Bytes under way on another path that would arrive sooner over this one; with `urgent` only those of which
    /// nothing else can take the place.
    pub(super) fn late(&mut self, path: &Path, urgent: bool, view: &View<'_>) -> Option<Pick> {
        let is_waited_for = || others(path, view).any(|other| is_waited_for(other, view));
        let budget_of = |stream: &Stream| budget_of(stream, path, view);
        let most = match path.policy.metered {
            true => view.repeat_budget(),
            false => view.race_budget(),
        };
        if most < SEGMENT || urgent && !is_waited_for() {
            return None;
        }
        let is_wanted = |s: &Stream| (!urgent || is_urgent(s)) && budget_of(s) > 0;
        let search = || late_bytes(path, is_wanted, view);
        let found = self.searches.unless_in_vain(path.id(), view.now, search);
        let (stream, range) = found?;
        self.carried.insert(path.id(), view.now);
        let state = view.stream(stream)?;
        let range = range.start..range.end.min(range.start + budget_of(state));
        Some(match is_urgent(state) && !path.policy.metered {
            true => Pick::Race { stream, range },
            false => Pick::Repeat { stream, range },
        })
    }

    /// A piece for a path that has had none for long because its rate seems too low.
    ///
    /// That rate was measured when the path was last used. If the link is better now, nothing else would ever show. A metered path
    /// is not probed: it costs.
    pub(super) fn probe(&mut self, path: &Path, view: &View<'_>) -> Option<Pick> {
        if path.policy.metered {
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

/// The path on which what `first` has arrives soonest, of those that can take it now: a copy that waits for a path which is full,
/// or silent, is none.
fn second_for<'a>(first: PathId, view: &View<'a>) -> Option<&'a Path> {
    let free = may_be_second(first, view).filter(|path| !path.sample().full && !path.is_crowded());
    free.min_by_key(|other| (delay(other, view), other.id()))
}

/// The paths that what `first` has may be raced on: those of other links, since another carrier of its own meets the same
/// queue and the same outage, on which nothing is raced that costs.
fn may_be_second<'a>(first: PathId, view: &View<'a>) -> impl Iterator<Item = &'a Path> + use<'a> {
    let first_path = view.paths.get(&first);
    view.active_paths().filter(move |other| {
        let on_another = first_path.is_none_or(|first| !first.shares_link(other));
        other.id() != first && on_another && !other.policy.metered
    })
}

/// Whether what goes over `path` may well be late: it has lost or stalled lately, or is too young for anybody to know.
///
/// On a path that delivers what it takes the second copy of small talk would be all that the race brings.
pub(super) fn is_doubtful(path: &Path, view: &View<'_>) -> bool {
    let age = view.now.saturating_sub(path.joined());
    !path.is_proven() || age < KNOWN_AFTER * path.srtt() || path.unreliability(view.now) > DOUBT
}

/// Bytes of `stream` that `path` may repeat now; nothing while that is no segment, since crumbs cost more than they carry.
/// A metered path has no budget to race with, and still carries what another one failed to deliver.
fn budget_of(stream: &Stream, path: &Path, view: &View<'_>) -> u64 {
    let budget = if is_urgent(stream) && !path.policy.metered {
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

/// Whether what `path` owes is late, and there is nothing else that its receiver could use meanwhile.
fn is_waited_for(path: &Path, view: &View<'_>) -> bool {
    let oldest = path.late_flight(view.now).or(path.flights().next());
    path.is_late(view.now)
        && oldest.is_some_and(|flight| view.stream(flight.stream).is_some_and(is_urgent))
}

/// While there is more to come the receiver keeps what comes behind a gap; at the end, and of speech, it waits.
fn is_urgent(stream: &Stream) -> bool {
    stream.class() == Class::Conversational || stream.unsent().is_empty()
}

/// The lowest bytes of wanted streams under way on another path that would arrive sooner over this one.
///
/// Only what is predicted to be late by more than the repetition takes is repeated, each piece once, and nothing that is at the
/// peer already. A piece is late
/// when its own estimate has passed by more than a trip over this path takes, or is still further away than that.
pub(super) fn late_bytes(
    path: &Path,
    is_wanted: impl Fn(&Stream) -> bool,
    view: &View<'_>,
) -> Option<(StreamId, Range<u64>)> {
    let trip = path.likely_delay() + Duration::from_secs_f64(piece(path) as f64 / path.rate());
    let mut best: Option<(StreamId, Range<u64>)> = None;
    // Bytes that cost money are not spent on what another path is only late with.
    let may_repeat = |other: &&Path| !path.policy.metered || other.may_have_failed(view.now);
    for other in others(path, view).filter(may_repeat) {
        // A carrier delivers in order: what is behind something late is as late as that.
        let oldest = other.first_on_its_way();
        let oldest = oldest.filter(|_| other.is_late(view.now));
        let behind = oldest.map_or(Duration::ZERO, |oldest| {
            view.now.saturating_sub(oldest.expected_at)
        });
        let is_late = |flight: &Flight| {
            if other.has_acknowledged(flight.record_end) {
                return view.now >= other.late_at(flight);
            }
            flight.expected_at + behind > view.now + trip + REPORT_SLACK
                || view.now >= flight.expected_at + flight.patience.max(trip)
        };
        for flight in other.flights().filter(|flight| !flight.repeated) {
            let place = (flight.stream, flight.range.start);
            if !is_late(flight) || best.as_ref().is_some_and(|(s, r)| (*s, r.start) <= place) {
                continue;
            }
            let stream = view.stream(flight.stream);
            let Some(stream) = stream.filter(|stream| is_wanted(stream)) else {
                continue;
            };
            let missing = stream.unacknowledged(flight.range.clone());
            if let Some(missing) = missing.into_iter().next() {
                best = Some((flight.stream, missing));
            }
        }
    }
    best
}
