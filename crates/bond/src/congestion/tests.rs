//! The rule against carriers whose counters run as the test says.

use super::*;
use crate::START;

/// A carrier whose counters run as the test says, looked at every millisecond.
struct Running {
    chooser: Chooser,
    now: Instant,
    info: TcpInfo,
}

/// What a carrier goes through.
#[derive(Clone, Copy)]
struct Network {
    /// Segments a second.
    rate: u32,
    /// One segment in so many is lost; 0 for none.
    one_in: u32,
    queueing: Duration,
    /// Of a millisecond.
    busy: f64,
}

const CLEAN_LINK: Network = Network {
    rate: 10_000,
    one_in: 0,
    queueing: Duration::ZERO,
    busy: 1.0,
};

impl Running {
    fn new() -> Self {
        let min_rtt = Some(Duration::from_millis(10));
        Self {
            chooser: Chooser::new(),
            now: START,
            info: TcpInfo {
                min_rtt,
                ..TcpInfo::default()
            },
        }
    }

    /// The names of the controls changed to within so many seconds, and when, in tenths of a second.
    fn run(&mut self, network: Network, seconds: u64) -> Vec<(&'static str, u64)> {
        self.run_for(network, seconds * 1000)
    }

    fn run_for(&mut self, network: Network, ms: u64) -> Vec<(&'static str, u64)> {
        let mut changes = Vec::new();
        self.info.srtt = Duration::from_millis(10) + network.queueing;
        for millisecond in 0..ms {
            self.now += Duration::from_millis(1);
            let sent = network.rate / 1000;
            self.info.segs_out += sent;
            let lost = match network.one_in {
                0 => 0,
                n => self.info.segs_out / n - (self.info.segs_out - sent) / n,
            };
            self.info.total_retrans += lost;
            self.info.bytes_acked += u64::from(sent - lost) * 1448;
            self.info.busy += Duration::from_secs_f64(network.busy / 1000.0);
            if let Some(change) = self.chooser.observe(self.now, &self.info) {
                changes.push((change.to, millisecond / 100));
            }
        }
        changes
    }
}

#[test]
fn nothing_changes_on_a_clean_link() {
    assert_eq!(Running::new().run(CLEAN_LINK, 60), []);
}

#[test]
fn losses_of_a_full_queue_are_congestion() {
    let network = Network {
        one_in: 50,
        queueing: Duration::from_millis(20),
        ..CLEAN_LINK
    };
    assert_eq!(Running::new().run(network, 60), []);
}

#[test]
fn losses_without_a_queue_are_answered_within_a_second_and_for_as_long_as_they_last() {
    let mut running = Running::new();
    let lossy = Network {
        one_in: 20,
        rate: 2000,
        ..CLEAN_LINK
    };
    let freed = Network {
        rate: 50_000,
        ..lossy
    };
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    assert_eq!(running.run(freed, 60), []);
    let changes = running.run(CLEAN_LINK, 60);
    assert_eq!(changes, [(LOSS_BASED, 51)]);
}

/// The losses are over, and somebody else fills the same queue: for one second of three something is lost.
#[test]
fn losses_that_come_with_a_queue_end_what_losses_without_one_began() {
    let mut running = Running::new();
    let lossy = Network {
        one_in: 20,
        rate: 2000,
        ..CLEAN_LINK
    };
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    assert_eq!(
        running.run(
            Network {
                rate: 8000,
                ..lossy
            },
            5
        ),
        []
    );
    let filling = Network {
        rate: 5000,
        queueing: Duration::from_millis(30),
        ..CLEAN_LINK
    };
    let full = Network {
        one_in: 50,
        ..filling
    };
    let mut changes = Vec::new();
    for second in 0..60 {
        let network = if second % 3 == 0 { full } else { filling };
        changes.extend(running.run(network, 1).iter().map(|(to, _)| (*to, second)));
    }
    // What CUBIC loses then is congestion too.
    assert_eq!(changes, [(LOSS_BASED, 5)]);
}

/// The losses go on, and BBR makes a queue of its own: CUBIC has none, and is tried ever less often.
#[test]
fn a_queue_of_its_own_making_ends_it_ever_less_often() {
    let mut running = Running::new();
    let cubic = Network {
        one_in: 20,
        rate: 2000,
        ..CLEAN_LINK
    };
    let bbr = Network {
        rate: 8000,
        queueing: Duration::from_millis(10),
        ..cubic
    };
    let (mut network, mut back) = (cubic, Vec::new());
    for half in 0..1200 {
        for (to, _) in running.run_for(network, 500) {
            network = if to == MODEL_BASED { bbr } else { cubic };
            if to == LOSS_BASED {
                back.push(half / 2);
            }
        }
    }
    let gaps: Vec<u64> = back.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((5..=12).contains(&back.len()), "{back:?}");
    assert!(gaps[gaps.len() - 1] > 100, "{gaps:?}");
}

/// A start or a probe with a queue says nothing where what is lost in between has none.
#[test]
fn a_queue_now_and_then_ends_nothing() {
    let mut running = Running::new();
    let lossy = Network {
        one_in: 20,
        rate: 2000,
        ..CLEAN_LINK
    };
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    let bbr = Network {
        rate: 8000,
        ..lossy
    };
    let probes = Network {
        queueing: Duration::from_millis(20),
        ..bbr
    };
    for _ in 0..30 {
        assert_eq!(running.run(probes, 3), []);
        assert_eq!(running.run(bbr, 2), []);
    }
}

#[test]
fn a_change_that_brings_nothing_is_undone_and_tried_ever_less_often() {
    let lossy = Network {
        one_in: 20,
        ..CLEAN_LINK
    };
    let changes = Running::new().run(lossy, 300);
    let trials: Vec<u64> = changes
        .iter()
        .filter(|(to, _)| *to == MODEL_BASED)
        .map(|(_, at)| *at)
        .collect();
    assert_eq!(changes.len(), 2 * trials.len(), "every trial ends");
    let gaps: Vec<u64> = trials.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 3, "{trials:?}");
    assert!(gaps.is_sorted_by(|a, b| a * 3 < b * 2), "{gaps:?}");
}

#[test]
fn a_carrier_with_little_to_send_is_not_judged() {
    let idle = Network {
        one_in: 20,
        busy: 0.3,
        ..CLEAN_LINK
    };
    assert_eq!(Running::new().run(idle, 60), []);
}

#[test]
fn what_the_kernel_refuses_is_not_asked_for_again_at_once() {
    let mut running = Running::new();
    let lossy = Network {
        one_in: 20,
        ..CLEAN_LINK
    };
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    running.chooser.refused(running.now);
    assert_eq!(running.run(lossy, 60), []);
}
