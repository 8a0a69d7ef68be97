//! The session: streams above, paths below, and what is known in between.

mod liveness;
mod receive;
mod report;
mod stats;
mod streams;
mod transmit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::config::ConfigError;
use crate::frame::FrameError;
use crate::pages::Spare;
use crate::path::{Control, Flight, Path, PathSample, PathState};
use crate::ranges::RangeSet;
use crate::scheduler::{self, Scheduler};
use crate::stream::Stream;
use crate::varint;
use crate::{Class, Config, Instant, PathId, Role, StreamId};

use report::Reports;
pub use stats::{PathStats, Stats};

/// The bond between one client and one server; see the crate's documentation for how it is driven.
#[derive(Debug)]
pub struct Session {
    config: Config,
    scheduler: Box<dyn Scheduler>,
    paths: BTreeMap<PathId, Path>,
    streams: BTreeMap<StreamId, Stream>,
    /// Streams that have something unsent.
    ready: BTreeSet<StreamId>,
    /// Streams of which a write was cut short, and that are to be told when there is room.
    blocked: BTreeSet<StreamId>,
    /// The stream that the scheduler served last.
    last_served: StreamId,
    /// Control frames that no path has taken yet, and since when they wait.
    control: VecDeque<(Instant, Control)>,
    /// The path that took the newest OPEN, and the count of its bytes at the end of it.
    opened_on: Option<(PathId, u64)>,
    events: VecDeque<Event>,
    reports: Reports,
    /// Pages for the next use.
    spare: Spare,
    /// Index of the next stream that this side opens.
    next_stream: u64,
    /// Streams that this side opened and that are not over.
    own_streams: u64,
    /// Indices of the peer's streams that are over.
    retired: RangeSet,
    send_credit: SendCredit,
    receive_credit: ReceiveCredit,
    counters: Counters,
    next_token: u64,
    /// Since when there has been no path.
    pathless_since: Option<Instant>,
    /// When timeouts were last handled.
    handled: Instant,
    /// The session has ended, in whichever way.
    closed: bool,
    /// What CLOSE says, when this side ended the session. It goes over every path, so that it arrives before the end of
    /// any of them.
    farewell: Option<(u64, Arc<[u8]>)>,
}

/// What the peer lets this side send.
#[derive(Debug, Default)]
struct SendCredit {
    /// Limit on the sum of all streams' highest offsets.
    session: u64,
    /// Sum of all streams' highest offsets.
    used: u64,
    /// Where a new stream's limit begins.
    initial: u64,
    /// How many streams may have been opened.
    streams: u64,
    /// What the peer's streams share, in bytes.
    peer_memory: u64,
    /// How many streams there can be to share it.
    peer_streams: u64,
    /// Bytes in all send buffers.
    buffered: u64,
    /// Separate acknowledged pieces in all of them.
    pieces: usize,
}

/// What this side lets the peer send.
#[derive(Debug, Default)]
struct ReceiveCredit {
    /// Limit told to the peer.
    granted: u64,
    /// Sum of all streams' highest offsets.
    used: u64,
    /// The part of `used` that is read or dropped.
    released: u64,
    /// Where a new stream's limit begins.
    initial: u64,
    /// Streams that the peer may have opened.
    streams: u64,
    /// A CREDIT of the session waits for a path.
    session_queued: bool,
    /// A CREDIT of streams waits for a path.
    streams_queued: bool,
}

#[derive(Debug, Default)]
struct Counters {
    written: u64,
    read: u64,
    opened: u64,
    duplicates_received: u64,
    duplicates_sent: u64,
    /// The part of `duplicates_sent` that schedulers chose, which has a budget.
    repeated: u64,
    data_sent: u64,
    reorder: u64,
    reorder_peak: u64,
    received_peak: u64,
    /// Separate received pieces of all streams.
    pieces: usize,
}

