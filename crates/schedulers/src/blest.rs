//! BLEST, blocking estimation: a slower path is left idle if its bytes would block the send window
//! for the fastest one.
//!
//! Source: Ferlin, Alay, Mehani and Boreli, "BLEST: Blocking estimation-based MPTCP scheduler for
//! heterogeneous networks", IFIP Networking 2016, as implemented in `net/mptcp/mptcp_blest.c` of
//! Linux MPTCP 0.95. The default scheduler (`minrtt.rs`) chooses a path. If that is not the fastest
//! one, its bytes occupy the window for as long as they linger. The window must then still have
//! space for everything that the fastest path can send in that time.

use std::collections::BTreeMap;
use std::time::Duration;

use sumlink_engine::scheduler::subflow::{DefaultRule, fastest};
use sumlink_engine::scheduler::{Pick, Scheduler, View, lowest_unsent};
use sumlink_engine::{Instant, Path, PathId};

/// BLEST.
#[derive(Debug)]
pub struct Blest {
    subflows: DefaultRule,
    /// Lowest and highest smoothed round-trip time of each path so far.
    extremes: BTreeMap<PathId, (Duration, Duration)>,
    /// Scales the expected bytes of the fastest path.
    lambda: f64,
    /// Time at which `lambda` was last adapted.
    adapted: Instant,
    /// The window has been full since then.
    was_blocked: bool,
}

/// Initial value and steps of lambda, once per lowest round trip of the slower path: up by
/// `LAMBDA_BAD` if the window was full, which is when an opportunistic retransmission is needed,
/// and otherwise down by `LAMBDA_GOOD`.
const LAMBDA: f64 = 1.2;
const LAMBDA_MIN: f64 = 1.0;
const LAMBDA_MAX: f64 = 1.3;
const LAMBDA_BAD: f64 = 0.04;
const LAMBDA_GOOD: f64 = 0.01;

/// Most doublings of the window that are expected of a path in slow start.
const MAX_DOUBLINGS: f64 = 16.0;

impl Default for Blest {
    fn default() -> Self {
        Self {
            subflows: DefaultRule::default(),
            extremes: BTreeMap::new(),
            lambda: LAMBDA,
            adapted: Instant::ZERO,
            was_blocked: false,
        }
    }
}

impl Scheduler for Blest {
    fn name(&self) -> &'static str {
        "blest"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        self.note_extremes(view);
        let (Some(slow), Some(fast)) = (view.path(path), fastest(view)) else {
            return Pick::Idle;
        };
        if self.subflows.choose(slow, view) != Some(path) {
            return Pick::Idle;
        }
        if path != fast.id() {
            self.adapt(slow, view.now);
            if self.would_block(slow, fast, budget, view) {
                return Pick::Idle;
            }
        }
        let pick = self.subflows.send(slow, budget, view);
        self.was_blocked |= self.subflows.take_was_full();
        pick
    }

    fn paths_changed(&mut self) {
        self.subflows.paths_changed();
    }
}

impl Blest {
    /// Whether bytes on `slow` would occupy space in the send window that `fast` needs while they
    /// linger.
    fn would_block(&self, slow: &Path, fast: &Path, budget: u64, view: &View<'_>) -> bool {
        let len = match lowest_unsent(view, budget) {
            Pick::Send { range, .. } => range.end - range.start,
            _ => slow.mss(),
        };
        // The paper has one connection with one window. Here the fast path may send from every
        // ready stream, so the windows of all of these count, and their bytes on the slow path.
        let windows = view.ready_streams().map(|stream| view.send_window(stream));
        let Some(window) = windows.reduce(u64::saturating_add) else {
            return false;
        };
        // BLEST, eq. 2 and 3: X = packets * mss * lambda, and send iff X <= |M| - (bytes on the
        // slow path)
        let room = window.saturating_sub(len + on_path(slow, view));
        self.bytes_of(fast, self.linger(slow, view), view.now) > room as f64
    }

