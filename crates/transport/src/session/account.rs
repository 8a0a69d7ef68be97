//! The usage and the rate limit of one client, over all of its sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sumlink_exit::pace::Pace;

use crate::carrier::Moved;

/// The usage of a client since it was last taken, and the client's rate limit.
#[derive(Debug, Default)]
pub(crate) struct Account {
    sent: AtomicU64,
    received: AtomicU64,
    pub(crate) pace: Arc<Pace>,
}

impl Account {
    /// Adds bytes on the client's links.
    pub(crate) fn count(&self, moved: Moved) {
        self.sent.fetch_add(moved.sent, Ordering::Relaxed);
        self.received.fetch_add(moved.received, Ordering::Relaxed);
    }

    /// The bytes since the last call.
    pub(crate) fn take(&self) -> Moved {
        Moved {
            sent: self.sent.swap(0, Ordering::Relaxed),
            received: self.received.swap(0, Ordering::Relaxed),
        }
    }
}
