//! Common parts of the schedulers of the out-of-tree Linux MPTCP 0.95: which paths have space,
//! which of them the default scheduler chooses, and the reaction to a full window.
//!
//! Source: `net/mptcp/mptcp_sched.c` of that kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Pick, View, lowest_unsent};
use crate::path::{LossState, Path};
use crate::stream::Stream;
use crate::{Instant, PathId};

/// Whether a path that does not ask could take a segment now.
///
/// Linux 0.95, mptcp_is_temp_unavailable: not in loss recovery after a timeout, infl < cwnd, and
/// the unsent bytes fit into the rest of the window. It also skips a subflow that TCP small queues
/// throttle; here that is a path with a carrier that accepts no data now. Otherwise a paced path,
/// which never fills its window, would keep all slower ones idle forever.
pub fn is_available(path: &Path) -> bool {
    let sample = path.sample();
    !sample.full
        && !path.has_max_flights()
        && sample.loss != LossState::Timeout
        && sample.in_flight < path.cwnd()
        && sample.unsent <= path.cwnd() - sample.in_flight
}

/// The paths that could take the next segment: `asking`, which has space in its carrier, and others
/// with space.
///
/// The asking path's own window is not checked: its carrier accepts no more than TCP sends soon,
/// and nothing would trigger another request when the window opens. A path in loss recovery after a
/// timeout is refused as long as another one is not.
pub fn candidates<'a>(asking: &Path, view: &View<'a>) -> impl Iterator<Item = &'a Path> + use<'a> {
    let id = asking.id();
    let timed_out = |path: &Path| path.sample().loss == LossState::Timeout;
    let all_timed_out = view.active_paths().all(timed_out);
    view.active_paths()
        .filter(move |path| match path.id() == id {
            true => all_timed_out || !timed_out(path),
            false => is_available(path),
        })
}

/// The delivering path with the lowest smoothed round-trip time.
pub fn fastest<'a>(view: &View<'a>) -> Option<&'a Path> {
    view.active_paths()
        .min_by_key(|path| (path.srtt(), path.id()))
}

/// The default scheduler: the choice of the path, and opportunistic retransmission with
/// penalization.
#[derive(Debug, Default)]
pub struct DefaultRule {
    /// Limits on the paths' data in flight, from penalties.
    caps: BTreeMap<PathId, Cap>,
    /// Time at which each path last penalized others.
    penalized: BTreeMap<PathId, Instant>,
    /// Time of each path's last fruitless search for the head of a full window.
    looked: BTreeMap<PathId, Instant>,
    /// The window has been full since this was last read.
    was_full: bool,
}

/// The congestion window after a penalty.
///
/// The kernel halves the window itself. A program cannot change a kernel socket's window, so the
/// engine keeps the halved one as a limit on the path's data in flight. It grows as a window does
/// in congestion avoidance, by a segment each round trip, and ends when it reaches the real one.
#[derive(Clone, Copy, Debug)]
struct Cap {
    bytes: u64,
    since: Instant,
}

/// Interval between searches of a path that found nothing to retransmit: a search examines all data
/// in flight.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

impl DefaultRule {
    /// The path to which the rule gives the next segment, when `asking` has space.
    pub fn choose(&mut self, asking: &Path, view: &View<'_>) -> Option<PathId> {
        self.caps
            .retain(|id, cap| view.path(*id).is_some_and(|path| cap.binds(path, view.now)));
        // Linux 0.95, get_subflow_from_selectors: the lowest srtt among the available.
        candidates(asking, view)
            .filter(|path| self.budget(path, asking, view) > 0)
            .min_by_key(|path| (path.srtt(), path.id()))
            .map(Path::id)
    }

    /// The pick for `asking`, which was chosen: the next segment, or the head of a full window.
    pub fn send(&mut self, asking: &Path, budget: u64, view: &View<'_>) -> Pick {
        match lowest_unsent(view, budget.min(self.budget(asking, asking, view))) {
            Pick::Idle => self.unblock(asking, budget, view).unwrap_or(Pick::Idle),
            send => send,
        }
    }

