//! CUBIC (RFC 9438) with a bounded queue: the congestion control of datagram carriers.
//!
//! CUBIC alone fills the path's queue until it overflows. The flows inside a carrier would then see
//! a long delay, and their own congestion controls a loss. Here the window is also reduced when the
//! delay shows a standing queue of more than about 10 ms. The remaining queue is above the carrier,
//! where the engine can shorten and reorder it.
//!
//! A bounded queue loses against flows that fill it, such as those of TCP. Therefore:
//!
//! - *Alone*: each reduction ends the excess, because the queue was our own.
//! - *In company*: several reductions change nothing, because others keep the queue. The window is
//!   restored, and CUBIC runs without the bound for some seconds; then the bound is tried again.
//!
//! Losses and CE marks have the effect that they have in CUBIC, in both cases: beside TCP, a
//! carrier takes no more than TCP does. As a reduction for delay is no evidence of a smaller
//! capacity, the window returns quickly to its former value while the queue is short.
//!
//! The least round trip, from which the queue is measured, is valid for ten seconds. A flow that
//! has kept a queue all that time drains it for one period to measure again.
//!
//! This module has no clock and no socket. Windows are in packets of the size that the path takes:
//! CUBIC's growth after random losses is in packets, and other QUIC senders on the path count the
//! same ones. Times are since an epoch of the caller's choice.

mod delay;

use std::time::Duration;

use sumlink_congestion::cubic::{Cubic, CubicParameters};
use sumlink_congestion::hystart::HystartParameters;
use sumlink_congestion::{
    Ack, Algorithm, CongestionControl, Instant, Loss, Siblings, Timeout, Window, WindowParameters,
};

use delay::Delay;

/// The congestion control of one datagram carrier.
///
/// CUBIC (RFC 9438). It also reduces its window when the delay shows that it keeps a queue.
#[derive(Clone, Debug)]
pub struct BoundedCubic {
    cubic: Cubic,
    /// Bytes of a packet: the largest UDP payload that the path takes.
    packet: u16,
    /// Acknowledged bytes that are no whole packet yet.
    remainder: u64,
    delivered: u64,
    /// Time of the last reduction for a loss, until a later packet is acknowledged.
    recovery: Option<Instant>,
    delay: Delay,
    srtt: Duration,
    mode: Mode,
    /// Time in company after the last failure of the bound, and its end.
    patience: Duration,
    alone_since: Instant,
}

/// An acknowledgment of data.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When it arrived.
    pub now: Instant,
    /// When the newest of the acknowledged packets was sent.
    pub sent: Instant,
    /// UDP payload bytes of the packets that it acknowledges.
    pub bytes: u64,
    /// A new sample of the round trip.
    pub rtt: Option<Duration>,
    /// The smoothed round trip; zero before the first sample.
    pub srtt: Duration,
    /// Most bytes that were in flight since the previous acknowledgment.
    pub used: u64,
    /// Datagrams wait for the window or its pacing. A small window is rarely full: the carrier is
    /// refilled after a part of it has left.
    pub waits: bool,
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
    /// The largest window before a reduction for delay, to which it may return; 0 after a loss, and
    /// infinite before the first reduction or loss.
    former: f64,
    /// The present excess of the queue.
    excess: Option<Excess>,
    /// The queue has half of the bound: the window stays.
    is_full: bool,
    /// The window while the queue is drained.
    drain: Option<f64>,
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

impl Alone {
    /// At first, or again after company.
    fn with_former(former: f64) -> Self {
        Self {
            former,
            excess: None,
            is_full: false,
            drain: None,
        }
    }
}

/// Bytes of the smallest packet: QUIC requires every path to carry it (RFC 9000, section 14).
pub const SMALLEST_PACKET: u16 = 1200;

/// Initial window in bytes, but at least two packets (RFC 9002, section 7.2).
const INITIAL: u32 = 14_720;

/// Largest window in packets: 150 MB.
const LARGEST: u32 = 1 << 17;

/// Smallest window in packets.
const MIN: f64 = 4.0;

/// Growth of the window per period until the path's capacity has been seen once.
const GROWTH: f64 = 1.25;

/// Share of the path's capacity that is in flight while the queue is drained.
const DRAIN_SHARE: f64 = 0.75;

/// Reductions of the window after which others keep the queue: three are enough for a capacity that
/// falls to an eighth.
const REDUCTIONS: u32 = 3;

/// Time without the bound; doubles up to the second value while the bound fails.
const COMPANY_TIME: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(40));

impl BoundedCubic {
    /// The control of a new connection over a path that takes UDP payloads of `mtu` bytes.
    pub fn new(mtu: u16) -> Self {
        let packet = mtu.max(SMALLEST_PACKET);
        Self {
            cubic: cubic(packet),
            packet,
            remainder: 0,
            delivered: 0,
            recovery: None,
            delay: Delay::default(),
            srtt: Duration::ZERO,
            mode: Mode::Alone(Alone::with_former(f64::INFINITY)),
            patience: Duration::ZERO,
            alone_since: Instant::ZERO,
        }
    }

