//! No selection: every path carries the bytes that the scheduler gives it.

use super::{Decision, Seen, Selector};
use crate::Instant;

/// The selector that parks no path.
#[derive(Debug)]
pub struct All;

impl Selector for All {
    fn name(&self) -> &'static str {
        "none"
    }

    fn review(&mut self, _seen: &Seen<'_>) -> Vec<Decision> {
        Vec::new()
    }

    fn next_review(&self, _busy: bool) -> Option<Instant> {
        None
    }
}
