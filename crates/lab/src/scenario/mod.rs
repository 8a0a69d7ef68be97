//! Scenarios: what a file under `scenarios/` says about links, traffic and systems.
//!
//! ```toml
//! name = "wifi-wigig-loss"
//! about = "5 % loss on the fast link"
//! duration = "10s"
//! warmup = "2s"
//!
//! [[link]]
//! name = "wifi"
//! rate = "630mbit"
//! delay = "2ms"
//! ```
//!
//! [`Scenario::load`] reads a file and tells everything that is wrong with it at once, each problem with its
//! line. docs/laboratory.md is the manual of the format.

mod emulation;
mod event;
mod link;
mod read;
mod shared;
mod table;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::config::PlannedChange;
use crate::error::LabError;

use link::Link;
use shared::{Group, SharedRadio, Stranger};

pub use table::Problem;
pub use workload::Workload;

pub(crate) use read::parse_congestion;

/// Which way the traffic of a scenario goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// From the server to the client.
    Down,
    /// From the client to the server.
    Up,
    /// Both at once.
    Both,
}

impl Traffic {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
            Self::Both => "both",
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        [Self::Down, Self::Up, Self::Both]
            .into_iter()
            .find(|traffic| traffic.name() == text)
            .ok_or_else(|| format!("'{text}' is none of down, up, both"))
    }

    /// The directions of its flows.
    pub fn directions(self) -> &'static [crate::Direction] {
        match self {
            Self::Down => &[crate::Direction::Down],
            Self::Up => &[crate::Direction::Up],
            Self::Both => &[crate::Direction::Down, crate::Direction::Up],
        }
    }
}

/// A scenario, read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The file that it was read from.
    pub file: PathBuf,
    /// That file's text.
    pub text: String,
    /// SHA-256 of the text and of the traces that it names, in hexadecimal.
    pub sha256: String,
    /// Its name: letters, digits and `-`.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// How long a run takes, warm-up included.
    pub duration: Duration,
    /// How much of that is not measured.
    pub warmup: Duration,
    /// Which way the traffic goes.
    pub traffic: Traffic,
    /// How many seeds are run: 1, 2, 3 …
    pub seeds: u64,
    /// TCP congestion control of everyone.
    pub congestion: String,
    /// Names of the systems, in the order in which they are shown.
    pub systems: Vec<String>,
    /// What is carried.
    pub workload: Workload,
    /// The scenario that measures the same links without interference, by name; for the bounds of the report.
    pub clean: Option<String>,
    /// Whether programs hand over super-packets; see [`LabConfig::gso`](crate::LabConfig::gso).
    pub gso: bool,
    /// What happens to the links.
    pub events: Vec<PlannedChange>,
    links: Vec<Link>,
    groups: Vec<Group>,
    radios: Vec<SharedRadio>,
    interferers: Vec<Stranger>,
}

impl Scenario {
    /// Reads a scenario and the traces that it names.
    ///
    /// The error is [`LabError::File`] when there is no such file, [`LabError::Scenario`] with all problems
    /// when it is wrong.
    pub fn load(file: &Path) -> Result<Self, LabError> {
        let text = fs::read_to_string(file).map_err(LabError::file(file))?;
        read::read(file, &text).map_err(LabError::Scenario)
    }

    /// Intervals of the time series of a run: fine for short ones, and never more than some thousands.
    pub fn interval(&self) -> Duration {
        match self.duration.as_secs() {
            0..=60 => Duration::from_millis(100),
            61..=600 => Duration::from_millis(500),
            _ => Duration::from_secs(1),
        }
    }
}

/// SHA-256 of several texts, in hexadecimal.
fn sha256_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut all = Vec::new();
    for part in parts {
        all.extend_from_slice(&(part.len() as u64).to_be_bytes());
        all.extend_from_slice(part);
    }
    digest(&SHA256, &all)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
