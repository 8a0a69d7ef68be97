//! Flows of one bond with manual events, for scripts and tests.
//!
//! There is no network: the caller sets round-trip times and losses. Each flow always has data to
//! send and a full window in flight.

use std::time::Duration;

use crate::Instant;
use crate::control::CongestionControl;
use crate::event::{Ack, Idle, Loss, Timeout};
use crate::flow::Flow;
use crate::parameter::BuildError;
use crate::registry::{Settings, build};
use crate::siblings::Siblings;

/// See the module.
#[derive(Debug)]
pub struct Player {
    /// One for each flow.
    pub controls: Vec<Box<dyn CongestionControl>>,
    /// The time; rounds and idle times advance it.
    pub now: Instant,
    paths: Vec<Path>,
    pub(crate) flows: Vec<Flow>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    /// Round-trip time of every packet from now on; the smoothed one follows at once.
    rtt: Duration,
    /// Number of packets acknowledged, and sent.
    acknowledged: u64,
    sent: u64,
    /// Acknowledged packets at which a timeout is repaired.
    repaired_at: Option<u64>,
    /// Packets in flight at the last loss, without those that had arrived.
    unrepaired: u32,
}

impl Player {
    /// New flows, one for each round-trip time.
    ///
    /// # Errors
    ///
    /// The same as for [`build`].
    pub fn new(name: &str, settings: &Settings, rtts: &[Duration]) -> Result<Self, BuildError> {
        let controls: Vec<_> = rtts
            .iter()
            .map(|_| build(name, settings))
            .collect::<Result<_, _>>()?;
        let path = |&rtt| Path {
            rtt,
            ..Path::default()
        };
        Ok(Self {
            now: Duration::ZERO,
            paths: rtts.iter().map(path).collect(),
            flows: controls.iter().map(|control| control.flow()).collect(),
            controls,
        })
    }

    /// The window of a flow in packets.
    pub fn cwnd(&self, flow: usize) -> f64 {
        self.controls[flow].cwnd()
    }

    /// The threshold of a flow in packets.
    pub fn ssthresh(&self, flow: usize) -> f64 {
        self.controls[flow].ssthresh()
    }

    /// Sets the round-trip time of this flow's packets from now on.
    pub fn set_rtt(&mut self, flow: usize, rtt: Duration) {
        self.paths[flow].rtt = rtt;
    }

    /// One acknowledgment of `packets`; returns the growth of the window.
    pub fn ack(&mut self, flow: usize, packets: u32) -> f64 {
        self.ack_if(flow, packets, true)
    }

    /// Like [`Player::ack`], with a flag for whether the window limits the flow.
    pub fn ack_if(&mut self, flow: usize, packets: u32, cwnd_limited: bool) -> f64 {
        let before = self.cwnd(flow);
        let path = &mut self.paths[flow];
        path.sent = path.sent.max(path.acknowledged + before as u64);
        path.acknowledged += u64::from(packets);
        path.sent = path.sent.max(path.acknowledged);
        if path.repaired_at.is_some_and(|at| path.acknowledged >= at) {
            self.recover(flow);
        }
        let path = &self.paths[flow];
        let ack = Ack {
            now: self.now,
            acked: packets,
            rtt: Some(path.rtt),
            srtt: path.rtt,
            acknowledged: path.acknowledged,
            sent: path.sent,
            cwnd_limited,
        };
        self.report(flow, |control, siblings| control.on_ack(&ack, siblings));
        self.cwnd(flow) - before
    }

    /// One round trip of a flow: one acknowledgment for each packet of the initial window, spread
    /// evenly. Returns the growth of the window.
    pub fn round(&mut self, flow: usize) -> f64 {
        let before = self.cwnd(flow);
        let packets = before as u32;
        for _ in 0..packets {
            self.now += self.paths[flow].rtt / packets;
            self.ack(flow, 1);
        }
        self.cwnd(flow) - before
    }

    /// `count` rounds of a flow.
    pub fn rounds(&mut self, flow: usize, count: usize) {
        for _ in 0..count {
            self.round(flow);
        }
    }

