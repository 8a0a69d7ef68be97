//! CUBIC (RFC 9438) with a bounded queue: the congestion control of datagram carriers.
//!
//! CUBIC alone fills the path's queue until it overflows. The flows inside a carrier would then see
//! a long delay, and their own congestion controls a loss. Here the window is also reduced when the
//! delay shows a standing queue of more than about [`LEAST_BOUND`]. The remaining queue is above the
//! carrier, where the engine can shorten and reorder it.
//!
//! A bounded queue loses against flows that fill it, such as those of TCP. Therefore:
//!
//! - *Alone*: each reduction ends the excess after one round trip, because the queue was our own.
//! - *In company*: several reductions change nothing, because others keep the queue. The window is
//!   restored, and CUBIC runs without the bound for some seconds; then the bound is tried again.
//!
//! Losses and CE marks have the effect that they have in CUBIC, in both cases: beside TCP, a
//! carrier takes no more than TCP does. As a reduction for delay is no evidence of a smaller
//! capacity, the window returns quickly to its former value while the queue is empty.
//!
//! The least round trip, from which the queue is measured, is valid for [`BASE_LIFETIME`]. A flow
//! that has kept a queue all that time drains it for two round trips to measure again.
//!
//! This module has no clock and no socket. Windows are in packets of [`PACKET`] bytes, times are
//! since an epoch of the caller's choice.

use std::time::Duration;

use sumlink_congestion::cubic::{Cubic, CubicParameters};
use sumlink_congestion::hystart::HystartParameters;
use sumlink_congestion::{
    Ack, Algorithm, CongestionControl, Instant, Loss, Siblings, Timeout, Window, WindowParameters,
};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct BoundedCubic {
    cubic: Cubic,
    /// Largest UDP payload in bytes.
    mtu: u16,
    /// Acknowledged bytes that are no whole packet yet.
    remainder: u64,
    delivered: u64,
    /// Time of the last reduction for a loss, until a later packet is acknowledged.
    recovery: Option<Instant>,
    base: Option<Base>,
    round: Round,
    /// The last samples of the round trip, the newest at any place.
    recent: [Duration; SAMPLES],
    samples: usize,
    srtt: Duration,
    mode: Mode,
    /// Time in company after the last failure of the bound, and its end.
    patience: Duration,
    alone_since: Instant,
}

/// An acknowledgment of data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    pub(super) now: Instant,
    /// When the newest of the acknowledged packets was sent.
    pub(super) sent: Instant,
    pub(super) bytes: u64,
    /// A new sample of the round trip.
    pub(super) rtt: Option<Duration>,
    /// The smoothed round trip; zero before the first sample.
    pub(super) srtt: Duration,
    /// Most bytes that were in flight since the previous acknowledgment.
    pub(super) used: u64,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Alone(Alone),
    Company {
        until: Instant,
        /// The least round trip since it began.
        least: Option<Duration>,
    },
}

/// State of the bound.
#[derive(Clone, Copy, Debug)]
struct Alone {
    /// The window before the last reductions for delay, to which it may return; 0 after a loss, and
    /// infinite before the first one.
    former: f64,
    /// The present excess of the queue.
    excess: Option<Excess>,
    /// The last change of the window is not yet visible in the delay.
    is_settling: bool,
    /// The window while the queue is drained, and the rounds left.
    drain: Option<(f64, u32)>,
}

/// A queue above the bound, until a reduction has shortened it.
#[derive(Clone, Copy, Debug)]
struct Excess {
    /// The window when it began, and the packets per second that arrived then.
    window: f64,
    rate: f64,
    /// Reductions so far.
    reductions: u32,
}

/// The least round trip.
#[derive(Clone, Copy, Debug)]
struct Base {
    rtt: Duration,
    /// When it was last measured, about.
    at: Instant,
}

impl Alone {
    /// At first, or again after company.
    fn with_former(former: f64) -> Self {
        Self {
            former,
            excess: None,
            is_settling: false,
            drain: None,
        }
    }
}

/// A round trip: it ends when a packet is acknowledged that was sent in it.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    begun: Instant,
    least: Option<Duration>,
    /// Bytes acknowledged.
    acked: u64,
    /// Whether the window limited the flow.
    is_limited: bool,
}

/// Bytes of a packet of CUBIC: the least that QUIC requires a path to take.
pub(super) const PACKET: u64 = 1200;

/// Initial window in packets (RFC 9002, section 7.2: 14,720 bytes).
const INITIAL: u32 = 12;