    /// Whether the window has been full since the last call.
    pub fn take_was_full(&mut self) -> bool {
        std::mem::take(&mut self.was_full)
    }

    /// Penalizes `path`: halves its window.
    pub fn halve(&mut self, path: &Path, now: Instant) {
        let cap = Cap {
            bytes: (self.window(path, now) / 2).max(path.mss()),
            since: now,
        };
        self.caps.insert(path.id(), cap);
    }

    /// Forgets paths that have ended.
    pub fn paths_changed(&mut self) {
        self.looked.clear();
    }

    /// The congestion window after penalties.
    pub fn window(&self, path: &Path, now: Instant) -> u64 {
        let cap = self.caps.get(&path.id()).map(|cap| cap.at(path, now));
        cap.map_or(path.cwnd(), |cap| cap.min(path.cwnd()))
    }

    /// Bytes that penalties permit a path beyond those it has in flight. For the asking path this
    /// also excludes the bytes handed to it since its sample was taken.
    fn budget(&self, path: &Path, asking: &Path, view: &View<'_>) -> u64 {
        let sample = path.sample();
        let handed = view.handed_to(path, asking.id());
        match self.caps.get(&path.id()) {
            Some(cap) => cap
                .at(path, view.now)
                .saturating_sub(sample.in_flight + sample.unsent + handed),
            None => u64::MAX,
        }
    }

    /// Opportunistic retransmission and penalization (Raiciu et al., NSDI 2012, section 4.2; Linux
    /// 0.95, mptcp_rcv_buf_optimization): `asking` has space and the stream's window has none,
    /// because a slower path holds its first byte. That path's window is halved, and the byte is
    /// sent here.
    fn unblock(&mut self, asking: &Path, budget: u64, view: &View<'_>) -> Option<Pick> {
        // The peer's window is full, or the send buffer is full and a program waits for space in
        // it.
        let stream = view
            .ready_streams()
            .chain(view.blocked_streams())
            .find(|stream| stream.acknowledged() < stream.highest_sent())?;
        self.was_full = true;
        let recently = |at: &Instant| view.now < *at + LOOK_INTERVAL;
        if self.looked.get(&asking.id()).is_some_and(recently) {
            return None;
        }
        let found = self.retransmit(asking, stream, budget, view);
        if found.is_none() {
            self.looked.insert(asking.id(), view.now);
        }
        found
    }

    fn retransmit(
        &mut self,
        asking: &Path,
        stream: &Stream,
        budget: u64,
        view: &View<'_>,
    ) -> Option<Pick> {
        let head = stream.acknowledged();
        let held = |path: &Path| {
            let mut flights = path.flights();
            flights
                .find(|flight| flight.stream == stream.id() && flight.range.contains(&head))
                .map(|flight| flight.range.clone())
        };
        let holders: Vec<&Path> = view
            .active_paths()
            .filter(|path| path.id() != asking.id() && held(path).is_some())
            .collect();
        // At most once per round trip of the path with space.
        let last = self.penalized.get(&asking.id());
        if last.is_none_or(|at| view.now >= *at + asking.srtt()) {
            for slow in &holders {
                if asking.srtt() < slow.srtt() && slow.sample().loss == LossState::Open {
                    self.halve(slow, view.now);
                    self.penalized.insert(asking.id(), view.now);
                }
            }
        }
        // Linux 0.95, mptcp_rcv_buf_optimization: the segment was never on this path. The path that
        // holds it has a window of 4 segments at most, which the penalty has halved before, or is
        // more than four times slower.
        if held(asking).is_some() {
            return None;
        }
        let hopeless = |slow: &&Path| self.window(slow, view.now) <= 4 * slow.mss();
        let slower = |slow: &&Path| slow.srtt() > 4 * asking.srtt();
        let decisive = holders
            .iter()
            .find(|slow| hopeless(slow) || !slower(slow))
            .or(holders.first())?;
        if !hopeless(decisive) && !slower(decisive) {
            return None;
        }
        let range = held(decisive)?;
        let end = range.end.min(head + budget.min(view.repeat_budget()));
        let missing = stream.unacknowledged(head..end).into_iter().next()?;
        Some(Pick::Repeat {
            stream: stream.id(),
            range: missing,
        })
    }
}