    /// `count` rounds of each flow, all starting together; the end of the first flow's rounds ends
    /// them.
    pub fn rounds_of_all(&mut self, count: usize) {
        for _ in 0..count {
            let start = self.now;
            for flow in (0..self.controls.len()).rev() {
                self.now = start;
                self.round(flow);
            }
        }
    }

    /// Detects a loss; recovery lasts until [`Player::recover`].
    pub fn lose(&mut self, flow: usize) {
        let loss = Loss { now: self.now };
        self.report(flow, |control, siblings| control.on_loss(&loss, siblings));
    }

    /// Ends recovery.
    pub fn recover(&mut self, flow: usize) {
        self.paths[flow].repaired_at = None;
        let now = self.now;
        self.report(flow, |control, _| control.on_recovery_exit(now));
    }

    /// A loss that is repaired at once; returns the window after it.
    pub fn repaired_loss(&mut self, flow: usize) -> f64 {
        self.lose(flow);
        self.recover(flow);
        self.cwnd(flow)
    }

    /// Loses the first packet of a window; the rest arrives. A round trip later the lost one has
    /// arrived too, and recovery ends. No other data was waiting, so the window does not grow.
    pub fn lose_first(&mut self, flow: usize) {
        let rest = self.cwnd(flow) as u32 - 1;
        self.lose(flow);
        self.ack_if(flow, rest, false);
        self.now += self.paths[flow].rtt;
        self.recover(flow);
        self.ack_if(flow, 1, false);
    }

    /// Loses the first packet of a window; the arrival of `arrived` packets behind it reveals the
    /// loss. Recovery lasts until [`Player::repair`].
    pub fn lose_behind(&mut self, flow: usize, arrived: u32) {
        self.paths[flow].unrepaired = (self.cwnd(flow) as u32).saturating_sub(arrived);
        self.ack_if(flow, arrived, false);
        self.lose(flow);
    }

    /// Acknowledges all packets that were in flight at the last loss or timeout.
    pub fn repair(&mut self, flow: usize) {
        let packets = std::mem::take(&mut self.paths[flow].unrepaired);
        self.recover(flow);
        self.ack(flow, packets);
    }

    /// Like [`Player::repair`], but the acknowledgment reveals that the loss was spurious.
    pub fn undo(&mut self, flow: usize) {
        let packets = std::mem::take(&mut self.paths[flow].unrepaired);
        let now = self.now;
        self.report(flow, |control, _| control.on_spurious_loss(now));
        self.ack(flow, packets);
    }

    /// Fires the retransmission timer. The loss is repaired when all packets in flight are
    /// acknowledged, or by [`Player::recover`].
    pub fn time_out(&mut self, flow: usize, repeated: bool) {
        let path = &mut self.paths[flow];
        let in_flight = self.controls[flow].cwnd() as u64;
        let all = path.sent.max(path.acknowledged + in_flight);
        path.repaired_at = path.repaired_at.or(Some(all));
        path.unrepaired = in_flight as u32;
        let now = self.now;
        let timeout = Timeout { now, repeated };
        self.report(flow, |control, siblings| control.on_rto(&timeout, siblings));
    }

    /// Ends the data to send: packets in flight are acknowledged at once, one flow after the other.
    pub fn drain(&mut self) {
        for flow in 0..self.controls.len() {
            let in_flight = self.cwnd(flow) as u32;
            self.ack(flow, in_flight);
        }
    }

    /// An idle time of this length; then all flows send again.
    pub fn idle(&mut self, lasted: Duration, rto: Duration) {
        self.now += lasted;
        let now = self.now;
        for flow in 0..self.controls.len() {
            self.report(flow, |control, _| {
                control.on_idle_end(&Idle { now, lasted, rto })
            });
        }
    }

    /// Reports an event to one flow and updates its siblings' view of it.
    fn report(
        &mut self,
        flow: usize,
        event: impl FnOnce(&mut dyn CongestionControl, &Siblings<'_>),
    ) {
        let siblings = Siblings::of(&self.flows, flow);
        event(self.controls[flow].as_mut(), &siblings);
        self.flows[flow] = self.controls[flow].flow();
    }
}
