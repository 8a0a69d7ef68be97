//! wVegas, weighted Vegas: every path keeps a few packets in its queue, faster paths more than slow
//! ones.
//!
//! Source: Cao, Xu and Fu, "Delay-based congestion control for multipath TCP", ICNP 2012, as in
//! `mptcp_wvegas.c` of Linux 0.95. Once per round trip the packets in the queue (diff) are compared
//! with the path's part (alpha) of the packets that the bond may queue. wVegas shifts traffic
//! before packets are lost, and yields to flows that fill queues.
//!
//! diff and alpha are compared in whole packets, as in Linux: if they are equal the window stays.
//! Linux also halves the window whenever the queueing delay has doubled. Near an empty queue that
//! happens repeatedly by chance, so it is optional here, and never done without delay.

use std::time::Duration;

use crate::Instant;
use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Idle};
use crate::flow::Phase;
use crate::parameter::{BuildError, Parameters, parameters};
use crate::reno;
use crate::rounds::{Delays, Round};
use crate::siblings::{Bond, Siblings};
use crate::window::Window;

parameters! {
    /// Parameters of wVegas.
    pub struct WvegasParameters {
        /// Packets that all flows of the bond together keep in queues.
        pub total_alpha: u32 = 10, 1..=1_000_000;
        /// Packets that a flow keeps in its queue before its part is known, and the minimum later.
        pub initial_alpha: u32 = 2, 1..=1_000_000;
        /// Slow start ends when more packets than this are in the queue.
        pub gamma: u32 = 1, 0..=1_000_000;
        /// Halve the window whenever the queueing delay has doubled, to measure the smallest
        /// round-trip time.
        pub drain: bool = false, false..=true;
    }
}

/// A round with fewer samples than this is not evaluated.
const MIN_SAMPLES: u32 = 3;

/// The smallest window without a loss.
const MIN_WINDOW: f64 = 2.0;

/// See the module.
#[derive(Clone, Debug)]
pub struct Wvegas {
    window: Window,
    parameters: WvegasParameters,
    round: Round,
    delays: Delays,
    /// The path's part of the packets that the bond may queue.
    alpha: f64,
    /// The smallest queueing delay of a round since the queue was last drained.
    min_queueing: Option<Duration>,
}

impl Algorithm for Wvegas {
    const INFO: Info = Info {
        name: "wvegas",
        about: "keeps queues short by watching delays, and moves traffic before losses occur",
        source: "Cao, Xu and Fu, ICNP 2012; mptcp_wvegas.c of Linux MPTCP 0.95",
        coupled: true,
    };
    type Parameters = WvegasParameters;

    fn new(window: Window, parameters: WvegasParameters) -> Result<Self, BuildError> {
        parameters.check()?;
        Ok(Self {
            window,
            parameters,
            round: Round::first(),
            delays: Delays::default(),
            alpha: f64::from(parameters.initial_alpha),
            min_queueing: None,
        })
    }
}

impl CongestionControl for Wvegas {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        if let Some(rtt) = ack.rtt {
            self.delays.record(rtt);
        }
        self.window.measure(ack);
        if self.window.phase() != Phase::Open {
            self.reno(ack);
        } else if self.round.is_over(ack) {
            match self.delays.mean_queueing() {
                Some(queueing) if self.delays.count() >= MIN_SAMPLES => {
                    self.adapt(ack, queueing, siblings);
                }
                _ => self.reno(ack),
            }
            self.delays.begin_round();
        } else {
            self.slow_start(ack);
        }
    }

    fn on_recovery_exit(&mut self, _now: Instant) {
        self.window.exit_recovery();
        self.discard_measurements();
    }

    fn on_idle_end(&mut self, idle: &Idle) {
        self.window.decay(idle);
        self.discard_measurements();
    }
}

impl Wvegas {
    /// Reno's growth, while no delay is known.
    fn reno(&mut self, ack: &Ack) {
        let acked = self.slow_start(ack);
        self.window.grow(reno::increase(acked, self.cwnd()));
    }

