//! Default memory of a session, from the memory of the machine.

use std::fs;
use std::path::Path;

use sumlink_transport::config::ClientLimits;

/// Bounds of a session's default memory, in bytes.
///
/// One stream over paths whose round trips differ by half a second needs some 90 MB for 1 Gbit/s,
/// and as much again while losses are repaired: early bytes wait for late ones, and one stream gets
/// half of a session's memory. A small machine has to make do with less.
const SESSION: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 30;

/// Divisor: a session's share of the machine's memory, in each direction.
const SESSION_SHARE: u64 = 16;

/// Minimum for all sessions of one client.
const CLIENT: u64 = 1 << 30;

/// Default of `[session] memory`, in bytes.
pub(crate) fn of_session() -> u64 {
    session_of(machine())
}

/// Default of `[limits]`.
pub(crate) fn limits() -> ClientLimits {
    ClientLimits {
        memory: client_of(machine()),
        ..ClientLimits::default()
    }
}

fn session_of(machine: Option<u64>) -> u64 {
    let share = machine.unwrap_or(0) / SESSION_SHARE;
    share.clamp(*SESSION.start(), *SESSION.end())
}

fn client_of(machine: Option<u64>) -> u64 {
    (machine.unwrap_or(0) / 2).max(CLIENT)
}

/// Memory that this program may use, in bytes: the machine's, or that of its control group (cgroup
/// v2) if less.
pub(crate) fn machine() -> Option<u64> {
    let read = |file: &str| fs::read_to_string(Path::new(file)).ok();
    let all = total(&read("/proc/meminfo")?)?;
    let group = read("/proc/self/cgroup").and_then(|text| Some(group(&text)?.to_owned()));
    let limit = group.and_then(|group| read(&format!("/sys/fs/cgroup{group}/memory.max")));
    // The word `max` means no limit.
    let limit = limit.and_then(|text| text.trim().parse().ok());
    Some(limit.map_or(all, |limit: u64| limit.min(all)))
}

/// `MemTotal` of /proc/meminfo (proc(5)), which is in KiB.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The group of cgroup v2 in /proc/self/cgroup (cgroups(7)): the line that begins with `0::`.
fn group(cgroup: &str) -> Option<&str> {
    let mut lines = cgroup.lines();
    lines.find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_gets_a_share_of_the_machine_within_bounds() {
        for (machine, session, client) in [
            (None, 64 << 20, 1 << 30),
            (Some(512 << 20), 64 << 20, 1 << 30),
            (Some(2 << 30), 128 << 20, 1 << 30),
            (Some(16 << 30), 1 << 30, 8 << 30),
            (Some(64 << 30), 1 << 30, 32 << 30),
        ] {
            assert_eq!(session_of(machine), session, "{machine:?}");
            assert_eq!(client_of(machine), client, "{machine:?}");
        }
    }

    #[test]
    fn the_files_of_the_kernel_are_parsed() {
        let meminfo = "MemTotal:       24587032 kB\nMemFree:        22000000 kB\n";
        assert_eq!(total(meminfo), Some(24_587_032 * 1024));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(group("12:pids:/x\n0::/user.slice\n"), Some("/user.slice"));
        assert!(machine().is_some_and(|bytes| bytes > 64 << 20));
    }
}
