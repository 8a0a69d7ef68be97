//! What a session is told when it is made.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::pages::PAGE;
use crate::scheduler::fbdt::FbdtConfig;
use crate::scheduler::{self, OwnSchedulers};
use crate::selector::SelectorConfig;
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
    /// All of them, the most urgent one first.
    pub const ALL: [Self; 4] = [
        Self::Conversational,
        Self::Streaming,
        Self::Interactive,
        Self::Background,
    ];

    /// The word for it in configuration files and in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conversational => "conversational",
            Self::Streaming => "streaming",
            Self::Interactive => "interactive",
            Self::Background => "background",
        }
    }

    /// The class of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Its place in [`Class::ALL`].
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The number in the OPEN of a stream whose opener was told this class, or none. Version 0.1.0 said 3 for background, too.
    pub(crate) fn to_open(told: Option<Self>) -> u64 {
        match told {
            None => 3,
            Some(Self::Background) => 4,
            Some(class) => class.code(),
        }
    }

    /// What the number in an OPEN means, inside out: the class that the opener was told of, or none; nothing of numbers that no
    /// OPEN has.
    pub(crate) fn of_open(number: u64) -> Option<Option<Self>> {
        let told = Self::ALL.into_iter().map(Some);
        told.chain([None])
            .find(|told| Self::to_open(*told) == number)
    }
}

/// What a program wants of a stream beyond its class. Each direction has the hints of the side that sends it; only the scheduler
/// `fbdt` heeds them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// From -7 to 7, larger numbers are cut: each step doubles the stream's share of the paths against others of its
    /// class. The classes themselves stand 64 : 16 : 8 : 1, so 3 steps up put bulk beside interactive streams. It is a
    /// share, not an order: nobody starves.
    pub priority: i8,
    /// Every byte goes over two paths, as far as [`Redundancy`] allows: unless told otherwise 128 KiB, which come back by
    /// 16 KiB a second, and 1 % of what the session sends.
    pub duplicate: bool,
    /// Each byte is wanted at the peer within this time of being written. From when less is left than four times what its
    /// bytes take over a path, the stream is served before the others there and over two paths, as far as [`Redundancy`]
    /// allows. Bytes that are late already are sent all the same, without haste.
    pub deadline: Option<Duration>,
}

/// How much may be sent twice on purpose, so that a late or dying path delays nothing.
///
/// Bytes that a path which failed leaves to the others are not counted: they have to be sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redundancy {
    /// The part of all stream bytes sent, 0 to 1.
    pub share: f64,
    /// Bytes besides, so that short sessions can repeat too. Seven eighths of them are for bytes that somebody waits for:
    /// what is raced, and what is late of speech or at the end of an object.
    pub floor: u64,
    /// Bytes per second by which a used floor fills up again.
    pub refill: u64,
    /// Bytes behind which the receiver keeps more than it has to may be repeated before `share` allows it: as many as all
    /// paths carry in this time. Nothing else is repeated then until `share` has made up for it.
    pub advance: Duration,
}

impl Redundancy {
    /// Nothing is sent twice on purpose.
    pub const NONE: Self = Self {
        share: 0.0,
        floor: 0,
        refill: 0,
        advance: Duration::ZERO,
    };
}

impl Default for Redundancy {
    /// 1 %, and 128 KiB that come back by 16 KiB a second: two calls of speech at 64 kbit/s. What 25 ms carry in advance.
    fn default() -> Self {
        Self {
            share: 0.01,
            floor: 128 << 10,
            refill: 16 << 10,
            advance: Duration::from_millis(25),
        }
    }
}

/// Limits and choices of a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end this is.
    pub role: Role,
    /// Name of the scheduler, one of [`scheduler::NAMES`] or of `own_schedulers`.
    pub scheduler: String,
    /// Names of the schedulers of classes that have another one.
    pub class_schedulers: BTreeMap<Class, String>,
    /// Schedulers of the caller's own, which can be named beside the known ones.
    pub own_schedulers: OwnSchedulers,
    /// Bytes that the receive buffers of all streams may take together, and the send buffers likewise.
    pub memory: u64,
    /// Bytes that one stream may take of either.
    pub stream_memory: u64,
    /// Streams that the peer may have open at once, and this side as well.
    pub max_streams: u64,
    /// How long the session lives without any path.
    pub session_timeout: Duration,
    /// How much may be sent twice on purpose.
    pub redundancy: Redundancy,
    /// What the `fbdt` scheduler is told; the others pass over it.
    pub fbdt: FbdtConfig,
    /// Decides which paths carry what this side sends.
    pub selector: SelectorConfig,
}

impl Config {
    /// A session with 64 MiB of memory each way and the `fbdt` scheduler.
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
        }
    }

    /// The least `memory` that `max_streams` can work with.
    ///
    /// What a stream holds may begin and end in the middle of a page: every stream of either side may take nearly
    /// two pages more than it has bytes.
    pub fn least_memory(max_streams: u64) -> u64 {
        (1 << 20) + Self::page_overhead(max_streams)
    }

    /// Name of the scheduler of a class.
    pub fn scheduler_of(&self, class: Class) -> &str {
        self.class_schedulers.get(&class).unwrap_or(&self.scheduler)
    }

    /// Whether the values make sense together.
    pub fn check(&self) -> Result<(), ConfigError> {
        for name in [&self.scheduler]
            .into_iter()
            .chain(self.class_schedulers.values())
        {
            if !scheduler::NAMES.contains(&name.as_str()) && !self.own_schedulers.has(name) {
                return Err(ConfigError::UnknownScheduler(name.clone()));
            }
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
        if !(0.0..=1.0).contains(&self.redundancy.share) {
            return Err(ConfigError::Redundancy);
        }
        self.selector.check()?;
        self.fbdt.check()
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
    /// No selector has this name, or a parameter of it makes no sense.
    #[error("selector: {0}")]
    Selector(String),
    /// A scaling factor out of range.
    #[error("alpha and beta must be above 0 and no larger than 1")]
    Coupling,
    /// A share of repeated bytes out of range.
    #[error("redundancy must be a share from 0 to 1 of what is sent")]
    Redundancy,
    /// A rule for the size of transmission windows that leaves no size.
    #[error(
        "a window is from 1 KiB to 1 TiB, its least size no larger than its most, for 0 to 1000 products"
    )]
    Window,
    /// Number of streams out of range.
    #[error("max_streams must be from 1 to 65536, not {0}")]
    MaxStreams(u64),
}
