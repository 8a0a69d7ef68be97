//! The trace of an edge node: for each connection the window and the round-trip time of the
//! kernel's sending TCP and the node's view of it; for each link the node's queue. The lines have
//! the format of `sumlink-lab sim run --trace`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::config::Direction;
use crate::error::LabError;
use crate::laboratory::LabHandle;
use crate::topology::Side;

use super::super::Stage;
use super::super::sumlink::ask;
use super::super::watcher::Watcher;
use super::control;

/// Interval between samples; the node updates its status as often.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Writes to the stage's trace file, if it has one.
pub(super) fn start(stage: &Stage<'_>) -> Result<Option<Watcher>, LabError> {
    let Some(path) = stage.trace.clone() else {
        return Ok(None);
    };
    let file = File::create(&path).map_err(LabError::file(&path))?;
    let mut looker = Looker {
        file: BufWriter::new(file),
        handle: stage.lab.handle(),
        senders: senders(stage),
        numbers: BTreeMap::new(),
        begun: Instant::now(),
    };
    let node = control(stage, Side::Server);
    let watcher = Watcher::start("trace", POLL_INTERVAL, move || match ask(&node) {
        // The node is ending or busy.
        None => ControlFlow::Continue(()),
        Some(status) => match looker.look(&status["edge"]) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                tracing::warn!("trace {} ends here: {error}", path.display());
                ControlFlow::Break(())
            }
        },
    })?;
    Ok(Some(watcher))
}

/// The sides that send data, with the filter for the kernel's list of sockets there.
fn senders(stage: &Stage<'_>) -> Vec<(Side, String)> {
    let sender = |way: &Direction| match way {
        Direction::Down => (Side::Server, format!("sport = :{}", stage.port)),
        Direction::Up => (Side::Client, format!("dport = :{}", stage.port)),
    };
    stage.directions.iter().map(sender).collect()
}

struct Looker {
    file: BufWriter<File>,
    handle: LabHandle,
    senders: Vec<(Side, String)>,
    /// Numbers of connections by the user's address, in order of appearance.
    numbers: BTreeMap<String, usize>,
    begun: Instant,
}

impl Looker {
    fn look(&mut self, node: &Value) -> io::Result<()> {
        let t_ns = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for (number, link) in node["links"].as_array().into_iter().flatten().enumerate() {
            let mut line = json!({
                "t_ns": t_ns, "event": "queue", "side": "server", "link": number,
                "packets": link["queue_packets"], "bytes": link["queue_bytes"],
            });
            if let Some(trip) = link["trip_ms"].as_f64() {
                line["trip_us"] = json!((trip * 1e3) as u64);
            }
            if let Some(rate) = link["service_bps"].as_f64() {
                line["rate"] = json!((rate / 8.0) as u64);
            }
            writeln!(self.file, "{line}")?;
        }
        for (side, filter) in &self.senders {
            for tcp in sockets(&self.handle, *side, filter) {
                let next = self.numbers.len();
                let user = match side {
                    Side::Server => &tcp.peer,
                    _ => &tcp.local,
                };
                let known = node["flows"].as_array().into_iter().flatten();
                let known = known.into_iter().find(|flow| flow["user"] == user.as_str());
                let of_node = |key: &str| known.and_then(|flow| flow[key].as_f64()).unwrap_or(0.0);
                let connection = *self.numbers.entry(user.clone()).or_insert(next);
                let line = json!({
                    "t_ns": t_ns, "event": "flow", "side": side.name(), "connection": connection,
                    "cwnd": tcp.cwnd * tcp.mss, "in_flight": tcp.unacked * tcp.mss, "srtt_us": tcp.srtt_us,
                    "duplicates": of_node("duplicates"), "held_average": of_node("held_average"),
                    "held_us": of_node("held_ms") * 1e3, "retransmissions": of_node("retransmissions"),
                    "owed": of_node("owed_bytes"),
                });
                writeln!(self.file, "{line}")?;
            }
        }
        Ok(())
    }
}

/// The kernel's state of a connection.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tcp {
    local: String,
    peer: String,
    /// In segments.
    cwnd: u64,
    unacked: u64,
    /// In bytes.
    mss: u64,
    srtt_us: u64,
}

/// The connections of a side, as listed by `ss` of iproute2.
fn sockets(handle: &LabHandle, side: Side, filter: &str) -> Vec<Tcp> {
    let mut command = Command::new("ss");
    command.args(["-HtinO", "state", "established"]);
    command.args(filter.split(' '));
    let output = handle.run(side, move || command.output());
    let text = match output {
        Ok(Ok(output)) => String::from_utf8_lossy(&output.stdout).into_owned(),
        _ => return Vec::new(),
    };
    text.lines().filter_map(read).collect()
}

fn read(line: &str) -> Option<Tcp> {
    let address = |text: &str| text.replace("[::ffff:", "").replace(']', "");
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
    let number = |key: &str| word(key).and_then(|text| text.parse().ok()).unwrap_or(0);
    // Smoothed value and variation.
    let srtt_ms: f64 = word("rtt:")?.split('/').next()?.parse().ok()?;
    Some(Tcp {
        local: address(words.get(2)?),
        peer: address(words.get(3)?),
        cwnd: number("cwnd:"),
        unacked: number("unacked:"),
        mss: number("mss:"),
        srtt_us: (srtt_ms * 1e3) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_ss_is_parsed() {
        let line = "0 262144 [::ffff:10.99.0.1]:5001 [::ffff:10.88.0.2]:40012 cubic wscale:7,7 \
                    rto:240 rtt:39.6/1.2 ato:40 mss:1348 pmtu:1400 rcvmss:536 advmss:1348 cwnd:120 \
                    ssthresh:98 bytes_sent:99 unacked:117 minrtt:20.1";
        let tcp = Tcp {
            local: "10.99.0.1:5001".to_owned(),
            peer: "10.88.0.2:40012".to_owned(),
            cwnd: 120,
            unacked: 117,
            mss: 1348,
            srtt_us: 39_600,
        };
        assert_eq!(read(line), Some(tcp));
        assert_eq!(read(""), None);
        assert_eq!(read("0 0 1.2.3.4:5 6.7.8.9:10 cubic mss:536 cwnd:10"), None);
    }
}