impl Cap {
    fn at(&self, path: &Path, now: Instant) -> u64 {
        let rounds = now.saturating_sub(self.since).as_secs_f64() / path.srtt().as_secs_f64();
        self.bytes + path.mss() * rounds as u64
    }

    fn binds(&self, path: &Path, now: Instant) -> bool {
        self.at(path, now) < path.cwnd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathSample;
    use crate::scheduler::fixture::Fixture;

    fn with(fixture: &mut Fixture, path: u32, change: impl Fn(&mut PathSample)) -> bool {
        fixture.change(path, change);
        is_available(&fixture.paths[&PathId(path)])
    }

    #[test]
    fn the_conditions_of_availability() {
        type Change = fn(&mut PathSample);
        let changes: [(&str, Change, bool); 7] = [
            ("nothing in flight", |_| {}, true),
            ("a full window", |s| s.in_flight = s.cwnd, false),
            ("half a window", |s| s.in_flight = s.cwnd / 2, true),
            (
                "unsent bytes fill the rest",
                |s| (s.in_flight, s.unsent) = (s.cwnd / 2, s.cwnd / 2 + 2),
                false,
            ),
            ("a timeout", |s| s.loss = LossState::Timeout, false),
            ("fast recovery", |s| s.loss = LossState::Recovery, true),
            ("a full carrier", |s| s.full = true, false),
        ];
        for (name, change, available) in changes {
            let mut fixture = Fixture::new(&[(80.0, 10)]);
            assert_eq!(with(&mut fixture, 0, change), available, "{name}");
        }
    }

    /// Two paths, the second one `times` as slow; it holds the head of a stream with a full window.
    fn stuck(times: u64) -> Fixture {
        let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 10 * times)]);
        fixture.write(0, 100_000);
        fixture.streams.get_mut(&0).unwrap().send.limit = 30_000;
        fixture.take(1, 0, 0..20_000);
        fixture.take(0, 0, 20_000..30_000);
        fixture.repeat_budget = 1 << 20;
        fixture
    }

    fn unblock(rule: &mut DefaultRule, fixture: &Fixture) -> Option<Pick> {
        fixture.view(|view| {
            let asking = view.path(PathId(0)).unwrap();
            rule.unblock(asking, 100_000, view)
        })
    }

    #[test]
    fn the_head_of_a_full_window_is_repeated_on_a_path_without_it() {
        let head = Some(Pick::Repeat {
            stream: 0,
            range: 0..20_000,
        });
        assert_eq!(unblock(&mut DefaultRule::default(), &stuck(5)), head);
        let four_times = stuck(4);
        assert_eq!(unblock(&mut DefaultRule::default(), &four_times), None);
        // The penalty comes first: of 8 segments 4 are left.
        for (segments, sent) in [(4, true), (8, true), (10, false)] {
            let mut tiny = stuck(4);
            tiny.change(1, |sample| sample.cwnd = segments * 1448);
            let pick = unblock(&mut DefaultRule::default(), &tiny);
            assert_eq!(pick, head.clone().filter(|_| sent), "{segments}");
        }
        let mut known = stuck(5);
        known.fly(PathId(0), 0, 0..20_000, Duration::ZERO);
        assert_eq!(unblock(&mut DefaultRule::default(), &known), None);
        let mut open = stuck(5);
        open.streams.get_mut(&0).unwrap().send.limit = 1 << 20;
        let pick = open
            .view(|view| DefaultRule::default().send(view.path(PathId(0)).unwrap(), 1000, view));
        assert!(matches!(pick, Pick::Send { .. }), "the window is not full");
    }

    #[test]
    fn the_path_with_the_head_is_halved_once_a_round_trip_and_recovers() {
        let (mut rule, mut fixture) = (DefaultRule::default(), stuck(4));
        let window = fixture.paths[&PathId(1)].cwnd();
        let cap = |rule: &DefaultRule, fixture: &Fixture| {
            let path = &fixture.paths[&PathId(1)];
            rule.caps
                .get(&PathId(1))
                .map(|cap| cap.at(path, fixture.now))
        };
        unblock(&mut rule, &fixture);
        assert_eq!(cap(&rule, &fixture), Some(window / 2));
        fixture.now += Duration::from_millis(5);
        unblock(&mut rule, &fixture);
        assert_eq!(
            cap(&rule, &fixture),
            Some(window / 2),
            "once per round trip"
        );
        fixture.now += Duration::from_millis(5);
        unblock(&mut rule, &fixture);
        assert_eq!(cap(&rule, &fixture), Some(window / 4));
        // One segment for each of its own round trips of 40 ms.
        fixture.now += Duration::from_millis(400);
        assert_eq!(cap(&rule, &fixture), Some(window / 4 + 10 * 1448));
        fixture.now += Duration::from_secs(60);
        let chosen = fixture.view(|view| rule.choose(view.path(PathId(1)).unwrap(), view));
        assert_eq!(chosen, Some(PathId(0)));
        assert_eq!(cap(&rule, &fixture), None, "the penalty has ended");
    }

    #[test]
    fn a_capped_path_stays_within_its_cap() {
        let (mut rule, mut fixture) = (DefaultRule::default(), stuck(4));
        unblock(&mut rule, &fixture);
        let cap = fixture.paths[&PathId(1)].cwnd() / 2;
        fixture.streams.get_mut(&0).unwrap().send.limit = 1 << 20;
        fixture.change(0, |sample| sample.full = true);
        fixture.change(1, |sample| sample.in_flight = cap - 700);
        let choose = |rule: &mut DefaultRule, fixture: &Fixture| {
            fixture.view(|view| rule.choose(view.path(PathId(1)).unwrap(), view))
        };
        assert_eq!(choose(&mut rule, &fixture), Some(PathId(1)));
        let sent = fixture.view(|view| rule.send(view.path(PathId(1)).unwrap(), 100_000, view));
        assert_eq!(
            sent,
            Pick::Send {
                stream: 0,
                range: 30_000..30_700
            }
        );
        // Asked again on the same sample: the bytes handed to it count.
        fixture.handed = 300;
        let sent = fixture.view(|view| rule.send(view.path(PathId(1)).unwrap(), 100_000, view));
        assert!(matches!(sent, Pick::Send { range, .. } if range.end - range.start == 400));
        fixture.handed = 700;
        assert_eq!(choose(&mut rule, &fixture), None);
        fixture.handed = 0;
        fixture.change(1, |sample| sample.in_flight = cap);
        assert_eq!(choose(&mut rule, &fixture), None);
    }

    #[test]
    fn a_path_in_a_timeout_is_refused_unless_all_are() {
        let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 20)]);
        fixture.write(0, 1000);
        fixture.change(0, |sample| sample.loss = LossState::Timeout);
        let choose = |fixture: &Fixture, asking: u32| {
            fixture.view(|view| {
                let asking = view.path(PathId(asking)).unwrap();
                DefaultRule::default().choose(asking, view).map(|id| id.0)
            })
        };
        assert_eq!(
            (choose(&fixture, 0), choose(&fixture, 1)),
            (Some(1), Some(1))
        );
        fixture.change(1, |sample| sample.loss = LossState::Timeout);
        assert_eq!(
            (choose(&fixture, 0), choose(&fixture, 1)),
            (Some(0), Some(1))
        );
    }
}
