//! Q-Depl: splits traffic in proportion to the rates at which the links' queues drain.
//!
//! Source: the LWIP paper in docs/algorithms.md, section III-B: lambda_i = mu_i / sum(mu) * lambda,
//! with mu_i the rate at which queue i is depleted. The queue of a path is the data in its socket
//! and, if the kernel reports it, in its interface's queue. The bytes that left it in a period are
//! the bytes handed over less the growth of the queue. Virtual time keeps the proportion: each byte
//! on a path costs 1 / mu_i, and the path with the least service goes next.

use std::collections::BTreeMap;
use std::time::Duration;

use sumlink_engine::scheduler::subflow::candidates;
use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View, lowest_unsent};
use sumlink_engine::{Instant, Path, PathId};

/// Q-Depl.
#[derive(Debug, Default)]
pub struct QDepl {
    queues: BTreeMap<PathId, Queue>,
}

/// The state of a path's queue.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// Depletion rate in bytes per second.
    rate: f64,
    /// Service that the path has had, in seconds.
    service: f64,
    /// Time of the last measurement, the bytes handed over by then, and the bytes that waited.
    measured: Instant,
    handed: u64,
    waiting: u64,
}

/// Interval between measurements of a queue.
const INTERVAL: Duration = Duration::from_millis(50);

/// Weight of a new measurement.
const GAIN: f64 = 0.25;

impl Scheduler for QDepl {
    fn name(&self) -> &'static str {
        "qdepl"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        self.measure(view);
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        let service = |path: &Path| self.queues.get(&path.id()).map_or(0.0, |q| q.service);
        let next = candidates(asking, view)
            .min_by(|a, b| service(a).total_cmp(&service(b)).then(a.id().cmp(&b.id())));
        if next.map(Path::id) != Some(path) {
            return Pick::Idle;
        }
        let pick = lowest_unsent(view, budget);
        if let Pick::Send { range, .. } = &pick {
            self.serve(path, range.end - range.start);
        }
        pick
    }

    fn reads_local_queue(&self) -> bool {
        true
    }

    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Nothing
    }
}

impl QDepl {
    fn serve(&mut self, path: PathId, len: u64) {
        let Some(queue) = self.queues.get_mut(&path) else {
            return;
        };
        let begin = queue.service;
        // LWIP paper, III-B: lambda_i = mu_i / sum(mu) * lambda, kept by virtual time
        queue.service += len as f64 / queue.rate.max(1.0);
        // A path that was skipped because it was full accumulates no claim: its queue was its
        // share.
        for other in self.queues.values_mut() {
            other.service = other.service.max(begin);
        }
    }

    fn measure(&mut self, view: &View<'_>) {
        self.queues.retain(|id, _| view.path(*id).is_some());
        let least = self.queues.values().map(|queue| queue.service);
        let least = least.min_by(f64::total_cmp).unwrap_or_default();
        for path in view.active_paths() {
            let queue = self
                .queues
                .entry(path.id())
                .or_insert_with(|| Queue::new(path, least, view.now));
            if view.now >= queue.measured + INTERVAL {
                queue.measure(path, view.now);
            }
        }
    }
}

impl Queue {
    fn new(path: &Path, service: f64, now: Instant) -> Self {
        Self {
            rate: path.rate(),
            service,
            measured: now,
            handed: path.sent(),
            waiting: waiting(path),
        }
    }

    fn measure(&mut self, path: &Path, now: Instant) {
        let (handed, waiting) = (path.sent(), waiting(path));
        // LWIP paper, III-B: mu_i, the bytes that leave queue i in a period: those that came in
        // less its growth
        let left = (handed - self.handed + self.waiting).saturating_sub(waiting);
        let rate = left as f64 / now.saturating_sub(self.measured).as_secs_f64();
        // A queue that has run empty drained no faster than it was filled.
        let was_busy = self.waiting > 0 && waiting > 0;
        if was_busy || rate > self.rate {
            self.rate += GAIN * (rate - self.rate);
        }
        (self.measured, self.handed, self.waiting) = (now, handed, waiting);
    }
}

fn waiting(path: &Path) -> u64 {
    path.sample().unsent + path.sample().local_queue
}

#[cfg(test)]
mod tests {
    use sumlink_engine::testing::Fixture;

    use super::*;
    use crate::lrtt::LRtt;

    /// Lets each path's queue drain at the given bytes per second for two seconds.
    fn drain(fixture: &mut Fixture, qdepl: &mut QDepl, rates: [u64; 2]) {
        for _ in 0..40 {
            fixture.now += INTERVAL;
            for (path, rate) in [0, 1].into_iter().zip(rates) {
                fixture.hand(path, rate / 20);
                fixture.change(path, |sample| sample.local_queue = 50_000);
            }
            fixture.view(|view| qdepl.measure(view));
        }
    }

    #[test]
    fn the_split_follows_queue_depletion_and_not_tcp_rates() {
        let (mut fixture, mut qdepl) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), QDepl::default());
        fixture.write(0, 20_000_000);
        let even = fixture.shares(&mut qdepl, 4_000, 500);
        assert!((even[0] - 0.5).abs() < 0.01, "{even:?}");
        drain(&mut fixture, &mut qdepl, [9_000_000, 3_000_000]);
        let split = fixture.shares(&mut qdepl, 4_000, 1_000);
        assert!((split[0] - 0.75).abs() < 0.01, "{split:?}");
        // L-RTT fills one queue before the other gets a packet.
        let filled = fixture.shares(&mut LRtt, 4_000, 100);
        assert_eq!(filled, [1.0, 0.0]);
    }

    #[test]
    fn an_empty_queue_does_not_lower_the_rate() {
        let (mut fixture, mut qdepl) = (Fixture::new(&[(80.0, 10)]), QDepl::default());
        fixture.view(|view| qdepl.measure(view));
        let before = qdepl.queues[&PathId(0)].rate;
        fixture.now += 2 * INTERVAL;
        fixture.view(|view| qdepl.measure(view));
        assert_eq!(qdepl.queues[&PathId(0)].rate, before);
    }

    #[test]
    fn a_full_path_is_skipped_without_a_later_claim() {
        let (mut fixture, mut qdepl) = (Fixture::new(&[(80.0, 10), (80.0, 10)]), QDepl::default());
        fixture.write(0, 20_000_000);
        fixture.change(1, |sample| sample.full = true);
        assert_eq!(fixture.shares(&mut qdepl, 4_000, 500), [1.0, 0.0]);
        fixture.change(1, |sample| sample.full = false);
        let split = fixture.shares(&mut qdepl, 4_000, 500);
        assert!((split[0] - 0.5).abs() < 0.01, "{split:?}");
    }
}
