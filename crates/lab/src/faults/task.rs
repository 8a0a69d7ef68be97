//! What is measured in one laboratory.

use std::path::Path;

use super::kind::Kind;
use crate::config::Direction;

/// A measurement in one laboratory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) kind: &'static Kind,
    pub(super) direction: Direction,
    /// Number among the measurements of the same kind and direction; seeds the random times.
    pub(super) number: u64,
    pub(super) faults: u64,
    /// The sumlink program.
    pub(super) program: &'a Path,
    /// The flow begins on a LAN host.
    pub(super) lan: bool,
}
