//! What a run leaves behind, and a summary over several.
//!
//! Bytes are bytes of the application's stream (goodput) unless a field says "wire"; rates are bit/s; times are seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::health::Health;

mod assemble;
mod compute;
mod join;
mod record;
mod series;
mod summary;
mod video;

pub use assemble::{assemble, push_note};
pub use compute::{ALONE, MPTCP, SIMULTANEOUS, ScenarioHeader, figures, link_goodput};
pub use join::{in_series, join};
pub use record::{EndsRecord, FlowRecord, ObjectRecord};
pub use series::{direction_name, rate, series, set_shares, sum_series};
pub use summary::{
    Bounds, LinkPart, Missing, Quantiles, Spread, Summary, SystemSummary, quantile, sorted,
};
pub use video::{Frame, Video, watch};

/// The version of these structures; a file with another one is not read.
pub const SCHEMA: u32 = 1;

/// One system under one scenario with one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// SHA-256 of the scenario's file, in hexadecimal: a run of another text is not the same scenario.
    pub scenario_sha256: String,
    /// Seed of the links' dice.
    pub seed: u64,
    /// Name of the system, as in the scenario's `systems`.
    pub system: String,
    /// When it began, in seconds since 1970 (UTC).
    pub started_unix_s: u64,
    /// What it ran on.
    pub environment: Environment,
    /// How it went.
    pub outcome: Outcome,
}

/// The machine and the versions of everything that takes part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Release of the kernel (`uname -r`).
    pub kernel: String,
    /// Processors that the run may use.
    pub processors: usize,
    /// Name of the processors, where the kernel tells it.
    #[serde(default)]
    pub processor: String,
    /// Version of sumlink.
    pub sumlink: String,
    /// The sumlink program that was measured and made the traffic: the first 16 hexadecimal digits of SHA-256 of its file.
    /// Empty in results of versions that did not note it down.
    #[serde(default)]
    pub program: String,
    /// Versions of the other programs that take part in this run, by name.
    pub peers: BTreeMap<String, String>,
    /// TCP congestion control of everyone.
    pub congestion: String,
    /// Limit of TCP's socket buffers for everyone, in bytes (`tcp_rmem`, `tcp_wmem`).
    pub socket_buffer_max_bytes: u64,
    /// The run was simulated: it has no kernel, no processors and no date. Not there in measured
    /// results.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
}

/// What the environment of a simulated run says in place of the release of a kernel.
pub const SIMULATED: &str = "simulated";

