//! `congestion = "auto"`: which congestion control a carrier uses, by measurement.
//!
//! A loss-based control (CUBIC) takes every loss for a full queue. Over radio many are not, and then it gives up most of
//! the link: 5 % loss at a round trip of 4 ms leaves 16 Mbit/s of any link (the square-root law, RFC 5348, section
//! 3.1). A model-based one (BBR) does not mind, but takes more than its share of a queue that others fill. So a carrier
//! begins loss-based, and changes only where losses come without a queue and a trial shows that the change pays; when
//! the losses are over it changes back. Linux changes the control of a connection in use (tcp(7), TCP_CONGESTION).
//!
//! `Chooser` knows neither socket nor clock; each end of a carrier has one, for what it sends itself.

use std::time::{Duration, Instant};

use crate::tcp_info::TcpInfo;

/// The name that asks for this module instead of one control.
pub const AUTO: &str = "auto";

/// What a carrier begins with.
pub(crate) const LOSS_BASED: &str = "cubic";

/// What it changes to where loss is not congestion.
pub(crate) const MODEL_BASED: &str = "bbr";

/// A change of a carrier's congestion control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The kernel's name of the new one.
    pub(crate) to: &'static str,
    /// For the log.
    pub(crate) reason: String,
}

/// Decides when a carrier changes its congestion control.
#[derive(Debug)]
pub(crate) struct Chooser {
    phase: Phase,
    /// Where the present measurement began.
    mark: Option<Mark>,
    /// After a trial that did not pay: none before.
    not_before: Option<Instant>,
    /// How long that lasts the next time.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Loss-based; the usual.
    LossBased,
    /// Model-based on trial; loss-based it was this many bytes a second.
    Trial { before: f64, settled: bool },
    /// Model-based, because it pays. Windows in a row without loss.
    ModelBased { clean: u32 },
}

/// Counters at the begin of a measurement, and what was seen of round trips since.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    acked: u64,
    segments: u32,
    retransmitted: u32,
    busy: Duration,
    held: Duration,
    queueing: Duration,
    samples: u32,
}

/// A measurement lasts at least this long and so many round trips ...
const WINDOW: (Duration, u32) = (Duration::from_millis(500), 10);

/// ... and covers this many segments, so that a share of losses means something ...
const LEAST_SEGMENTS: u32 = 100;

/// ... of a carrier that had something to send for this part of the time.
const LEAST_BUSY: f64 = 0.6;

/// Losses below this share cost a loss-based control little.
const LOSS: f64 = 0.003;

/// Losses are congestion when packets waited this part of the least round trip, or this long if that is longer.
const QUEUEING: (f64, Duration) = (0.25, Duration::from_millis(5));

/// A trial pays when it delivers this many times as much.
const PAYS: f64 = 1.15;

/// Losses are over when so many measurements in a row show hardly any.
const CLEAN: (u32, f64) = (10, LOSS / 3.0);

/// Pause after a trial that did not pay, and its longest after several.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

