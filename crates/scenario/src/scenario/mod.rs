//! Scenarios: the files under `scenarios/`, which describe links, traffic and systems.
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
//! [`Scenario::load`] reads a file and reports all of its problems at once, each with its line.
//! docs/scenarios.md is the manual of the format.

mod bounds;
mod datagrams;
mod document;
mod each_way;
mod emulation;
mod event;
mod link;
mod load;
mod names;
mod profile;
mod rate;
mod read;
mod section;
mod shared;
mod spell;
mod wigig;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use sumlink_engine::SelectorConfig;
use sumlink_mmwave::cell::Access;

use crate::config::{Direction, PlannedChange};
use crate::edge::Hosts;
use crate::error::LoadError;
use crate::lan::LanConfig;

use link::Link;
use shared::{Group, SharedInterferer, SharedRadio};

pub use crate::problem::Problem;
pub use datagrams::{DatagramKind, Datagrams, Schedule, probe_schedule};
pub use document::Document;
pub use load::{load, parse};
pub use spell::Spell;
pub use workload::{Classes, Video, VideoProtocol, Workload};

pub use read::{parse_congestion, parse_name};
pub(crate) use section::number_of;
pub use section::{At, Section, text_of};

/// Direction of a scenario's traffic.
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
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
            Self::Both => "both",
        }
    }

    /// The direction with that name.
    pub fn parse(text: &str) -> Result<Self, String> {
        [Self::Down, Self::Up, Self::Both]
            .into_iter()
            .find(|traffic| traffic.name() == text)
            .ok_or_else(|| format!("'{text}' is none of down, up, both"))
    }

    /// The directions of its flows.
    pub fn directions(self) -> &'static [Direction] {
        match self {
            Self::Down => &[Direction::Down],
            Self::Up => &[Direction::Up],
            Self::Both => &[Direction::Down, Direction::Up],
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
    /// Its description.
    pub about: String,
    /// Duration of a run, warm-up included.
    pub duration: Duration,
    /// The initial part of the run that is not measured.
    pub warmup: Duration,
    /// Direction of the traffic.
    pub traffic: Traffic,
    /// Number of seeds, counted from 1.
    pub seeds: u64,
    /// TCP congestion control of all systems.
    pub congestion: String,
    /// Names of the systems, in the order of tables.
    pub systems: Vec<String>,
    /// The selector of sumlink systems that do not name one.
    pub selector: Option<SelectorConfig>,
    /// The TCP of the hosts at both ends, for systems that do not set it.
    pub hosts: Hosts,
    /// Limit of each socket's receive buffer in bytes, of which the kernel keeps half for its own
    /// structures. `None` means 32 MiB.
    pub receive_buffer: Option<u64>,
    /// The traffic.
    pub workload: Workload,
    /// The classes of its connections, for sumlink.
    pub classes: Classes,
    /// The link with a competing TCP connection between the server's address and the client, in the
    /// traffic's direction. Its share of the link is a figure.
    pub rival: Option<String>,
    /// Name of the scenario that measures the same links without interference, for the bounds of
    /// the report.
    pub clean: Option<String>,
    /// Whether programs hand over super-packets; see
    /// [`LabConfig::gso`](crate::plan::LabConfig::gso).
    pub gso: bool,
    /// Whether nothing is emulated: the links are as fast as the machine, and have names only.
    pub unshaped: bool,
    /// The hosts behind the links, if the client is a gateway: the traffic is between them.
    pub lan: Option<LanConfig>,
    /// Times in which programs bound to a link send. Only the simulator has them.
    pub spells: Vec<Spell>,
    /// Scheduled changes of the links.
    pub events: Vec<PlannedChange>,
    links: Vec<Link>,
    groups: Vec<Group>,
    radios: Vec<SharedRadio>,
    interferers: Vec<SharedInterferer>,
}

