//! Selectors: which paths a session sends over.
//!
//! A scheduler divides the bytes among the paths that it is given; a selector says which these are. A path that it has
//! *parked* answers pings and reports, and gets stream data only while no other path delivers, as a backup does. Each end
//! selects for what it sends.
//!
//! A selector looks at the paths from time to time ([`Selector::review`]) and answers with [`Decision`]s, each with its
//! reason in one sentence. It knows no socket and no clock; the session tells it what it needs ([`Seen`]).
//!
//! To add one: a file in this folder with a type that implements [`Selector`], and a line in [`NAMES`] and in `by_name`.

pub mod base;
mod config;
#[cfg(test)]
mod fixture;
pub mod global;
mod lists;
pub mod none;
#[cfg(test)]
mod properties;
pub mod trials;

use std::fmt::Debug;
use std::time::Duration;

pub use config::SelectorConfig;

use crate::{Instant, PathId};

/// The selector of a session that asks for none: docs/selection.md has the measurements.
pub const DEFAULT: &str = "none";

/// All selectors by name.
pub const NAMES: &[&str] = &["none", "base", "global", "trials"];

/// Decides which paths carry stream data.
pub trait Selector: Debug + Send {
    /// The name under which it is chosen.
    fn name(&self) -> &'static str;

    /// Looks at the paths, at the earliest at the time that [`Selector::next_review`] said. Answers with what changes.
    fn review(&mut self, seen: &Seen<'_>) -> Vec<Decision>;

    /// When it wants to look next; `busy` says whether the session has anything to send or on its way. Nothing while
    /// there is nothing to be seen.
    fn next_review(&self, busy: bool) -> Option<Instant>;

    /// Whether it looks at [`Seen::delays`], which have to be measured.
    fn reads_delays(&self) -> bool {
        false
    }
}

/// What a selector has made of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// It carries its share.
    #[default]
    Active,
    /// It was parked, and carries its share again until it is judged.
    Probing,
    /// It gets no stream data for a moment, so that it can be seen what goes better without it.
    Trial,
    /// It gets no stream data while another path delivers.
    Parked,
}

impl Selection {
    /// The word for it in the status, the log and traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Probing => "probing",
            Self::Trial => "trial",
            Self::Parked => "parked",
        }
    }

    /// Whether the path gets stream data only while no other one delivers.
    pub fn rests(self) -> bool {
        matches!(self, Self::Trial | Self::Parked)
    }
}

/// What becomes of a path, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The path.
    pub path: PathId,
    /// What it is from now on.
    pub selection: Selection,
    /// Why, in one sentence with figures.
    pub reason: String,
}

/// What a selector sees.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Now.
    pub now: Instant,
    /// Stream bytes wait for a path.
    pub waiting: bool,
    /// Stream bytes that the peer has in order, of all streams, since the session began.
    pub delivered: u64,
    /// How long bytes of streams that keep up took from the program's write until the peer had them in order: those
    /// whose time has come since the last review.
    pub delays: &'a [Duration],
    /// The paths, by ascending number.
    pub paths: &'a [SeenPath],
}

/// A path as a selector sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenPath {
    /// Its number.
    pub id: PathId,
    /// It delivers, and no path of a higher priority does.
    pub works: bool,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Sender maximum segment size in bytes.
    pub mss: u64,
    /// Bytes that the peer has counted on it, since it joined.
    pub received: u64,
    /// Estimated rate of delivery in bytes per second ([`Path::rate`](crate::Path::rate)).
    pub rate: f64,
}

impl SeenPath {
    /// Smoothed round-trip time in seconds, never 0.
    fn srtt_s(&self) -> f64 {
        self.srtt.as_secs_f64().max(1e-6)
    }
}

pub(crate) fn by_name(config: &SelectorConfig) -> Option<Box<dyn Selector>> {
    Some(match config.name.as_str() {
        "none" => Box::new(none::All),
        "base" => Box::new(base::Base::new(config)),
        "global" => Box::new(global::Global::new(config)),
        "trials" => Box::new(trials::Trials::new(config)),
        _ => return None,
    })
}

/// A rate for people, from bytes per second.
fn mbit(rate: f64) -> String {
    let mbit = rate * 8.0 / 1e6;
    match mbit.abs() {
        small if small < 0.1 => format!("{mbit:.3} Mbit/s"),
        small if small < 10.0 => format!("{mbit:.1} Mbit/s"),
        _ => format!("{mbit:.0} Mbit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_selector() {
        for name in NAMES {
            let config: SelectorConfig = name.parse().expect("listed selectors parse");
            let selector = by_name(&config).expect("listed selectors exist");
            assert_eq!(selector.name(), *name);
        }
        assert!(NAMES.contains(&DEFAULT));
    }

    #[test]
    fn rates_have_figures_that_mean_something() {
        let told = [1250.0, 125_000.0, 2_500_000.0].map(mbit);
        assert_eq!(told, ["0.010 Mbit/s", "1.0 Mbit/s", "20 Mbit/s"]);
    }
}
