//! LWA's receiver at the user's end.

use std::time::Duration;

use sumlink_edge::lwa::{Reorder, ReorderConfig};

use crate::{bytes, give, nanos};

/// Creates a receiver with 18-bit sequence numbers that waits `timer` nanoseconds for a gap.
#[unsafe(no_mangle)]
pub extern "C" fn sumlink_reorder_new(timer: u64) -> *mut Reorder {
    Box::into_raw(Box::new(Reorder::new(ReorderConfig {
        timer: Duration::from_nanos(timer),
        ..ReorderConfig::default()
    })))
}

/// Frees the receiver. Null is ignored.
///
/// # Safety
/// `reorder` is null or from [`sumlink_reorder_new`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_reorder_free(reorder: *mut Reorder) {
    if !reorder.is_null() {
        drop(unsafe { Box::from_raw(reorder) });
    }
}

/// Handles a PDCP data PDU received over a link.
///
/// # Safety
/// `reorder` is from [`sumlink_reorder_new`]; `pdu` is readable for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_reorder_handle(
    reorder: *mut Reorder,
    pdu: *const u8,
    len: usize,
    now: u64,
) {
    let pdu = unsafe { bytes(pdu, len) };
    unsafe { &mut *reorder }.handle_pdu(pdu, Duration::from_nanos(now));
}

/// Takes the next packet in order; returns the same values as [`crate::sumlink_edge_poll_link`].
///
/// # Safety
/// `reorder` is from [`sumlink_reorder_new`]; `out` is writable for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_reorder_poll(
    reorder: *mut Reorder,
    out: *mut u8,
    room: usize,
) -> usize {
    let reorder = unsafe { &mut *reorder };
    unsafe { give(out, room, || reorder.poll().map(Vec::into_boxed_slice)) }
}

/// When to call [`sumlink_reorder_handle_timeout`], or [`crate::SUMLINK_EDGE_NEVER`].
///
/// # Safety
/// `reorder` is from [`sumlink_reorder_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_reorder_poll_timeout(reorder: *const Reorder) -> u64 {
    nanos(unsafe { &*reorder }.poll_timeout())
}

/// Handles the timer.
///
/// # Safety
/// `reorder` is from [`sumlink_reorder_new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sumlink_reorder_handle_timeout(reorder: *mut Reorder, now: u64) {
    unsafe { &mut *reorder }.handle_timeout(Duration::from_nanos(now));
}
