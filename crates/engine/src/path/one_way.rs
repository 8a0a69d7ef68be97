//! The share of a round trip that the forward direction takes.
//!
//! TCP measures round trips. Half of one is the best estimate of the delay to the peer while
//! nothing else is known. It is wrong if a detour or another queue exists in one direction only.
//! With 500 ms of a round trip in the direction of the data, each piece would be a quarter of a
//! second late and would be duplicated over another path although nothing is wrong.
//!
//! The peer's reports give a better estimate. They return over the fastest path, in a time known to
//! within half of its round trip. The rest of the time between handing data over and its report is
//! the delay to the peer, the wait before it, and the few milliseconds for which reports are
//! collected. The minimum of many contains only the first and a little of the last.

use std::time::Duration;

use super::{Path, REPORT_SLACK};

/// The lowest observed delay to the peer.
#[derive(Debug, Default)]
pub(super) struct OneWay(Option<Measured>);

#[derive(Clone, Copy, Debug)]
struct Measured {
    took: Duration,
    /// Assumed delay of the report: a measurement with a shorter return delay is more accurate.
    back: Duration,
    /// The lowest round trip since then.
    min_rtt: Duration,
}

impl OneWay {
    fn note(&mut self, new: Measured) {
        let kept = self.0.filter(|known| {
            // TCP has forgotten the route of this measurement: its lowest round trip has risen.
            let is_gone = new.min_rtt > known.min_rtt + REPORT_SLACK;
            !is_gone && known.back <= new.back + REPORT_SLACK
        });
        let Some(known) = kept else {
            self.0 = Some(new);
            return;
        };
        let min_rtt = known.min_rtt.min(new.min_rtt);
        let is_as_good = new.back <= known.back + REPORT_SLACK;
        let least = match is_as_good && new.took < known.took {
            true => new,
            false => known,
        };
        self.0 = Some(Measured { min_rtt, ..least });
    }

    /// How much the delay to the peer exceeds half of the lowest round trip. Zero unless that is
    /// more than the delay of reports; at most the other half.
    fn beyond_half(&self, min_rtt: Duration) -> Duration {
        let half = min_rtt / 2;
        let took = self.0.map(|measured| measured.took);
        let beyond = took.unwrap_or_default().saturating_sub(half);
        match beyond > REPORT_SLACK {
            true => beyond.min(half),
            false => Duration::ZERO,
        }
    }
}

impl Path {
    /// How much the delay to the peer exceeds half of the lowest round trip, according to its
    /// reports.
    pub fn beyond_half(&self) -> Duration {
        self.delays.one_way.beyond_half(self.sample.min_rtt)
    }

    /// The peer has just reported data that was handed over `since` ago, and nothing that was
    /// handed over later.
    pub(crate) fn note_one_way(&mut self, since: Duration) {
        let min_rtt = self.sample.min_rtt;
        if min_rtt.is_zero() {
            return;
        }
        let back = self.delays.report_min_trip.unwrap_or(min_rtt / 2);
        let before = self.beyond_half();
        self.delays.one_way.note(Measured {
            took: since.saturating_sub(back),
            back,
            min_rtt,
        });
        if self.beyond_half() != before {
            self.update_delays();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathSample;
    use crate::{Instant, PathId};

    const MS: Duration = Duration::from_millis(1);

    /// A path with a lowest round trip of 500 ms; its reports return within 2 ms over another
    /// one.
    fn path() -> Path {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        path.outbound.sent = 1_000_000;
        path.delays.report_min_trip = Some(2 * MS);
        path.update(sample(500), Instant::ZERO);
        path
    }

    fn sample(min_rtt: u32) -> PathSample {
        PathSample {
            srtt: min_rtt * MS,
            min_rtt: min_rtt * MS,
            delivery_rate: 10_000_000,
            ..PathSample::default()
        }
    }

    #[test]
    fn half_a_round_trip_is_assumed_until_reports_show_more() {
        let mut path = path();
        assert_eq!(path.delay(), 250 * MS);
        // Half a round trip plus the delay of reports changes nothing.
        path.note_one_way(267 * MS);
        assert_eq!((path.delay(), path.queued_delay()), (250 * MS, 250 * MS));
        let mut path = self::path();
        path.note_one_way(268 * MS);
        assert_eq!((path.delay(), path.queued_delay()), (266 * MS, 266 * MS));
    }

    #[test]
    fn reports_reveal_a_detour_in_the_direction_of_the_data() {
        let mut path = path();
        path.note_one_way(502 * MS);
        assert_eq!((path.delay(), path.queued_delay()), (500 * MS, 500 * MS));
    }

    #[test]
    fn the_lowest_value_counts_up_to_the_round_trip() {
        let mut path = path();
        for (since, beyond) in [(2000, 250), (402, 150), (502, 150), (352, 100), (265, 0)] {
            path.note_one_way(since * MS);
            assert_eq!(path.beyond_half(), beyond * MS, "{since} ms");
        }
        // Also as soon as TCP measures a shorter one.
        let mut path = self::path();
        path.note_one_way(502 * MS);
        path.update(sample(100), Instant::ZERO);
        assert_eq!(path.delay(), 100 * MS);
    }

    #[test]
    fn it_is_forgotten_when_the_lowest_round_trip_rises() {
        let mut path = path();
        path.note_one_way(262 * MS);
        // A slightly higher value is noise.
        path.update(sample(510), Instant::ZERO);
        path.note_one_way(502 * MS);
        assert_eq!(path.beyond_half(), Duration::ZERO);
        path.update(sample(800), Instant::ZERO);
        path.note_one_way(702 * MS);
        assert_eq!(path.delay(), 700 * MS);
        // A value below the previous one is no reason to forget the route.
        path.update(sample(790), Instant::ZERO);
        path.note_one_way(752 * MS);
        assert_eq!(path.delay(), 700 * MS);
    }

    /// While the fast path is gone, reports return over the slow one, of which only half of the
    /// round trip is known to be the return delay.
    #[test]
    fn a_measurement_with_a_shorter_return_is_kept() {
        let mut path = path();
        path.delays.report_min_trip = None;
        path.note_one_way(502 * MS);
        assert_eq!(path.delay(), 250 * MS);
        path.delays.report_min_trip = Some(2 * MS);
        path.note_one_way(502 * MS);
        assert_eq!(path.delay(), 500 * MS);
        path.delays.report_min_trip = None;
        path.note_one_way(502 * MS);
        assert_eq!(path.delay(), 500 * MS);
    }

    #[test]
    fn no_estimate_without_a_lowest_round_trip() {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        path.note_one_way(Duration::from_secs(9));
        assert_eq!(path.beyond_half(), Duration::ZERO);
    }
}
