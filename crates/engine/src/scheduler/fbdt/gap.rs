//! Duplicates that are worth sending before new data: bytes whose absence forces the receiver to
//! use more reorder memory than it must.
//!
//! A loss on a slow path holds back the data that faster paths deliver meanwhile, and so does each
//! piece that the slow path took after it. Such bytes are worth more than new ones, which only add
//! to the reorder memory. The thesis does not cover this: there, redundancy is for the last bytes
//! of an object.

use std::ops::Range;

use super::memory::{round_trip, usual_memory};
use super::repeat::{SEGMENT, Searches, late_bytes, others};
use crate::path::Path;
use crate::scheduler::{Pick, View};
use crate::stream::Stream;

/// Gaps are closed only if TCP has not repaired them within this many round trips after their
/// expected arrival: TCP's own first repair takes one, and arrives as soon as any data sent now.
const REPAIR: f64 = 1.5;

// A suspect path gets no such patience in either respect: it is unknown whether its data still
// arrives.

/// The search for gaps.
#[derive(Debug, Default)]
pub(super) struct Gaps(Searches);

impl Gaps {
    /// Late bytes of another path that `path` should carry before new ones.
    pub(super) fn close(&mut self, path: &Path, view: &View<'_>) -> Option<Pick> {
        let search = || find(path, view);
        self.0.unless_recent(path.id(), view.now, search)
    }

    /// A path joined, left, stalled or recovered.
    pub(super) fn paths_changed(&mut self) {
        self.0.paths_changed();
    }
}