    /// Bytes that may be in flight.
    pub fn window(&self) -> u64 {
        let drained = match self.mode {
            Mode::Alone(Alone {
                drain: Some(window),
                ..
            }) => window,
            _ => f64::INFINITY,
        };
        let packets = self.cubic.cwnd().min(drained).max(MIN);
        // quinn sends a packet only if the window exceeds what is in flight with it.
        let least = 2 * u64::from(self.packet) + 1;
        self.bytes(packets).max(least)
    }

    /// The window at the start of a connection in bytes.
    pub fn initial_window(&self) -> u64 {
        u64::from(initial_packets(self.packet)) * u64::from(self.packet)
    }

    /// The threshold of slow start in bytes, once known.
    pub fn ssthresh(&self) -> Option<u64> {
        let packets = self.cubic.ssthresh();
        packets.is_finite().then(|| self.bytes(packets))
    }

    /// The least round trip; zero before the first sample.
    pub fn base(&self) -> Duration {
        self.delay.base()
    }

    /// The path takes UDP payloads of `mtu` bytes from now on. The window keeps its bytes.
    pub fn set_mtu(&mut self, mtu: u16) {
        let packet = mtu.max(SMALLEST_PACKET);
        if packet == self.packet {
            return;
        }
        let factor = f64::from(self.packet) / f64::from(packet);
        self.packet = packet;
        self.remainder = 0;
        let packets = factor * self.cubic.cwnd();
        if self.cubic.window().in_slow_start() {
            self.cubic.window_mut().set_cwnd(packets.max(MIN));
        } else {
            self.set_window(packets);
        }
        if let Mode::Alone(alone) = &mut self.mode {
            alone.former *= factor;
            alone.drain = alone.drain.map(|window| factor * window);
            if let Some(excess) = &mut alone.excess {
                excess.window *= factor;
                excess.rate *= factor;
            }
        }
    }

    fn bytes(&self, packets: f64) -> u64 {
        (packets * f64::from(self.packet)) as u64
    }

    /// Data was acknowledged.
    pub fn on_ack(&mut self, acked: &Acked) {
        if self.recovery.is_some_and(|since| acked.sent > since) {
            self.recovery = None;
            self.cubic.on_recovery_exit(acked.now);
        }
        let is_limited = acked.waits || self.is_limited(acked.used);
        self.srtt = acked.srtt;
        self.delay.count(acked, is_limited);
        self.grow(acked, is_limited);
        let (now, in_slow_start) = (acked.now, self.cubic.window().in_slow_start());
        if in_slow_start && self.leaves_slow_start(now) {
            // These packets were sent with half of the present window.
            self.set_window(self.cubic.cwnd() / 2.0);
            self.delay.restart(now);
        } else if self.delay.is_period_over(acked) {
            match !in_slow_start && self.end_period(now) {
                true => self.delay.restart(now),
                false => self.delay.proceed(),
            }
        }
    }

