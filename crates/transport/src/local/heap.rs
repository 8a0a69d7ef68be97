//! Returns freed memory to the kernel after many connections have ended, and after a busy time.
//!
//! The C library keeps freed memory for later allocations. Where thousands of idle clients have
//! ended their QUIC connections, that is a third of a server's memory; after twenty slow readers it
//! is five times what the server needs.

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

/// Processor time between two looks from which the server may have used much memory for a while.
const ACTIVE: Duration = Duration::from_millis(200);

/// Resident memory that is not worth returning, in bytes.
const SMALL: u64 = 32 << 20;

/// Decides when memory is returned.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    /// The server has been active since memory was last returned.
    was_active: bool,
    /// Most connections seen since memory was last returned.
    most: usize,
    /// Processor time of the process at the last look.
    used: Duration,
}

impl Heap {
    /// Looks whether memory should be returned, and returns it in the background. `connections` is
    /// the present number of connections of any kind.
    pub(crate) fn look(&mut self, connections: usize) {
        if self.is_due(connections, processor_time(), resident()) {
            tokio::task::spawn_blocking(trim);
        }
    }

    fn is_due(&mut self, connections: usize, used: Duration, resident: u64) -> bool {
        let spent = used.saturating_sub(std::mem::replace(&mut self.used, used));
        self.most = self.most.max(connections);
        let (all, each) = QUIET;
        let each = each.saturating_mul(u32::try_from(connections).unwrap_or(u32::MAX));
        let is_active = spent >= ACTIVE + each;
        self.was_active |= is_active;
        let have_ended = self.most - connections >= MIN_ENDED && spent <= all + each;
        let is_over = self.was_active && !is_active && resident > SMALL;
        if have_ended || is_over {
            (self.most, self.was_active) = (connections, false);
        }
        have_ended || is_over
    }
}

/// Resident memory of the process in bytes (proc(5), statm); 0 if it cannot be read.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1);
    let pages: u64 = pages.and_then(|text| text.parse().ok()).unwrap_or(0);
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let page = page
        .ok()
        .flatten()
        .and_then(|bytes| u64::try_from(bytes).ok());
    pages * page.unwrap_or(4096)
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
            heap.is_due(connections, used, 0)
        };
        assert!(!look(2000, 10_000), "only begun");
        assert!(!look(1000, 10_000), "ended, and busy");
        assert!(look(1000, 100));
        assert!(!look(1000, 100), "nothing has ended since");
        assert!(!look(950, 100), "few have ended");
        assert!(look(900, 1100), "together they are enough");
    }

    #[test]
    fn memory_is_returned_once_after_a_busy_time() {
        let mut heap = Heap::default();
        let mut used = Duration::ZERO;
        let mut look = |ms: u64, megabytes: u64| {
            used += Duration::from_millis(ms);
            heap.is_due(1, used, megabytes << 20)
        };
        assert!(!look(10, 100), "nothing has happened");
        assert!(!look(5_000, 100), "busy");
        assert!(look(10, 100));
        assert!(!look(10, 100), "returned");
        assert!(!look(5_000, 20), "busy");
        assert!(!look(10, 20), "little memory");
    }
}
