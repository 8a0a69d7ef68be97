//! QAware: the path with the shortest sum of local queue and round trip.
//!
//! Source: Shreedhar, Mohan, Kaul and Kangasharju, "QAware: A cross-layer approach to MPTCP
//! scheduling", IFIP Networking 2018. **The formula is unverified**: it follows the abstract, which
//! says that local device queues and end-to-end delays are combined, and not the equations. Here
//! the cost of a path is the service time of its local queue plus its srtt. The local queue is the
//! data in the socket and, if the kernel reports it, in the interface's queue, including other
//! programs' bytes.

use std::time::Duration;

use sumlink_engine::scheduler::subflow::candidates;
use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View, lowest_unsent};
use sumlink_engine::{Path, PathId};

/// QAware.
#[derive(Debug, Default)]
pub struct QAware;

impl Scheduler for QAware {
    fn name(&self) -> &'static str {
        "qaware"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let best = view.path(path).and_then(|asking| {
            let cost = |other: &Path| cost(other, view.handed_to(other, path));
            candidates(asking, view).min_by(|a, b| cost(a).cmp(&cost(b)).then(a.id().cmp(&b.id())))
        });
        match best {
            Some(best) if best.id() == path => lowest_unsent(view, budget),
            _ => Pick::Idle,
        }
    }

    fn reads_local_queue(&self) -> bool {
        true
    }

    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Nothing
    }
}

/// QAware, as read from its abstract: packets in the local queue * service time of a packet + srtt.
fn cost(path: &Path, handed: u64) -> Duration {
    let sample = path.sample();
    let packets = (sample.unsent + sample.local_queue + handed) as f64 / path.mss() as f64;
    let service = path.mss() as f64 / path.rate();
    path.srtt() + Duration::from_secs_f64((packets * service).min(3600.0))
}

#[cfg(test)]
mod tests {
    use sumlink_engine::scheduler::minrtt::MinRtt;
    use sumlink_engine::testing::Fixture;

    use super::*;

    #[test]
    fn a_local_queue_changes_the_choice() {
        // The round trips differ by 20 ms; at 10 MB/s a queue of 200 kB takes 20 ms.
        for (queue, first) in [(0, true), (199_000, true), (201_000, false)] {
            let mut fixture = Fixture::new(&[(80.0, 20), (80.0, 40)]);
            fixture.write(0, 60_000);
            fixture.change(0, |sample| sample.local_queue = queue);
            let sends = |scheduler: &mut dyn Scheduler, path: u32| {
                fixture.ask(scheduler, path, 10_000) != Pick::Idle
            };
            assert_eq!(sends(&mut QAware, 0), first, "{queue}");
            assert_eq!(sends(&mut QAware, 1), !first, "{queue}");
            assert!(sends(&mut MinRtt::default(), 0), "minrtt does not see it");
        }
    }

    #[test]
    fn bytes_in_the_socket_count_as_well() {
        let mut fixture = Fixture::new(&[(80.0, 20), (80.0, 40)]);
        fixture.write(0, 60_000);
        fixture.change(0, |sample| {
            (sample.local_queue, sample.unsent) = (101_000, 100_000)
        });
        assert_eq!(fixture.send(&mut QAware, 0, 10_000), None);
    }

    #[test]
    fn a_path_with_a_full_carrier_is_skipped() {
        let mut fixture = Fixture::new(&[(80.0, 20), (80.0, 40)]);
        fixture.write(0, 60_000);
        fixture.change(0, |sample| sample.full = true);
        assert_eq!(fixture.send(&mut QAware, 1, 10_000), Some(0..10_000));
    }
}
