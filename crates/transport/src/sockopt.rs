//! Numeric socket options that no library sets.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A number that the kernel accepts as the value of an option.
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
    // SAFETY: the kernel reads the bytes of `value`, which outlives the call, and the borrow keeps
    // the descriptor open.
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

/// The value of an option of `level` (getsockopt(2)); the kernel must return all of its bytes.
#[cfg(test)]
pub(crate) fn get<T: Value + Default>(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `value`, and every bit pattern is
    // a valid number.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(io::Error::last_os_error())
    }
}
