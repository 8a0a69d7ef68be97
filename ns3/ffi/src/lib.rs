//! The edge core of sumlink behind a C ABI, its congestion controls, and the engine's session. `sumlink_edge.h`,
//! `sumlink_congestion.h` and `sumlink_session.h` declare what is here; a test holds them to these functions.
//!
//! Packets are a pointer and a length and begin with an IP header (a PDCP header in mode `lwa`, behind the links); times are
//! nanoseconds since an epoch of the caller's, and never go backwards. Handles belong to one thread. The law of the core's use is
//! that of [`sumlink_edge`]; events are not given out, counters tell of resets.
//!
//! Nothing unwinds into the caller: a panic in an `extern "C"` function ends the process.

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

/// What a buffer for a packet must hold: the largest IP packet and a PDCP header.
pub const SUMLINK_EDGE_PACKET_MAX: usize = 65_535 + 3;

/// What a poll returns that was given a smaller buffer; no packet is taken then.
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

/// Takes a packet only if the buffer holds any: what was taken and does not fit would be lost.
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

/// One line that says why, cut to `room` bytes with its zero byte.
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
