//! What can be wrong with a description of links, and with a scenario's file.

use std::io;
use std::path::PathBuf;

use sumlink_util::plain;

use crate::scenario::Problem;
use sumlink_settings::units::UnitError;

/// Why a scenario cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no such file, or it cannot be read.
    #[error("cannot read {}: {}", path.display(), plain(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// At least one thing is wrong with it; one line each.
    #[error("{}", lines(.0))]
    Problems(Vec<Problem>),
}

/// Why the description of a link makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The name cannot be that of a network interface.
    #[error(
        "'{0}' cannot be a link's name: use 1 to 15 letters, digits, '-' or '_', starting with a letter, other than 'lo'"
    )]
    BadName(String),
    /// Two links have the same name.
    #[error("two links are called '{0}': give each a name of its own")]
    DuplicateName(String),
    /// There is no link of that name.
    #[error("there is no link '{name}' (links: {links})")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        links: String,
    },
    /// No links, or more than the addresses suffice for.
    #[error("{0} links: a laboratory has 1 to 64")]
    Count(usize),
    /// Something other than `key=value`.
    #[error("'{0}' is not a setting: write key=value, such as rate=60mbit")]
    NotASetting(String),
    /// A key that no link has.
    #[error("link '{link}': unknown setting '{key}' (settings: {known})")]
    UnknownKey {
        /// The link.
        link: String,
        /// The key.
        key: String,
        /// Every key.
        known: &'static str,
    },
    /// A value that cannot be read.
    #[error("link '{link}', {key}: {source}")]
    BadValue {
        /// The link.
        link: String,
        /// The key.
        key: String,
        /// Why.
        source: Box<UnitError>,
    },
    /// A trace, a loss or the like that describes nothing that could exist.
    #[error("link '{link}', {key}: {reason}")]
    BadModel {
        /// The link.
        link: String,
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
    /// A group of links that cannot be modelled.
    #[error("{group}: {reason}")]
    BadGroup {
        /// Which one, counted from 1.
        group: String,
        /// Why.
        reason: String,
    },
    /// A change that the emulator cannot carry out by itself.
    #[error(
        "link '{link}': the state 'removed' cannot be planned for a time; plan 'down', or use: sumlink-lab set"
    )]
    CannotPlan {
        /// The link.
        link: String,
    },
    /// A state that no link has.
    #[error("link '{link}': unknown state '{state}' (states: up, down, blackhole, removed)")]
    UnknownState {
        /// The link.
        link: String,
        /// What was asked for.
        state: String,
    },
    /// A setting that must be there is not.
    #[error("link '{link}' has no {key}: add {key}={example}")]
    Missing {
        /// The link.
        link: String,
        /// The key.
        key: &'static str,
        /// A good value.
        example: &'static str,
    },
    /// Intervals too short to count in.
    #[error("samples of {0}: take at least 1ms")]
    Samples(String),
    /// A rate that the emulator cannot carry.
    #[error(
        "link '{link}': {rate} is more than the emulator carries {how}; ask for at most {limit}{advice}"
    )]
    TooFast {
        /// The link.
        link: String,
        /// What was asked for.
        rate: String,
        /// How it carries packets.
        how: &'static str,
        /// The most that can be asked for.
        limit: String,
        /// What else can be done, may be empty.
        advice: &'static str,
    },
}

/// One line for each problem.
pub fn lines(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}
