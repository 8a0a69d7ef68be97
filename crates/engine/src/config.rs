//! The settings of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::datagram::DatagramConfig;
use crate::page::PAGE;
use crate::scheduler::fbdt::FbdtConfig;
use crate::scheduler::{self, OwnSchedulers};
use crate::selector::SelectorConfig;
use crate::share::Share;

/// The end of the session that this side is. It decides between even and odd stream numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens streams with even numbers and adds the paths.
    Client,
    /// Opens streams with odd numbers.
    Server,
}

/// The 3GPP traffic classes, by the needs of the program behind a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Speech and games: delay matters most.
    Conversational,
    /// Live video: steady delivery.
    Streaming,
    /// Requests and responses, terminals: short completion times for small objects.
    Interactive,
    /// Bulk: throughput matters most.
    #[default]
    Background,
}

impl Class {
    /// All classes, the most urgent one first.
    pub const ALL: [Self; 4] = [
        Self::Conversational,
        Self::Streaming,
        Self::Interactive,
        Self::Background,
    ];

    /// The class's name in configuration files and in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conversational => "conversational",
            Self::Streaming => "streaming",
            Self::Interactive => "interactive",
            Self::Background => "background",
        }
    }

    /// The class with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Its index in [`Class::ALL`].
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The class number for a stream's OPEN, where `None` means that the opener has set no class.
    /// Version 0.1.0 also sends 3 for background.
    pub(crate) fn to_open(class: Option<Self>) -> u64 {
        match class {
            None => 3,
            Some(Self::Background) => 4,
            Some(class) => class.code(),
        }
    }

    /// Decodes the class number of an OPEN. The inner option is the class that the opener has set,
    /// if any; the outer one is none for numbers that no OPEN has.
    pub(crate) fn of_open(number: u64) -> Option<Option<Self>> {
        let classes = Self::ALL.into_iter().map(Some);
        classes
            .chain([None])
            .find(|class| Self::to_open(*class) == number)
    }
}

/// A program's requirements for a stream beyond its class. Each direction has the hints of the side
/// that sends it. Only the scheduler `fbdt` uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// From -7 to 7; other values are clamped. Each step doubles the stream's share of the paths
    /// relative to others of its class. The classes themselves have the weights 64 : 16 : 8 : 1, so
    /// 3 steps up put bulk beside interactive streams. It is a share, not a strict order: no stream
    /// starves.
    pub priority: i8,
    /// Sends every byte over two paths, as far as [`Redundancy`] allows. The default allows 1 % of
    /// the bytes that the session sends, and 128 KiB that refill at 16 KiB/s.
    pub duplicate: bool,
    /// Each byte should reach the peer within this time after it is written. Once the remaining
    /// time is less than four times the time for the bytes over a path, the stream is served before
    /// the others there and over two paths, as far as [`Redundancy`] allows. Bytes past their
    /// deadline are still sent, without that preference.
    pub deadline: Option<Duration>,
}

/// How many bytes may be sent twice on purpose, so that a late or failing path delays nothing.
///
/// Retransmissions of the unacknowledged data of a failed path do not count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redundancy {
    /// The share of all stream bytes sent, from 0 to 1.
    pub share: f64,
    /// Additional bytes, so that short sessions can duplicate too. Seven eighths of them are
    /// reserved for urgent bytes: races, late bytes of speech, and late bytes at the end of an
    /// object.
    pub floor: u64,
    /// Bytes per second at which a used floor refills.
    pub refill: u64,
    /// Bytes whose absence forces the receiver to use more reorder memory than it must may be
    /// duplicated before `share` allows it: as many as all paths carry in this time. No other
    /// duplicates are sent then until `share` has made up for it.
    pub advance: Duration,
}

impl Redundancy {
    /// Sends nothing twice on purpose.
    pub const NONE: Self = Self {
        share: 0.0,
        floor: 0,
        refill: 0,
        advance: Duration::ZERO,
    };
}

impl Default for Redundancy {
    /// 1 %, a floor of 128 KiB that refills at 16 KiB/s (two calls of speech at 64 kbit/s), and an
    /// advance of 25 ms.
    fn default() -> Self {
        Self {
            share: 0.01,
            floor: 128 << 10,
            refill: 16 << 10,
            advance: Duration::from_millis(25),
        }
    }
}

/// Limits and settings of a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// The end of the session that this side is.
    pub role: Role,
    /// Name of the scheduler, one of [`scheduler::NAMES`] or of `own_schedulers`.
    pub scheduler: String,
    /// Schedulers for classes that do not use `scheduler`, by name.
    pub class_schedulers: BTreeMap<Class, String>,
    /// Schedulers that the caller provides; they can be named like the built-in ones.
    pub own_schedulers: OwnSchedulers,
    /// Most memory for the receive buffers of all streams together, in bytes. The send buffers have
    /// the same limit.
    pub memory: u64,
    /// Most bytes in the receive buffer of one stream. The send buffer has the same limit.
    pub stream_memory: u64,
    /// Most streams that the peer may have open at once; the same limit applies to this side.
    pub max_streams: u64,
    /// How long the session survives without any path.
    pub session_timeout: Duration,
    /// How many bytes may be sent twice on purpose.
    pub redundancy: Redundancy,
    /// Settings of the `fbdt` scheduler; the others ignore them.
    pub fbdt: FbdtConfig,
    /// The selector, which decides which paths carry this side's data.
    pub selector: SelectorConfig,
    /// Limits and settings of datagram flows.
    pub datagrams: DatagramConfig,
}

