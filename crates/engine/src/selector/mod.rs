//! Selectors: choose the paths over which a session sends.
//!
//! A scheduler divides the bytes among the paths that it is given; a selector chooses these paths.
//! A *parked* path answers pings and reports. Like a backup, it gets stream data only while no
//! other path delivers. Each end selects for the data that it sends.
//!
//! A selector reviews the paths from time to time ([`Selector::review`]) and returns [`Decision`]s,
//! each with its reason in one sentence. It uses no socket and no clock; the session passes in its
//! inputs ([`Seen`]).
//!
//! To add one: a file in this folder with a type that implements [`Selector`], and a line in
//! [`NAMES`] and in `by_name`.

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

/// The default selector of a session: docs/selection.md has the measurements.
pub const DEFAULT: &str = "none";

/// All selectors by name.
pub const NAMES: &[&str] = &["none", "base", "global", "trials"];

/// Decides which paths carry stream data.
pub trait Selector: Debug + Send {
    /// The name by which it is chosen.
    fn name(&self) -> &'static str;

    /// Reviews the paths, not before the time that [`Selector::next_review`] returned. Returns the
    /// changes.
    fn review(&mut self, seen: &Seen<'_>) -> Vec<Decision>;

    /// Time of the next review; `busy` if the session has data waiting or in flight. None while a
    /// review would be pointless.
    fn next_review(&self, busy: bool) -> Option<Instant>;

    /// Whether it uses [`Seen::delays`], which have to be measured.
    fn reads_delays(&self) -> bool {
        false
    }

    /// The current share of the average below which a path is parked, from 0 to 1; `None` for
    /// selectors without one.
    fn threshold(&self) -> Option<f64> {
        None
    }
}

/// A selector's decision for a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// It carries its share.
    #[default]
    Active,
    /// It was parked, and carries its share again until it is judged.
    Probing,
    /// It gets no stream data for a short time, so that the traffic without it can be measured.
    Trial,
    /// It gets no stream data while another path delivers.
    Parked,
}

impl Selection {
    /// The name in the status, the log and traces.
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

/// A change of a path's selection, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The path.
    pub path: PathId,
    /// The path's new selection.
    pub selection: Selection,
    /// The reason, in one sentence with figures.
    pub reason: String,
}

/// The inputs of a selector.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The current time.
    pub now: Instant,
    /// Stream bytes wait for a path.
    pub waiting: bool,
    /// Stream bytes of all streams that have reached the peer in order since the session began.
    pub delivered: u64,
    /// Times from the program's write until the peer had the bytes in order, for streams that keep
    /// up, as measured since the last review.
    pub delays: &'a [Duration],
    /// The paths, by ascending number.
    pub paths: &'a [SeenPath],
}

/// The inputs about a path.
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
    /// Bytes that the peer has counted on it since it joined.
    pub received: u64,
    /// Estimated delivery rate in bytes per second ([`Path::rate`](crate::Path::rate)).
    pub rate: f64,
}

impl SeenPath {
    /// Smoothed round-trip time in seconds, never 0.
    fn srtt_s(&self) -> f64 {
        self.srtt.as_secs_f64().max(1e-6)
    }
}

/// The selector with that configuration; `None` if its name is none of [`NAMES`].
pub fn by_name(config: &SelectorConfig) -> Option<Box<dyn Selector>> {
    Some(match config.name.as_str() {
        "none" => Box::new(none::All),
        "base" => Box::new(base::Base::new(config)),
        "global" => Box::new(global::Global::new(config)),
        "trials" => Box::new(trials::Trials::new(config)),
        _ => return None,
    })
}

/// Formats a rate in bytes per second for humans.
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
    fn rates_have_significant_figures() {
        let formatted = [1250.0, 125_000.0, 2_500_000.0].map(mbit);
        assert_eq!(formatted, ["0.010 Mbit/s", "1.0 Mbit/s", "20 Mbit/s"]);
    }
}
