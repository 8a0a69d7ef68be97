//! The congestion window and the behavior common to all algorithms: slow start, recovery, timeout,
//! idle times.

use std::time::Duration;

use crate::event::{Ack, Idle, Timeout};
use crate::flow::{BetweenLosses, Flow, Phase};
use crate::hystart::{Hystart, HystartParameters};
use crate::parameter::{BuildError, Parameters, parameters};

parameters! {
    /// Initial value and limits of a window; every algorithm has these.
    pub struct WindowParameters {
        /// Initial window in packets (RFC 6928, section 2).
        pub initial_cwnd: u32 = 10, 1..=10_000;
        /// Largest window in packets.
        pub max_cwnd: u32 = 1 << 24, 10..=1 << 30;
        /// Smallest ssthresh in packets after a loss (RFC 5681, equation 4).
        pub min_ssthresh: u32 = 2, 1..=100;
        /// Leave the first slow start when the delay grows (HyStart++, RFC 9406).
        pub hystart: bool = false, false..=true;
    }
}

/// The window after a timeout (RFC 5681, section 3.1: the loss window), and the smallest one
/// possible.
pub const MIN_CWND: f64 = 1.0;

/// Congestion window and slow start threshold in packets, and the measurements of the flow.
///
/// Windows are real numbers, as in the papers: the whole part may be in flight.
#[derive(Clone, Debug)]
pub struct Window {
    limits: WindowParameters,
    cwnd: f64,
    ssthresh: f64,
    phase: Phase,
    /// Packets are missing or reordered, and no loss is proven yet.
    disorder: bool,
    /// Watches the delay in the first slow start, if enabled.
    hystart: Option<Hystart>,
    /// cwnd and ssthresh before the last reduction, while it may still turn out to be spurious.
    before: Option<(f64, f64)>,
    srtt: Duration,
    min_rtt: Duration,
    between_losses: BetweenLosses,
}

impl Window {
    /// An initial window. The parameters of HyStart++ matter only if it is enabled.
    ///
    /// # Errors
    ///
    /// A parameter out of range.
    pub fn new(limits: WindowParameters, hystart: HystartParameters) -> Result<Self, BuildError> {
        limits.check()?;
        hystart.check()?;
        let hystart = limits.hystart.then(|| Hystart::new(hystart));
        Ok(Self {
            cwnd: f64::from(limits.initial_cwnd.min(limits.max_cwnd)),
            limits,
            ssthresh: f64::INFINITY,
            phase: Phase::Open,
            disorder: false,
            hystart,
            before: None,
            srtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            between_losses: BetweenLosses::default(),
        })
    }

    /// Congestion window in packets, from [`MIN_CWND`] to `max_cwnd`.
    pub fn cwnd(&self) -> f64 {
        self.cwnd
    }

    /// Slow start threshold in packets; infinite until it is set.
    pub fn ssthresh(&self) -> f64 {
        self.ssthresh
    }

