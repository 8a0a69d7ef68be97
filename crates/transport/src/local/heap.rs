//! Returns freed memory to the kernel after many connections have ended.
//!
//! The C library keeps freed memory for later allocations. Where thousands of idle clients have
//! ended their QUIC connections, that is a third of a server's memory.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// Time between two calls of [`Heap::look`].
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Fewer ended connections are not worth it.
const MIN_ENDED: usize = 64;

/// Processor time between two looks up to which the server counts as quiet, and the same for each
/// connection. While memory is returned, threads may wait for some: 15 ms for each thousand of
/// sessions. Data would wait, too.
const QUIET: (Duration, Duration) = (Duration::from_secs(1), Duration::from_micros(200));

/// Decides when memory is returned.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// Most connections seen since memory was last returned.
    most: usize,
    /// Processor time of the process at the last look.
    used: Duration,
}

impl Heap {
    /// Looks whether memory should be returned, and returns it in the background. `connections` is
    /// the present number of connections of any kind.
    pub(crate) fn look(&mut self, connections: usize) {
        if self.is_due(connections, processor_time()) {
            tokio::task::spawn_blocking(trim);
        }
    }

    fn is_due(&mut self, connections: usize, used: Duration) -> bool {
        let spent = used.saturating_sub(std::mem::replace(&mut self.used, used));
        self.most = self.most.max(connections);
        let (all, each) = QUIET;
        let each = each.saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX));
        let is_due = self.most - connections >= MIN_ENDED && spent <= all + each;
        if is_due {
            self.most = connections;
        }
        is_due
    }
}

/// Processor time that the process has used.
fn processor_time() -> Duration {
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |usage| {
        let time = usage.user_time() + usage.system_time();
        Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0))
    })
}

#[cfg(target_env = "gnu")]
fn trim() {
    // SAFETY: malloc_trim changes nothing that is allocated, and threads may call it at any time.
    let returned = unsafe { libc::malloc_trim(0) };
    tracing::debug!(
        returned = returned == 1,
        "returned freed memory to the kernel"
    );
}

/// Other C libraries return memory sooner, or have no such function.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_once_after_many_connections_have_ended_and_while_little_is_done() {
        let mut heap = Heap::default();
        let mut used = Duration::ZERO;
        let mut look = |connections: usize, ms: u64| {
            used += Duration::from_millis(ms);
            heap.is_due(connections, used)
        };
        assert!(!look(2000, 10_000), "only begun");
        assert!(!look(1000, 10_000), "ended, and busy");
        assert!(look(1000, 100));
        assert!(!look(1000, 100), "nothing has ended since");
        assert!(!look(950, 100), "few have ended");
        assert!(look(900, 1100), "together they are enough");
    }
}