    /// Slow start, if in it; returns the packets left for Reno.
    fn slow_start(&mut self, ack: &Ack) -> f64 {
        if self.window.may_grow(ack) {
            self.window.slow_start(ack)
        } else {
            0.0
        }
    }

    /// Discards measurements from before a loss or an idle time.
    fn discard_measurements(&mut self) {
        self.round.restart();
        self.delays.begin_round();
        self.alpha = f64::from(self.parameters.initial_alpha);
        self.min_queueing = None;
    }

    /// Once per round trip; the mean exceeds the base by `queueing`.
    fn adapt(&mut self, ack: &Ack, queueing: Duration, siblings: &Siblings<'_>) {
        let cwnd = self.cwnd();
        // Cao et al., diff: the share of a round trip that a packet waits, and so the share of the
        // window
        let rtt = (self.base() + queueing).as_secs_f64();
        let waiting = queueing.as_secs_f64() / rtt;
        let diff = (cwnd * waiting).floor();
        if self.window.in_slow_start() {
            if diff <= f64::from(self.parameters.gamma) {
                self.slow_start(ack);
            } else {
                self.window
                    .set_cwnd(cwnd.min((cwnd * (1.0 - waiting)).floor() + 1.0));
                self.end_slow_start();
            }
        } else {
            if diff >= self.alpha {
                self.alpha = self.part(cwnd / rtt, siblings);
            }
            if diff > self.alpha {
                self.window.set_cwnd(cwnd - 1.0);
                self.end_slow_start();
            } else if diff < self.alpha && self.window.may_grow(ack) {
                self.window.grow(1.0);
            }
            if self.parameters.drain {
                self.drain(queueing, rtt);
            }
        }
        let least = MIN_WINDOW.min(cwnd);
        self.window.set_cwnd(self.cwnd().max(least));
        // As in Linux: three quarters of the window, so that slow start returns there
        let remembered = self.window.ssthresh().max(0.75 * self.cwnd());
        self.window.set_ssthresh(remembered);
    }

    /// Moves the threshold below the window.
    fn end_slow_start(&mut self) {
        let below = self.window.ssthresh().min(self.cwnd() - 1.0);
        self.window.set_ssthresh(below);
    }

    /// alpha: packets in proportion to the path's share of the bond's rate.
    fn part(&self, rate: f64, siblings: &Siblings<'_>) -> f64 {
        let least = f64::from(self.parameters.initial_alpha);
        let Some(bond) = Bond::new(self.window.flow(), siblings) else {
            return least;
        };
        // Cao et al.: the weight is the share of the rate
        let others = bond.total_rate() - bond.own.rate();
        let weight = rate / (rate + others);
        (weight * f64::from(self.parameters.total_alpha))
            .floor()
            .max(least)
    }

    /// Drains the queue when its delay has doubled since the minimum.
    fn drain(&mut self, queueing: Duration, rtt: f64) {
        let least = self
            .min_queueing
            .map_or(queueing, |least| least.min(queueing));
        self.min_queueing = Some(least);
        if !queueing.is_zero() && queueing >= 2 * least {
            // Cao et al., the queue is drained by reducing the window to base / (2 rtt) of its
            // value
            let part = self.base().as_secs_f64() / (2.0 * rtt);
            self.window.set_cwnd(self.cwnd() * part);
            self.min_queueing = None;
        }
    }