impl Chooser {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::LossBased,
            mark: None,
            not_before: None,
            pause: PAUSE.0,
        }
    }

    /// Takes a sample of the carrier; says when it should change.
    pub(crate) fn observe(&mut self, now: Instant, info: &TcpInfo) -> Option<Change> {
        let mark = self.mark.get_or_insert_with(|| Mark::new(now, info));
        mark.note(info);
        let least = WINDOW.0.max(info.srtt * WINDOW.1);
        let time = now.duration_since(mark.at);
        let segments = info.segs_out.wrapping_sub(mark.segments);
        // Over a slow link a window lasts as long as its segments take, within reason.
        if time < least || segments < LEAST_SEGMENTS && time < least * 10 {
            return None;
        }
        let window = mark.window(now, info);
        self.mark = None;
        if window.busy < LEAST_BUSY || segments < LEAST_SEGMENTS {
            return None;
        }
        self.decide(now, &window)
    }

    /// The kernel refused the control that was asked for: there is nothing to choose from.
    pub(crate) fn refused(&mut self, now: Instant) {
        self.phase = Phase::LossBased;
        self.not_before = Some(now + PAUSE.1);
    }

    fn decide(&mut self, now: Instant, window: &Window) -> Option<Change> {
        match self.phase {
            Phase::LossBased => {
                let waits = self.not_before.is_some_and(|at| now < at);
                if waits || window.loss < LOSS || window.is_queueing {
                    return None;
                }
                self.phase = Phase::Trial {
                    before: window.rate,
                    settled: false,
                };
                Some(Change {
                    to: MODEL_BASED,
                    reason: format!(
                        "{:.1} % are lost while no queue builds up",
                        window.loss * 100.0
                    ),
                })
            }
            // The first window of a trial finds the rate; the next one is judged.
            Phase::Trial {
                before,
                settled: false,
            } => {
                self.phase = Phase::Trial {
                    before,
                    settled: true,
                };
                None
            }
            Phase::Trial { before, .. } if window.rate < before * PAYS => {
                self.phase = Phase::LossBased;
                self.not_before = Some(now + self.pause);
                self.pause = (self.pause * 2).min(PAUSE.1);
                Some(Change {
                    to: LOSS_BASED,
                    reason: format!(
                        "{MODEL_BASED} brought {:.1} Mbit/s where {:.1} were before",
                        megabits(window.rate),
                        megabits(before)
                    ),
                })
            }
            Phase::Trial { .. } => {
                self.phase = Phase::ModelBased { clean: 0 };
                None
            }
            Phase::ModelBased { clean } => {
                let clean = if window.loss < CLEAN.1 { clean + 1 } else { 0 };
                self.phase = Phase::ModelBased { clean };
                if clean < CLEAN.0 {
                    return None;
                }
                self.phase = Phase::LossBased;
                self.pause = PAUSE.0;
                Some(Change {
                    to: LOSS_BASED,
                    reason: "nothing is lost any more".to_owned(),
                })
            }
        }
    }
}

/// What a measurement gave.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Bytes acknowledged a second.
    rate: f64,
    /// Share of segments sent again.
    loss: f64,
    /// Part of the time with data under way that nothing but the network held back.
    busy: f64,
    /// Packets waited in a queue.
    is_queueing: bool,
}

impl Mark {
    fn new(at: Instant, info: &TcpInfo) -> Self {
        Self {
            at,
            acked: info.bytes_acked,
            segments: info.segs_out,
            retransmitted: info.total_retrans,
            busy: info.busy,
            held: info.rwnd_limited + info.sndbuf_limited,
            queueing: Duration::ZERO,
            samples: 0,
        }
    }

    fn note(&mut self, info: &TcpInfo) {
        let least = info.min_rtt.unwrap_or(info.srtt);
        self.queueing += info.srtt.saturating_sub(least);
        self.samples += 1;
    }

    fn window(&self, now: Instant, info: &TcpInfo) -> Window {
        let seconds = now.duration_since(self.at).as_secs_f64();
        let segments = info.segs_out.wrapping_sub(self.segments).max(1);
        let retransmitted = info.total_retrans.wrapping_sub(self.retransmitted);
        let held = info.rwnd_limited + info.sndbuf_limited;
        let busy = info.busy.saturating_sub(self.busy);
        let busy = busy.saturating_sub(held.saturating_sub(self.held));
        let least = info.min_rtt.unwrap_or(info.srtt);
        let queueing = self.queueing / self.samples.max(1);
        Window {
            rate: info.bytes_acked.saturating_sub(self.acked) as f64 / seconds,
            loss: f64::from(retransmitted) / f64::from(segments),
            busy: busy.as_secs_f64() / seconds,
            is_queueing: is_queueing(queueing, least),
        }
    }
}

/// Whether a round trip is so much longer than the least that a queue must be the cause.
pub(crate) fn is_queueing(longer: Duration, least: Duration) -> bool {
    longer > least.mul_f64(QUEUEING.0).max(QUEUEING.1)
}

fn megabits(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8e-6
}

#[cfg(test)]
mod tests {
    use super::*;

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
                now: Instant::now(),
                info: TcpInfo {
                    min_rtt,
                    ..TcpInfo::default()
                },
            }
        }

        /// The names of the controls changed to within so many seconds, and when, in tenths of a second.
        fn run(&mut self, network: Network, seconds: u64) -> Vec<(&'static str, u64)> {
            let mut changes = Vec::new();
            self.info.srtt = Duration::from_millis(10) + network.queueing;
            for millisecond in 0..seconds * 1000 {
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
}
