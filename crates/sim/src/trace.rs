//! The decisions of a session and their outcome, as JSON lines.
//!
//! | `event` | fields beside `t_ns` (since the start of the simulation) and `side` |
//! | --- | --- |
//! | `data` | a path was given bytes of a stream: `path`, `stream`, `offset`, `bytes` |
//! | `ack` | a side acknowledges bytes of a stream: `path` (over which), `stream`, `cumulative` (all bytes below have arrived), `ranges` (received beyond it) |
//! | `report` | a side reports how many bytes of whole frames have arrived on a path: `path` (over which), `of`, `received` |
//! | `credit` | a side grants more credit: `path` (over which), `stream` (absent for the whole session), `limit` (offset, or total bytes) |
//! | `path` | the engine's view of a path, at most every 10 ms: `path`, `link`, `cwnd`, `ssthresh` (null until it is set), `in_flight`, `unsent` (bytes), `srtt_us`, `delivery_rate` (bytes per second), `loss` (`open`, `recovery`, `timeout`) |
//! | `read` | a program received bytes in order: `stream`, `offset`, `bytes`, and `waiting`, the bytes behind a gap |
//! | `held` | the bytes that a side holds behind gaps changed; at most every 10 ms, but at once when the first gap opens and the last closes: `waiting` (bytes) |
//! | `up`, `down`, `stalled`, `recovered` | state of a path: `path` |
//! | `queue` | an edge node's queue for a link, every 10 ms: `link`, `packets`, `bytes`, `trip_us` and `rate` (bytes per second) if known |
//! | `flow` | a connection through an edge node, every 10 ms: the sender's `connection`, `cwnd`, `in_flight`, `srtt_us`; and the node's `duplicates` (P), `held_average` (PH^a), `held_us` (H), `retransmissions` (RT), `owed` |
//! | `subflow` | a subflow of MPTCP at its sender, every 100 ms: `path`, `srtt_us`, `received` (bytes that the peer has counted), `retransmissions` (segments so far), `backup` |
//! | `threshold` | the selector's threshold has changed: `alpha` |
//! | `selected` | the selector decided about a path: `path`, `selection` (`active`, `probing`, `trial`, `parked`), `reason` |

use std::fmt;
use std::io::{self, Write};

use sumlink_edge::queue::LinkQueue;
use sumlink_edge::{FlowReport, LinkId};
use sumlink_engine::frame::Frame;
use sumlink_engine::{LossState, PathId, PathSample, Selection};

use crate::clock::{MICROSECOND, MILLISECOND, Nanos};
use crate::tcp::{Side, TcpInfo};

/// Least time between two lines about the state of the same path.
const PAUSE: Nanos = 10 * MILLISECOND;

/// The state of a subflow of MPTCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SubflowLine {
    pub(crate) srtt: Nanos,
    pub(crate) received: u64,
    pub(crate) retransmissions: u64,
    pub(crate) backup: bool,
}

/// Writes the trace.
pub(crate) struct Trace {
    out: Box<dyn Write + Send>,
    /// Time of the last `path` line of each side's paths.
    path_lines: Vec<(Side, PathId, Nanos)>,
    /// Last `held` line of each side: bytes behind gaps, and time.
    held: [(u64, Nanos); 2],
    /// Last `threshold` line of each side.
    thresholds: [Option<f64>; 2],
    /// The first write error; nothing is written after it.
    failure: Option<io::Error>,
}

impl Trace {
    pub(crate) fn new(out: Box<dyn Write + Send>) -> Self {
        Self {
            out,
            path_lines: Vec::new(),
            held: [(0, 0); 2],
            thresholds: [None; 2],
            failure: None,
        }
    }

    fn line(&mut self, now: Nanos, event: &str, side: Side, rest: fmt::Arguments<'_>) {
        if self.failure.is_some() {
            return;
        }
        let side = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let written = writeln!(
            self.out,
            "{{\"t_ns\":{now},\"event\":\"{event}\",\"side\":\"{side}\",{rest}}}"
        );
        self.failure = written.err();
    }