    /// A packet sent at `sent` was lost, or marked by the path. Losses of one window have one
    /// effect.
    pub fn on_loss(&mut self, now: Instant, sent: Instant, is_persistent: bool) {
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
        }
    }

    fn is_limited(&self, used: u64) -> bool {
        let (used, window) = (used as f64, self.window() as f64);
        // Pacing keeps a part of the window open. Slow start doubles the amount used.
        let share = if self.cubic.window().in_slow_start() {
            0.5
        } else {
            0.85
        };
        used >= share * window
    }

    /// Whether the queue begins to grow. Slow start doubles it with each round trip, and does not
    /// wait for the end of a period.
    fn leaves_slow_start(&self, now: Instant) -> bool {
        let is_alone = matches!(self.mode, Mode::Alone(_));
        is_alone && self.delay.recent_queue() > self.bound(now) / 2
    }

    /// CUBIC's growth.
    fn grow(&mut self, acked: &Acked, is_limited: bool) {
        let bytes = self.remainder + acked.bytes;
        let packet = u64::from(self.packet);
        self.remainder = bytes % packet;
        let packets = u32::try_from(bytes / packet).unwrap_or(u32::MAX);
        self.delivered = self.delivered.saturating_add(u64::from(packets));
        let stays = match self.mode {
            Mode::Alone(alone) => alone.is_full || alone.drain.is_some(),
            Mode::Company { .. } => false,
        };
        let ack = Ack {
            now: acked.now,
            acked: packets,
            rtt: acked.rtt,
            srtt: acked.srtt,
            acknowledged: self.delivered,
            sent: self.delivered,
            cwnd_limited: is_limited && !stays,
        };
        self.cubic.on_ack(&ack, &Siblings::NONE);
    }

    /// Judges the queue at the end of a period. Returns whether the window has changed.
    fn end_period(&mut self, now: Instant) -> bool {
        match self.mode {
            Mode::Alone(alone) => self.end_period_alone(alone, now),
            Mode::Company { until, least } => {
                let least = [least, self.delay.least()].into_iter().flatten().min();
                let is_short = self.delay.queue() <= self.bound(now) / 2;
                if is_short || now >= until {
                    if !is_short {
                        // If the route has become longer, this is its round trip.
                        self.delay.set_base(least, now);
                    }
                    self.alone_since = now;
                    self.mode = Mode::Alone(Alone::with_former(0.0));
                } else {
                    self.mode = Mode::Company { until, least };
                }
                false
            }
        }
    }

    fn end_period_alone(&mut self, mut alone: Alone, now: Instant) -> bool {
        let (queue, bound) = (self.delay.queue(), self.bound(now));
        let is_limited = self.delay.is_limited();
        let mut has_changed = true;
        if alone.drain.is_none() {
            alone.is_full = is_limited && queue >= bound / 2;
        }
        if alone.drain.take().is_some() {
            self.delay.set_base(self.delay.least(), now);
        } else if !is_limited {
            // The queue is not ours: a good time to measure.
            alone.excess = None;
            if self.delay.is_base_old(now) {
                self.delay.set_base(self.delay.least(), now);
            }
            has_changed = false;
        } else if self.delay.is_base_old(now) {
            let capacity = self.rate(now) * self.delay.base().as_secs_f64();
            alone.drain = Some(DRAIN_SHARE * capacity);
        } else if queue > bound {
            if let Some(excess) = alone.excess
                && excess.reductions >= REDUCTIONS
            {
                self.join_company(excess, now);
                return true;
            }
            self.reduce(&mut alone, now);
        } else {
            if queue <= 3 * bound / 4 {
                // A reduction aims at half of the bound.
                alone.excess = None;
            }
            let mut window = self.fitting(now).min(alone.former);
            if alone.former.is_infinite() && queue < bound / 4 {
                // Jitter has ended slow start.
                window = window.max(GROWTH * self.cubic.cwnd());
            }
            has_changed = queue < bound / 2 && window > self.cubic.cwnd();
            if has_changed {
                self.set_window(window);
            }
        }
        self.mode = Mode::Alone(alone);
        has_changed
    }

    /// Reduces the window so that half of the bound is left.
    fn reduce(&mut self, alone: &mut Alone, now: Instant) {
        let cwnd = self.cubic.cwnd();
        let first = Excess {
            window: cwnd,
            rate: self.rate(now),
            reductions: 0,
        };
        alone.excess.get_or_insert(first).reductions += 1;
        alone.former = match alone.former.is_finite() {
            true => alone.former.max(cwnd),
            false => cwnd,
        };
        self.set_window(self.fitting(now).clamp(cwnd / 2.0, 0.95 * cwnd));
    }

    /// Undoes the reductions of the bound, and leaves it off for a while.
    fn join_company(&mut self, excess: Excess, now: Instant) {
        // If it was the capacity that fell, the former window would be too large.
        let fitting = excess.rate * self.srtt.as_secs_f64();
        self.set_window(fitting.min(excess.window).max(self.cubic.cwnd()));
        let has_lasted = now > self.alone_since + COMPANY_TIME.1;
        self.patience = match has_lasted {
            true => COMPANY_TIME.0,
            false => (2 * self.patience).clamp(COMPANY_TIME.0, COMPANY_TIME.1),
        };
        self.mode = Mode::Company {
            until: now + self.patience,
            least: None,
        };
    }

    /// Continues CUBIC from this window, on a curve that begins at its plateau.
    fn set_window(&mut self, packets: f64) {
        self.cubic = cubic(self.packet);
        let window = self.cubic.window_mut();
        window.set_cwnd(packets.max(MIN));
        window.set_ssthresh(window.cwnd());
        if self.recovery.is_some() {
            window.enter_recovery(window.cwnd());
        }
    }

    /// The window with which half of the bound is in the queue, in packets, according to a period
    /// that used the present one.
    fn fitting(&self, now: Instant) -> f64 {
        let (queue, bound) = (self.delay.queue(), self.bound(now));
        let missing = bound.as_secs_f64() / 2.0 - queue.as_secs_f64();
        self.cubic.cwnd() + self.rate(now) * missing
    }

    /// Packets per second that were acknowledged in this period.
    fn rate(&self, now: Instant) -> f64 {
        self.delay.rate(now) / f64::from(self.packet)
    }

    /// The bound on the queue.
    fn bound(&self, now: Instant) -> Duration {
        self.delay.bound(self.packet, now)
    }
}

/// The initial window.
fn initial_packets(packet: u16) -> u32 {
    (INITIAL / u32::from(packet)).max(2)
}

fn cubic(packet: u16) -> Cubic {
    // The bound ends slow start instead of HyStart++, which takes jitter for a queue.
    let limits = WindowParameters {
        initial_cwnd: initial_packets(packet),
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
