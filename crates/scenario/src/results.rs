//! The results of a run, and a summary of several.
//!
//! Bytes are bytes of the application's stream (goodput) unless a field says "wire"; rates are
//! bit/s; times are seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::health::Health;

mod assemble;
mod compute;
mod datagrams;
pub mod emodel;
mod join;
pub mod lag;
mod record;
mod series;
mod summary;
mod video;

pub use assemble::{assemble, push_note};
pub use compute::{ALONE, MPTCP, SIMULTANEOUS, ScenarioHeader, figures, link_goodput};
pub use datagrams::{Arrival, Call, Datagrams, Measured, Playout, SETTLE};
pub use join::{in_series, join};
pub use lag::{Delivery, Lag};
pub use record::{Connections, DatagramsRecord, EndsRecord, FlowRecord, ObjectRecord};
pub use series::{direction_name, rate, series, set_delays, set_shares, sum_series};
pub use summary::{
    Bounds, DatagramSummary, LinkPart, Missing, Quantiles, Spread, Summary, SystemSummary,
    quantile, sorted,
};
pub use video::{Frame, Video, watch};

/// The version of these structures; files with a different version are rejected.
pub const SCHEMA: u32 = 1;

/// One system under one scenario with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// SHA-256 of the scenario's file, in hexadecimal: a different text is a different scenario.
    pub scenario_sha256: String,
    /// Seed of the links' randomness.
    pub seed: u64,
    /// Name of the system, as in the scenario's `systems`.
    pub system: String,
    /// Start time, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// The environment of the run.
    pub environment: Environment,
    /// The result of the run.
    pub outcome: Outcome,
}

/// The machine and the versions of all programs involved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Release of the kernel (`uname -r`).
    pub kernel: String,
    /// Number of processors available to the run.
    pub processors: usize,
    /// Name of the processors, if the kernel reports it.
    #[serde(default)]
    pub processor: String,
    /// Version of sumlink.
    pub sumlink: String,
    /// The sumlink program that was measured and generated the traffic: the first 16 hexadecimal
    /// digits of its file's SHA-256. Empty in results of versions that did not record it.
    #[serde(default)]
    pub program: String,
    /// Versions of the other programs in this run, by name.
    pub peers: BTreeMap<String, String>,
    /// TCP congestion control of all systems.
    pub congestion: String,
    /// Limit of TCP's socket buffers for all systems, in bytes (`tcp_rmem`, `tcp_wmem`).
    pub socket_buffer_max_bytes: u64,
    /// The run was simulated: it has no kernel, no processors and no date. Absent in measured
    /// results.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

/// The kernel release in the environment of a simulated run.
pub const SIMULATED: &str = "simulated";

impl Environment {
    /// Whether the run was simulated, not measured; works for results without
    /// [`Environment::simulated`] as well.
    pub fn is_simulated(&self) -> bool {
        self.simulated || self.kernel == SIMULATED
    }
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// The run has figures.
    Measured(Box<Measurement>),
    /// The system is not available here.
    Skipped {
        /// The missing prerequisite.
        reason: String,
    },
    /// The emulator was the bottleneck in every attempt.
    Refused {
        /// The limit that was exceeded.
        reason: String,
    },
    /// The system failed: it did not connect, ended prematurely, or delivered wrong bytes.
    Failed {
        /// Description of the failure.
        reason: String,
    },
}

