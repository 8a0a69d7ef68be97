//! Groups the carriers of one session below TCP, for coupled congestion controls in the kernel.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

/// Makes the sockets of a session's carriers siblings; this crate does not know how.
///
/// Client and server call it at their own end for each carrier after it has joined a session.
pub trait CarrierGroups: Debug + Send + Sync {
    /// Adds a carrier's socket to its session's group. An error is logged, and the carrier
    /// continues.
    ///
    /// # Errors
    ///
    /// Any error of the operating system.
    fn join(&self, socket: BorrowedFd<'_>, session: &[u8; 16]) -> io::Result<()>;
}
