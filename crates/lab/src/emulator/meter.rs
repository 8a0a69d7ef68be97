//! Measures the emulator's own performance.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::health::{Health, Histogram};

/// Measures the emulator. Created and read on its thread.
pub(super) struct Meter {
    since: Instant,
    /// CPU time of the thread at `since`; `None` before the thread's first reset or report.
    cpu_at_since: Option<Duration>,
    lateness: Histogram,
}

impl Meter {
    pub(super) fn new() -> Self {
        let on_thread = thread::current().name() == Some("emulator");
        Self {
            since: Instant::now(),
            cpu_at_since: on_thread.then(thread_cpu),
            lateness: Histogram::new(),
        }
    }

    /// Records the delay between a packet's due time and its delivery.
    pub(super) fn record(&mut self, lateness: Duration) {
        self.lateness.record(lateness);
    }

    /// Packets delivered since then.
    pub(super) fn packets(&self) -> u64 {
        self.lateness.total()
    }

    pub(super) fn read(&self) -> Health {
        let cpu = thread_cpu().saturating_sub(self.cpu_at_since.unwrap_or_default());
        Health {
            packets: self.lateness.total(),
            lateness_p50_us: self.lateness.percentile_us(0.5),
            lateness_p99_us: self.lateness.percentile_us(0.99),
            cpu_share: cpu.as_secs_f64() / self.since.elapsed().as_secs_f64().max(1e-9),
            overruns: 0,
        }
    }
}

/// Gives the calling thread real-time priority: programs at both ends of the links compete for the
/// same cores, and a late emulator is a slower link. Without the privilege the priority stays
/// unchanged, and [`Health`] shows whether it sufficed.
///
/// The kernel suspends a real-time thread for 50 ms in each second in which it leaves no CPU time
/// to other threads. The emulator is then the bottleneck, which [`Health`] reports as well.
pub(super) fn use_realtime_priority() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread, and `lowest` is a whole sched_param that outlives the call.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &lowest) };
    if result != 0 {
        tracing::debug!(
            "cannot use real-time scheduling: {}",
            io::Error::last_os_error()
        );
    }
}

fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}
