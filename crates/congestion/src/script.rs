//! Scripts: what happens to the flows of a bond, and which windows must come of it.
//!
//! They are the same for every implementation of an algorithm. This crate plays them on the reference ([`Script::play`]);
//! whoever has another implementation takes the [steps](Script::steps), does to it what they say, and compares at each
//! [`Step::Expect`]. A kernel counts whole packets: its windows may be up to one packet below, besides what its fixed-point
//! numbers cost.
//!
//! One thing stands on a line; `#` begins a comment. First what is played, then what happens:
//!
//! ```text
//! algorithm NAME
//! set KEY=VALUE
//! flow RTT                        one line for each; they are counted from 0
//!
//! rounds N [of FLOW]              N times: the packets of a window are acknowledged one by one, over one round trip
//! ack N [of FLOW]                 one acknowledgement of N packets
//! rtt TIME [of FLOW]              packets take so long from now on
//! loss [of FLOW]                  the first packet of a window is lost; it is repaired a round trip later
//! timeout [of FLOW]               the retransmission timer fires, and all that was in flight is lost
//! idle TIME                       nothing is sent for so long by any flow
//! expect CWND [SSTHRESH] [of FLOW]
//! ```
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
//! for outcome in script.play().unwrap() {
//!     assert!(outcome.error() < 0.001, "{outcome}");
//! }
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::parameter::{BuildError, Value};
use crate::player::Player;
use crate::registry::Settings;

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
    /// Name of the algorithm.
    pub algorithm: String,
    /// Its settings.
    pub settings: Settings,
    /// The round-trip time of each flow.
    pub rtts: Vec<Duration>,
    /// The number of a line, the flow, and what happens to it.
    pub steps: Vec<(usize, usize, Step)>,
}

/// What happens to a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// So many windows are acknowledged packet by packet, each over a round trip.
    Rounds(u32),
    /// One acknowledgement of so many packets.
    Ack(u32),
    /// Packets take so long from now on.
    Rtt(Duration),
    /// The first packet of a window is lost and repaired a round trip later.
    Loss,
    /// The retransmission timer fires.
    Timeout,
    /// Nothing is sent for so long, by any flow.
    Idle(Duration),
    /// The window is so large, and the threshold, if it is given.
    Expect {
        /// In packets.
        cwnd: f64,
        /// In packets; infinite if nothing has set it.
        ssthresh: Option<f64>,
    },
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
    /// Plays it on the reference: what came of each expectation.
    ///
    /// # Errors
    ///
    /// An unknown algorithm, or settings that it has not.
    pub fn play(&self) -> Result<Vec<Outcome>, BuildError> {
        let mut player = Player::new(&self.algorithm, &self.settings, &self.rtts)?;
        let mut outcomes = Vec::new();
        for &(line, flow, step) in &self.steps {
            match step {
                Step::Rounds(count) => player.rounds(flow, count as usize),
                Step::Ack(packets) => {
                    player.ack(flow, packets);
                }
                Step::Rtt(rtt) => player.set_rtt(flow, rtt),
                Step::Loss => player.lose_first(flow),
                Step::Timeout => player.time_out(flow, false),
                Step::Idle(lasted) => player.idle(lasted),
                Step::Expect { cwnd, ssthresh } => outcomes.push(Outcome {
                    line,
                    flow,
                    cwnd: (cwnd, player.cwnd(flow)),
                    ssthresh: ssthresh.map(|ssthresh| (ssthresh, player.ssthresh(flow))),
                }),
            }
        }
        Ok(outcomes)
    }

    /// Takes one line without comment; an error is the reason.
    fn read(&mut self, number: usize, line: &str) -> Result<(), String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let flow = match words[..] {
            [.., "of", flow] => {
                words.truncate(words.len() - 2);
                whole(flow)? as usize
            }
            _ => 0,
        };
        let step = match words[..] {
            ["algorithm", name] => {
                self.algorithm = name.to_owned();
                return Ok(());
            }
            ["set", assignment] => {
                return self
                    .settings
                    .assign(assignment)
                    .map_err(|error| error.to_string());
            }
            ["flow", rtt] => {
                self.rtts.push(time(rtt)?);
                return Ok(());
            }
            ["rounds", count] => Step::Rounds(whole(count)?),
            ["ack", packets] => Step::Ack(whole(packets)?),
            ["rtt", rtt] => Step::Rtt(time(rtt)?),
            ["loss"] => Step::Loss,
            ["timeout"] => Step::Timeout,
            ["idle", lasted] => Step::Idle(time(lasted)?),
            ["expect", cwnd] => Step::Expect {
                cwnd: packets(cwnd)?,
                ssthresh: None,
            },
            ["expect", cwnd, ssthresh] => Step::Expect {
                cwnd: packets(cwnd)?,
                ssthresh: Some(packets(ssthresh)?),
            },
            _ => return Err(format!("{line:?} is no step; the documentation lists them")),
        };
        if flow >= self.rtts.len() {
            return Err(format!(
                "there is no flow {flow} yet; write a line flow RTT for each"
            ));
        }
        self.steps.push((number, flow, step));
        Ok(())
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                script.read(number, line).map_err(|reason| ScriptError {
                    line: number,
                    reason,
                })?;
            }
        }
        let missing = match () {
            () if script.algorithm.is_empty() => "algorithm NAME",
            () if script.rtts.is_empty() => "flow RTT",
            () => return Ok(script),
        };
        Err(ScriptError {
            line: text.lines().count(),
            reason: format!("the script has ended without a line {missing}"),
        })
    }
}

