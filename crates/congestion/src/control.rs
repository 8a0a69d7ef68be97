//! The trait of all algorithms.

use std::fmt::Debug;

use crate::Instant;
use crate::event::{Ack, Delivery, Idle, Loss, Timeout};
use crate::flow::Flow;
use crate::siblings::Siblings;
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

    /// An acknowledgment shows a delivery rate; called before its [`on_ack`](Self::on_ack).
    ///
    /// Default: none, for algorithms that do not use the rate.
    fn on_delivery(&mut self, _delivery: &Delivery) {}

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
