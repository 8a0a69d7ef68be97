//! Carriers of one session that should know of each other below TCP: for coupled congestion controls of the kernel.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

/// Makes the sockets of a session's carriers siblings, in a way that this crate need not know.
///
/// Client and server ask it for each carrier that joins a session, once it has, at their own end.
pub trait CarrierGroups: Debug + Send + Sync {
    /// Puts a carrier's socket where the others of the session are. What goes wrong is logged; the carrier goes on.
    ///
    /// # Errors
    ///
    /// Whatever the system answers.
    fn join(&self, socket: BorrowedFd<'_>, session: &[u8; 16]) -> io::Result<()>;
}