    fn base(&self) -> Duration {
        self.delays.base().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{fresh, ms, steady};
    use crate::player::Player;

    /// Steady flows with known base round-trip times.
    fn bond(assignments: &[&str], flows: &[(f64, u64)]) -> Player {
        let mut bond = steady("wvegas", assignments, flows);
        for (flow, &(cwnd, _)) in flows.iter().enumerate() {
            bond.round(flow);
            bond.place(flow, cwnd);
        }
        bond
    }

    /// A round with this round-trip time, then one more acknowledgment: the growth of the window.
    fn round(bond: &mut Player, flow: usize, rtt: u64) -> f64 {
        let before = bond.cwnd(flow);
        bond.set_rtt(flow, ms(rtt));
        // The first round ends one that was partly at another delay, and is ignored.
        bond.round(flow);
        bond.place(flow, before);
        bond.round(flow);
        bond.cwnd(flow) - before
    }

    #[test]
    fn the_window_grows_by_a_packet_per_round_while_few_wait() {
        let mut bond = bond(&[], &[(20.0, 100)]);
        // 20 * 10/110 = 1.8 packets wait, 2 may
        assert_eq!(round(&mut bond, 0, 110), 1.0);
    }

    #[test]
    fn a_single_flow_may_queue_ten_packets() {
        let mut bond = bond(&[], &[(50.0, 100)]);
        // 50 * 20/120 = 8.3; 50 * 26/126 = 10.3; 50 * 30/130 = 11.5
        assert_eq!(round(&mut bond, 0, 120), 1.0);
        bond.place(0, 50.0);
        assert_eq!(round(&mut bond, 0, 126), 0.0);
        assert_eq!(round(&mut bond, 0, 130), -1.0);
    }

    #[test]
    fn queued_packets_are_shared_by_rate() {
        // 100 packets/s of 500: 10 / 5 = 2 packets; 400 of 500: 8 packets
        let flows = [(10.0, 100), (40.0, 100)];
        let mut slow = bond(&[], &flows);
        // 10 * 50/150 = 3.3 packets, 67 packets/s of 467
        assert_eq!(round(&mut slow, 0, 150), -1.0);
        let mut fast = bond(&[], &flows);
        // 40 * 20/120 = 6.7 packets, 333 packets/s of 433: 7 may
        assert_eq!(round(&mut fast, 1, 120), 1.0);
    }

    #[test]
    fn slow_start_ends_as_soon_as_packets_wait() {
        let mut bond = fresh("wvegas", &[], &[ms(100)]);
        bond.rounds(0, 2);
        let grown = bond.cwnd(0);
        assert!(grown >= 39.0, "{grown}");
        bond.set_rtt(0, ms(125));
        bond.rounds(0, 2);
        assert!(!bond.flows[0].in_slow_start);
        // The window without a queue, and one packet: 100/125 of the window that was reached
        assert!(bond.cwnd(0) < 66.0 && bond.ssthresh(0) < bond.cwnd(0));
    }

    #[test]
    fn a_doubled_queue_can_be_drained() {
        let least = |assignments: &[&str]| {
            let mut bond = bond(assignments, &[(50.0, 100)]);
            bond.set_rtt(0, ms(105));
            bond.rounds(0, 3);
            bond.place(0, 50.0);
            bond.set_rtt(0, ms(112));
            let windows = (0..200).map(|_| {
                bond.ack(0, 1);
                bond.cwnd(0)
            });
            windows.fold(f64::INFINITY, f64::min)
        };
        // About 50 packets, times 100 / (2 * 112)
        assert!((22.0..24.0).contains(&least(&["drain=true"])));
        assert!(least(&[]) >= 50.0, "only if enabled");
    }

    #[test]
    fn a_queue_without_delay_is_not_drained() {
        let mut bond = bond(&["drain=true"], &[(50.0, 100)]);
        for _ in 0..5 {
            assert_eq!(bond.round(0), 1.0);
        }
    }

    #[test]
    fn losses_are_handled_as_in_reno_and_restart_the_measurement() {
        let mut bond = bond(&[], &[(50.0, 100)]);
        assert_eq!(bond.repaired_loss(0), 25.0);
        // The window has been halved: two rounds are in flight, in which nothing is compared.
        bond.rounds(0, 2);
        assert_eq!(bond.cwnd(0), 25.0);
        bond.rounds(0, 2);
        assert!(bond.cwnd(0) > 25.0);
    }

    /// Regression test: found by random events.
    #[test]
    fn a_window_of_one_packet_does_not_become_two_unused() {
        let mut bond = bond(&[], &[(50.0, 100)]);
        bond.time_out(0, false);
        bond.recover(0);
        for _ in 0..60 {
            assert_eq!(bond.ack_if(0, 1, false), 0.0);
        }
    }
}
