//! How a session's task shares its time: between carriers, and with other tasks.

use std::time::Duration;

/// Rounds of a session's task in a row, before other tasks of the runtime get their turn.
pub const ROUNDS: usize = 16;

/// Work that is due and cannot be sent is tried again after this time.
pub const OVERDUE_PAUSE: Duration = Duration::from_millis(5);

/// Pieces given to one carrier before the others get their turn.
pub const SEND_PIECES: usize = 4;

/// Bytes taken from one carrier before the others get their turn.
pub const RECEIVE_QUOTA: usize = 512 * 1024;
