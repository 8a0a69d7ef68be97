//! The reference, with the inputs of the kernel.

use std::time::Duration;

use sumlink_congestion::{
    Ack, CongestionControl, Flow, Idle, Loss, Phase, Settings, Siblings, Timeout, build,
};

use crate::kernel::AckReport;

/// All flows of one bond.
pub(crate) struct Reference {
    controls: Vec<Box<dyn CongestionControl>>,
    flows: Vec<Flow>,
    /// Time of the last acknowledgment.
    now: Duration,
}

impl Reference {
    pub(crate) fn new(algorithm: &str, settings: &Settings, flows: usize) -> Self {
        let one = || build(algorithm, settings).expect("a reference");
        let controls: Vec<_> = std::iter::repeat_with(one).take(flows).collect();
        Self {
            flows: controls.iter().map(|control| control.flow()).collect(),
            now: Duration::ZERO,
            controls,
        }
    }

    /// Handles an acknowledgment. It may end a recovery; one that reveals a loss does not grow the
    /// window.
    pub(crate) fn acknowledge(&mut self, flow: usize, report: &AckReport, reveals_loss: bool) {
        let now = report.member.seen;
        let ack = ack(report, !reveals_loss);
        self.now = now;
        self.notify(flow, |control, siblings| {
            if report.is_open && control.window().phase() != Phase::Open {
                control.on_recovery_exit(now);
            }
            control.on_ack(&ack, siblings);
            if reveals_loss {
                control.on_loss(&Loss { now }, siblings);
            }
        });
    }

    /// Handles an acknowledgment that reveals the last loss as spurious.
    pub(crate) fn undo(&mut self, flow: usize, report: &AckReport) {
        self.now = report.member.seen;
        let (now, ack) = (self.now, ack(report, true));
        self.notify(flow, |control, siblings| {
            control.on_spurious_loss(now);
            control.on_ack(&ack, siblings);
        });
    }

    pub(crate) fn time_out(&mut self, flow: usize) {
        let timeout = Timeout {
            now: self.now,
            repeated: false,
        };
        self.notify(flow, |control, siblings| control.on_rto(&timeout, siblings));
    }

    /// The flow sends again after an idle time, evaluated with that timeout.
    pub(crate) fn idle(&mut self, flow: usize, lasted: Duration, rto: Duration) {
        self.now += lasted;
        let now = self.now;
        self.notify(flow, |control, _| {
            control.on_idle_end(&Idle { now, lasted, rto });
        });
    }

    /// Sets window and threshold of the flow.
    pub(crate) fn take(&mut self, flow: usize, cwnd: f64, ssthresh: f64) {
        self.notify(flow, |control, _| {
            control.window_mut().set_cwnd(cwnd);
            control.window_mut().set_ssthresh(ssthresh);
        });
    }

    pub(crate) fn flows(&self) -> usize {
        self.controls.len()
    }

    pub(crate) fn cwnd(&self, flow: usize) -> f64 {
        self.controls[flow].cwnd()
    }

    pub(crate) fn ssthresh(&self, flow: usize) -> f64 {
        self.controls[flow].ssthresh()
    }

    fn notify(
        &mut self,
        flow: usize,
        event: impl FnOnce(&mut dyn CongestionControl, &Siblings<'_>),
    ) {
        let siblings = Siblings::of(&self.flows, flow);
        event(self.controls[flow].as_mut(), &siblings);
        self.flows[flow] = self.controls[flow].flow();
    }
}

fn ack(report: &AckReport, cwnd_limited: bool) -> Ack {
    Ack {
        now: report.member.seen,
        acked: report.acked,
        rtt: report.member.rtt,
        srtt: report.member.srtt,
        acknowledged: report.acknowledged,
        sent: report.sent,
        cwnd_limited,
    }
}