/// Largest window in packets: 150 MB.
const LARGEST: u32 = 1 << 17;

/// Smallest window in packets.
const LEAST: f64 = 4.0;

/// The bound on the standing queue: an eighth of the base round trip, within these limits. The lower
/// one is above the jitter of Wi-Fi and of cellular schedulers, whose minimum counts.
const LEAST_BOUND: Duration = Duration::from_millis(10);
const LARGEST_BOUND: Duration = Duration::from_millis(50);

/// Packets that always fit in the bound.
const BOUND_PACKETS: f64 = 3.0;

/// Samples whose minimum shows a queue in slow start, which must not wait for the end of a round
/// (RFC 9406, section 4.3: N_RTT_SAMPLE).
const SAMPLES: usize = 8;

/// How long the least round trip is valid.
const BASE_LIFETIME: Duration = Duration::from_secs(10);

/// Rounds of draining: one for the effect, one for the measurement.
const DRAIN_ROUNDS: u32 = 2;

/// Share of the path's capacity that is in flight while the queue is drained.
const DRAIN_SHARE: f64 = 0.75;

/// Reductions of the window after which others keep the queue: three are enough for a capacity that
/// falls to an eighth.
const REDUCTIONS: u32 = 3;

/// Time without the bound; doubles up to the second value while the bound fails.
const COMPANY_TIME: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(40));

impl BoundedCubic {
    /// The control of a new connection over a path that takes UDP payloads of `mtu` bytes.
    pub(super) fn new(mtu: u16) -> Self {
        Self {
            cubic: cubic(),
            mtu,
            remainder: 0,
            delivered: 0,
            recovery: None,
            base: None,
            round: Round::default(),
            recent: [Duration::ZERO; SAMPLES],
            samples: 0,
            srtt: Duration::ZERO,
            mode: Mode::Alone(Alone::with_former(f64::INFINITY)),
            patience: Duration::ZERO,
            alone_since: Instant::ZERO,
        }
    }

    /// Bytes that may be in flight.
    pub(super) fn window(&self) -> u64 {
        let drained = match self.mode {
            Mode::Alone(Alone {
                drain: Some((window, _)),
                ..
            }) => window,
            _ => f64::INFINITY,
        };
        let packets = self.cubic.cwnd().min(drained).max(LEAST);
        // quinn sends a packet only if the window exceeds what is in flight with it.
        let least = 2 * u64::from(self.mtu) + 1;
        ((packets * PACKET as f64) as u64).max(least)
    }

    /// The window at the start of a connection in bytes.
    pub(super) fn initial_window(&self) -> u64 {
        u64::from(INITIAL) * PACKET
    }

    /// The threshold of slow start in bytes, once known.
    pub(super) fn ssthresh(&self) -> Option<u64> {
        let packets = self.cubic.ssthresh();
        packets
            .is_finite()
            .then_some((packets * PACKET as f64) as u64)
    }

