//! `congestion = "auto"`: chooses a carrier's congestion control by measurement.
//!
//! A loss-based control (CUBIC) takes every loss for a full queue. On radio links many losses have
//! other causes, and it then gives up most of the link: 5 % loss at a round trip of 4 ms leaves 16
//! Mbit/s of any link (the square-root law, RFC 5348, section 3.1). A model-based control (BBR)
//! tolerates such losses, but takes more than its share of a queue that other flows fill.
//!
//! So a carrier starts loss-based. It changes only if losses occur without a queue and a trial
//! shows a gain, and changes back when the losses end or coincide with a queue. Several model-based
//! carriers fill a queue themselves: if losses without a queue return at once, the next change back
//! because of a queue is delayed. Linux can change the control of a connected socket (tcp(7),
//! TCP_CONGESTION).
//!
//! `Chooser` has no socket and no clock; each end of a carrier has one, for the data that it sends.

use std::time::Duration;

use crate::Instant;

use crate::TcpInfo;

/// The name that selects this module in place of one control.
pub const AUTO: &str = "auto";

/// The initial control of a carrier.
pub const LOSS_BASED: &str = "cubic";

/// The control for paths with losses that are not congestion.
pub const MODEL_BASED: &str = "bbr";

/// A change of a carrier's congestion control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kernel's name of the new control.
    pub to: &'static str,
    /// The reason, for the log.
    pub reason: String,
}

/// Decides when a carrier changes its congestion control.
#[derive(Debug)]
pub struct Chooser {
    phase: Phase,
    /// The start of the current measurement.
    mark: Option<Mark>,
    /// After a trial without gain: the earliest time of the next one.
    not_before: Option<Instant>,
    /// The rate that this trial measured, in bytes per second.
    tried: f64,
    /// The pause after the next trial without gain.
    pause: Duration,
    /// When it last changed back because of a queue.
    questioned_at: Option<Instant>,
    /// The earliest time of the next change back because of a queue.
    stay_until: Option<Instant>,
    /// The delay of that change after the next one that was wrong.
    stay: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Loss-based; the normal state. After a change, the first measurement is not `settled`: it
    /// shows the window of the former control.
    LossBased { settled: bool },
    /// Model-based on trial; `before` is the loss-based rate in bytes per second.
    Trial { before: f64, settled: bool },
    /// Model-based after a successful trial.
    ModelBased {
        /// Consecutive measurements without loss.
        clean: u32,
        /// Consecutive measurements in which a queue explains every loss.
        explained: u32,
    },
}

/// Counters at the start of a measurement, and the round trips seen since.
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

/// Minimum length of a measurement, in time and in round trips.
const WINDOW: (Duration, u32) = (Duration::from_millis(500), 10);

/// Minimum number of segments in a measurement, for a meaningful loss rate.
const MIN_SEGMENTS: u32 = 100;

/// Minimum share of the time in which the carrier had data to send.
const MIN_BUSY: f64 = 0.6;

/// Loss rate below which a loss-based control loses little.
const LOSS: f64 = 0.003;

/// Losses are congestion if packets waited for this share of the least round trip, or for this time
/// if it is longer.
const QUEUEING: (f64, Duration) = (0.25, Duration::from_millis(5));

/// A trial succeeds at this multiple of the former rate.
const PAYS: f64 = 1.15;

/// A trial without gain is repeated before its pause ends if the loss-based control then delivers
/// less than this share of the trial's rate: the rate before the trial may have been that of a
/// window from better times.
const IN_DOUBT: f64 = 0.5;

/// Losses are over after this many consecutive measurements with at most this loss rate.
const CLEAN: (u32, f64) = (10, LOSS / 3.0);

/// Pause after a trial without gain, and its maximum after several.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// A change back because of a queue was wrong if the trial after it succeeds within this time.
const DOUBT: Duration = Duration::from_secs(30);

/// Delay of the next change back after a wrong one, and its maximum after several.
const STAY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

impl Default for Chooser {
    fn default() -> Self {
        Self::new()
    }
}

impl Chooser {
    /// For a carrier that starts with [`LOSS_BASED`].
    pub fn new() -> Self {
        Self {
            phase: Phase::LossBased { settled: true },
            mark: None,
            not_before: None,
            tried: 0.0,
            pause: PAUSE.0,
            questioned_at: None,
            stay_until: None,
            stay: STAY.0,
        }
    }