    /// A path was given frames.
    pub(crate) fn sent(&mut self, now: Nanos, side: Side, path: PathId, mut frames: &[u8]) {
        while let Ok(Some((frame, len))) = Frame::decode(frames) {
            self.frame(now, side, path.0, &frame);
            frames = &frames[len..];
        }
    }

    /// A path was given a frame.
    fn frame(&mut self, now: Nanos, side: Side, path: u32, frame: &Frame<'_>) {
        match frame {
            Frame::Data {
                stream,
                offset,
                data,
            } => {
                let bytes = data.len();
                let rest = format_args!(
                    "\"path\":{path},\"stream\":{stream},\"offset\":{offset},\"bytes\":{bytes}"
                );
                self.line(now, "data", side, rest);
            }
            Frame::Ack(ack) => {
                let (stream, cumulative) = (ack.stream, ack.cumulative);
                let ranges = ack.ranges.iter().map(|range| [range.start, range.end]);
                let ranges: Vec<[u64; 2]> = ranges.collect();
                // Rust's debug format of a list of lists of numbers is valid JSON.
                let rest = format_args!(
                    "\"path\":{path},\"stream\":{stream},\"cumulative\":{cumulative},\"ranges\":{ranges:?}"
                );
                self.line(now, "ack", side, rest);
            }
            Frame::Path { path: of, received } => {
                let rest = format_args!("\"path\":{path},\"of\":{of},\"received\":{received}");
                self.line(now, "report", side, rest);
            }
            Frame::CreditStream { stream, limit } => {
                let rest = format_args!("\"path\":{path},\"stream\":{stream},\"limit\":{limit}");
                self.line(now, "credit", side, rest);
            }
            Frame::CreditSession { limit } => {
                let rest = format_args!("\"path\":{path},\"limit\":{limit}");
                self.line(now, "credit", side, rest);
            }
            _ => {}
        }
    }

    /// The engine received statistics of a path.
    pub(crate) fn sample(
        &mut self,
        now: Nanos,
        side: Side,
        path: PathId,
        link: usize,
        sample: &PathSample,
    ) {
        let known = |(of, id, _): &&mut (Side, PathId, Nanos)| (*of, *id) == (side, path);
        match self.path_lines.iter_mut().find(known) {
            Some((.., at)) if now - *at < PAUSE => return,
            Some((.., at)) => *at = now,
            None => self.path_lines.push((side, path, now)),
        }
        let loss = match sample.loss {
            LossState::Open => "open",
            LossState::Recovery => "recovery",
            LossState::Timeout => "timeout",
        };
        let ssthresh = sample
            .ssthresh
            .map_or_else(|| "null".to_owned(), |bytes| bytes.to_string());
        let rest = format_args!(
            "\"path\":{},\"link\":{link},\"cwnd\":{},\"ssthresh\":{ssthresh},\"in_flight\":{},\"unsent\":{},\
             \"srtt_us\":{},\"delivery_rate\":{},\"loss\":\"{loss}\"",
            path.0,
            sample.cwnd,
            sample.in_flight,
            sample.unsent,
            sample.srtt.as_micros(),
            sample.delivery_rate
        );
        self.line(now, "path", side, rest);
    }

    /// A program received bytes.
    pub(crate) fn read(
        &mut self,
        now: Nanos,
        side: Side,
        stream: u64,
        offset: u64,
        bytes: u64,
        waiting: u64,
    ) {
        self.held[side.index()] = (waiting, now);
        let rest = format_args!(
            "\"stream\":{stream},\"offset\":{offset},\"bytes\":{bytes},\"waiting\":{waiting}"
        );
        self.line(now, "read", side, rest);
    }

