//! BBR as in Linux (`net/ipv4/tcp_bbr.c`, version 1), for carriers that choose their congestion
//! control by measurement.
//!
//! Source: Cardwell et al., "BBR: congestion-based congestion control", ACM Queue 14(5), 2016. It
//! belongs to the model of Linux and paces. The delivery rate is that of `delivery.rs`. It leaves its
//! drain phase when the round-trip time shows an empty queue, does not limit the window to the
//! packets in flight when recovery begins, and omits long-term sampling against policers.

use std::collections::VecDeque;
use std::time::Duration;

use sumlink_congestion::{
    Ack, CongestionControl, Delivery, Idle, Instant, Loss, Siblings, Timeout, Window,
    WindowParameters,
};

/// Gain of the startup phase, 2/ln 2, whose inverse drains the queue (`bbr_high_gain`,
/// `bbr_drain_gain`).
const HIGH_GAIN: f64 = 2.885;
/// Pacing gains while probing for bandwidth, each for one minimum round trip (`bbr_pacing_gain`).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Window in bandwidth-delay products (`bbr_cwnd_gain`).
const CWND_GAIN: f64 = 2.0;
/// Factor that paces slightly below the estimated rate (`bbr_pacing_margin_percent`).
const MARGIN: f64 = 0.99;
/// Rounds for which the highest rate is remembered (`bbr_bw_rtts`).
const ROUNDS: u64 = 10;
/// The link is full after this number of rounds without growth of the rate by this factor
/// (`bbr_full_bw_cnt`, `bbr_full_bw_thresh`).
const FULL: (u32, f64) = (3, 1.25);
/// Validity of the minimum round-trip time (`bbr_min_rtt_win_sec`).
const MIN_RTT_FOR: Duration = Duration::from_secs(10);
/// Window and duration of a probe for the minimum round-trip time (`bbr_cwnd_min_target`,
/// `bbr_probe_rtt_mode_ms`).
const PROBE_WINDOW: f64 = 4.0;
const PROBE_FOR: Duration = Duration::from_millis(200);
/// A round trip up to this factor above the minimum met no queue.
const NO_QUEUE: f64 = 1.1;
/// Most rounds of the drain phase.
const DRAIN_ROUNDS: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Startup,
    /// With the round in which it started.
    Drain(u64),
    ProbeBandwidth {
        phase: usize,
        since: Instant,
    },
    /// With its end, and the window from before.
    ProbeRtt(Instant, f64),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Bbr {
    window: Window,
    mode: Mode,
    rounds: u64,
    /// A packet sent after this number of deliveries ends the round.
    round_ends: u64,
    /// The current acknowledgment ends a round; it shows a rate that the program did not limit.
    starts_round: bool,
    is_unlimited: bool,
    /// The highest rates in packets per second, with their rounds, in descending order.
    rates: VecDeque<(u64, f64)>,
    full_rate: f64,
    full_rounds: u32,
    least: Option<(Duration, Instant)>,
    pacing_rate: Option<f64>,
    /// The window before a timeout.
    before_timeout: f64,
}

impl Bbr {
    pub(super) fn new() -> Self {
        let window = Window::new(WindowParameters::default(), Default::default());
        Self {
            window: window.expect("the default parameters are valid"),
            mode: Mode::Startup,
            rounds: 0,
            round_ends: 0,
            starts_round: false,
            is_unlimited: false,
            rates: VecDeque::new(),
            full_rate: 0.0,
            full_rounds: 0,
            least: None,
            pacing_rate: None,
            before_timeout: 0.0,
        }
    }

    fn rate(&self) -> f64 {
        self.rates.front().map_or(0.0, |(_, rate)| *rate)
    }

    /// Bandwidth-delay product in packets.
    fn product(&self) -> Option<f64> {
        let (least, _) = self.least?;
        let product = self.rate() * least.as_secs_f64();
        (product > 0.0).then_some(product)
    }

    fn is_full(&self) -> bool {
        self.full_rounds >= FULL.0
    }