    /// State of loss recovery.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether nothing is being repaired and nothing is missing: the state Open of Linux.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open && !self.disorder
    }

    /// Packets are missing or reordered, and no loss is proven: the state Disorder of Linux, before
    /// the acknowledgment that shows it is handled. Only algorithms that distinguish it from
    /// [`Phase::Open`] need to know; callers without that state never call this.
    pub fn set_disorder(&mut self, disorder: bool) {
        self.disorder = disorder;
    }

    /// Whether the window is below ssthresh.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub fn srtt(&self) -> Duration {
        self.srtt
    }

    /// The smallest round-trip time measured; zero before the first sample.
    pub fn min_rtt(&self) -> Duration {
        self.min_rtt
    }

    /// Whether the window limits a flow with that many packets in flight: the value for
    /// [`Ack::cwnd_limited`], given the packets in flight before the acknowledgment.
    pub fn limits(&self, in_flight: u32) -> bool {
        // As in Linux (tcp_is_cwnd_limited): in slow start half a window in use suffices, because
        // it doubles
        let used = f64::from(in_flight);
        if self.in_slow_start() {
            2.0 * used > self.cwnd
        } else {
            used + 1.0 > self.cwnd
        }
    }

    /// First step of an algorithm for every acknowledgment: measures, and grows the window in slow
    /// start. Returns the packets left for congestion avoidance, 0 if the window must not grow.
    pub fn acknowledge(&mut self, ack: &Ack) -> f64 {
        self.measure(ack);
        if !self.may_grow(ack) {
            return 0.0;
        }
        self.slow_start(ack)
    }

    /// The first part of [`Window::acknowledge`]: records the measurements of the acknowledgment.
    pub fn measure(&mut self, ack: &Ack) {
        self.between_losses.acknowledge(ack.acked);
        if !ack.srtt.is_zero() {
            self.srtt = ack.srtt;
        }
        if let Some(rtt) = ack.rtt
            && (self.min_rtt.is_zero() || rtt < self.min_rtt)
        {
            self.min_rtt = rtt;
        }
    }

    /// The second part: whether the window may grow now. An unused window proves nothing about the
    /// path. If it grew unused, a loss would have no effect: RFC 5681 halves the data in flight,
    /// this crate the window.
    pub fn may_grow(&self, ack: &Ack) -> bool {
        ack.cwnd_limited && self.phase != Phase::Recovery
    }

    /// The third part: slow start. Returns the packets left for congestion avoidance.
    pub fn slow_start(&mut self, ack: &Ack) -> f64 {
        let acked = f64::from(ack.acked);
        if !self.in_slow_start() {
            return acked;
        }
        // RFC 3465, section 2.2, without a limit per acknowledgment, as in Linux
        let mut growth = acked;
        // RFC 9406, section 4.3: only for the first slow start
        if let Some(hystart) = &mut self.hystart
            && self.ssthresh.is_infinite()
        {
            growth = hystart.growth(ack);
            if hystart.is_over() {
                self.ssthresh = self.cwnd;
                return acked;
            }
        }
        let used = growth.min(self.ssthresh - self.cwnd);
        self.grow(used);
        growth - used
    }

    /// Grows or shrinks the window; shrinking alone does not put a flow into slow start.
    pub fn grow(&mut self, packets: f64) {
        self.set_cwnd(self.cwnd + packets);
        if packets < 0.0 {
            self.ssthresh = self.ssthresh.min(self.cwnd);
        }
    }

    /// Sets the window, within its limits. NaN is ignored; it is a bug of the caller.
    pub fn set_cwnd(&mut self, packets: f64) {
        debug_assert!(!packets.is_nan(), "the window is not a number");
        if !packets.is_nan() {
            self.cwnd = packets.clamp(MIN_CWND, f64::from(self.limits.max_cwnd));
        }
    }

    /// Sets the slow start threshold, to at least `min_ssthresh`. NaN is ignored here too.
    pub fn set_ssthresh(&mut self, packets: f64) {
        debug_assert!(!packets.is_nan(), "ssthresh is not a number");
        if !packets.is_nan() {
            self.ssthresh = packets.max(f64::from(self.limits.min_ssthresh));
        }
    }

    /// A loss: window and threshold become `to`, but at least `min_ssthresh`.
    pub fn enter_recovery(&mut self, to: f64) {
        self.before = Some((self.cwnd, self.ssthresh));
        self.between_losses.lose();
        self.set_ssthresh(to);
        self.set_cwnd(self.ssthresh);
        self.phase = Phase::Recovery;
    }

    /// A timeout: the window becomes one packet, and the threshold `ssthresh` unless the timer
    /// fired before for the same packet.
    pub fn enter_loss(&mut self, ssthresh: f64, timeout: &Timeout) {
        if !timeout.repeated {
            self.before = Some((self.cwnd, self.ssthresh));
            self.between_losses.lose();
            self.set_ssthresh(ssthresh);
        }
        self.set_cwnd(MIN_CWND);
        self.phase = Phase::Loss;
    }

    /// All losses are repaired.
    pub fn exit_recovery(&mut self) {
        self.phase = Phase::Open;
        self.before = None;
    }

    /// The loss was spurious: restores the earlier window unless the current one is larger, and
    /// ends recovery.
    pub fn undo(&mut self) {
        if let Some((cwnd, ssthresh)) = self.before {
            self.set_cwnd(cwnd.max(self.cwnd));
            self.ssthresh = ssthresh;
        }
        self.exit_recovery();
    }

    /// An idle time: the window is halved for each timeout that it lasted, down to the initial
    /// window; ssthresh keeps three quarters of it.
    pub fn decay(&mut self, idle: &Idle) {
        // RFC 2861, section 3.1, as in Linux
        let least = self.cwnd.min(f64::from(self.limits.initial_cwnd));
        let mut rest = idle.lasted.saturating_sub(idle.rto);
        if idle.rto.is_zero() || rest.is_zero() {
            return;
        }
        self.set_ssthresh(self.ssthresh.max(0.75 * self.cwnd));
        while !rest.is_zero() && self.cwnd > least {
            self.cwnd /= 2.0;
            rest = rest.saturating_sub(idle.rto);
        }
        self.set_cwnd(self.cwnd.max(least));
    }

    /// The state of the flow that its siblings see.
    pub fn flow(&self) -> Flow {
        Flow {
            cwnd: self.cwnd,
            srtt: self.srtt,
            min_rtt: self.min_rtt,
            between_losses: self.between_losses,
            phase: self.phase,
            in_slow_start: self.in_slow_start(),
        }
    }
}
