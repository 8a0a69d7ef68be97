//! Options of sockets that no library sets: each is one number.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A number that the kernel takes as the value of an option.
pub(crate) trait Value: Copy {}

impl Value for libc::c_int {}
impl Value for libc::c_ulong {}

/// Sets an option of `level` to `value` (setsockopt(2)).
pub(crate) fn set<T: Value>(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: T,
) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of `value`, which outlives the call, and the borrow keeps the descriptor open.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