    /// How long a segment on the asking `path` occupies the window.
    fn linger(&self, path: &Path, view: &View<'_>) -> Duration {
        let (least, most) = self.extremes_of(path);
        let mss = path.mss();
        // Linux 0.95, blestsched_estimate_linger_time: the srtt grows as the window fills
        let (flying, window) = (
            (path.sample().in_flight + view.handed()) / mss + 1,
            self.window(path, view.now) / mss,
        );
        let estimate = if flying >= window {
            most
        } else {
            least + (most - least).mul_f64(flying as f64 / window as f64)
        };
        estimate.max(path.srtt())
    }

    /// Bytes that `path` can send within `time`, scaled by lambda.
    fn bytes_of(&self, path: &Path, time: Duration, now: Instant) -> f64 {
        let (least, most) = self.extremes_of(path);
        let mss = path.mss() as f64;
        let window = self.window(path, now) as f64 / mss;
        // Linux 0.95, blestsched_estimate_bytes
        let rounds = (time.as_secs_f64() / ((least + most) / 2).as_secs_f64()).floor() + 1.0;
        let packets = match path.sample().ssthresh {
            // slow start: cwnd + 2 cwnd + 4 cwnd + ...
            None => window * (rounds.min(MAX_DOUBLINGS).exp2() - 1.0),
            // congestion avoidance: one more segment in each round
            Some(ssthresh) => {
                let window = window.max(ssthresh as f64 / mss + 1.0);
                (window + (rounds - 1.0) / 2.0) * rounds
            }
        };
        packets * mss * self.lambda
    }

    /// The congestion window after penalties.
    fn window(&self, path: &Path, now: Instant) -> u64 {
        self.subflows.window(path, now)
    }

    fn adapt(&mut self, slow: &Path, now: Instant) {
        if now < self.adapted + self.extremes_of(slow).0 {
            return;
        }
        self.adapted = now;
        let step = match std::mem::take(&mut self.was_blocked) {
            true => LAMBDA_BAD,
            false => -LAMBDA_GOOD,
        };
        self.lambda = (self.lambda + step).clamp(LAMBDA_MIN, LAMBDA_MAX);
    }

    fn note_extremes(&mut self, view: &View<'_>) {
        self.extremes.retain(|id, _| view.path(*id).is_some());
        for path in view.active_paths() {
            let srtt = path.srtt();
            let (least, most) = self.extremes.entry(path.id()).or_insert((srtt, srtt));
            (*least, *most) = (srtt.min(*least), srtt.max(*most));
        }
    }

    fn extremes_of(&self, path: &Path) -> (Duration, Duration) {
        let known = self.extremes.get(&path.id()).copied();
        known.unwrap_or((path.srtt(), path.srtt()))
    }
}

/// Bytes of ready streams that wait or are in flight on `path`.
fn on_path(path: &Path, view: &View<'_>) -> u64 {
    if view.all_streams().nth(1).is_none() {
        return path.sample().in_flight + path.sample().unsent;
    }
    let is_ready = |id| view.stream(id).is_some_and(|s| !s.unsent().is_empty());
    let flights = path.flights().filter(|flight| is_ready(flight.stream));
    flights.map(|f| f.range.end - f.range.start).sum()
}

#[cfg(test)]
mod tests {
    use sumlink_engine::scheduler::minrtt::MinRtt;
    use sumlink_engine::testing::Fixture;

    use super::*;

    const BUDGET: u64 = 10_000;

    /// The fast path's window is full, the slow path has space, and the peer permits `window`
    /// bytes.
    fn busy(window: u64) -> Fixture {
        let mut fixture = Fixture::new(&[(80.0, 10), (8.0, 100)]);
        fixture.write(0, 1_000_000);
        fixture.limit(0, window);
        fixture.change(0, |sample| {
            (sample.in_flight, sample.ssthresh) = (sample.cwnd, Some(sample.cwnd));
        });
        fixture
    }

    #[test]
    fn it_waits_where_minrtt_does_not() {
        // In 100 ms the fast path sends eleven windows: (147 + 1 + 5) packets in each, with lambda
        // 1.19.
        for (window, waits) in [(500_000, true), (2_000_000, true), (3_600_000, false)] {
            let sends =
                |scheduler: &mut dyn Scheduler| busy(window).send(scheduler, 1, BUDGET).is_some();
            assert!(sends(&mut MinRtt::default()), "{window}");
            assert_eq!(sends(&mut Blest::default()), !waits, "{window}");
        }
    }