fn whole(word: &str) -> Result<u32, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is no whole number"))
}

fn packets(word: &str) -> Result<f64, String> {
    let number: Option<f64> = word.parse().ok();
    let number = number.filter(|number| *number >= 0.0);
    number.ok_or_else(|| format!("{word:?} is no number of packets"))
}

fn time(word: &str) -> Result<Duration, String> {
    match word.parse() {
        Ok(Value::Time(time)) => Ok(time),
        _ => Err(format!("{word:?} is no time; write 50ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_understood() {
        let script: Script = "
            # a comment
            algorithm lia
            set initial_cwnd=4   # another
            flow 100ms
            flow 50ms
            rounds 2 of 1
            ack 3
            rtt 20ms of 1
            loss of 1
            timeout
            idle 1s
            expect 2.5 inf of 1
            expect 7
        "
        .parse()
        .unwrap();
        assert_eq!(script.algorithm, "lia");
        assert_eq!(script.rtts.len(), 2);
        let steps: Vec<_> = script
            .steps
            .iter()
            .map(|&(_, flow, step)| (flow, step))
            .collect();
        let expect = |cwnd, ssthresh| Step::Expect { cwnd, ssthresh };
        assert_eq!(
            steps,
            [
                (1, Step::Rounds(2)),
                (0, Step::Ack(3)),
                (1, Step::Rtt(Duration::from_millis(20))),
                (1, Step::Loss),
                (0, Step::Timeout),
                (0, Step::Idle(Duration::from_secs(1))),
                (1, expect(2.5, Some(f64::INFINITY))),
                (0, expect(7.0, None)),
            ]
        );
        assert_eq!(script.steps[0].0, 7, "lines are counted from 1");
    }

    #[test]
    fn what_is_not_understood_is_told_with_its_line() {
        for (text, expected) in [
            (
                "\nfly 5",
                "line 2: \"fly 5\" is no step; the documentation lists them",
            ),
            ("flow 50", "line 1: \"50\" is no time; write 50ms"),
            (
                "flow 1ms\n",
                "line 1: the script has ended without a line algorithm NAME",
            ),
            (
                "algorithm reno",
                "line 1: the script has ended without a line flow RTT",
            ),
            (
                "loss",
                "line 1: there is no flow 0 yet; write a line flow RTT for each",
            ),
            ("flow 1ms\nack two", "line 2: \"two\" is no whole number"),
            (
                "flow 1ms\nexpect -1",
                "line 2: \"-1\" is no number of packets",
            ),
            (
                "set beta",
                "line 1: \"beta\" sets nothing: write KEY=VALUE, such as beta=0.7",
            ),
        ] {
            let error = text.parse::<Script>().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_wrong_expectation_is_an_error_of_so_many_packets() {
        let script: Script = "algorithm reno\nflow 10ms\nexpect 11 inf\nexpect 10 9"
            .parse()
            .unwrap();
        let outcomes = script.play().unwrap();
        assert_eq!(outcomes[0].error(), 1.0);
        assert_eq!(
            outcomes[0].to_string(),
            "line 3, flow 0: cwnd 10 for 11, ssthresh inf for inf"
        );
        assert_eq!(outcomes[1].error(), f64::INFINITY);
        let unknown = Script {
            algorithm: "bbr".to_owned(),
            ..script
        };
        assert!(unknown.play().is_err());
    }
}
