//! The traffic of a published port.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a port.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    pub(super) open: AtomicU64,
    pub(super) total: AtomicU64,
}

/// Counts one connection or remote while it lasts.
pub(super) struct Counted<'a>(&'a Traffic);

impl Traffic {
    pub(super) fn count(&self) -> Counted<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
        Counted(self)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
