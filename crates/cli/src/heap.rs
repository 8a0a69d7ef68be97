//! Keeps freed memory in the C library's heap instead of returning it to the kernel and requesting
//! it again.
//!
//! A busy session frees and allocates megabytes every few milliseconds, as its queues and the data
//! behind a gap come and go. By default glibc returns free memory at the end of a heap above 128
//! KiB, and each page that is requested again costs a page fault: a tenth of the daemon's processor
//! time at some Gbit/s (docs/fbdt.md, "What it costs").

use std::ops::RangeInclusive;

use crate::config::memory;

/// Bounds of the free memory that each arena of the heap keeps, in bytes. Each busy thread has an
/// arena, and there is one stream thread per processor.
const KEPT: RangeInclusive<u64> = 1 << 20..=32 << 20;

/// Divisor: an arena's share of the machine's memory.
const SHARE: u64 = 256;

/// Larger allocations are separate mappings, which are unmapped when they are freed. By default
/// glibc starts at 128 KiB and raises this threshold to the sizes that are freed, up to 32 MiB;
/// setting any of these options stops that.
const MAPPED: u64 = 4 << 20;

/// Must be called before any thread is started.
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
        // SAFETY: mallopt takes two numbers and changes the allocator's settings. No other thread
        // reads them meanwhile, since none has been started.
        if unsafe { libc::mallopt(option, bytes) } == 0 {
            tracing::debug!(
                option,
                bytes,
                "mallopt(3) failed; the heap keeps its default settings"
            );
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
    fn a_small_machine_keeps_less_memory() {
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
