//! The reference, as a script plays it.

use std::time::Duration;

use sumlink_congestion::{Ack, CongestionControl, Flow, Loss, Settings, Siblings, Timeout, build};

/// What happens to a flow.
pub(crate) enum Event {
    Ack {
        packets: u32,
        rtt: Duration,
        srtt: Duration,
    },
    Loss,
    Timeout,
    RecoveryExit,
}

/// All flows of one bond.
pub(crate) struct Reference {
    controls: Vec<Box<dyn CongestionControl>>,
    flows: Vec<Flow>,
    /// Packets in flight when the last loss was seen, without those that had arrived.
    unrepaired: Vec<u32>,
}

impl Reference {
    pub(crate) fn new(algorithm: &str, flows: usize) -> Self {
        let one = || build(algorithm, &Settings::default()).expect("a reference");
        let controls: Vec<_> = std::iter::repeat_with(one).take(flows).collect();
        Self {
            flows: controls.iter().map(|control| control.flow()).collect(),
            unrepaired: vec![0; flows],
            controls,
        }
    }

    pub(crate) fn handle(&mut self, flow: usize, event: Event) {
        let control = &mut self.controls[flow];
        let siblings = Siblings::of(&self.flows, flow);
        // No algorithm here looks at the clock or at positions.
        let now = Duration::ZERO;
        let in_flight = control.cwnd() as u32;
        match event {
            Event::Ack { packets, rtt, srtt } => {
                let ack = Ack {
                    now,
                    acked: packets,
                    rtt: Some(rtt),
                    srtt,
                    acknowledged: 0,
                    sent: 0,
                    cwnd_limited: true,
                };
                control.on_ack(&ack, &siblings);
            }
            Event::Loss => {
                self.unrepaired[flow] = in_flight - crate::peer::SELECTIVELY;
                control.on_loss(&Loss { now }, &siblings);
            }
            Event::Timeout => {
                self.unrepaired[flow] = in_flight;
                let timeout = Timeout {
                    now,
                    repeated: false,
                };
                control.on_rto(&timeout, &siblings);
            }
            Event::RecoveryExit => control.on_recovery_exit(now),
        }
        self.flows[flow] = control.flow();
    }

    /// How many packets the acknowledgement that ends a recovery is the first to acknowledge.
    pub(crate) fn unrepaired(&self, flow: usize) -> u32 {
        self.unrepaired[flow]
    }

    pub(crate) fn cwnd(&self, flow: usize) -> f64 {
        self.controls[flow].cwnd()
    }

    pub(crate) fn ssthresh(&self, flow: usize) -> f64 {
        self.controls[flow].ssthresh()
    }
}
