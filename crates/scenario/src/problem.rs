//! A problem of a file.

use std::fmt::Display;
use std::path::PathBuf;

use serde::Serialize;

/// One problem of a scenario, or of a file that it names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Line, counted from 1.
    pub line: usize,
    /// The problem and its remedy.
    pub reason: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.reason)
    }
}