    /// Takes a sample of the carrier; returns a change when one is due.
    pub fn observe(&mut self, now: Instant, info: &TcpInfo) -> Option<Change> {
        let mark = self.mark.get_or_insert_with(|| Mark::new(now, info));
        mark.note(info);
        let least = WINDOW.0.max(info.srtt * WINDOW.1);
        let time = now.saturating_sub(mark.at);
        let segments = info.segs_out.wrapping_sub(mark.segments);
        // On a slow link a measurement lasts until it has enough segments, up to a limit.
        if time < least || segments < MIN_SEGMENTS && time < least * 10 {
            return None;
        }
        let window = mark.window(now, info);
        self.mark = None;
        if window.busy < MIN_BUSY || segments < MIN_SEGMENTS {
            return None;
        }
        self.decide(now, &window)
    }

    /// Records that the kernel refused the chosen control, which leaves no choice.
    pub fn refused(&mut self, now: Instant) {
        self.phase = Phase::LossBased { settled: true };
        self.not_before = Some(now + PAUSE.1);
        self.tried = 0.0;
    }

    fn decide(&mut self, now: Instant, window: &Window) -> Option<Change> {
        match self.phase {
            Phase::LossBased { settled: false } => {
                self.phase = Phase::LossBased { settled: true };
                None
            }
            Phase::LossBased { settled: true } => {
                let is_in_doubt = window.rate < self.tried * IN_DOUBT;
                let waits = !is_in_doubt && self.not_before.is_some_and(|at| now < at);
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
                        "{:.1} % of the segments are lost while no queue builds up",
                        window.loss * 100.0
                    ),
                })
            }
            // The first measurement of a trial finds the rate; the next one is judged.
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
                self.phase = Phase::LossBased { settled: false };
                self.not_before = Some(now + self.pause);
                self.tried = window.rate;
                self.pause = (self.pause * 2).min(PAUSE.1);
                Some(Change {
                    to: LOSS_BASED,
                    reason: format!(
                        "{MODEL_BASED} delivered {:.1} Mbit/s, the former control {:.1} Mbit/s",
                        megabits(window.rate),
                        megabits(before)
                    ),
                })
            }
            Phase::Trial { .. } => {
                self.begin_model_based(now);
                None
            }
            Phase::ModelBased { clean, explained } => {
                let is_clean = window.loss < CLEAN.1;
                let count = |so_far, goes_on| if goes_on { so_far + 1 } else { 0 };
                let clean = count(clean, is_clean);
                let explained = count(explained, is_clean || window.is_queueing);
                self.phase = Phase::ModelBased { clean, explained };
                let stays = self.stay_until.is_some_and(|at| now < at);
                let reason = if clean >= CLEAN.0 {
                    self.questioned_at = None;
                    "losses have ended"
                } else if explained >= CLEAN.0 && !stays {
                    self.questioned_at = Some(now);
                    "losses coincide with a queue"
                } else {
                    return None;
                };
                self.phase = Phase::LossBased { settled: false };
                self.pause = PAUSE.0;
                Some(Change {
                    to: LOSS_BASED,
                    reason: reason.to_owned(),
                })
            }
        }
    }

    fn begin_model_based(&mut self, now: Instant) {
        self.phase = Phase::ModelBased {
            clean: 0,
            explained: 0,
        };
        let was_wrong = |at: Instant| now.saturating_sub(at) < DOUBT;
        if self.questioned_at.take().is_some_and(was_wrong) {
            self.stay_until = Some(now + self.stay);
            self.stay = (self.stay * 2).min(STAY.1);
        } else {
            self.stay = STAY.0;
        }
    }
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Bytes acknowledged per second.
    rate: f64,
    /// Share of segments retransmitted.
    loss: f64,
    /// Share of the time with data in flight that only the network limited.
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
        let seconds = now.saturating_sub(self.at).as_secs_f64();
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

/// Whether a round trip exceeds the least one by so much that a queue must be the cause.
pub fn is_queueing(longer: Duration, least: Duration) -> bool {
    longer > least.mul_f64(QUEUEING.0).max(QUEUEING.1)
}

fn megabits(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8e-6
}

#[cfg(test)]
mod tests;