    /// Takes a round-trip time; returns whether the minimum has expired.
    fn note_trip(&mut self, ack: &Ack) -> bool {
        let Some(rtt) = ack.rtt else {
            return false;
        };
        let is_old = |at: Instant| ack.now.saturating_sub(at) > MIN_RTT_FOR;
        let expired = self.least.is_some_and(|(_, at)| is_old(at));
        if self.least.is_none_or(|(least, _)| rtt <= least) || expired {
            self.least = Some((rtt, ack.now));
        }
        expired
    }

    fn change_mode(&mut self, ack: &Ack, expired: bool) {
        let now = ack.now;
        if self.starts_round && self.is_unlimited && !self.is_full() {
            if self.rate() >= self.full_rate * FULL.1 {
                (self.full_rate, self.full_rounds) = (self.rate(), 0);
            } else {
                self.full_rounds += 1;
            }
        }
        let least = self.least.map_or(Duration::ZERO, |(least, _)| least);
        match self.mode {
            Mode::Startup if self.is_full() => {
                self.mode = Mode::Drain(self.rounds);
                if let Some(product) = self.product() {
                    self.window.set_ssthresh(product);
                }
            }
            Mode::Drain(since) => {
                let is_empty = ack.rtt.is_some_and(|rtt| rtt <= least.mul_f64(NO_QUEUE));
                if is_empty || self.rounds >= since + DRAIN_ROUNDS {
                    self.probe_bandwidth(now);
                }
            }
            Mode::ProbeBandwidth { phase, since } if now.saturating_sub(since) >= least => {
                let phase = (phase + 1) % CYCLE.len();
                self.mode = Mode::ProbeBandwidth { phase, since: now };
            }
            Mode::ProbeRtt(until, window) if now >= until => {
                self.window.set_cwnd(window.max(self.window.cwnd()));
                match self.is_full() {
                    true => self.probe_bandwidth(now),
                    false => self.mode = Mode::Startup,
                }
            }
            _ => {}
        }
        if expired && !matches!(self.mode, Mode::ProbeRtt(..)) {
            self.mode = Mode::ProbeRtt(now + PROBE_FOR, self.window.cwnd());
        }
    }

    fn probe_bandwidth(&mut self, since: Instant) {
        // Linux starts with any phase except the draining one; here it is always the first at the
        // estimated rate.
        self.mode = Mode::ProbeBandwidth { phase: 2, since };
    }

    /// Gains of the pacing rate and of the window.
    fn gains(&self) -> (f64, f64) {
        match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain(_) => (1.0 / HIGH_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth { phase, .. } => (CYCLE[phase], CWND_GAIN),
            Mode::ProbeRtt(..) => (1.0, 1.0),
        }
    }

    fn set_window(&mut self, acked: f64) {
        if let Mode::ProbeRtt(..) = self.mode {
            return self.window.set_cwnd(PROBE_WINDOW);
        }
        let (_, gain) = self.gains();
        let cwnd = self.window.cwnd();
        let cwnd = match self.product() {
            Some(product) if self.is_full() => (cwnd + acked).min(gain * product + 3.0),
            Some(product) if cwnd >= gain * product + 3.0 => cwnd,
            _ => cwnd + acked,
        };
        self.window.set_cwnd(cwnd.max(PROBE_WINDOW));
    }

    fn set_pacing(&mut self, srtt: Duration) {
        let (gain, _) = self.gains();
        let rate = match self.rate() {
            0.0 if srtt.is_zero() => return,
            0.0 => self.window.cwnd() / srtt.as_secs_f64(),
            rate => rate,
        };
        let rate = gain * rate * MARGIN;
        if self.is_full() || self.pacing_rate.is_none_or(|before| rate > before) {
            self.pacing_rate = Some(rate);
        }
    }
}

