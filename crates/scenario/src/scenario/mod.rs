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

mod bounds;
mod document;
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

use link::Link;
use shared::{Group, SharedRadio, Stranger};

pub use document::{Document, Problem};
pub use load::{load, parse};
pub use workload::{Classes, Video, VideoProtocol, Workload};

pub use read::{parse_congestion, parse_name};
pub(crate) use section::number_of;
pub use section::{At, Section, text_of};

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

    /// The one of that word.
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
    /// The selector of sumlink's sessions whose system names none.
    pub selector: Option<SelectorConfig>,
    /// What the hosts at both ends run, in systems that do not say it themselves.
    pub hosts: Hosts,
    /// What is carried.
    pub workload: Workload,
    /// The classes of its connections, for sumlink.
    pub classes: Classes,
    /// The link over which somebody else has a TCP connection meanwhile, from the server's address straight to the
    /// client or the other way, as the traffic goes; it takes what it gets, and its share is a figure.
    pub rival: Option<String>,
    /// The scenario that measures the same links without interference, by name; for the bounds of the report.
    pub clean: Option<String>,
    /// Whether programs hand over super-packets; see [`LabConfig::gso`](crate::plan::LabConfig::gso).
    pub gso: bool,
    /// Whether nothing is emulated: the links are as fast as the machine, and have names only.
    pub unshaped: bool,
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
    /// The error is [`LoadError::File`] when there is no such file, [`LoadError::Problems`] with all of them
    /// when it is wrong.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        load::load(file, Self::parse)
    }

    /// Reads the text of a scenario, as if it stood in that file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Vec<Problem>> {
        read::read(file, text)
    }

    /// What [`Scenario::sha256`] would be of another text that names the same traces.
    pub fn sha256_with(&self, text: &str) -> String {
        let traces = self.links.iter().flat_map(|link| &link.traces);
        sha256_of(std::iter::once(text.as_bytes()).chain(traces.map(String::as_bytes)))
    }

    /// Whether what one link carries is a matter of the others: they share the air, a radio or an interferer.
    pub fn has_coupled_links(&self) -> bool {
        !(self.groups.is_empty() && self.radios.is_empty() && self.interferers.is_empty())
    }

    /// Of a workload of cold objects: the scenario with each of them by itself.
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

    /// The same links under as many bytes as there is room for, of no class; the name tells it from the original, the text is
    /// the same.
    #[must_use]
    pub fn under_bulk(&self) -> Self {
        Self {
            name: format!("{}-bulk", self.name),
            workload: Workload::Bulk,
            classes: Classes::default(),
            ..self.clone()
        }
    }

    /// The same with another access scheme, and another number of competitors, on every link whose profile is `mmwave`;
    /// `None` if there is no such link, or no such scheme. The name says both, the text is the same.
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

    /// Names of the links whose profile is `mmwave`.
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

    /// How long a run takes at the most, or about as long as the objects need over that link by itself.
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
        // Half as much again: for headers, round trips and slow starts.
        let carried = bytes as f64 * 12.0 / rate.max(1) as f64;
        let carried = Duration::try_from_secs_f64(carried).unwrap_or(self.duration);
        self.duration
            .min(carried.saturating_add(gap.saturating_mul(objects)))
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
