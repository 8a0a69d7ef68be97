//! The scheduler of Linux: chooses the path that will first have sent the bytes that it already
//! holds.
//!
//! Source: `mptcp_subflow_get_send` in `net/mptcp/protocol.c` of Linux 6.12, the scheduler
//! `default` of current kernels. A path lingers for its queued bytes divided by its average pacing
//! rate. The path with the shortest linger time gets the next burst, and no path gets data while
//! its send buffer is full.
//!
//! The kernel lets a send buffer grow to twice the congestion window (`tcp_sndbuf_expand` in
//! `net/ipv4/tcp_input.c`). Carriers keep far less in their sockets. A carrier that accepts no data
//! now therefore counts as filled to that limit; otherwise a slower path would get its turn only
//! when the faster one is nearly idle.

use std::collections::BTreeMap;

use crate::PathId;
use crate::path::Path;
use crate::scheduler::{Pick, RepeatLimit, Scheduler, View, lowest_unsent};

/// The scheduler of Linux.
#[derive(Debug, Default)]
pub struct Linux {
    /// Average pacing rate of each path, in bytes per second.
    pacing: BTreeMap<PathId, f64>,
    /// The path that was chosen last, and the rest of its burst in bytes.
    burst: Option<(PathId, u64)>,
}

/// Linux 6.12, MPTCP_SEND_BURST_SIZE: 64 KiB less the headers of one packet.
const BURST: u64 = 65_428;

impl Scheduler for Linux {
    fn name(&self) -> &'static str {
        "linux"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        self.pacing.retain(|id, _| view.path(*id).is_some());
        if !self.continues(path, view) {
            let best = self.shortest_linger(path, view);
            let Some(asking) = best.filter(|best| best.id() == path) else {
                return Pick::Idle;
            };
            let Pick::Send { stream, range } = lowest_unsent(view, 1) else {
                return Pick::Idle;
            };
            // Linux 6.12: burst = min(MPTCP_SEND_BURST_SIZE, mptcp_wnd_end - snd_nxt)
            let room = view.stream(stream).map_or(0, |stream| {
                (stream.acknowledged() + view.send_window(stream)).saturating_sub(range.start)
            });
            let burst = BURST.min(room);
            // Linux 6.12: avg_pacing = (avg_pacing * queued + pacing * burst) / (queued + burst)
            let (queued, weight) = (queued(asking, path, view) as f64, burst as f64);
            let average = self.average(asking);
            let new = (average * queued + pacing(asking) * weight) / (queued + weight);
            self.pacing.insert(path, new);
            self.burst = Some((path, burst));
        }
        let Some((_, left)) = &mut self.burst else {
            return Pick::Idle;
        };
        let pick = lowest_unsent(view, budget.min(*left));
        if let Pick::Send { range, .. } = &pick {
            *left -= range.end - range.start;
        }
        pick
    }

    fn paths_changed(&mut self) {
        self.burst = None;
    }

    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Nothing
    }
}

impl Linux {
    /// Whether `path` is within its burst. Another path's burst ends when its carrier accepts no
    /// more data.
    fn continues(&mut self, path: PathId, view: &View<'_>) -> bool {
        let Some((id, left)) = self.burst else {
            return false;
        };
        let can = |other: &Path| other.id() == path || !is_full(other);
        let goes_on = left > 0 && view.active_paths().any(|p| p.id() == id && can(p));
        if !goes_on {
            self.burst = None;
        }
        goes_on && id == path
    }

    fn shortest_linger<'a>(&self, asking: PathId, view: &View<'a>) -> Option<&'a Path> {
        // The burst of another path continues, so that path is still chosen.
        if let Some((id, _)) = self.burst {
            return view.path(id);
        }
        // Linux 6.12: linger = queued / avg_pacing
        let linger = |path: &Path| queued(path, asking, view) as f64 / self.average(path);
        view.active_paths()
            .min_by(|a, b| linger(a).total_cmp(&linger(b)).then(a.id().cmp(&b.id())))
    }

    fn average(&self, path: &Path) -> f64 {
        self.pacing
            .get(&path.id())
            .copied()
            .unwrap_or_else(|| pacing(path))
    }
}

/// The kernel's pacing rate; the delivery rate of a path that is not paced.
fn pacing(path: &Path) -> f64 {
    match path.sample().pacing_rate {
        0 => path.rate(),
        pacing => pacing as f64,
    }
}

/// Bytes in the socket, in flight or not; the module documentation covers paths that accept no
/// data. The asking path also holds the bytes handed to it since its sample was taken.
fn queued(path: &Path, asking: PathId, view: &View<'_>) -> u64 {
    let sample = path.sample();
    let queued = sample.in_flight + sample.unsent + view.handed_to(path, asking);
    match is_full(path) && path.id() != asking {
        true => queued.max(2 * path.cwnd()),
        false => queued,
    }
}

