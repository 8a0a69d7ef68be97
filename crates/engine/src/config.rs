//! What a session is told when it is made.

use std::time::Duration;

use crate::pages::PAGE;
use crate::scheduler;
use crate::share::Share;

/// Which end of the session this is; decides who uses even and who uses odd stream numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens streams with even numbers, and brings the paths.
    Client,
    /// Opens streams with odd numbers.
    Server,
}

/// The 3GPP traffic classes: what matters to the program behind a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Speech, games: delay above all.
    Conversational,
    /// Live video: steady delivery.
    Streaming,
    /// Request and answer, terminals: short completion of small objects.
    Interactive,
    /// Bulk: throughput above all.
    #[default]
    Background,
}

impl Class {
    /// The number in an OPEN frame.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The class of a number in an OPEN frame; frames with larger numbers do not decode.
    pub fn from_code(code: u64) -> Self {
        match code {
            0 => Self::Conversational,
            1 => Self::Streaming,
            2 => Self::Interactive,
            _ => Self::Background,
        }
    }
}

/// Limits and choices of a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end this is.
    pub role: Role,
    /// Name of the scheduler, one of [`scheduler::NAMES`].
    pub scheduler: String,
    /// Bytes that the receive buffers of all streams may take together, and the send buffers likewise.
    pub memory: u64,
    /// Bytes that one stream may take of either.
    pub stream_memory: u64,
    /// Streams that the peer may have open at once, and this side as well.
    pub max_streams: u64,
    /// How long the session lives without any path.
    pub session_timeout: Duration,
}

impl Config {
    /// A session with 64 MiB of memory each way and the `fbdt` scheduler.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            scheduler: scheduler::DEFAULT.to_owned(),
            memory: 64 << 20,
            stream_memory: 32 << 20,
            max_streams: 1024,
            session_timeout: Duration::from_secs(60),
        }
    }

    /// The least `memory` that `max_streams` can work with.
    ///
    /// What a stream holds may begin and end in the middle of a page: every stream of either side may take nearly
    /// two pages more than it has bytes.
    pub fn least_memory(max_streams: u64) -> u64 {
        (1 << 20) + Self::page_overhead(max_streams)
    }

    /// Whether the values make sense together.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !scheduler::NAMES.contains(&self.scheduler.as_str()) {
            return Err(ConfigError::UnknownScheduler(self.scheduler.clone()));
        }
        if !(1..=1 << 16).contains(&self.max_streams) {
            return Err(ConfigError::MaxStreams(self.max_streams));
        }
        let least = Self::least_memory(self.max_streams);
        if self.memory < least || self.memory > 1 << 40 {
            return Err(ConfigError::Memory {
                least,
                streams: self.max_streams,
            });
        }
        if self.stream_memory < 1 << 18 || self.stream_memory > self.memory {
            return Err(ConfigError::StreamMemory);
        }
        Ok(())
    }

    /// What the peer may have outstanding on all streams, and this side in its send buffers, so that their pages
    /// stay within `memory`.
    pub(crate) fn receive_window(&self) -> u64 {
        self.memory - Self::page_overhead(self.max_streams)
    }

    /// How streams share that memory.
    pub(crate) fn share(&self) -> Share {
        Share::new(self.receive_window(), 2 * self.max_streams)
    }

    fn page_overhead(max_streams: u64) -> u64 {
        2 * max_streams * 2 * PAGE as u64
    }
}

/// A configuration that cannot work; the caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No scheduler has this name.
    #[error("unknown scheduler \"{0}\", choose one of: {names}", names = scheduler::NAMES.join(", "))]
    UnknownScheduler(String),
    /// Too little or absurdly much memory.
    #[error("memory must be from {least} bytes (for {streams} streams) to 1 TiB")]
    Memory {
        /// The least that is possible.
        least: u64,
        /// The number of streams it is for.
        streams: u64,
    },
    /// Stream memory out of range.
    #[error("stream_memory must be from 256 KiB to the session's memory")]
    StreamMemory,
    /// Number of streams out of range.
    #[error("max_streams must be from 1 to 65536, not {0}")]
    MaxStreams(u64),
}
