//! Scripts: what happens to the flows of a bond, and which windows must come of it.
//!
//! They are the same for every implementation of an algorithm. This crate plays them on the reference ([`Script::play`]).
//! Whoever has another implementation takes the [steps](Script::steps) and does to it what they say. Where its round-trip times
//! are exactly those of the script it has the windows of each [`Step::Expect`]; where they are measured, it is compared with a
//! reference that was told what was measured. A kernel counts whole packets: its windows may be up to one packet below, besides what
//! its fixed-point numbers cost.
//!
//! One thing stands on a line; `#` begins a comment. First what is played, then what happens:
//!
//! ```text
//! algorithm NAME...               one after the other
//! set KEY=VALUE
//! flow RTT                        one line for each; they are counted from 0
//!
//! rounds N [of FLOW]              N times: the packets of a window are acknowledged one by one, over one round trip
//! ack N [of FLOW]                 one acknowledgement of N packets
//! rtt TIME [of FLOW]              packets take so long from now on
//! sack N [of FLOW]                the first packet of a window is lost, and the N behind it are acknowledged selectively; with
//!                                 3 or more that is a loss, and recovery begins
//! timeout [of FLOW]               the retransmission timer fires, and all that was in flight is lost
//! recover [of FLOW]               one acknowledgement of all that was in flight when the loss was seen or the timer fired
//! undo [of FLOW]                  after sack, in place of recover: the same acknowledgement also tells that the first packet has
//!                                 arrived twice, so that nothing was lost
//! loss [of FLOW]                  a loss that is repaired: all the window but its first packet is acknowledged selectively,
//!                                 and that a round trip later; there is nothing else to send
//! idle TIME                       one acknowledgement of all that is in flight, for each flow, and nothing is sent for so long after;
//!                                 the retransmission timeout is 1 s
//! expect CWND [SSTHRESH] [of FLOW] [with NAME...]
//! ```
//!
//! The window is what limits every flow, unless it says otherwise.
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

/// The retransmission timeout that idle times are measured by: the least one (RFC 6298, equation 2.4).
const RTO: Duration = Duration::from_secs(1);

/// A line that cannot be understood. Whoever wrote it is at fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ScriptError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong, and what to write.
    pub reason: String,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// Names of the algorithms for which it holds.
    pub algorithms: Vec<String>,
    /// Their settings.
    pub settings: Settings,
    /// The round-trip time of each flow.
    pub rtts: Vec<Duration>,
    /// The number of a line, the flow, and what happens to it.
    pub steps: Vec<(usize, usize, Step)>,
}

/// What happens to a flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// So many windows are acknowledged packet by packet, each over a round trip.
    Rounds(u32),
    /// One acknowledgement of so many packets.
    Ack(u32),
    /// Packets take so long from now on.
    Rtt(Duration),
    /// The first packet of a window is lost, and so many behind it are acknowledged selectively: recovery begins.
    Sack(u32),
    /// The retransmission timer fires.
    Timeout,
    /// All is acknowledged that was in flight when the loss was seen or the timer fired.
    Recover,
    /// As the last one, with the news that the first packet has arrived twice: the loss was none.
    Undo,
    /// The first packet of a window is lost and repaired a round trip later, with nothing else to send.
    Loss,
    /// All that is in flight is acknowledged at once, and nothing is sent for so long, by any flow.
    Idle(Duration),
    /// The window is so large, and the threshold, if it is given.
    Expect {
        /// In packets.
        cwnd: f64,
        /// In packets; infinite if nothing has set it.
        ssthresh: Option<f64>,
        /// With these algorithms; with all if there are none.
        with: Vec<String>,
    },
}

impl Step {
    /// Whether this says something of that algorithm. Only expectations may not.
    pub fn concerns(&self, algorithm: &str) -> bool {
        match self {
            Self::Expect { with, .. } => {
                with.is_empty() || with.iter().any(|name| name == algorithm)
            }
            _ => true,
        }
    }
}

/// What came of an expectation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The line of the expectation.
    pub line: usize,
    /// The flow.
    pub flow: usize,
    /// The window that was expected, and that there was, in packets.
    pub cwnd: (f64, f64),
    /// The same for the threshold, if one was expected.
    pub ssthresh: Option<(f64, f64)>,
}

impl Outcome {
    /// By how many packets window or threshold are wrong.
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
    /// Plays it on the reference of an algorithm: what came of each expectation.
    ///
    /// # Errors
    ///
    /// An unknown algorithm, or settings that it has not.
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
    fn a_wrong_expectation_is_an_error_of_so_many_packets() {
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