    #[test]
    fn bytes_and_windows_of_the_same_streams_are_compared() {
        let waits =
            |fixture: &mut Fixture| fixture.send(&mut Blest::default(), 1, BUDGET).is_none();
        assert!(
            !waits(&mut busy(3_600_000)),
            "the window suffices for the path alone"
        );
        // Another stream's bytes on the slow path do not count if it has nothing else to send ...
        let mut fixture = busy(3_600_000);
        fixture.write(2, 2_000_000);
        fixture.take(1, 2, 0..2_000_000);
        fixture.change(1, |sample| sample.in_flight = 80_000);
        assert!(!waits(&mut fixture));
        // ... and the fast path can use the windows of several streams together.
        let mut fixture = busy(1_800_000);
        assert!(waits(&mut fixture));
        fixture.write(2, 1_000_000);
        fixture.limit(2, 1_800_000);
        assert!(!waits(&mut fixture));
        fixture.take(1, 2, 100_000..900_000);
        fixture.change(1, |sample| sample.in_flight = 0);
        assert!(waits(&mut fixture), "800 kB linger");
    }

    #[test]
    fn the_bytes_that_must_fit_are_those_of_the_equation() {
        let fixture = busy(1 << 30);
        let fast = fixture.path(0);
        let blest = Blest::default();
        let packets = fast.cwnd() as f64 / 1448.0 + 1.0;
        let expected = (packets + 5.0) * 11.0 * 1448.0 * 1.2;
        let bytes = blest.bytes_of(fast, Duration::from_millis(100), fixture.now);
        assert!((bytes - expected).abs() < 1.0, "{bytes} {expected}");
        let mut fixture = busy(1 << 30);
        fixture.change(0, |sample| sample.ssthresh = None);
        let fast = fixture.path(0);
        let bytes = blest.bytes_of(fast, Duration::from_millis(25), fixture.now);
        assert!((bytes - fast.cwnd() as f64 * 7.0 * 1.2).abs() < 1.0);
        // At most sixteen doublings: no overflow, however slow the other path is.
        let ages = blest.bytes_of(fast, Duration::from_secs(1_000_000), fixture.now);
        assert!((ages - fast.cwnd() as f64 * 65_535.0 * 1.2).abs() < 1e3);
    }

    #[test]
    fn a_segment_lingers_longer_the_fuller_the_window_is() {
        let (mut fixture, mut blest) = (busy(1 << 30), Blest::default());
        for ms in [100, 300, 120] {
            fixture.change(1, |sample| sample.srtt = Duration::from_millis(ms));
            fixture.view(|view| blest.note_extremes(view));
        }
        let linger = |fixture: &Fixture| {
            let path = fixture.path(1);
            fixture.view(|view| blest.linger(path, view).as_millis())
        };
        assert_eq!(linger(&fixture), 120, "at least the srtt");
        let half = fixture.path(1).cwnd() / 2;
        fixture.handed = half;
        let handed = linger(&fixture);
        fixture.handed = 0;
        fixture.change(1, |sample| sample.in_flight = half);
        assert_eq!(linger(&fixture), handed, "handed over or in flight");
        assert!(
            (199..=202).contains(&linger(&fixture)),
            "{}",
            linger(&fixture)
        );
        fixture.change(1, |sample| sample.in_flight = sample.cwnd);
        assert_eq!(linger(&fixture), 300);
    }

    #[test]
    fn lambda_moves_once_a_round_trip_within_its_bounds() {
        let (mut fixture, mut blest) = (busy(1 << 30), Blest::default());
        let mut after = |blest: &mut Blest, blocked: bool, times: u64| {
            for _ in 0..times {
                blest.was_blocked = blocked;
                fixture.now += Duration::from_millis(50);
                fixture.view(|view| blest.adapt(view.path(PathId(1)).unwrap(), view.now));
            }
            (blest.lambda * 1000.0).round()
        };
        assert_eq!(
            after(&mut blest, false, 2),
            1190.0,
            "half a round trip does not count"
        );
        assert_eq!(after(&mut blest, false, 100), 1000.0);
        assert_eq!(after(&mut blest, true, 2), 1040.0);
        assert_eq!(after(&mut blest, true, 100), 1300.0);
    }
}
