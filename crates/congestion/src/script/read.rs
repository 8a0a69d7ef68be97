//! The parser of scripts.

use std::str::FromStr;
use std::time::Duration;

use crate::parameter::Value;

use super::{Script, ScriptError, Step};

/// Packets acknowledged behind a gap that reveal a loss (RFC 6675, DupThresh).
const DUP_THRESH: u32 = 3;

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
            () if script.algorithms.is_empty() => "algorithm NAME",
            () if script.rtts.is_empty() => "flow RTT",
            () => return Ok(script),
        };
        Err(ScriptError {
            line: text.lines().count(),
            reason: format!("the script ends without a line {missing}"),
        })
    }
}

impl Script {
    /// Parses one line without comment; an error is the reason.
    fn read(&mut self, number: usize, line: &str) -> Result<(), String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let mut with = Vec::new();
        if let Some(at) = words.iter().position(|&word| word == "with") {
            with.extend(words[at + 1..].iter().map(|&name| name.to_owned()));
            words.truncate(at);
        }
        let only_some = !with.is_empty();
        let flow = match words[..] {
            [.., "of", flow] => {
                words.truncate(words.len() - 2);
                whole(flow)? as usize
            }
            _ => 0,
        };
        let step = match words[..] {
            ["algorithm", ..] if words.len() > 1 => {
                self.algorithms = words[1..].iter().map(|&name| name.to_owned()).collect();
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
            ["sack", packets] => match whole(packets)? {
                packets if packets >= DUP_THRESH => Step::Sack(packets),
                _ => {
                    return Err(format!(
                        "{packets} packets do not reveal a loss; {DUP_THRESH} do"
                    ));
                }
            },
            ["timeout"] => Step::Timeout,
            ["recover"] => Step::Recover,
            ["undo"] => Step::Undo,
            ["loss"] => Step::Loss,
            ["idle", lasted] => Step::Idle(time(lasted)?),
            ["expect", cwnd] => Step::Expect {
                cwnd: packets(cwnd)?,
                ssthresh: None,
                with,
            },
            ["expect", cwnd, ssthresh] => Step::Expect {
                cwnd: packets(cwnd)?,
                ssthresh: Some(packets(ssthresh)?),
                with,
            },
            _ => {
                return Err(format!(
                    "{line:?} is not a step; the documentation lists them"
                ));
            }
        };
        if flow >= self.rtts.len() {
            return Err(format!(
                "flow {flow} is not declared; write a line flow RTT for each flow"
            ));
        }
        if only_some && !matches!(step, Step::Expect { .. }) {
            return Err("only expect can be limited to some algorithms".to_owned());
        }
        self.steps.push((number, flow, step));
        Ok(())
    }
}

fn whole(word: &str) -> Result<u32, String> {
    word.parse()
        .map_err(|_| format!("{word:?} is not a whole number"))
}

fn packets(word: &str) -> Result<f64, String> {
    let number: Option<f64> = word.parse().ok();
    let number = number.filter(|number| *number >= 0.0);
    number.ok_or_else(|| format!("{word:?} is not a number of packets"))
}

fn time(word: &str) -> Result<Duration, String> {
    match word.parse() {
        Ok(Value::Time(time)) => Ok(time),
        _ => Err(format!("{word:?} is not a time; write it as 50ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_understood() {
        let script: Script = "
            # a comment
            algorithm lia olia
            set initial_cwnd=4   # another
            flow 100ms
            flow 50ms
            rounds 2 of 1
            ack 3
            rtt 20ms of 1
            sack 3
            recover
            loss of 1
            timeout
            idle 1s
            expect 2.5 inf of 1 with olia lia
            expect 7
        "
        .parse()
        .unwrap();
        assert_eq!(script.algorithms, ["lia", "olia"]);
        assert_eq!(script.rtts.len(), 2);
        let steps: Vec<_> = script
            .steps
            .iter()
            .map(|(_, flow, step)| (*flow, step.clone()))
            .collect();
        let expect = |cwnd, ssthresh, with: &[&str]| Step::Expect {
            cwnd,
            ssthresh,
            with: with.iter().map(|&name| name.to_owned()).collect(),
        };
        assert_eq!(
            steps,
            [
                (1, Step::Rounds(2)),
                (0, Step::Ack(3)),
                (1, Step::Rtt(Duration::from_millis(20))),
                (0, Step::Sack(3)),
                (0, Step::Recover),
                (1, Step::Loss),
                (0, Step::Timeout),
                (0, Step::Idle(Duration::from_secs(1))),
                (1, expect(2.5, Some(f64::INFINITY), &["olia", "lia"])),
                (0, expect(7.0, None, &[])),
            ]
        );
        assert!(script.steps[8].2.concerns("lia") && !script.steps[8].2.concerns("reno"));
        assert_eq!(script.steps[0].0, 7, "lines are counted from 1");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, expected) in [
            (
                "\nfly 5",
                "line 2: \"fly 5\" is not a step; the documentation lists them",
            ),
            ("flow 50", "line 1: \"50\" is not a time; write it as 50ms"),
            (
                "flow 1ms\n",
                "line 1: the script ends without a line algorithm NAME",
            ),
            (
                "algorithm reno",
                "line 1: the script ends without a line flow RTT",
            ),
            (
                "loss",
                "line 1: flow 0 is not declared; write a line flow RTT for each flow",
            ),
            ("flow 1ms\nack two", "line 2: \"two\" is not a whole number"),
            (
                "flow 1ms\nexpect -1",
                "line 2: \"-1\" is not a number of packets",
            ),
            (
                "flow 1ms\nsack 2",
                "line 2: 2 packets do not reveal a loss; 3 do",
            ),
            (
                "flow 1ms\nack 2 with lia",
                "line 2: only expect can be limited to some algorithms",
            ),
            (
                "set beta",
                "line 1: \"beta\" is not a setting: write KEY=VALUE, such as beta=0.7",
            ),
        ] {
            let error = text.parse::<Script>().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }
}
