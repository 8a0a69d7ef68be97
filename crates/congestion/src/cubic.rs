//! CUBIC: the window follows a cubic curve in time with its plateau at the window of the last loss.
//!
//! Source: RFC 9438. The curve does not depend on the round-trip time, so long paths catch up. On
//! short paths, where Reno would be faster, it behaves like Reno.
//!
//! Constants and equations are those of the RFC; windows are in packets, times in seconds.

use crate::Instant;
use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Idle, Loss, Timeout};
use crate::parameter::{BuildError, Parameters, parameters};
use crate::root::cube_root;
use crate::siblings::Siblings;
use crate::window::{Window, WindowParameters};

parameters! {
    /// Parameters of CUBIC.
    pub struct CubicParameters {
        /// Steepness of the curve, in packets per cubic second (C; RFC 9438, section 5.1).
        pub c: f64 = 0.4, 0.001..=100.0;
        /// Share of the window that remains after a loss (RFC 9438, section 4.6).
        pub beta: f64 = 0.7, 0.1..=0.95;
        /// Release bandwidth when losses occur at ever smaller windows (RFC 9438, section 4.7).
        pub fast_convergence: bool = true, false..=true;
        /// Never be slower than Reno (RFC 9438, section 4.3).
        pub reno_friendly: bool = true, false..=true;
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cubic {
    window: Window,
    parameters: CubicParameters,
    curve: Curve,
    /// The curve before the last reduction.
    before: Option<Curve>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Curve {
    /// W_max: the window at the last loss, or less with fast convergence. 0 before the first loss.
    w_max: f64,
    /// cwnd_prior: the window when ssthresh was last set. 0 before.
    cwnd_prior: f64,
    /// The current stage of congestion avoidance.
    epoch: Option<Epoch>,
    /// The last congestion event was a timeout: the next epoch starts flat.
    after_timeout: bool,
}

#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Its start, plus the time during which the window was unused.
    start: Instant,
    /// Time of the last acknowledgment.
    last: Instant,
    /// K: seconds until the curve reaches its plateau.
    k: f64,
    /// W_est: the window that Reno would have.
    w_est: f64,
}

impl Algorithm for Cubic {
    const INFO: Info = Info {
        name: "cubic",
        about: "a cubic curve in time around the last loss: the default of Linux, Windows and \
            macOS",
        source: "RFC 9438",
        coupled: false,
    };
    type Parameters = CubicParameters;

    fn window_parameters() -> WindowParameters {
        // RFC 9438, section 4.10
        WindowParameters {
            hystart: true,
            ..WindowParameters::default()
        }
    }

    fn new(window: Window, parameters: CubicParameters) -> Result<Self, BuildError> {
        parameters.check()?;
        Ok(Self {
            window,
            parameters,
            curve: Curve::default(),
            before: None,
        })
    }
}

impl CongestionControl for Cubic {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, _siblings: &Siblings<'_>) {
        self.window.measure(ack);
        if !self.window.may_grow(ack) {
            self.pause_curve(ack.now);
            return;
        }
        let acked = self.window.slow_start(ack);
        if acked > 0.0 && !self.window.in_slow_start() {
            self.avoid_congestion(ack.now, acked);
        }
    }

    fn on_loss(&mut self, _loss: &Loss, _siblings: &Siblings<'_>) {
        self.record_loss();
        // RFC 9438, section 4.6
        self.window
            .enter_recovery(self.parameters.beta * self.curve.cwnd_prior);
    }

    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        if !timeout.repeated {
            self.record_loss();
            self.curve.after_timeout = true;
        }
        // RFC 9438, section 4.8
        let ssthresh = self.parameters.beta * self.curve.cwnd_prior;
        self.window.enter_loss(ssthresh, timeout);
    }

    fn on_recovery_exit(&mut self, _now: Instant) {
        self.window.exit_recovery();
        self.before = None;
    }

    fn on_spurious_loss(&mut self, _now: Instant) {
        // RFC 9438, section 4.9.2
        if let Some(before) = self.before.take()
            && self.cwnd() < self.curve.cwnd_prior
        {
            self.curve = before;
        }
        self.window.undo();
    }

    fn on_idle_end(&mut self, idle: &Idle) {
        self.window.decay(idle);
        self.pause_curve(idle.now);
    }
}

