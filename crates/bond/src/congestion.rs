//! `congestion = "auto"`: which congestion control a carrier uses, by measurement.
//!
//! A loss-based control (CUBIC) takes every loss for a full queue. Over radio many are not, and then it gives up most of
//! the link: 5 % loss at a round trip of 4 ms leaves 16 Mbit/s of any link (the square-root law, RFC 5348, section
//! 3.1). A model-based one (BBR) does not mind, but takes more than its share of a queue that others fill. So a carrier
//! begins loss-based, and changes only where losses come without a queue and a trial shows that the change pays; when
//! the losses are over, or come with a queue, it changes back. Several model-based ones fill a queue by themselves: where
//! losses without a queue are there again at once, the next change back for a queue's sake is put off. Linux changes the
//! control of a connection in use (tcp(7), TCP_CONGESTION).
//!
//! `Chooser` knows neither socket nor clock; each end of a carrier has one, for what it sends itself.

use std::time::Duration;

use crate::Instant;

use crate::TcpInfo;

/// The name that asks for this module instead of one control.
pub const AUTO: &str = "auto";

/// What a carrier begins with.
pub const LOSS_BASED: &str = "cubic";

/// What it changes to where loss is not congestion.
pub const MODEL_BASED: &str = "bbr";

/// A change of a carrier's congestion control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kernel's name of the new one.
    pub to: &'static str,
    /// For the log.
    pub reason: String,
}

/// Decides when a carrier changes its congestion control.
#[derive(Debug)]
pub struct Chooser {
    phase: Phase,
    /// Where the present measurement began.
    mark: Option<Mark>,
    /// After a trial that did not pay: none before.
    not_before: Option<Instant>,
    /// How long that lasts the next time.
    pause: Duration,
    /// When it last changed back because of a queue.
    doubted: Option<Instant>,
    /// It does not do so before ...
    stay_until: Option<Instant>,
    /// ... and stays so long the next time it turns out to have been wrong.
    stay: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Loss-based; the usual.
    LossBased,
    /// Model-based on trial; loss-based it was this many bytes a second.
    Trial { before: f64, settled: bool },
    /// Model-based, because it pays.
    ModelBased {
        /// Measurements in a row without loss.
        clean: u32,
        /// The same without a loss that no queue explains.
        explained: u32,
    },
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

/// A change back for a queue's sake was wrong if the trial that follows it pays within this time ...
const DOUBT: Duration = Duration::from_secs(30);

/// ... and the next one comes so much later, at the longest after several.
const STAY: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));

impl Default for Chooser {
    fn default() -> Self {
        Self::new()
    }
}

impl Chooser {
    /// Of a carrier that begins with [`LOSS_BASED`].
    pub fn new() -> Self {
        Self {
            phase: Phase::LossBased,
            mark: None,
            not_before: None,
            pause: PAUSE.0,
            doubted: None,
            stay_until: None,
            stay: STAY.0,
        }
    }

    /// Takes a sample of the carrier; says when it should change.
    pub fn observe(&mut self, now: Instant, info: &TcpInfo) -> Option<Change> {
        let mark = self.mark.get_or_insert_with(|| Mark::new(now, info));
        mark.note(info);
        let least = WINDOW.0.max(info.srtt * WINDOW.1);
        let time = now.saturating_sub(mark.at);
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
    pub fn refused(&mut self, now: Instant) {
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
                    self.doubted = None;
                    "nothing is lost any more"
                } else if explained >= CLEAN.0 && !stays {
                    self.doubted = Some(now);
                    "what is lost comes with a queue"
                } else {
                    return None;
                };
                self.phase = Phase::LossBased;
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
        if self.doubted.take().is_some_and(was_wrong) {
            self.stay_until = Some(now + self.stay);
            self.stay = (self.stay * 2).min(STAY.1);
        } else {
            self.stay = STAY.0;
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

/// Whether a round trip is so much longer than the least that a queue must be the cause.
pub fn is_queueing(longer: Duration, least: Duration) -> bool {
    longer > least.mul_f64(QUEUEING.0).max(QUEUEING.1)
}

fn megabits(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8e-6
}

#[cfg(test)]
mod tests;