fn is_full(path: &Path) -> bool {
    path.sample().full || path.has_max_flights()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fixture::{Fixture, decisions};
    use crate::scheduler::minrtt::MinRtt;

    #[test]
    fn the_linger_time_decides_and_not_the_round_trip() {
        // 10 MB/s with 200 kB in the socket: 20 ms. 1 MB/s with 10 kB: 10 ms.
        let (mut fixture, mut linux) = (Fixture::new(&[(80.0, 10), (8.0, 100)]), Linux::default());
        fixture.write(0, 1_000_000);
        fixture.change(0, |sample| {
            (sample.in_flight, sample.cwnd) = (200_000, 400_000)
        });
        fixture.change(1, |sample| sample.in_flight = 10_000);
        assert!(fixture.ask(&mut MinRtt::default(), 0, 1000) != Pick::Idle);
        let table = [
            (0, "", None),
            (1, "", Some(0..1_000)),
            (1, "the slow path holds 30 kB: 30 ms", Some(1_000..2_000)),
            (0, "its burst continues", None),
        ];
        decisions(&mut linux, &mut fixture, 1_000, &table, |fixture, when| {
            if when.starts_with("the slow path holds") {
                fixture.change(1, |sample| sample.in_flight = 30_000);
            }
        });
        let mut fresh = Linux::default();
        assert_eq!(fixture.send(&mut fresh, 1, 1_000), None);
        assert_eq!(fixture.send(&mut fresh, 0, 1_000), Some(2_000..3_000));
    }

    #[test]
    fn a_burst_stays_on_the_path_that_was_chosen() {
        let (mut fixture, mut linux) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), Linux::default());
        fixture.write(0, 1_000_000);
        let mut sent = 0;
        while let Some(range) = fixture.send(&mut linux, 0, 10_000) {
            sent += range.end - range.start;
            fixture.change(0, |sample| sample.in_flight = sent);
            assert!(sent <= BURST);
            if sent < BURST {
                assert_eq!(fixture.send(&mut linux, 1, 10_000), None, "after {sent}");
            }
        }
        assert_eq!(sent, BURST);
        assert_eq!(
            fixture.send(&mut linux, 1, 100_000),
            Some(BURST..2 * BURST),
            "nothing is queued on it"
        );
    }

    #[test]
    fn a_burst_ends_when_its_path_is_full() {
        let (mut fixture, mut linux) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), Linux::default());
        fixture.write(0, 1_000_000);
        assert_eq!(fixture.send(&mut linux, 0, 10_000), Some(0..10_000));
        assert_eq!(fixture.send(&mut linux, 1, 10_000), None);
        fixture.change(0, |sample| sample.full = true);
        assert_eq!(fixture.send(&mut linux, 1, 10_000), Some(10_000..20_000));
    }

    #[test]
    fn no_path_sends_while_the_one_with_the_shortest_linger_time_is_full() {
        // Twice the window of the full path takes 30 ms.
        for (in_flight, sends) in [(29_000, true), (31_000, false)] {
            let (mut fixture, mut linux) =
                (Fixture::new(&[(80.0, 10), (8.0, 100)]), Linux::default());
            fixture.write(0, 1_000_000);
            fixture.change(0, |sample| (sample.full, sample.cwnd) = (true, 150_000));
            fixture.change(1, |sample| sample.in_flight = in_flight);
            assert_eq!(fixture.send(&mut linux, 1, 1000).is_some(), sends);
        }
    }

    #[test]
    fn the_pacing_rate_is_averaged_over_the_queued_bytes() {
        let (mut fixture, mut linux) = (Fixture::new(&[(80.0, 10)]), Linux::default());
        fixture.write(0, 1_000_000);
        fixture.change(0, |sample| sample.pacing_rate = 10_000_000);
        fixture.send(&mut linux, 0, 100_000);
        fixture.change(0, |sample| {
            (sample.pacing_rate, sample.in_flight) = (20_000_000, 3 * BURST);
        });
        fixture.send(&mut linux, 0, 100_000);
        assert_eq!(linux.pacing[&PathId(0)], 12_500_000.0);
    }

    #[test]
    fn a_burst_does_not_exceed_the_send_window() {
        let (mut fixture, mut linux) = (Fixture::new(&[(80.0, 10)]), Linux::default());
        fixture.write(0, 1_000_000);
        fixture.change(0, |sample| sample.pacing_rate = 10_000_000);
        assert_eq!(fixture.send(&mut linux, 0, 100_000), Some(0..BURST));
        // Three quarters of the counted bytes are queued, not three of seven parts.
        fixture.streams.get_mut(&0).unwrap().send.limit = BURST + 30_000;
        fixture.change(0, |sample| {
            (sample.pacing_rate, sample.in_flight) = (20_000_000, 90_000);
        });
        let rest = Some(BURST..BURST + 30_000);
        assert_eq!(fixture.send(&mut linux, 0, 100_000), rest);
        assert_eq!(linux.pacing[&PathId(0)], 12_500_000.0);
        assert_eq!(linux.burst, Some((PathId(0), 0)));
    }
}