/// Something the owner of the session should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamId,
        /// Its class.
        class: Class,
        /// What to connect to.
        target: Vec<u8>,
    },
    /// The peer connected a stream that this side opened.
    Accepted {
        /// The stream.
        stream: StreamId,
    },
    /// There is something to read, or the end; said once until a read comes back short.
    Readable {
        /// The stream.
        stream: StreamId,
    },
    /// There is room after a write that was cut short.
    Writable {
        /// The stream.
        stream: StreamId,
    },
    /// All that was written, and the end, has been received by the peer.
    Delivered {
        /// The stream.
        stream: StreamId,
    },
    /// The peer reset the stream; unread bytes are gone. Only where all bytes and the end had arrived before, they
    /// can still be read, and this comes after the last one; writes fail meanwhile.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The peer's code.
        code: u64,
    },
    /// More streams may be opened than before.
    StreamsAvailable,
    /// A path makes no progress and gets no more work.
    PathStalled {
        /// The path.
        path: PathId,
        /// How long its oldest byte has been without an answer.
        silent_for: core::time::Duration,
    },
    /// A stalled path delivers again, or is tried again because no other is left.
    PathRecovered {
        /// The path.
        path: PathId,
    },
    /// The session has ended; streams are gone.
    Closed {
        /// 0 is a normal end.
        code: u64,
        /// For people.
        reason: String,
    },
}

/// What the peer did wrong: the session is closed for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Bytes that are no frame.
    #[error("the peer sent a {0}")]
    Frame(#[from] FrameError),
    /// More data than this side allowed.
    #[error("the peer exceeded its credit on stream {0}")]
    Credit(StreamId),
    /// More streams than this side allowed.
    #[error("the peer opened more streams than allowed (stream {0})")]
    Streams(StreamId),
    /// A frame for a stream that its sender cannot have.
    #[error("the peer named stream {0}, which was never opened")]
    UnknownStream(StreamId),
    /// Two lengths for one stream, or data beyond its length.
    #[error("the peer contradicted the length of stream {0}")]
    Size(StreamId),
    /// An acknowledgement or report of something that was never sent.
    #[error("the peer acknowledged what was never sent")]
    Acknowledged,
    /// So many gaps that keeping track of them would take memory without bound.
    #[error("the peer sent or acknowledged stream {0} in too many pieces")]
    Pieces(StreamId),
    /// A frame that belongs only at a carrier's beginning.
    #[error("the peer sent a handshake frame inside a session")]
    Handshake,
}

/// Why a stream operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no such stream, or it is over.
    #[error("there is no such stream")]
    Unknown,
    /// The peer allows no more streams at the moment.
    #[error("the peer allows no more streams at the moment")]
    NoMoreStreams,
    /// The stream's writing end is finished.
    #[error("the stream is finished")]
    Finished,
    /// The target of a stream does not fit into a frame.
    #[error("the target is longer than 512 bytes")]
    TargetTooLong,
    /// The session has ended.
    #[error("the session has ended")]
    Closed,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes appended.
    pub len: usize,
    /// The last byte of the stream has been read.
    pub finished: bool,
}

/// Credit that a new stream begins with, in bytes. Small, since every stream may use it without having shown that
/// somebody reads; the first read raises it to what the memory allows.
const INITIAL_CREDIT: u64 = 64 * 1024;

impl Session {
    /// A session without paths.
    pub fn new(config: Config, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let scheduler = scheduler::by_name(&config.scheduler)
            .ok_or_else(|| ConfigError::UnknownScheduler(config.scheduler.clone()))?;
        let receive_credit = ReceiveCredit {
            granted: config.receive_window(),
            initial: INITIAL_CREDIT,
            streams: config.max_streams,
            session_queued: true,
            streams_queued: true,
            ..ReceiveCredit::default()
        };
        let first = [
            Control::CreditSession,
            Control::CreditInitial,
            Control::CreditStreams,
        ];
        Ok(Self {
            config,
            scheduler,
            paths: BTreeMap::new(),
            streams: BTreeMap::new(),
            ready: BTreeSet::new(),
            blocked: BTreeSet::new(),
            last_served: 0,
            control: first.into_iter().map(|frame| (now, frame)).collect(),
            opened_on: None,
            events: VecDeque::new(),
            reports: Reports::default(),
            spare: Spare::default(),
            next_stream: 0,
            own_streams: 0,
            retired: RangeSet::new(),
            send_credit: SendCredit::default(),
            receive_credit,
            counters: Counters::default(),
            next_token: 0,
            pathless_since: Some(now),
            handled: now,
            closed: false,
            farewell: None,
        })
    }

    /// A carrier has joined and can carry frames both ways. A number that is in use is ignored.
    pub fn path_up(&mut self, id: PathId, now: Instant) {
        if self.closed || self.paths.contains_key(&id) {
            return;
        }
        let path = Path::new(id, now);
        self.paths.insert(id, path);
        self.pathless_since = None;
        self.scheduler.paths_changed();
    }

