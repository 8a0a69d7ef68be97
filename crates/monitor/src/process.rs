//! What this process takes of the machine: processor time, memory, open files.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

/// Processor time, memory and open files of a process. A value that the system does not report
/// is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Processor time since the start, user and system, in seconds.
    pub cpu_s: f64,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Open files.
    pub open_files: u64,
    /// Limit on open files.
    pub max_files: u64,
    /// When the process was first asked for its report, about its start: seconds since 1970.
    pub started_s: f64,
}

impl Process {
    /// This process, now.
    pub fn now() -> Self {
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        let cpu = usage.map(|usage| usage.user_time() + usage.system_time());
        let files = std::fs::read_dir("/proc/self/fd");
        let max = getrlimit(Resource::RLIMIT_NOFILE).ok();
        let max_files = max.map_or(0, |(soft, _)| soft);
        Self {
            cpu_s: cpu.map_or(0.0, |cpu| cpu.num_microseconds() as f64 / 1e6),
            memory_bytes: last_known(resident()),
            open_files: match files {
                // One of them is the listing itself.
                Ok(files) => (files.count() as u64).saturating_sub(1),
                // The listing needs a descriptor, and there is none left.
                Err(error) if error.raw_os_error() == Some(nix::libc::EMFILE) => max_files,
                Err(_) => 0,
            },
            max_files,
            started_s: started(),
        }
    }
}

/// Resident memory in bytes (proc(5): `VmRSS`, in kB of 1024 bytes).
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The value, or the last one if it cannot be read now: without a free descriptor, /proc is closed.
fn last_known(value: Option<u64>) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    match value {
        Some(value) => {
            LAST.store(value, Relaxed);
            value
        }
        None => LAST.load(Relaxed),
    }
}

/// When this was first called, in seconds since 1970.
fn started() -> f64 {
    static STARTED: OnceLock<f64> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0.0, |since| since.as_secs_f64())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_files() {
        let before = Process::now();
        assert!(before.memory_bytes > 1 << 16, "{before:?}");
        assert!(
            before.open_files >= 3 && before.max_files >= before.open_files,
            "{before:?}"
        );
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let after = Process::now();
        assert!(after.cpu_s >= before.cpu_s);
        assert_eq!(after.started_s, before.started_s);
        drop(file);
    }
}