impl CongestionControl for Bbr {
    fn name(&self) -> &str {
        super::BBR
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    /// Linux: bbr_update_bw.
    fn on_delivery(&mut self, delivery: &Delivery) {
        self.starts_round = delivery.before >= self.round_ends;
        self.is_unlimited = !delivery.is_limited;
        if self.starts_round {
            self.rounds += 1;
            self.round_ends = delivery.until;
        }
        let packets = delivery.until - delivery.before;
        let rate = packets as f64 / delivery.interval.as_secs_f64();
        if self.is_unlimited || rate >= self.rate() {
            while self.rates.back().is_some_and(|(_, other)| *other <= rate) {
                self.rates.pop_back();
            }
            self.rates.push_back((self.rounds, rate));
        }
        while self.rates.len() > 1 && self.rates[0].0 + ROUNDS < self.rounds {
            self.rates.pop_front();
        }
    }

    fn on_ack(&mut self, ack: &Ack, _: &Siblings<'_>) {
        self.window.measure(ack);
        let expired = self.note_trip(ack);
        self.change_mode(ack, expired);
        self.starts_round = false;
        self.set_window(f64::from(ack.acked));
        self.set_pacing(ack.srtt);
    }

    /// Losses do not change the estimate of the path.
    fn on_loss(&mut self, _: &Loss, _: &Siblings<'_>) {}

    fn on_rto(&mut self, timeout: &Timeout, _: &Siblings<'_>) {
        if !timeout.repeated {
            self.before_timeout = self.window.cwnd();
        }
        self.window.set_cwnd(1.0);
    }

    fn on_recovery_exit(&mut self, _: Instant) {
        let before = std::mem::take(&mut self.before_timeout);
        self.window.set_cwnd(self.window.cwnd().max(before));
    }

    fn on_spurious_loss(&mut self, now: Instant) {
        self.on_recovery_exit(now);
    }

    /// The window survives an idle period.
    fn on_idle_end(&mut self, _: &Idle) {}

    fn pacing_rate(&self) -> Option<f64> {
        self.pacing_rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges one packet per millisecond for `ms` milliseconds, with a round-trip time of 50
    /// ms.
    fn run(bbr: &mut Bbr, from: u64, ms: u64) {
        for n in from..from + ms {
            let ack = Ack {
                now: Duration::from_millis(n),
                acked: 1,
                rtt: Some(Duration::from_millis(50)),
                srtt: Duration::from_millis(50),
                acknowledged: n,
                sent: n + 50,
                cwnd_limited: false,
            };
            bbr.on_delivery(&Delivery {
                before: n.saturating_sub(50),
                until: n,
                interval: Duration::from_millis(n.min(50)),
                is_limited: false,
            });
            bbr.on_ack(&ack, &Siblings::NONE);
        }
    }

    #[test]
    fn bbr_finds_the_rate_of_a_link_and_keeps_it_through_losses() {
        let mut bbr = Bbr::new();
        assert_eq!(bbr.ssthresh(), f64::INFINITY);
        run(&mut bbr, 1, 2000);
        assert!((990.0..1020.0).contains(&bbr.rate()), "{}", bbr.rate());
        assert!(matches!(bbr.mode, Mode::ProbeBandwidth { .. }));
        assert!(bbr.ssthresh().is_finite());
        let window = bbr.cwnd();
        assert!((100.0..110.0).contains(&window), "{window}");
        let now = Duration::from_secs(2);
        bbr.on_loss(&Loss { now }, &Siblings::NONE);
        assert_eq!(bbr.cwnd(), window);
        let repeated = false;
        bbr.on_rto(&Timeout { now, repeated }, &Siblings::NONE);
        assert_eq!(bbr.cwnd(), 1.0);
        bbr.on_recovery_exit(now);
        assert_eq!(bbr.cwnd(), window);
    }

    #[test]
    fn it_looks_for_the_least_round_trip_every_ten_seconds() {
        let mut bbr = Bbr::new();
        let mut small = 0;
        for second in 0..25 {
            for part in 0..10 {
                run(&mut bbr, 1 + second * 1000 + part * 100, 100);
                small += u32::from(bbr.cwnd() <= PROBE_WINDOW);
                // A standing queue: the minimum round-trip time does not occur again.
                bbr.least = bbr.least.map(|(_, at)| (Duration::from_millis(40), at));
            }
        }
        assert!((2..=8).contains(&small), "{small}");
    }
}
