//! How a session's task divides its time between carriers, and yields to other tasks.

use std::time::Duration;

/// Rounds of a session's task in a row before it yields to other tasks of the runtime.
pub const ROUNDS: usize = 16;

/// Pause before due work that could not be sent is tried again.
pub const OVERDUE_PAUSE: Duration = Duration::from_millis(5);

/// Pieces given to one carrier before the others get their turn.
pub const SEND_PIECES: usize = 4;

/// Bytes taken from one carrier before the others get their turn.
pub const RECEIVE_QUOTA: usize = 512 * 1024;
