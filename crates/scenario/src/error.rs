//! Errors in descriptions of links and in scenario files.

use std::io;
use std::path::PathBuf;

use sumlink_util::plain;

use crate::problem::Problem;
use sumlink_settings::units::UnitError;

/// Why a scenario cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file does not exist or cannot be read.
    #[error("cannot read {}: {}", path.display(), plain(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is invalid; one line for each problem.
    #[error("{}", lines(.0))]
    Problems(Vec<Problem>),
}

/// Why the description of a link is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The name is not valid for a network interface.
    #[error(
        "'{0}' cannot be a link's name: use 1 to 15 letters, digits, '-' or '_', starting with a \
         letter, other than 'lo'"
    )]
    BadName(String),
    /// The name belongs to an interface of the laboratory.
    #[error("'{0}' is an interface of the laboratory itself: give the link another name")]
    ReservedName(String),
    /// Two links have the same name.
    #[error("two links are called '{0}': give each a different name")]
    DuplicateName(String),
    /// No link has that name.
    #[error("there is no link '{name}' (links: {links})")]
    Unknown {
        /// The requested rate.
        name: String,
        /// The existing links.
        links: String,
    },
    /// No links, or more than the address plan allows.
    #[error("{0} links: a laboratory has 1 to 64")]
    Count(usize),
    /// The text is not a `key=value`.
    #[error("'{0}' is not a setting: write key=value, such as rate=60mbit")]
    NotASetting(String),
    /// An unknown key.
    #[error("link '{link}': unknown setting '{key}' (settings: {known})")]
    UnknownKey {
        /// The link.
        link: String,
        /// The key.
        key: String,
        /// All keys.
        known: &'static str,
    },
    /// A value that cannot be parsed.
    #[error("link '{link}', {key}: {source}")]
    BadValue {
        /// The link.
        link: String,
        /// The key.
        key: String,
        /// The reason.
        source: Box<UnitError>,
    },
    /// A trace, a loss or a similar value that is not possible.
    #[error("link '{link}', {key}: {reason}")]
    BadModel {
        /// The link.
        link: String,
        /// The key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// A group of links that cannot be modeled.
    #[error("{group}: {reason}")]
    BadGroup {
        /// The group, counted from 1.
        group: String,
        /// The reason.
        reason: String,
    },
    /// A change that the emulator cannot make on schedule.
    #[error(
        "link '{link}': the state 'removed' cannot be scheduled; use 'down', or change it with: \
         sumlink-lab set"
    )]
    CannotPlan {
        /// The link.
        link: String,
    },
    /// An unknown state.
    #[error("link '{link}': unknown state '{state}' (states: up, down, blackhole, removed)")]
    UnknownState {
        /// The link.
        link: String,
        /// The requested rate.
        state: String,
    },
    /// A required setting is missing.
    #[error("link '{link}' has no {key}: add {key}={example}")]
    Missing {
        /// The link.
        link: String,
        /// The key.
        key: &'static str,
        /// An example value.
        example: &'static str,
    },
    /// The sample interval is too short.
    #[error("samples of {0}: take at least 1ms")]
    Samples(String),
    /// The rate exceeds the emulator's capacity.
    #[error(
        "link '{link}': {rate} is more than the emulator carries {how}; ask for at most \
         {limit}{advice}"
    )]
    TooFast {
        /// The link.
        link: String,
        /// The requested rate.
        rate: String,
        /// How the emulator carries packets.
        how: &'static str,
        /// The highest possible rate.
        limit: String,
        /// A further remedy, may be empty.
        advice: &'static str,
    },
}

/// One line for each problem.
pub fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
