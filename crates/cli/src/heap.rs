//! What the C library's heap keeps of freed memory, in place of giving it to the kernel and asking for it again.
//!
//! A busy session frees and allocates megabytes every few milliseconds, as its queues and what waits for a gap come and go. By
//! itself glibc gives back what is free at the end of a heap when it is more than 128 KiB, and every page that comes again costs
//! a fault: a tenth of the daemon's processor time at some Gbit/s (docs/fbdt.md, "What it costs").

use std::ops::RangeInclusive;

use crate::config::memory;

/// What each of the heap's arenas may keep, in bytes. Each busy thread has one of its own, and those that carry streams are as many
/// as processors.
const KEPT: RangeInclusive<u64> = 1 << 20..=32 << 20;

/// An arena's part of what the machine has.
const SHARE: u64 = 256;

/// Larger allocations are mappings of their own, which go when they are freed. By itself glibc begins with 128 KiB and raises that
/// to what it sees freed, up to 32 MiB; no longer when it is told what to keep.
const MAPPED: u64 = 4 << 20;

/// To be called before any thread is started.
pub(crate) fn keep_freed() {
    set(kept(memory::machine()), MAPPED);
}

fn kept(machine: Option<u64>) -> u64 {
    (machine.unwrap_or(0) / SHARE).clamp(*KEPT.start(), *KEPT.end())
}

#[cfg(target_env = "gnu")]
fn set(kept: u64, mapped: u64) {
    let options = [
        (libc::M_TRIM_THRESHOLD, kept),
        (libc::M_MMAP_THRESHOLD, mapped),
    ];
    for (option, bytes) in options {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        // SAFETY: it takes two numbers and changes the allocator's settings, which nobody reads meanwhile: no other thread
        // has been started.
        if unsafe { libc::mallopt(option, bytes) } == 0 {
            tracing::debug!(option, bytes, "mallopt(3) failed; the heap keeps its default settings");
        }
    }
}

/// Other C libraries have other heaps.
#[cfg(not(target_env = "gnu"))]
fn set(_kept: u64, _mapped: u64) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_keeps_less() {
        for (machine, expected) in [
            (None, 1 << 20),
            (Some(128 << 20), 1 << 20),
            (Some(2 << 30), 8 << 20),
            (Some(64 << 30), 32 << 20),
        ] {
            assert_eq!(kept(machine), expected, "{machine:?}");
        }
    }
}
