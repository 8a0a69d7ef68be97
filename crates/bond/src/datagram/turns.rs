//! How a session's task divides its time between datagrams and other work.

use std::time::Duration;

/// Datagrams taken from the programs, and from each carrier, before other work gets its turn.
pub const BATCH: usize = 256;

/// Packets given to a carrier before the next one gets its turn.
pub const PACKETS: usize = 64;

/// How often a carrier is sampled at least while packets leave on it.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(2);