impl Scenario {
    /// Reads a scenario and the traces that it names.
    ///
    /// The error is [`LoadError::File`] if the file does not exist, and [`LoadError::Problems`]
    /// with all problems if it is invalid.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        load::load(file, Self::parse)
    }

    /// Parses the text of a scenario, as the content of that file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Vec<Problem>> {
        read::read(file, text)
    }

    /// [`Scenario::sha256`] for a different text that names the same traces.
    pub fn sha256_with(&self, text: &str) -> String {
        let traces = self.links.iter().flat_map(|link| &link.traces);
        sha256_of(std::iter::once(text.as_bytes()).chain(traces.map(String::as_bytes)))
    }

    /// Whether links depend on each other: they share the air, a radio or an interferer.
    pub fn has_coupled_links(&self) -> bool {
        !(self.groups.is_empty() && self.radios.is_empty() && self.interferers.is_empty())
    }

    /// For a workload of cold objects: one scenario for each object.
    pub fn single_objects(&self) -> Option<Vec<Self>> {
        let Workload::Files {
            sizes,
            count,
            limit,
            cold: true,
            ..
        } = &self.workload
        else {
            return None;
        };
        let single = |size: &u64| Self {
            workload: Workload::Files {
                sizes: vec![*size],
                count: 1,
                gap: Duration::ZERO,
                pace: None,
                limit: *limit,
                cold: false,
            },
            ..self.clone()
        };
        let rounds = (0..*count).flat_map(|_| sizes);
        Some(rounds.map(single).collect())
    }

    /// The same links with bulk traffic without a class. The name is different, the text is the
    /// same.
    #[must_use]
    pub fn under_bulk(&self) -> Self {
        Self {
            name: format!("{}-bulk", self.name),
            workload: Workload::Bulk,
            classes: Classes::default(),
            ..self.clone()
        }
    }

    /// The same scenario with a different access scheme and number of competitors on every link
    /// with profile `mmwave`; `None` without such a link or scheme. The name contains both, the
    /// text is the same.
    #[must_use]
    pub fn under_access(&self, scheme: &str, stations: usize) -> Option<Self> {
        let access = Access::named(scheme)?;
        let mut new = Self {
            name: format!("{}-{scheme}-{stations}", self.name),
            ..self.clone()
        };
        let wigig = new.links.iter_mut().filter_map(|link| {
            let profile = link.profile.as_mut()?;
            profile.wigig_mut()
        });
        let changed = wigig.map(|link| (link.access, link.others) = (access, stations));
        (changed.count() > 0).then_some(new)
    }

    /// Names of the links with profile `mmwave`.
    pub fn wigig_links(&self) -> impl Iterator<Item = &str> {
        let is_wigig = |link: &&Link| {
            let profile = link.profile.as_ref();
            profile.is_some_and(|profile| profile.wigig().is_some())
        };
        self.links
            .iter()
            .filter(is_wigig)
            .map(|link| link.spec.name.as_str())
    }

    /// Maximum duration of a run, or the approximate time that the objects need over that link
    /// alone.
    pub fn longest_run(&self, link: Option<&str>) -> Duration {
        let Workload::Files {
            sizes,
            count,
            gap,
            pace,
            ..
        } = &self.workload
        else {
            return self.duration;
        };
        let ways = self.traffic.directions();
        let rates = self
            .lab_config(1)
            .links
            .into_iter()
            .filter(|spec| link.is_none_or(|link| spec.name == link))
            .map(|spec| ways.iter().map(|way| spec.shapes[way.index()].rate).min());
        let rate: u64 = rates.flatten().sum();
        let rate = pace.unwrap_or(u64::MAX).min(rate);
        let bytes = sizes.iter().sum::<u64>().saturating_mul(*count);
        let objects = u32::try_from(sizes.len() as u64 * count).unwrap_or(u32::MAX);
        // Plus 50 % for headers, round trips and slow starts.
        let carried = bytes as f64 * 12.0 / rate.max(1) as f64;
        let carried = Duration::try_from_secs_f64(carried).unwrap_or(self.duration);
        self.duration
            .min(carried.saturating_add(gap.saturating_mul(objects)))
    }

    /// Interval of a run's time series: fine for short runs, with at most some thousands of
    /// samples.
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
