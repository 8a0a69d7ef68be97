//! The one trait of all algorithms, and what they are told.

use std::fmt::Debug;
use std::time::Duration;

use crate::Instant;
use crate::siblings::{Flow, Siblings};
use crate::window::Window;

/// Decides how many packets one flow may have in flight.
///
/// The TCP model (or the kernel) finds out what was acknowledged and lost, and says so; repairing losses is its business,
/// too. [The crate's documentation](crate#the-law) says when each method is called.
pub trait CongestionControl: Debug + Send {
    /// The name under which it is chosen.
    fn name(&self) -> &str;

    /// The window that it keeps.
    fn window(&self) -> &Window;

    /// The same, for the events that are handled alike by all.
    fn window_mut(&mut self) -> &mut Window;

    /// New data was acknowledged, be it cumulatively or selectively.
    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>);

    /// A loss was detected by duplicate acknowledgements or SACK; once for all losses of a window.
    ///
    /// As provided: Reno's halving.
    fn on_loss(&mut self, _loss: &Loss, _siblings: &Siblings<'_>) {
        // RFC 5681, section 3.2, with cwnd for FlightSize (see `Window::may_grow`)
        let half = self.cwnd() / 2.0;
        self.window_mut().enter_recovery(half);
    }

    /// The retransmission timer fired.
    ///
    /// As provided: Reno's halving of ssthresh, and slow start from one packet.
    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        // RFC 5681, section 3.1, equation 4
        let half = self.cwnd() / 2.0;
        self.window_mut().enter_loss(half, timeout);
    }

    /// What had been sent when the loss was detected, or the timer fired, is acknowledged.
    fn on_recovery_exit(&mut self, _now: Instant) {
        self.window_mut().exit_recovery();
    }

    /// The loss, or the timeout, since the last exit turned out to be none: everything had arrived.
    ///
    /// As provided: the window is what it was before, if it has not grown beyond that.
    fn on_spurious_loss(&mut self, _now: Instant) {
        self.window_mut().undo();
    }

    /// Something is sent again after nothing was in flight.
    ///
    /// As provided: a window that was not used decays.
    fn on_idle_end(&mut self, idle: &Idle) {
        self.window_mut().decay(idle);
    }

    /// Packets per second at which to space what is sent; nothing if the algorithm does not pace.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }

    /// The congestion window in packets; at least 1. The whole part of it may be in flight.
    fn cwnd(&self) -> f64 {
        self.window().cwnd()
    }

    /// The slow start threshold in packets; infinite while nothing has set it.
    fn ssthresh(&self) -> f64 {
        self.window().ssthresh()
    }

    /// What its siblings see of this flow.
    fn flow(&self) -> Flow {
        self.window().flow()
    }
}

/// An acknowledgement of new data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ack {
    /// When it arrived.
    pub now: Instant,
    /// How many packets it is the first to acknowledge.
    pub acked: u32,
    /// The round-trip time measured with it; nothing if only what had been sent again could be measured (Karn).
    pub rtt: Option<Duration>,
    /// The smoothed round-trip time with that sample in it (RFC 6298); zero before the first one.
    pub srtt: Duration,
    /// All before this position is acknowledged (snd_una, after this acknowledgement). In any unit: it is only
    /// compared with `sent`.
    pub acknowledged: u64,
    /// Position of the next byte or packet to be sent for the first time (snd_nxt), in the unit of `acknowledged`.
    pub sent: u64,
    /// The window is what keeps the flow from sending more; [`Window::limits`] is one way to tell.
    pub cwnd_limited: bool,
}

/// A loss, without a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// When it was detected.
    pub now: Instant,
}

/// The retransmission timer fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout {
    /// When.
    pub now: Instant,
    /// It fired before, and nothing was acknowledged since: ssthresh stays (RFC 5681, section 3.1).
    pub repeated: bool,
}

/// A time in which nothing was in flight and nothing to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// When it ended.
    pub now: Instant,
    /// How long nothing was sent.
    pub lasted: Duration,
    /// The retransmission timeout, without back-off.
    pub rto: Duration,
}

/// The methods of [`CongestionControl`] that read alike in all algorithms of this crate: they have a field `window`.
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
