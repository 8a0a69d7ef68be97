//! Scripts: events of the flows of a bond, and the windows that must result.
//!
//! Scripts are independent of the implementation of an algorithm. This crate plays them on the
//! reference ([`Script::play`]). Another implementation is tested by applying the
//! [steps](Script::steps) to it. If its round-trip times equal those of the script, its windows
//! must be those of each [`Step::Expect`]. If they are measured, it is compared with a reference
//! that receives the same measurements. A kernel counts whole packets: its windows may be up to one
//! packet lower, plus the error of its fixed-point numbers.
//!
//! A script has one entry per line, first the setup and then the events; `#` starts a comment:
//!
//! ```text
//! algorithm NAME...   one after the other
//! set KEY=VALUE
//! flow RTT            one line for each; they are counted from 0
//!
//! rounds N [of FLOW]  N times: the packets of a window are acknowledged one by one, over one round
//!                     trip
//! ack N [of FLOW]     one acknowledgment of N packets
//! rtt TIME [of FLOW]  round-trip time of packets from now on
//! sack N [of FLOW]    the first packet of a window is lost, and the N behind it are acknowledged
//!                     selectively; N of 3 or more reveals the loss, and recovery begins
//! timeout [of FLOW]   the retransmission timer fires, and all packets in flight are lost
//! recover [of FLOW]   one acknowledgment of all packets that were in flight at the loss or timeout
//! undo [of FLOW]      after sack, in place of recover: the same acknowledgment also reports that the
//!                     first packet has arrived twice, so nothing was lost
//! loss [of FLOW]      a loss that is repaired: the window except its first packet is acknowledged
//!                     selectively, and the first a round trip later; no other data is sent
//! idle TIME           one acknowledgment of all packets in flight, for each flow, and then an idle
//!                     time; the retransmission timeout is 1 s
//! expect CWND [SSTHRESH] [of FLOW] [with NAME...]
//! ```
//!
//! Every flow is limited by its window.
//!
//! ```
//! use sumlink_congestion::script::Script;
//!
//! let script: Script = "
//!     algorithm reno
//!     flow 100ms
//!     rounds 1
//!     expect 20 inf
//!     loss
//!     expect 10 10
//! ".parse().unwrap();
//! for outcome in script.play("reno").unwrap() {
//!     assert!(outcome.error() < 0.001, "{outcome}");
//! }
//! ```

mod read;

use std::fmt;
use std::time::Duration;

use crate::parameter::BuildError;
use crate::player::Player;
use crate::registry::Settings;

/// The retransmission timeout assumed for idle times: the minimum (RFC 6298, equation 2.4).
const RTO: Duration = Duration::from_secs(1);

/// An invalid line. The author of the script is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ScriptError {
    /// Line number, counted from 1.
    pub line: usize,
    /// The error, and how to fix it.
    pub reason: String,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// Names of the algorithms that the script applies to.
    pub algorithms: Vec<String>,
    /// Their settings.
    pub settings: Settings,
    /// The round-trip time of each flow.
    pub rtts: Vec<Duration>,
    /// Line number, flow, and event.
    pub steps: Vec<(usize, usize, Step)>,
}

/// An event of a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// This many windows are acknowledged packet by packet, each over a round trip.
    Rounds(u32),
    /// One acknowledgment of this many packets.
    Ack(u32),
    /// Round-trip time of packets from now on.
    Rtt(Duration),
    /// The first packet of a window is lost, and this many behind it are acknowledged selectively:
    /// recovery begins.
    Sack(u32),
    /// The retransmission timer fires.
    Timeout,
    /// All packets that were in flight at the loss or timeout are acknowledged.
    Recover,
    /// Like [`Step::Recover`], but the first packet has arrived twice: the loss was spurious.
    Undo,
    /// The first packet of a window is lost and repaired a round trip later, with no other data to
    /// send.
    Loss,
    /// All packets in flight are acknowledged at once, and no flow sends for this time.
    Idle(Duration),
    /// The window and, if given, the threshold must have these values.
    Expect {
        /// In packets.
        cwnd: f64,
        /// In packets; infinite if it is unset.
        ssthresh: Option<f64>,
        /// The algorithms it applies to; all if the list is empty.
        with: Vec<String>,
    },
}

impl Step {
    /// Whether the step applies to that algorithm. Only expectations may be limited to some.
    pub fn concerns(&self, algorithm: &str) -> bool {
        match self {
            Self::Expect { with, .. } => {
                with.is_empty() || with.iter().any(|name| name == algorithm)
            }
            _ => true,
        }
    }
}

/// Result of an expectation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The line of the expectation.
    pub line: usize,
    /// The flow.
    pub flow: usize,
    /// The expected and the actual window, in packets.
    pub cwnd: (f64, f64),
    /// The expected and the actual threshold, if one was expected.
    pub ssthresh: Option<(f64, f64)>,
}

impl Outcome {
    /// The larger error of window and threshold, in packets.
    pub fn error(&self) -> f64 {
        let difference = |(expected, got): (f64, f64)| {
            if expected == got {
                0.0
            } else {
                (expected - got).abs()
            }
        };
        difference(self.cwnd).max(self.ssthresh.map_or(0.0, difference))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, got) = self.cwnd;
        write!(
            f,
            "line {}, flow {}: cwnd {got} for {expected}",
            self.line, self.flow
        )?;
        match self.ssthresh {
            Some((expected, got)) => write!(f, ", ssthresh {got} for {expected}"),
            None => Ok(()),
        }
    }
}

impl Script {
    /// Plays the script on the reference of an algorithm; returns the result of each expectation.
    ///
    /// # Errors
    ///
    /// An unknown algorithm, or settings that it does not have.
    pub fn play(&self, algorithm: &str) -> Result<Vec<Outcome>, BuildError> {
        let mut player = Player::new(algorithm, &self.settings, &self.rtts)?;
        let mut outcomes = Vec::new();
        for (line, flow, step) in &self.steps {
            let (line, flow) = (*line, *flow);
            if !step.concerns(algorithm) {
                continue;
            }
            match *step {
                Step::Rounds(count) => player.rounds(flow, count as usize),
                Step::Ack(packets) => {
                    player.ack(flow, packets);
                }
                Step::Rtt(rtt) => player.set_rtt(flow, rtt),
                Step::Sack(packets) => player.lose_behind(flow, packets),
                Step::Timeout => player.time_out(flow, false),
                Step::Recover => player.repair(flow),
                Step::Undo => player.undo(flow),
                Step::Loss => player.lose_first(flow),
                Step::Idle(lasted) => {
                    player.drain();
                    player.idle(lasted, RTO);
                }
                Step::Expect { cwnd, ssthresh, .. } => outcomes.push(Outcome {
                    line,
                    flow,
                    cwnd: (cwnd, player.cwnd(flow)),
                    ssthresh: ssthresh.map(|ssthresh| (ssthresh, player.ssthresh(flow))),
                }),
            }
        }
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_expectation_reports_its_error_in_packets() {
        let script: Script = "algorithm reno\nflow 10ms\nexpect 11 inf\nexpect 10 9"
            .parse()
            .unwrap();
        let outcomes = script.play("reno").unwrap();
        assert_eq!(outcomes[0].error(), 1.0);
        assert_eq!(
            outcomes[0].to_string(),
            "line 3, flow 0: cwnd 10 for 11, ssthresh inf for inf"
        );
        assert_eq!(outcomes[1].error(), f64::INFINITY);
        assert!(script.play("bbr").is_err());
    }
}
