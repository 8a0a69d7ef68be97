//! L-RTT: fills the queue of the link with the shortest last hop first.
//!
//! Source: the LWIP paper in docs/algorithms.md, section III-A. Its node steers packets into the
//! queues of LTE and Wi-Fi by the delay of the last hop alone, not of the whole path. An end host
//! cannot measure that hop separately. Its delay is approximated by the link's own part of the
//! round trip: the time of a segment on the link, plus the excess over the lowest round trip, which
//! is the wait at the bottleneck. Unlike in `minrtt.rs`, propagation drops out. A queue is full
//! when the carrier accepts no more or the window has no space.

use std::time::Duration;

use sumlink_engine::scheduler::subflow::candidates;
use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View, lowest_unsent};
use sumlink_engine::{Path, PathId};

/// L-RTT.
#[derive(Debug, Default)]
pub struct LRtt;

impl Scheduler for LRtt {
    fn name(&self) -> &'static str {
        "lrtt"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let best = view.path(path).and_then(|asking| {
            candidates(asking, view).min_by_key(|path| (last_hop(path), path.srtt(), path.id()))
        });
        match best {
            Some(best) if best.id() == path => lowest_unsent(view, budget),
            _ => Pick::Idle,
        }
    }

    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Nothing
    }
}

/// The link's own part of the round trip.
fn last_hop(path: &Path) -> Duration {
    // LWIP paper, III-A: the delay of the last hop; read as mss / rate + (srtt - min_rtt)
    let segment = Duration::from_secs_f64((path.mss() as f64 / path.rate()).min(3600.0));
    // Without a lowest round trip the propagation part is unknown.
    let waiting = path.srtt().saturating_sub(path.sample().min_rtt);
    segment + waiting
}

#[cfg(test)]
mod tests {
    use sumlink_engine::scheduler::minrtt::MinRtt;
    use sumlink_engine::testing::Fixture;

    use super::*;

    /// Two paths of 80 Mbit/s: one with little propagation delay and a long queue, one with a high
    /// propagation delay and no queue.
    fn fixture() -> Fixture {
        let mut fixture = Fixture::new(&[(80.0, 20), (80.0, 50)]);
        fixture.write(0, 60_000);
        fixture.change(0, |sample| sample.min_rtt = Duration::from_millis(5));
        fixture.change(1, |sample| sample.min_rtt = Duration::from_millis(48));
        fixture
    }

    #[test]
    fn only_the_last_hop_counts() {
        let fixture = fixture();
        let sends = |scheduler: &mut dyn Scheduler, path: u32| {
            fixture.ask(scheduler, path, 10_000) != Pick::Idle
        };
        assert_eq!((sends(&mut LRtt, 0), sends(&mut LRtt, 1)), (false, true));
        let minrtt = || MinRtt::default();
        assert!(sends(&mut minrtt(), 0) && !sends(&mut minrtt(), 1));
    }

    #[test]
    fn the_other_queue_gets_a_packet_when_the_first_is_full() {
        let mut fixture = fixture();
        fixture.change(1, |sample| sample.in_flight = sample.cwnd);
        assert_eq!(fixture.send(&mut LRtt, 0, 10_000), Some(0..10_000));
    }

    #[test]
    fn without_a_lowest_round_trip_the_whole_srtt_counts() {
        let mut fixture = fixture();
        fixture.change(1, |sample| sample.min_rtt = Duration::ZERO);
        assert_eq!(fixture.send(&mut LRtt, 0, 10_000), Some(0..10_000));
    }
}