fn find(path: &Path, view: &View<'_>) -> Option<Pick> {
    let oldest = others(path, view).filter(|other| other.is_late(view.now));
    let oldest = oldest.filter_map(|other| {
        let oldest = other.late_flight(view.now).or(other.flights().next())?;
        let repaired_at = oldest.expected_at + round_trip(other, view).mul_f64(REPAIR);
        let is_suspect = other.is_suspect(view.now);
        let stream = view.stream(oldest.stream)?;
        (is_suspect || view.now >= repaired_at).then_some((stream, is_suspect))
    });
    let mut oldest = oldest.peekable();
    oldest.peek()?;
    let kept = usual_memory(view);
    // The data of a suspect path will hardly arrive, however little waits behind it.
    let is_worth = |(stream, is_suspect): &(&Stream, bool)| {
        stream.held_back() > if *is_suspect { 0 } else { kept }
    };
    let (held, _) = oldest.find(is_worth)?;
    let budget = view.gap_budget();
    if budget < SEGMENT {
        return None;
    }
    let (stream, range) = late_bytes(path, |stream| stream.id() == held.id(), view)?;
    // The reader does not wait for these bytes while earlier ones are unsent; those come first.
    let is_unsent_before = |unsent: &Range<u64>| unsent.start < range.start;
    if held.unsent().first().as_ref().is_some_and(is_unsent_before) {
        return None;
    }
    let range = range.start..range.end.min(range.start + budget);
    Some(Pick::Repeat { stream, range })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Fbdt;
    use crate::scheduler::fixture::Fixture;
    use crate::scheduler::{Pick, Scheduler};
    use crate::{PathId, pages::Spare};

    const BUDGET: u64 = 10_000;

    const LATE: Duration = Duration::from_millis(50);

    /// A fast path and a slow one of `rtt` milliseconds. The slow one took the first 20,000 bytes
    /// and is `late` with them, and the receiver keeps `kept` bytes behind them.
    fn late_with_the_first_bytes(rtt: u64, late: Duration, kept: u64) -> (Fixture, Fbdt) {
        let (mut fixture, fbdt) = (Fixture::new(&[(320.0, 10), (32.0, rtt)]), Fbdt::default());
        fixture.write(0, 10_000_000);
        fixture.take(1, 0, 0..20_000);
        let trip = Duration::from_millis(rtt) / 2;
        let flights = &mut fixture.paths.get_mut(&PathId(1)).unwrap().outbound.flights;
        flights[0].expected_at = flights[0].sent_at + trip;
        flights[0].round_trip = 2 * trip;
        fixture.take(0, 0, 20_000..20_000 + kept);
        let flights = &mut fixture.paths.get_mut(&PathId(0)).unwrap().outbound.flights;
        flights.clear();
        let stream = fixture.streams.get_mut(&0).unwrap();
        let spare = &mut Spare::default();
        stream.send.acknowledge(20_000..20_000 + kept, spare);
        let oldest = fixture.paths[&PathId(1)].flights().next();
        fixture.now = oldest.unwrap().expected_at + late;
        (fixture, fbdt)
    }

    fn first_pick(fixture: &mut Fixture, fbdt: &mut Fbdt) -> Pick {
        fixture.view(|view| fbdt.pick(PathId(0), BUDGET, view))
    }

    #[test]
    fn a_gap_that_holds_back_many_bytes_is_closed_before_new_bytes() {
        // 352 Mbit/s carry 440 000 bytes in 10 ms.
        let (mut fixture, mut fbdt) = late_with_the_first_bytes(10, LATE, 600_000);
        fixture.repeat_budget = 100_000;
        let gap = first_pick(&mut fixture, &mut fbdt);
        assert_eq!(
            gap,
            Pick::Repeat {
                stream: 0,
                range: 0..20_000
            }
        );
        let (mut fixture, mut fbdt) = late_with_the_first_bytes(10, LATE, 520_000);
        fixture.repeat_budget = 100_000;
        let new = first_pick(&mut fixture, &mut fbdt);
        assert!(matches!(new, Pick::Send { .. }), "{new:?}");
    }

    #[test]
    fn losses_that_tcp_may_still_repair_are_not_duplicated() {
        for (late, is_repeated) in [(149, false), (150, true), (200, true)] {
            let by = Duration::from_millis(late);
            let (mut fixture, mut fbdt) = late_with_the_first_bytes(100, by, 6_000_000);
            fixture.repeat_budget = 100_000;
            assert!(fixture.paths[&PathId(1)].is_late(fixture.now), "{late} ms");
            let pick = first_pick(&mut fixture, &mut fbdt);
            let is_repeat = matches!(pick, Pick::Repeat { .. });
            assert_eq!(is_repeat, is_repeated, "{late} ms late: {pick:?}");
        }
    }

    #[test]
    fn a_path_that_has_slowed_down_gets_no_more_patience() {
        let by = Duration::from_millis(150);
        // Up to 1.25 times the bytes that 352 Mbit/s carry in 100 ms are kept anyway.
        for (kept, is_repeated) in [(5_000_000, false), (6_000_000, true)] {
            let (mut fixture, mut fbdt) = late_with_the_first_bytes(100, by, kept);
            fixture.repeat_budget = 100_000;
            fixture.change(1, |sample| {
                sample.srtt = Duration::from_secs(3);
                sample.rttvar = Duration::from_secs(1);
            });
            let pick = first_pick(&mut fixture, &mut fbdt);
            let is_repeat = matches!(pick, Pick::Repeat { .. });
            assert_eq!(is_repeat, is_repeated, "{kept}: {pick:?}");
        }
    }

    #[test]
    fn unsent_bytes_before_a_gap_come_first() {
        let (mut fixture, mut fbdt) = late_with_the_first_bytes(10, LATE, 600_000);
        fixture.repeat_budget = 100_000;
        let path = fixture.paths.get_mut(&PathId(1)).unwrap();
        path.outbound.flights[0].range = 10_000..20_000;
        let stream = fixture.streams.get_mut(&0).unwrap();
        stream.send.requeue(0..10_000);
        let new = first_pick(&mut fixture, &mut fbdt);
        assert!(matches!(new, Pick::Send { .. }), "{new:?}");
        // Not while it is in flight: then the reader waits for the gap next.
        fixture.take(0, 0, 0..10_000);
        fixture.now += super::super::repeat::LOOK_INTERVAL;
        let gap = first_pick(&mut fixture, &mut fbdt);
        let range = 10_000..20_000;
        assert_eq!(gap, Pick::Repeat { stream: 0, range });
    }

    #[test]
    fn gaps_are_closed_within_the_advance() {
        let (mut fixture, mut fbdt) = late_with_the_first_bytes(10, LATE, 600_000);
        let new = first_pick(&mut fixture, &mut fbdt);
        assert!(matches!(new, Pick::Send { .. }), "no budget: {new:?}");
        // The bytes that 352 Mbit/s carry in a quarter of a millisecond.
        let (mut fixture, mut fbdt) = late_with_the_first_bytes(10, LATE, 600_000);
        fixture.advance = Duration::from_micros(250);
        assert_eq!(
            first_pick(&mut fixture, &mut fbdt),
            Pick::Repeat {
                stream: 0,
                range: 0..11_000
            }
        );
    }
}