impl Config {
    /// A session with 64 MiB of memory in each direction and the `fbdt` scheduler.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            scheduler: scheduler::DEFAULT.to_owned(),
            class_schedulers: BTreeMap::new(),
            own_schedulers: OwnSchedulers::default(),
            memory: 64 << 20,
            stream_memory: 32 << 20,
            max_streams: 1024,
            session_timeout: Duration::from_secs(60),
            redundancy: Redundancy::default(),
            fbdt: FbdtConfig::default(),
            selector: SelectorConfig::default(),
            datagrams: DatagramConfig::default(),
        }
    }

    /// The smallest `memory` that works with `max_streams` streams.
    ///
    /// The bytes of a stream may begin and end in the middle of a page, so every stream of either
    /// side may take nearly two pages more than it has bytes.
    pub fn min_memory(max_streams: u64) -> u64 {
        (1 << 20) + Self::page_overhead(max_streams)
    }

    /// Name of the class's scheduler.
    pub fn scheduler_of(&self, class: Class) -> &str {
        self.class_schedulers.get(&class).unwrap_or(&self.scheduler)
    }

    /// Checks that the values are in range and consistent.
    pub fn check(&self) -> Result<(), ConfigError> {
        for name in [&self.scheduler]
            .into_iter()
            .chain(self.class_schedulers.values())
        {
            if !scheduler::NAMES.contains(&name.as_str()) && !self.own_schedulers.has(name) {
                return Err(self.unknown_scheduler(name));
            }
        }
        if !(1..=1 << 16).contains(&self.max_streams) {
            return Err(ConfigError::MaxStreams(self.max_streams));
        }
        let least = Self::min_memory(self.max_streams);
        if self.memory < least || self.memory > 1 << 40 {
            return Err(ConfigError::Memory {
                least,
                streams: self.max_streams,
            });
        }
        if self.stream_memory < 1 << 18 || self.stream_memory > self.memory {
            return Err(ConfigError::StreamMemory);
        }
        if !(0.0..=1.0).contains(&self.redundancy.share) {
            return Err(ConfigError::Redundancy);
        }
        self.selector.check()?;
        self.datagrams.check()?;
        self.fbdt.check()
    }

    /// The error for a scheduler that neither the engine nor `own_schedulers` has.
    pub(crate) fn unknown_scheduler(&self, name: &str) -> ConfigError {
        ConfigError::UnknownScheduler {
            name: name.to_owned(),
            known: self.own_schedulers.known().collect::<Vec<_>>().join(", "),
        }
    }

    /// Most unread bytes that the peer may have sent on all streams, and most bytes in this side's
    /// send buffers. The limit keeps their pages within `memory`.
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

/// An invalid configuration; the caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No scheduler has this name.
    #[error("unknown scheduler \"{name}\", choose one of: {known}")]
    UnknownScheduler {
        /// The configured name.
        name: String,
        /// The names that exist, with a comma and a space between them.
        known: String,
    },
    /// `memory` is out of range.
    #[error("memory must be from {least} bytes (for {streams} streams) to 1 TiB")]
    Memory {
        /// The smallest valid value.
        least: u64,
        /// The number of streams that need it.
        streams: u64,
    },
    /// `stream_memory` is out of range.
    #[error("stream_memory must be from 256 KiB to the session's memory")]
    StreamMemory,
    /// No selector has this name, or one of its parameters is invalid.
    #[error("selector: {0}")]
    Selector(String),
    /// A scaling factor is out of range.
    #[error("alpha and beta must be above 0 and no larger than 1")]
    Coupling,
    /// The share of duplicated bytes is out of range.
    #[error("redundancy must be a share of the bytes sent, from 0 to 1")]
    Redundancy,
    /// The limits on the size of transmission windows are invalid.
    #[error(
        "a window is from 1 KiB to 1 TiB, its least size no larger than its most, \
         and has 0 to 1000 products"
    )]
    Window,
    /// A limit of datagram flows is out of range.
    #[error(
        "datagrams: 1 to 65536 flows, 2 to 8 links for duplicates, a share from 0 to 1, \
         memory from 64 KiB to 4 GiB, queues of at least 2 KiB, and timeouts above 0"
    )]
    Datagrams,
    /// The number of streams is out of range.
    #[error("max_streams must be from 1 to 65536, not {0}")]
    MaxStreams(u64),
}
