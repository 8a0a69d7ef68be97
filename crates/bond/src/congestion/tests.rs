//! The rule against carriers with simulated counters.

use super::*;
use crate::START;

/// A carrier with simulated counters, sampled every millisecond.
struct Running {
    chooser: Chooser,
    now: Instant,
    info: TcpInfo,
}

/// The conditions of a carrier.
#[derive(Clone, Copy)]
struct Network {
    /// Segments per second.
    rate: u32,
    /// One segment in this number is lost; 0 for none.
    one_in: u32,
    queueing: Duration,
    /// Share of each millisecond.
    busy: f64,
}

const CLEAN_LINK: Network = Network {
    rate: 10_000,
    one_in: 0,
    queueing: Duration::ZERO,
    busy: 1.0,
};

/// Losses that no queue causes, at the rate that they leave to a loss-based control.
const LOSSY_LINK: Network = Network {
    rate: 2000,
    one_in: 20,
    ..CLEAN_LINK
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

    /// The changes within `seconds`: the name of the new control, and the time in tenths of a
    /// second.
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
fn losses_without_a_queue_select_bbr_within_a_second_while_they_last() {
    let mut running = Running::new();
    let lossy = LOSSY_LINK;
    let freed = Network {
        rate: 50_000,
        ..lossy
    };
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    assert_eq!(running.run(freed, 60), []);
    let changes = running.run(CLEAN_LINK, 60);
    assert_eq!(changes, [(LOSS_BASED, 51)]);
}

/// The loss-based control begins with the window that the model-based one left, so its first rate
/// is not its own.
#[test]
fn a_trial_is_not_judged_by_the_window_of_the_former_control() {
    let mut running = Running::new();
    let lossy = LOSSY_LINK;
    let freed = Network {
        rate: 10_000,
        ..lossy
    };
    let queueing = Network {
        queueing: Duration::from_millis(20),
        ..freed
    };
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    running.run(freed, 2);
    let returned = (0..10_000).find(|_| !running.run_for(queueing, 1).is_empty());
    assert!(returned.is_some());
    // The former window, at first.
    assert_eq!(running.run_for(freed, 500), []);
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    assert_eq!(running.run(freed, 20), []);
}

/// The same where this window lasts for seconds: the trial shows no gain, and the rate falls later.
#[test]
fn a_trial_without_gain_is_repeated_when_the_rate_falls() {
    let mut running = Running::new();
    let lossy = Network {
        rate: 10_000,
        ..LOSSY_LINK
    };
    let changes = [(MODEL_BASED, 5), (LOSS_BASED, 15)];
    assert_eq!(running.run(lossy, 2), changes);
    assert_eq!(running.run(lossy, 2), []);
    let less = Network {
        rate: 4000,
        ..lossy
    };
    let changes = running.run(less, 2);
    assert_eq!(changes.first().map(|change| change.0), Some(MODEL_BASED));
    // Both controls deliver little: no further trial.
    running.run(less, 1);
    assert_eq!(running.run(less, 8), []);
}

/// The losses are over, and another flow fills the same queue: segments are lost in one second of
/// three.
#[test]
fn losses_with_a_queue_restore_the_loss_based_control() {
    let mut running = Running::new();
    let lossy = LOSSY_LINK;
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
    // CUBIC's losses then are congestion, too.
    assert_eq!(changes, [(LOSS_BASED, 5)]);
}

/// The losses continue, and BBR causes a queue: CUBIC has none, and is tried ever less often.
#[test]
fn a_self_made_queue_ends_bbr_ever_less_often() {
    let mut running = Running::new();
    let cubic = LOSSY_LINK;
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

/// A queue during startup or a probe does not count if losses in between occur without one.
#[test]
fn an_occasional_queue_changes_nothing() {
    let mut running = Running::new();
    let lossy = LOSSY_LINK;
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
fn a_change_without_gain_is_undone_and_retried_ever_less_often() {
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
fn a_refused_control_is_not_requested_again_at_once() {
    let mut running = Running::new();
    let lossy = Network {
        one_in: 20,
        ..CLEAN_LINK
    };
    assert_eq!(running.run(lossy, 1), [(MODEL_BASED, 5)]);
    running.chooser.refused(running.now);
    assert_eq!(running.run(lossy, 60), []);
}