    /// A carrier has ended: what was on it goes over the others.
    pub fn path_down(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.remove(&id) else {
            return;
        };
        self.take_back(path, now);
        if self.paths.is_empty() {
            self.pathless_since = Some(now);
        } else if self
            .paths
            .values()
            .all(|path| path.state == PathState::Stalled)
        {
            self.reactivate_all(now);
        }
        self.scheduler.paths_changed();
    }

    /// New measurements of a path's carrier.
    pub fn path_stats(&mut self, id: PathId, sample: PathSample) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.update(sample);
        }
    }

    /// Ends the session; the peer is told over whichever path takes it.
    pub fn close(&mut self, code: u64, reason: &str, _now: Instant) {
        if self.closed {
            return;
        }
        let code = code.min(varint::MAX);
        self.end(code, reason);
        let reason = reason.as_bytes();
        let reason: Arc<[u8]> = reason[..reason.len().min(crate::frame::MAX_TEXT)].into();
        self.farewell = Some((code, reason));
    }

    /// Whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether something is left to be told to the peer after the end.
    pub fn has_farewell(&self) -> bool {
        self.farewell.is_some() && !self.paths.values().all(|path| path.farewell_said)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// This side's paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.values()
    }

    fn end(&mut self, code: u64, reason: &str) {
        self.closed = true;
        self.streams.clear();
        self.ready.clear();
        self.blocked.clear();
        self.control.clear();
        self.reports = Reports::default();
        self.send_credit.buffered = 0;
        self.send_credit.pieces = 0;
        self.counters.reorder = 0;
        self.counters.pieces = 0;
        self.paths.values_mut().for_each(|path| {
            path.flights.clear();
            path.control.clear();
            path.partial = Vec::new();
        });
        self.events.clear();
        self.events.push_back(Event::Closed {
            code,
            reason: reason.to_owned(),
        });
    }

    /// Everything unconfirmed on `path`, which has ended, has to go over others.
    fn take_back(&mut self, path: Path, now: Instant) {
        self.requeue(
            path.flights,
            path.control.into_iter().filter_map(|sent| sent.frame),
            now,
        );
        self.reports.path_lost(path.id);
        self.reports.tell_again(&mut self.streams, &mut self.paths);
    }

    /// Stream bytes and control frames that a path does not deliver go over others.
    fn requeue(
        &mut self,
        flights: VecDeque<Flight>,
        control: impl DoubleEndedIterator<Item = Control>,
        now: Instant,
    ) {
        for flight in flights {
            if let Some(stream) = self.streams.get_mut(&flight.stream)
                && !stream.send.complete
            {
                stream.send.requeue(flight.range);
                if !stream.send.unsent.is_empty() {
                    self.ready.insert(flight.stream);
                }
            }
        }
        // The oldest first, and before what waits already: a FIN may hold up a program.
        for frame in control.rev() {
            if !matches!(frame, Control::Ping { .. }) && self.is_to_be_queued(&frame) {
                self.control.push_front((now, frame));
            }
        }
    }

    /// Has a control frame wait for a path.
    fn queue(&mut self, frame: Control, now: Instant) {
        if self.is_to_be_queued(&frame) {
            self.control.push_back((now, frame));
        }
    }

    /// Credit waits at most once, however often it is raised meanwhile: the frame tells the newest.
    fn is_to_be_queued(&mut self, frame: &Control) -> bool {
        match frame {
            Control::CreditSession => {
                !std::mem::replace(&mut self.receive_credit.session_queued, true)
            }
            Control::CreditStreams => {
                !std::mem::replace(&mut self.receive_credit.streams_queued, true)
            }
            Control::CreditStream { stream } => self
                .streams
                .get_mut(stream)
                .is_some_and(|state| !std::mem::replace(&mut state.receive.credit_queued, true)),
            _ => true,
        }
    }

    /// Index of a stream among those of its opener, and whether that is this side.
    fn split_id(&self, stream: StreamId) -> (u64, bool) {
        let ours = match self.config.role {
            Role::Client => 0,
            Role::Server => 1,
        };
        (stream / 2, stream % 2 == ours)
    }
}

#[cfg(test)]
mod tests;
