//! A C ABI for sumlink's edge core, its congestion controls, and the engine's session.
//! `sumlink_edge.h`, `sumlink_congestion.h` and `sumlink_session.h` declare the functions; a test
//! compares them with this code.
//!
//! A packet is a pointer and a length, and begins with an IP header (behind the links in mode
//! `lwa`, with a PDCP header). Times are nanoseconds since an epoch of the caller's, and never go
//! backwards. A handle belongs to one thread. The calling rules are those of [`sumlink_edge`];
//! events are not exported, but counters report resets.
//!
//! Panics do not unwind into the caller: a panic in an `extern "C"` function aborts the process.

mod bond;
mod node;
mod receiver;
mod session;

use std::ffi::c_char;
use std::time::Duration;

pub use bond::*;
pub use node::*;
pub use receiver::*;
pub use session::*;

/// Required size of a packet buffer: the largest IP packet plus a PDCP header.
pub const SUMLINK_EDGE_PACKET_MAX: usize = 65_535 + 3;

/// Result of a poll with a smaller buffer; no packet is taken then.
pub const SUMLINK_EDGE_TOO_SMALL: usize = usize::MAX;

/// No timer is set.
pub const SUMLINK_EDGE_NEVER: u64 = u64::MAX;

fn nanos(at: Option<Duration>) -> u64 {
    at.map_or(SUMLINK_EDGE_NEVER, |at| {
        u64::try_from(at.as_nanos()).unwrap_or(SUMLINK_EDGE_NEVER)
    })
}

/// # Safety
/// `packet` is null or readable for `len` bytes.
unsafe fn bytes<'a>(packet: *const u8, len: usize) -> &'a [u8] {
    if packet.is_null() {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(packet, len) }
}

/// Takes a packet only if the buffer can hold any packet; otherwise one that does not fit would be
/// lost.
///
/// # Safety
/// `out` is null or writable for `room` bytes.
unsafe fn give(out: *mut u8, room: usize, take: impl FnOnce() -> Option<Box<[u8]>>) -> usize {
    if out.is_null() || room < SUMLINK_EDGE_PACKET_MAX {
        return SUMLINK_EDGE_TOO_SMALL;
    }
    let Some(packet) = take() else {
        return 0;
    };
    unsafe { std::ptr::copy_nonoverlapping(packet.as_ptr(), out, packet.len()) };
    packet.len()
}

/// Writes a one-line reason, truncated to `room` bytes including the terminating zero.
///
/// # Safety
/// `error` is null or writable for `room` bytes.
unsafe fn refuse(why: &str, error: *mut c_char, room: usize) {
    if !error.is_null() && room > 0 {
        let len = why.len().min(room - 1);
        unsafe {
            std::ptr::copy_nonoverlapping(why.as_ptr().cast(), error, len);
            *error.add(len) = 0;
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_bond;
#[cfg(test)]
mod tests_session;
