//! The trait of all algorithms, and the events that it handles.

use std::fmt::Debug;
use std::time::Duration;

use crate::Instant;
use crate::siblings::{Flow, Siblings};
use crate::window::Window;

/// Limits the packets in flight of one flow.
///
/// The TCP model (or the kernel) detects acknowledgments and losses, reports them here, and repairs
/// the losses. [The crate's documentation](crate#rules-for-callers) says when each method is
/// called.
pub trait CongestionControl: Debug + Send {
    /// The name by which it is chosen.
    fn name(&self) -> &str;

    /// The window of the flow.
    fn window(&self) -> &Window;

    /// The window, for events that all algorithms handle alike.
    fn window_mut(&mut self) -> &mut Window;

    /// New data was acknowledged, cumulatively or selectively.
    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>);

    /// A loss was detected by duplicate acknowledgments or SACK. Called once for all losses of a
    /// window.
    ///
    /// Default: Reno's halving.
    fn on_loss(&mut self, _loss: &Loss, _siblings: &Siblings<'_>) {
        // RFC 5681, section 3.2, with cwnd for FlightSize (see `Window::may_grow`)
        let half = self.cwnd() / 2.0;
        self.window_mut().enter_recovery(half);
    }

    /// The retransmission timer fired.
    ///
    /// Default: Reno's halving of ssthresh, and slow start from one packet.
    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        // RFC 5681, section 3.1, equation 4
        let half = self.cwnd() / 2.0;
        self.window_mut().enter_loss(half, timeout);
    }

    /// All data that was sent before the loss or timeout is acknowledged.
    fn on_recovery_exit(&mut self, _now: Instant) {
        self.window_mut().exit_recovery();
    }

    /// The loss or timeout since the last exit was spurious: all packets had arrived.
    ///
    /// Default: restores the earlier window, unless the current one is larger.
    fn on_spurious_loss(&mut self, _now: Instant) {
        self.window_mut().undo();
    }

    /// Data is sent again after a time without data in flight.
    ///
    /// Default: an unused window decays.
    fn on_idle_end(&mut self, idle: &Idle) {
        self.window_mut().decay(idle);
    }

    /// Pacing rate in packets per second; none if the algorithm does not pace.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }

    /// The congestion window in packets, at least 1. Its whole part may be in flight.
    fn cwnd(&self) -> f64 {
        self.window().cwnd()
    }

    /// The slow start threshold in packets; infinite until it is set.
    fn ssthresh(&self) -> f64 {
        self.window().ssthresh()
    }

    /// The state of this flow that its siblings see.
    fn flow(&self) -> Flow {
        self.window().flow()
    }
}

/// An acknowledgment of new data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// Time of arrival.
    pub now: Instant,
    /// Packets acknowledged for the first time.
    pub acked: u32,
    /// The round-trip time measured with it; none if only retransmitted packets were acknowledged
    /// (Karn).
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time including that sample (RFC 6298); zero before the first one.
    pub srtt: Duration,
    /// All data before this position is acknowledged (snd_una after this acknowledgment). Any unit:
    /// it is only compared with `sent`.
    pub acknowledged: u64,
    /// Position of the next new byte or packet (snd_nxt), in the unit of `acknowledged`.
    pub sent: u64,
    /// The window limits the flow; [`Window::limits`] is one way to determine it.
    pub cwnd_limited: bool,
}

/// A loss, without a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Time of detection.
    pub now: Instant,
}

/// The retransmission timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// Time of the timeout.
    pub now: Instant,
    /// It fired before without an acknowledgment since: ssthresh stays (RFC 5681, section 3.1).
    pub repeated: bool,
}

/// A time without data in flight and without data to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// End of the idle time.
    pub now: Instant,
    /// Its length.
    pub lasted: Duration,
    /// The retransmission timeout, without back-off.
    pub rto: Duration,
}

/// The methods of [`CongestionControl`] that are the same in all algorithms with a field `window`.
macro_rules! has_window {
    () => {
        fn name(&self) -> &str {
            <Self as $crate::registry::Algorithm>::INFO.name
        }

        fn window(&self) -> &$crate::window::Window {
            &self.window
        }

        fn window_mut(&mut self) -> &mut $crate::window::Window {
            &mut self.window
        }
    };
}
pub(crate) use has_window;