impl Cubic {
    /// Records the window and the next curve's plateau at a loss.
    fn record_loss(&mut self) {
        self.before = Some(self.curve);
        let cwnd = self.window.cwnd();
        let CubicParameters { beta, .. } = self.parameters;
        // RFC 9438, section 4.7
        let shrinks = self.parameters.fast_convergence && cwnd < self.curve.w_max;
        self.curve = Curve {
            w_max: if shrinks {
                cwnd * (1.0 + beta) / 2.0
            } else {
                cwnd
            },
            cwnd_prior: cwnd,
            epoch: None,
            after_timeout: false,
        };
    }

    /// The window was unused until now: the curve does not advance (RFC 9438, section 4.2 excludes
    /// such times from t).
    fn pause_curve(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.curve.epoch {
            epoch.start += now.saturating_sub(epoch.last);
            epoch.last = now;
        }
    }

    fn avoid_congestion(&mut self, now: Instant, acked: f64) {
        let cwnd = self.window.cwnd();
        let srtt = self.window.srtt().as_secs_f64();
        let mut epoch = self.curve.epoch.unwrap_or_else(|| self.begin_epoch(now));
        epoch.last = now;
        let t = now.saturating_sub(epoch.start).as_secs_f64();
        // RFC 9438, section 4.2
        let target = self.w_cubic(&epoch, t + srtt).clamp(cwnd, 1.5 * cwnd);
        // RFC 9438, section 4.3, equation 4
        epoch.w_est += self.alpha(&epoch) * acked / cwnd;
        let slower = self.w_cubic(&epoch, t).max(cwnd) < epoch.w_est;
        if slower && self.parameters.reno_friendly {
            self.window.set_cwnd(epoch.w_est);
        } else {
            // RFC 9438, sections 4.4 and 4.5, for each acknowledged packet
            let step = acked * (target - cwnd) / cwnd;
            self.window.grow(step.min(target - cwnd));
        }
        self.curve.epoch = Some(epoch);
    }

    /// Starts congestion avoidance.
    fn begin_epoch(&mut self, now: Instant) -> Epoch {
        let cwnd = self.window.cwnd();
        let curve = &mut self.curve;
        if curve.cwnd_prior == 0.0 {
            // RFC 9438, section 4.10: slow start ended without a loss
            curve.cwnd_prior = cwnd;
        }
        // RFC 9438, sections 4.8 and 4.10: after a timeout, and without a loss, the curve starts at
        // its plateau
        if std::mem::take(&mut curve.after_timeout) || curve.w_max < cwnd {
            curve.w_max = cwnd;
        }
        Epoch {
            start: now,
            last: now,
            // RFC 9438, section 4.2, equation 2
            k: cube_root((curve.w_max - cwnd) / self.parameters.c),
            w_est: cwnd,
        }
    }

    /// The window at `t` seconds into the epoch.
    fn w_cubic(&self, epoch: &Epoch, t: f64) -> f64 {
        // RFC 9438, section 4.2, equation 1
        let from_plateau = t - epoch.k;
        self.parameters.c * from_plateau * from_plateau * from_plateau + self.curve.w_max
    }

    /// Packets per round trip in the Reno-friendly region.
    fn alpha(&self, epoch: &Epoch) -> f64 {
        // RFC 9438, section 4.3
        if epoch.w_est >= self.curve.cwnd_prior {
            return 1.0;
        }
        let beta = self.parameters.beta;
        3.0 * (1.0 - beta) / (1.0 + beta)
    }
}

#[cfg(test)]
mod tests;