/// The figures of one run, over the measured time (warm-up excluded).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Measured time in seconds.
    pub duration_s: f64,
    /// Goodput of all flows together, in bit/s.
    pub goodput_bps: f64,
    /// Application bytes that arrived in the measured time.
    pub bytes: u64,
    /// Figures of each flow: one, or one per direction, or one per link for `alone` and
    /// `simultaneous`.
    pub flows: Vec<Flow>,
    /// Objects of a workload of files, in the order of their requests.
    pub completions: Vec<Completion>,
    /// Objects that took longer than the workload allows, or did not arrive; unknown without a
    /// limit.
    #[serde(default)]
    pub over_limit: Option<u64>,
    /// Delay of each message of a constant-bit-rate workload from sending to delivery, or of each
    /// answer since its question, in milliseconds.
    pub message_delays_ms: Vec<f64>,
    /// The same for flows bound to a link, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link_delays_ms: BTreeMap<String, Vec<f64>>,
    /// Segments retransmitted by TCP, over all connections of the run; unknown for systems without
    /// TCP.
    pub retransmissions: Option<u64>,
    /// Bytes of intentional duplicates; unknown for systems that do not report them.
    pub duplicates_bytes: Option<u64>,
    /// Peak memory of its receivers for out-of-order bytes, client and server together; unknown for
    /// systems that do not report it.
    #[serde(default)]
    pub reorder_peak_bytes: Option<u64>,
    /// 99 % of the bytes waited no longer than this for earlier ones, in seconds, at the end where
    /// it is longer; unknown for systems that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_order_wait_p99_s: Option<f64>,
    /// Peak memory of its sessions, client and server together: unacknowledged data, and pages with
    /// unread data. Reported by the simulator only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// Share of the time for which a selector kept a link idle, at the side with the larger share,
    /// by the link's name; links that were never idle are absent. The laboratory reports it for
    /// MPTCP only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rested: BTreeMap<String, f64>,
    /// Figures of live video; one for each link of `alone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub videos: Vec<Video>,
    /// Figures of each flow of datagrams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datagrams: Vec<Datagrams>,
    /// Short or open connections, if the workload consists of such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// Time from the start of the gateway's program to the first byte that the LAN host received
    /// through it, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_s: Option<f64>,
    /// Digest of all events of a simulation; absent in measurements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_log: Option<EventDigest>,
    /// Goodput of the scenario's rival, in bit/s; not included in other figures.
    #[serde(default)]
    pub rival_bps: Option<f64>,
    /// Traffic of each link, as counted by the emulator (wire bytes).
    pub links: Vec<LinkSeries>,
    /// Goodput over time, all flows together.
    pub goodput: Series,
    /// The programs of the system (not of the workload).
    pub processes: Vec<Process>,
    /// CPU time of the workload's programs at both ends, in seconds, user and system.
    #[serde(default)]
    pub traffic_cpu_s: Option<f64>,
    /// The emulator's measurement of itself.
    pub emulator: Health,
    /// Load of the machine; unknown in virtual time, and in results of versions that did not record
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Remarks, for example how many subflows joined, or the scale.
    pub note: String,
}

/// A digest that shows whether two simulations had the same events in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDigest {
    /// Number of events.
    pub entries: u64,
    /// A hash over all events with their times, in 16 hexadecimal digits.
    pub hash: String,
}

/// One transport connection, or one direction of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The link that it was bound to, if any.
    pub link: Option<String>,
    /// `down` or `up`.
    pub direction: String,
    /// Goodput in bit/s.
    pub goodput_bps: f64,
    /// Goodput over time.
    pub goodput: Series,
    /// Bytes that arrived in each [`lag::ARRIVAL_INTERVAL`] since the start of the run, warm-up
    /// included. Only downloads and uploads without an end have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<u64>,
}

/// One fetched object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Time of the request, in seconds since the start of the run.
    pub start_s: f64,
    /// Time from the request to the last byte.
    pub duration_s: f64,
    /// The link that it was bound to, if any: the best link alone is the reference for completion
    /// times.
    #[serde(default)]
    pub link: Option<String>,
}

/// One direction of a link over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkSeries {
    /// The link's name.
    pub link: String,
    /// `down` or `up`.
    pub direction: String,
    /// Wire bytes delivered in the measured time.
    pub wire_bytes: u64,
    /// Its share of the bytes that all links delivered in this direction, 0..=1.
    pub share: f64,
    /// Packets lost on the link, and dropped by its queue.
    pub lost_packets: u64,
    /// Packets dropped because the queue was full, or by the policer.
    pub dropped_packets: u64,
    /// Rate of delivered wire bytes over time.
    pub rate: Series,
    /// One-way delay at the start of the run, in seconds, without queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_s: Option<f64>,
}

/// Equidistant samples of a rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Start of the first interval, in seconds since the start of the run (warm-up included).
    pub start_s: f64,
    /// Length of an interval in seconds.
    pub interval_s: f64,
    /// Mean rate in each interval, in bit/s.
    pub bps: Vec<f64>,
}

/// One program of a system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Name of the program.
    pub name: String,
    /// CPU time in seconds, user and system.
    pub cpu_s: f64,
    /// Peak resident memory in bytes.
    pub peak_memory_bytes: u64,
}

/// Load of all processors of the machine in the measured time; for several phases, of the busiest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Peak number of concurrent runs of the laboratory, this one included. CPU seconds of programs
    /// are always those of a single run.
    pub runs_at_once: usize,
    /// Share of the processors that these runs used together, with emulators, traffic and
    /// interrupts, 0..=1.
    pub runs_share: f64,
    /// Share that other programs used, 0..=1.
    pub others_share: f64,
}

impl Machine {
    /// The maximum of two loads in every field.
    fn max(self, other: Self) -> Self {
        Self {
            runs_at_once: self.runs_at_once.max(other.runs_at_once),
            runs_share: self.runs_share.max(other.runs_share),
            others_share: self.others_share.max(other.others_share),
        }
    }
}

impl Run {
    /// A run without further data; `seed` also sets the start time.
    pub fn bare(system: &str, seed: u64, outcome: Outcome) -> Self {
        Self {
            schema: SCHEMA,
            scenario: "s".to_owned(),
            scenario_sha256: String::new(),
            seed,
            system: system.to_owned(),
            started_unix_s: seed,
            environment: Environment::default(),
            outcome,
        }
    }
}