    /// A side holds `waiting` bytes behind gaps.
    ///
    /// [`Trace::read`] reports them only when a program receives bytes, so it would say nothing
    /// while a program waits.
    pub(crate) fn held(&mut self, now: Nanos, side: Side, waiting: u64) {
        let (before, at) = self.held[side.index()];
        let begins_or_ends = (before == 0) != (waiting == 0);
        if waiting == before || (!begins_or_ends && now - at < PAUSE) {
            return;
        }
        self.held[side.index()] = (waiting, now);
        self.line(now, "held", side, format_args!("\"waiting\":{waiting}"));
    }

    /// Something happened to a path.
    pub(crate) fn path(&mut self, now: Nanos, side: Side, path: PathId, event: &'static str) {
        self.line(now, event, side, format_args!("\"path\":{}", path.0));
    }

    /// An edge node's queue for a link.
    pub(crate) fn queue(&mut self, now: Nanos, LinkId(link): LinkId, queue: &LinkQueue) {
        let (packets, bytes) = (queue.len(), queue.bytes());
        let trip = queue.trip().map(|trip| trip.as_micros());
        let rate = queue.rate().map(|rate| rate as u64);
        let trip = trip.map_or_else(String::new, |trip| format!(",\"trip_us\":{trip}"));
        let rate = rate.map_or_else(String::new, |rate| format!(",\"rate\":{rate}"));
        let rest =
            format_args!("\"link\":{link},\"packets\":{packets},\"bytes\":{bytes}{trip}{rate}");
        self.line(now, "queue", Side::Server, rest);
    }

    /// A connection through an edge node: the state of its sender and of the node.
    pub(crate) fn flow(
        &mut self,
        now: Nanos,
        side: Side,
        connection: usize,
        info: &TcpInfo,
        report: &FlowReport,
    ) {
        let rest = format_args!(
            "\"connection\":{connection},\"cwnd\":{},\"in_flight\":{},\"srtt_us\":{},\"duplicates\":{},\
             \"held_average\":{:.3},\"held_us\":{},\"retransmissions\":{},\"owed\":{}",
            info.cwnd,
            info.unacked,
            info.srtt / MICROSECOND,
            report.duplicates,
            report.held_average,
            report.held_for.as_micros(),
            report.retransmissions,
            report.owed
        );
        self.line(now, "flow", side, rest);
    }

    /// The selector decided about a path.
    pub(crate) fn selected(
        &mut self,
        now: Nanos,
        side: Side,
        path: PathId,
        selection: Selection,
        reason: &str,
    ) {
        // Reasons consist of the engine's fixed texts and numbers, so they need no escaping.
        debug_assert!(!reason.contains(['"', '\\']) && !reason.contains(char::is_control));
        let (path, name) = (path.0, selection.name());
        let rest = format_args!("\"path\":{path},\"selection\":\"{name}\",\"reason\":\"{reason}\"");
        self.line(now, "selected", side, rest);
    }

    /// The selector has this threshold; a line is written if it has changed.
    pub(crate) fn threshold(&mut self, now: Nanos, side: Side, alpha: Option<f64>) {
        if let Some(alpha) = alpha
            && self.thresholds[side.index()].replace(alpha) != Some(alpha)
        {
            self.line(now, "threshold", side, format_args!("\"alpha\":{alpha:.4}"));
        }
    }

    /// The state of a subflow.
    pub(crate) fn subflow(&mut self, now: Nanos, side: Side, path: usize, subflow: &SubflowLine) {
        let SubflowLine {
            srtt,
            received,
            retransmissions,
            backup,
        } = subflow;
        let srtt = srtt / MICROSECOND;
        let rest = format_args!(
            "\"path\":{path},\"srtt_us\":{srtt},\"received\":{received},\
             \"retransmissions\":{retransmissions},\"backup\":{backup}"
        );
        self.line(now, "subflow", side, rest);
    }

    /// Flushes the output; returns the first error of any write.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}
