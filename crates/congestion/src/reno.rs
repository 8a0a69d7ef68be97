//! Reno: one more packet in each round trip, and half the window on a loss.
//!
//! Source: RFC 5681, with byte counting (RFC 3465), which makes growth independent of delayed
//! acknowledgments. The TCP model decides when recovery ends, by RFC 6582 (NewReno).

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::Ack;
use crate::parameter::{BuildError, NoParameters};
use crate::siblings::Siblings;
use crate::window::Window;

/// See the module.
#[derive(Clone, Debug)]
pub struct Reno {
    window: Window,
}

impl Algorithm for Reno {
    const INFO: Info = Info {
        name: "reno",
        about: "one more packet per round trip, half the window on a loss; the reference for the \
            others",
        source: "RFC 5681, RFC 6582",
        coupled: false,
    };
    type Parameters = NoParameters;

    fn new(window: Window, _parameters: NoParameters) -> Result<Self, BuildError> {
        Ok(Self { window })
    }
}

impl CongestionControl for Reno {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, _siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        self.window.grow(increase(acked, self.window.cwnd()));
    }
}

/// Growth of Reno's window of `cwnd` in packets when `acked` packets are acknowledged: the 1/w that
/// limits other algorithms.
pub(crate) fn increase(acked: f64, cwnd: f64) -> f64 {
    // RFC 5681, section 3.1, equation 3; RFC 3465, section 2.1
    acked / cwnd
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::fixture::{assert_close, fresh, ms, steady};
    use crate::player::Player;
    use crate::{Idle, Phase};

    fn new_flow(assignments: &[&str]) -> Player {
        fresh("reno", assignments, &[ms(100)])
    }

    #[test]
    fn slow_start_doubles_up_to_ssthresh_and_the_rest_is_congestion_avoidance() {
        let mut reno = new_flow(&[]);
        assert_eq!((reno.cwnd(0), reno.ssthresh(0)), (10.0, f64::INFINITY));
        assert_eq!(reno.round(0), 10.0);
        reno.controls[0].window_mut().set_ssthresh(23.0);
        assert_eq!(reno.ack(0, 2), 2.0);
        // One packet up to 23, and three at 1/23 each.
        assert_close(reno.ack(0, 4), 1.0 + 3.0 / 23.0);
    }

    #[test]
    fn congestion_avoidance_adds_one_packet_per_window_with_or_without_delayed_acknowledgments() {
        let mut reno = steady("reno", &[], &[(10.0, 100)]);
        assert_close(reno.ack(0, 1), 0.1);
        reno.place(0, 10.0);
        assert_close(reno.ack(0, 2), 0.2);
        reno.place(0, 100.0);
        let grown = reno.round(0);
        assert!((0.99..=1.0).contains(&grown), "{grown}");
    }

    #[test]
    fn a_loss_halves_the_window_once_and_it_stays_until_recovery_ends() {
        let mut reno = steady("reno", &[], &[(21.0, 100)]);
        reno.lose(0);
        assert_eq!((reno.cwnd(0), reno.ssthresh(0)), (10.5, 10.5));
        assert_eq!(reno.ack(0, 10), 0.0);
        assert_eq!(reno.flows[0].phase, Phase::Recovery);
        reno.recover(0);
        assert_close(reno.ack(0, 1), 1.0 / 10.5);
    }

    #[test]
    fn ssthresh_is_two_packets_at_least() {
        let mut reno = steady("reno", &[], &[(3.0, 100)]);
        assert_eq!(reno.repaired_loss(0), 2.0);
        assert_eq!(reno.repaired_loss(0), 2.0);
    }

    #[test]
    fn a_timeout_leaves_one_packet_and_slow_start_to_half_the_window() {
        let mut reno = steady("reno", &[], &[(20.0, 100)]);
        reno.time_out(0, false);
        assert_eq!((reno.cwnd(0), reno.ssthresh(0)), (1.0, 10.0));
        assert_eq!(reno.ack(0, 1), 1.0, "during loss recovery");
        reno.time_out(0, true);
        assert_eq!(
            (reno.cwnd(0), reno.ssthresh(0)),
            (1.0, 10.0),
            "repeated timeout of one packet"
        );
        reno.recover(0);
        reno.rounds(0, 3);
        assert_eq!(reno.cwnd(0), 8.0);
        reno.round(0);
        assert!((10.0..11.0).contains(&reno.cwnd(0)));
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut reno = new_flow(&[]);
        assert_eq!(reno.ack_if(0, 5, false), 0.0);
        let window = reno.controls[0].window();
        assert!(
            !window.limits(5) && window.limits(6),
            "half the window in slow start"
        );
        reno.place(0, 10.0);
        let window = reno.controls[0].window();
        assert!(
            !window.limits(9) && window.limits(10),
            "the whole window later"
        );
    }

    #[test]
    fn a_spurious_loss_is_undone() {
        let mut reno = steady("reno", &[], &[(20.0, 100)]);
        reno.controls[0].window_mut().set_ssthresh(15.0);
        reno.lose(0);
        reno.controls[0].on_spurious_loss(ms(1));
        assert_eq!((reno.cwnd(0), reno.ssthresh(0)), (20.0, 15.0));
        assert_eq!(reno.controls[0].flow().phase, Phase::Open);
        reno.controls[0].on_spurious_loss(ms(1));
        assert_eq!((reno.cwnd(0), reno.ssthresh(0)), (20.0, 15.0), "once");
    }

    #[test]
    fn an_idle_window_is_halved_per_timeout_down_to_the_initial_one() {
        let after = |lasted: u64| {
            let mut reno = steady("reno", &[], &[(64.0, 100)]);
            let idle = Idle {
                now: ms(lasted),
                lasted: ms(lasted),
                rto: ms(200),
            };
            reno.controls[0].on_idle_end(&idle);
            (reno.cwnd(0), reno.ssthresh(0))
        };
        assert_eq!(after(200), (64.0, 64.0));
        assert_eq!(after(201), (32.0, 64.0));
        assert_eq!(after(401), (16.0, 64.0));
        assert_eq!(after(100_000), (10.0, 64.0));
        let mut young = new_flow(&[]);
        young.controls[0].on_idle_end(&Idle {
            now: ms(500),
            lasted: ms(500),
            rto: Duration::ZERO,
        });
        assert_eq!((young.cwnd(0), young.ssthresh(0)), (10.0, f64::INFINITY));
    }

    #[test]
    fn hystart_ends_the_first_slow_start_when_the_delay_grows_and_no_later_one() {
        let mut reno = new_flow(&["hystart=true"]);
        reno.rounds(0, 2);
        assert_eq!(reno.cwnd(0), 40.0);
        reno.set_rtt(0, ms(120));
        reno.rounds(0, 7);
        let ssthresh = reno.ssthresh(0);
        // Eight of the forty packets count in full, then a quarter each, for five rounds.
        assert!((100.0..160.0).contains(&ssthresh), "{ssthresh}");
        assert!(reno.cwnd(0) - ssthresh < 3.0);
        reno.time_out(0, false);
        reno.recover(0);
        reno.rounds(0, 4);
        assert_eq!(reno.cwnd(0), 16.0);
    }
}
