//! Scripts: what happens to flows, and the windows that they have then.
//!
//! ```text
//! algorithms lia rtt-compensator
//! rtt 20ms 50ms              one flow for each
//! 0 ack 10                   flow 0: the next ten packets are acknowledged by one acknowledgement
//! 0 lose                     the oldest packet is lost, the three behind it arrive
//! 0 recover                  all that was sent until then is acknowledged
//! 1 timeout                  nothing arrives until the timer fires
//! 0 expect 10.5 10.5         cwnd and ssthresh in packets; `inf` as long as nothing has set ssthresh
//! 0 expect 10 10 coupled     with the algorithms that are named
//! ```
//!
//! `#` starts a comment. Every flow begins with ten packets, and always has more to send.

use std::time::Duration;

pub(crate) struct Script {
    pub(crate) algorithms: Vec<String>,
    pub(crate) rtts: Vec<Duration>,
    /// With their line numbers.
    pub(crate) steps: Vec<(usize, Step)>,
}

pub(crate) enum Step {
    /// A flow, and how many packets.
    Ack(usize, u32),
    Lose(usize),
    TimeOut(usize),
    Recover(usize),
    Expect {
        flow: usize,
        cwnd: f64,
        ssthresh: f64,
        /// With these algorithms; with all if there are none.
        of: Vec<String>,
    },
}

impl Script {
    pub(crate) fn flows(&self) -> usize {
        self.rtts.len()
    }

    pub(crate) fn times_out(&self, flow: usize) -> bool {
        let of_flow = |step: &Step| matches!(*step, Step::TimeOut(one) if one == flow);
        self.steps.iter().any(|(_, step)| of_flow(step))
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self {
            algorithms: Vec::new(),
            rtts: Vec::new(),
            steps: Vec::new(),
        };
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            if !words.is_empty() {
                script
                    .line(number, &words)
                    .map_err(|error| format!("line {number}: {error}"))?;
            }
        }
        Ok(script)
    }

    fn line(&mut self, number: usize, words: &[&str]) -> Result<(), String> {
        match words {
            ["algorithms", names @ ..] => self.algorithms = names_of(names),
            ["rtt", times @ ..] => {
                let time = |text: &&str| {
                    let ms = text.strip_suffix("ms").ok_or("a time in ms")?;
                    number_of(ms).map(Duration::from_millis)
                };
                self.rtts = times.iter().map(time).collect::<Result<_, _>>()?;
            }
            [flow, event @ ..] => {
                let flow: usize = number_of(flow)?;
                if flow >= self.flows() {
                    return Err(format!("there is no flow {flow}"));
                }
                let step = match event {
                    ["ack", packets] => Step::Ack(flow, number_of(packets)?),
                    ["lose"] => Step::Lose(flow),
                    ["timeout"] => Step::TimeOut(flow),
                    ["recover"] => Step::Recover(flow),
                    ["expect", cwnd, ssthresh, names @ ..] => Step::Expect {
                        flow,
                        cwnd: number_of(cwnd)?,
                        ssthresh: number_of(ssthresh)?,
                        of: names_of(names),
                    },
                    _ => return Err(format!("no event: {event:?}")),
                };
                self.steps.push((number, step));
            }
            [] => {}
        }
        Ok(())
    }
}

fn number_of<N: std::str::FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn names_of(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