impl Environment {
    /// Whether the run was simulated, and not measured; also in results without
    /// [`Environment::simulated`].
    pub fn is_simulated(&self) -> bool {
        self.simulated || self.kernel == SIMULATED
    }
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Outcome {
    /// There are figures.
    Measured(Box<Measurement>),
    /// The system is not to be had here.
    Skipped {
        /// What is missing.
        reason: String,
    },
    /// The emulator was the bottleneck, however often it was tried.
    Refused {
        /// What it did not keep up with.
        reason: String,
    },
    /// The system failed: it did not connect, ended early, or delivered other bytes than were sent.
    Failed {
        /// How.
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
    /// What each flow got: one, or one per direction, or one per link for `alone` and `simultaneous`.
    pub flows: Vec<Flow>,
    /// Objects of a workload of files, in the order in which they were asked for.
    pub completions: Vec<Completion>,
    /// Objects that took longer than the workload allows, or had not arrived at the end; unknown without a limit.
    #[serde(default)]
    pub over_limit: Option<u64>,
    /// Delay of each message of a constant-bit-rate workload from sending to delivery, or of each answer from its
    /// question on, in milliseconds.
    pub message_delays_ms: Vec<f64>,
    /// Those of flows that were bound to a link, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub link_delays_ms: BTreeMap<String, Vec<f64>>,
    /// Segments that TCP sent again, over all connections of the run; unknown for systems without TCP.
    pub retransmissions: Option<u64>,
    /// Bytes that the system sent on purpose more than once; unknown for systems that do not tell.
    pub duplicates_bytes: Option<u64>,
    /// The most bytes that its receivers held at once because earlier ones were missing, of client and server
    /// together; unknown for systems that do not tell.
    #[serde(default)]
    pub reorder_peak_bytes: Option<u64>,
    /// The most bytes that its sessions held at once, of client and server together: what was written and not yet
    /// acknowledged, and the pages of what arrived and was not yet read. Only the simulator can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_peak_bytes: Option<u64>,
    /// The part of the time that a link rested because sumlink's selector said so, at the side for which that is more, by the
    /// link's name; those that never did are not there. Only the simulator can tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rested: BTreeMap<String, f64>,
    /// What arrived of live video; one for each link of `alone`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub videos: Vec<Video>,
    /// Digest of everything that happened in a simulation; reality has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_log: Option<EventDigest>,
    /// Goodput of the scenario's rival, in bit/s: no part of any other figure.
    #[serde(default)]
    pub rival_bps: Option<f64>,
    /// What each link carried, by the emulator's account (wire bytes).
    pub links: Vec<LinkSeries>,
    /// Goodput over time, all flows together.
    pub goodput: Series,
    /// The programs of the system (not of the workload).
    pub processes: Vec<Process>,
    /// CPU time of the workload's programs at both ends, in seconds, user and system.
    #[serde(default)]
    pub traffic_cpu_s: Option<f64>,
    /// The emulator's account of itself.
    pub emulator: Health,
    /// What the machine did; unknown in virtual time, and in results of versions that did not note it down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// What a reader should know besides: how many subflows joined, what was scaled.
    pub note: String,
}

/// What tells whether two simulations had the same events in the same order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventDigest {
    /// How many there were.
    pub entries: u64,
    /// A hash over all of them with their times, in 16 hexadecimal digits.
    pub hash: String,
}

/// One transport connection, or one direction of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// The link that it was bound to, if it was.
    pub link: Option<String>,
    /// `down` or `up`.
    pub direction: String,
    /// Goodput in bit/s.
    pub goodput_bps: f64,
    /// Goodput over time.
    pub goodput: Series,
}

/// One object that was fetched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// When it was asked for, in seconds since the start of the run.
    pub start_s: f64,
    /// How long it took, from the request to the last byte.
    pub duration_s: f64,
    /// The link that it was bound to, if it was: the best link alone is what completion times are measured by.
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
    /// Its part of what all links delivered in this direction, 0..=1.
    pub share: f64,
    /// Packets lost on the link, and dropped by its queue.
    pub lost_packets: u64,
    /// Packets dropped because the queue was full, or by the policer.
    pub dropped_packets: u64,
    /// Rate of delivered wire bytes over time.
    pub rate: Series,
}

/// Equidistant samples of a rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// When the first interval begins, in seconds since the start of the run (warm-up included).
    pub start_s: f64,
    /// Length of an interval in seconds.
    pub interval_s: f64,
    /// Mean rate in each interval, in bit/s.
    pub bps: Vec<f64>,
}

/// One program of a system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// What it is called.
    pub name: String,
    /// CPU time in seconds, user and system.
    pub cpu_s: f64,
    /// Largest resident memory in bytes.
    pub peak_memory_bytes: u64,
}

/// What all processors of the machine did in the measured time; of several phases, in the busiest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Runs that the laboratory had at once, this one included, at the most and at any time of it. CPU seconds of programs
    /// are each run's own, whatever this is.
    pub runs_at_once: usize,
    /// Share of the processors that these runs used together, with emulators, traffic and interrupts, 0..=1.
    pub runs_share: f64,
    /// Share that programs of others used, 0..=1.
    pub others_share: f64,
}

impl Machine {
    /// The busier of two times in every respect.
    fn max(self, other: Self) -> Self {
        Self {
            runs_at_once: self.runs_at_once.max(other.runs_at_once),
            runs_share: self.runs_share.max(other.runs_share),
            others_share: self.others_share.max(other.others_share),
        }
    }
}

impl Run {
    /// A run of which nothing is known but this; `seed` is also when it began.
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