    /// The path takes UDP payloads of `mtu` bytes from now on.
    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.mtu = mtu;
    }

    /// Data was acknowledged.
    pub(super) fn on_ack(&mut self, acked: &Acked) {
        if self.recovery.is_some_and(|since| acked.sent > since) {
            self.recovery = None;
            self.cubic.on_recovery_exit(acked.now);
        }
        let is_limited = self.is_limited(acked.used);
        self.srtt = acked.srtt;
        self.round.acked += acked.bytes;
        self.round.is_limited |= is_limited;
        if let Some(rtt) = acked.rtt {
            self.measure(rtt, acked.now);
        }
        self.grow(acked, is_limited);
        if let Mode::Alone(alone) = self.mode
            && self.cubic.window().in_slow_start()
            && self.queue_in_slow_start() > self.bound(acked.now) / 2
        {
            self.mode = Mode::Alone(self.reduce(alone, acked.now));
        }
        if acked.sent >= self.round.begun {
            self.end_round(acked.now);
            self.round = Round {
                begun: acked.now,
                ..Round::default()
            };
        }
    }

    /// A packet sent at `sent` was lost, or marked by the path. Losses of one window have one
    /// effect.
    pub(super) fn on_loss(&mut self, now: Instant, sent: Instant, is_persistent: bool) {
        if self.recovery.is_some_and(|since| sent <= since) {
            return;
        }
        self.recovery = Some(now);
        if is_persistent {
            let repeated = false;
            self.cubic
                .on_rto(&Timeout { now, repeated }, &Siblings::NONE);
        } else {
            self.cubic.on_loss(&Loss { now }, &Siblings::NONE);
        }
        if let Mode::Alone(alone) = &mut self.mode {
            alone.former = 0.0;
            if let Some(excess) = &mut alone.excess {
                // Not what the bound has taken; losses beside a long queue are a sign of company.
                excess.window *= CubicParameters::default().beta;
                excess.rate *= CubicParameters::default().beta;
            }
            alone.is_settling = true;
        }
    }

    fn is_limited(&self, used: u64) -> bool {
        let (used, window) = (used as f64, self.window() as f64);
        // Pacing keeps a part of the window open. Slow start doubles what is used.
        let share = if self.cubic.window().in_slow_start() {
            0.5
        } else {
            0.85
        };
        used >= share * window
    }

    fn measure(&mut self, rtt: Duration, now: Instant) {
        let round = &mut self.round;
        round.least = Some(round.least.map_or(rtt, |least| least.min(rtt)));
        self.recent[self.samples % SAMPLES] = rtt;
        self.samples = self.samples.wrapping_add(1);
        match &mut self.base {
            Some(base) if rtt < base.rtt => *base = Base { rtt, at: now },
            Some(base) if rtt <= base.rtt + LEAST_BOUND / 8 => base.at = now,
            Some(_) => {}
            None => self.base = Some(Base { rtt, at: now }),
        }
    }

    /// CUBIC's growth.
    fn grow(&mut self, acked: &Acked, is_limited: bool) {
        let bytes = self.remainder + acked.bytes;
        self.remainder = bytes % PACKET;
        let packets = u32::try_from(bytes / PACKET).unwrap_or(u32::MAX);
        self.delivered = self.delivered.saturating_add(u64::from(packets));
        let is_draining = matches!(self.mode, Mode::Alone(Alone { drain: Some(_), .. }));
        let ack = Ack {
            now: acked.now,
            acked: packets,
            rtt: acked.rtt,
            srtt: acked.srtt,
            acknowledged: self.delivered,
            sent: self.delivered,
            cwnd_limited: is_limited && !is_draining,
        };
        self.cubic.on_ack(&ack, &Siblings::NONE);
    }

    fn end_round(&mut self, now: Instant) {
        match self.mode {
            Mode::Alone(alone) => self.mode = self.end_round_alone(alone, now),
            Mode::Company { until, least } => {
                let least = [least, self.round.least].into_iter().flatten().min();
                let is_short = self
                    .queue()
                    .is_some_and(|queue| queue <= self.bound(now) / 2);
                self.mode = if is_short || now >= until {
                    if !is_short {
                        // If the route has become longer, this is its round trip.
                        self.base = least.map(|rtt| Base { rtt, at: now });
                    }
                    self.alone_since = now;
                    Mode::Alone(Alone::with_former(0.0))
                } else {
                    Mode::Company { until, least }
                };
            }
        }
    }

    fn end_round_alone(&mut self, mut alone: Alone, now: Instant) -> Mode {
        if let Some((_, rounds)) = &mut alone.drain {
            *rounds -= 1;
            if *rounds == 0 {
                alone.drain = None;
                alone.is_settling = true;
                self.base = self.round.least.map(|rtt| Base { rtt, at: now });
            }
            return Mode::Alone(alone);
        }
        if !self.round.is_limited {
            // The queue is not ours, and short: a good time to measure.
            alone.excess = None;
            self.renew_base(now);
            return Mode::Alone(alone);
        }
        if std::mem::take(&mut alone.is_settling) {
            return Mode::Alone(alone);
        }
        if self.base.is_some_and(|base| now >= base.at + BASE_LIFETIME) {
            return Mode::Alone(self.drain(alone, now));
        }
        let (queue, bound) = (self.queue().unwrap_or_default(), self.bound(now));
        if queue > bound {
            return match alone.excess {
                Some(excess) if excess.reductions >= REDUCTIONS => self.join_company(excess, now),
                _ => Mode::Alone(self.reduce(alone, now)),
            };
        }
        if queue <= 3 * bound / 4 {
            // A reduction aims at half of the bound.
            alone.excess = None;
        }
        if queue <= bound / 4 && self.cubic.cwnd() < alone.former {
            let window = self.fitting(now).min(alone.former);
            if window > self.cubic.cwnd() {
                self.set_window(window);
                alone.is_settling = true;
            }
        }
        Mode::Alone(alone)
    }

    /// Reduces the window to what leaves half of the bound.
    fn reduce(&mut self, mut alone: Alone, now: Instant) -> Alone {
        let cwnd = self.cubic.cwnd();
        // Slow start uses a window before anything has shown that the path takes it.
        if !self.cubic.window().in_slow_start() {
            let first = Excess {
                window: cwnd,
                rate: self.rate(now),
                reductions: 0,
            };
            alone.excess.get_or_insert(first).reductions += 1;
            alone.former = alone.former.max(cwnd);
        }
        self.set_window(self.fitting(now).clamp(cwnd / 2.0, 0.95 * cwnd));
        alone.is_settling = true;
        alone
    }

    /// Restores what the bound has taken, and leaves it off for a while.
    fn join_company(&mut self, excess: Excess, now: Instant) -> Mode {
        // If it was the capacity that fell, the former window would be too large.
        let fitting = excess.rate * self.srtt.as_secs_f64();
        self.set_window(fitting.min(excess.window).max(self.cubic.cwnd()));
        let has_lasted = now > self.alone_since + COMPANY_TIME.1;
        self.patience = match has_lasted {
            true => COMPANY_TIME.0,
            false => (2 * self.patience).clamp(COMPANY_TIME.0, COMPANY_TIME.1),
        };
        let until = now + self.patience;
        Mode::Company { until, least: None }
    }

    /// Begins to drain the queue.
    fn drain(&self, alone: Alone, now: Instant) -> Alone {
        let base = self.base.map_or(Duration::ZERO, |base| base.rtt);
        let window = DRAIN_SHARE * self.rate(now) * base.as_secs_f64();
        Alone {
            drain: Some((window, DRAIN_ROUNDS)),
            ..alone
        }
    }

    /// Continues CUBIC from this window, on a curve that begins at its plateau.
    fn set_window(&mut self, packets: f64) {
        self.cubic = cubic();
        let window = self.cubic.window_mut();
        window.set_cwnd(packets.max(LEAST));
        window.set_ssthresh(window.cwnd());
        if self.recovery.is_some() {
            window.enter_recovery(window.cwnd());
        }
    }

    /// Replaces a base that is too old by the least round trip of this round.
    fn renew_base(&mut self, now: Instant) {
        if let (Some(base), Some(rtt)) = (&mut self.base, self.round.least)
            && now >= base.at + BASE_LIFETIME
        {
            *base = Base { rtt, at: now };
        }
    }

    /// The window with which half of the bound is in the queue, in packets.
    fn fitting(&self, now: Instant) -> f64 {
        let base = self.base.map_or(Duration::ZERO, |base| base.rtt);
        self.rate(now) * (base + self.bound(now) / 2).as_secs_f64()
    }

    /// The delay that the queue has added in this round.
    fn queue(&self) -> Option<Duration> {
        Some(self.round.least?.saturating_sub(self.base?.rtt))
    }

    /// The delay that the queue adds now, according to the last few samples.
    fn queue_in_slow_start(&self) -> Duration {
        match (self.base, self.recent.iter().min()) {
            (Some(base), Some(least)) if self.samples >= SAMPLES => least.saturating_sub(base.rtt),
            _ => Duration::ZERO,
        }
    }

    fn bound(&self, now: Instant) -> Duration {
        let base = self.base.map_or(Duration::ZERO, |base| base.rtt);
        let bound = (base / 8).clamp(LEAST_BOUND, LARGEST_BOUND);
        let few = Duration::try_from_secs_f64(BOUND_PACKETS / self.rate(now));
        bound.max(few.unwrap_or(LARGEST_BOUND))
    }

    /// Packets per second that were acknowledged in this round.
    fn rate(&self, now: Instant) -> f64 {
        let elapsed = now.saturating_sub(self.round.begun).as_secs_f64();
        self.round.acked as f64 / PACKET as f64 / elapsed.max(1e-6)
    }
}

fn cubic() -> Cubic {
    // The bound ends slow start instead of HyStart++, which takes jitter for a queue.
    let limits = WindowParameters {
        initial_cwnd: INITIAL,
        max_cwnd: LARGEST,
        hystart: false,
        ..WindowParameters::default()
    };
    Window::new(limits, HystartParameters::default())
        .and_then(|window| Cubic::new(window, CubicParameters::default()))
        .expect("these parameters are in range")
}

#[cfg(test)]
mod tests;
