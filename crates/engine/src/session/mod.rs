//! The session: streams above, paths below, and the state that connects them.

mod credit;
mod datagrams;
mod error;
mod event;
mod liveness;
mod policy;
mod queue;
mod receive;
mod report;
mod select;
mod stats;
mod streams;
mod transmit;
mod unjoined;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::backlog::Backlog;
use crate::config::ConfigError;
use crate::datagram::Datagrams;
use crate::frame::ReportedState;
use crate::pages::Spare;
use crate::path::{Control, Path, PathSample, PathState, Paths};
use crate::ranges::RangeSet;
use crate::reader;
use crate::scheduler::Schedulers;
use crate::stream::Stream;
use crate::varint;
use crate::waiting::Waits;
use crate::writers::Writers;
use crate::{Config, Instant, PathId, PeerText, Role, StreamId};

pub use error::{PathRefused, ProtocolError, StreamError};
pub use event::Event;
use report::Reports;
use select::Selecting;
pub use stats::{PathStats, Stats, StreamStats};
use unjoined::UnjoinedPaths;

/// The bond between one client and one server; the crate documentation describes how to drive it.
#[derive(Debug)]
pub struct Session {
    config: Config,
    schedulers: Schedulers,
    selecting: Selecting,
    paths: Paths,
    streams: BTreeMap<StreamId, Stream>,
    /// Streams with unsent bytes.
    ready: BTreeSet<StreamId>,
    /// Programs with more to write than the send buffers take.
    writers: Writers,
    /// The change count at which the delay of reports was last computed.
    trips_computed_at: Option<u64>,
    /// Time at which a path was made to wait although data is waiting to be sent.
    waits_since: Option<Instant>,
    /// Control frames that no path has taken yet, and the time since when they wait.
    control: VecDeque<(Instant, Control)>,
    /// The path that carries the newest OPEN, and the path's byte count at its end.
    newest_open: Option<(PathId, u64)>,
    events: VecDeque<Event>,
    reports: Reports,
    /// Flows of datagrams, and the paths that carry them.
    datagrams: Datagrams,
    /// Frames about paths that have not joined on this side yet.
    unjoined: UnjoinedPaths,
    /// At least one path's policy is not the default.
    has_policies: bool,
    /// Time until which secondary paths carry data; none while they do not.
    secondaries_until: Option<Instant>,
    /// Pages for reuse.
    spare: Spare,
    /// Index of the next stream that this side opens.
    next_stream: u64,
    /// Number of streams that this side opened and that have not ended.
    own_streams: u64,
    /// Indices of the peer's streams that have ended.
    retired: RangeSet,
    send_credit: SendCredit,
    receive_credit: ReceiveCredit,
    counters: Counters,
    /// The rate that bounds send buffers.
    backlog: Backlog,
    next_token: u64,
    /// Time since when the session has had no path.
    pathless_since: Option<Instant>,
    /// Time at which timeouts were last handled.
    handled: Instant,
    /// The latest time that any caller has passed.
    latest: Instant,
    /// The session has ended, for any reason.
    closed: bool,
    /// Code and reason of the CLOSE, if this side ended the session. It is sent over every path, so
    /// that it arrives before any of them ends.
    pending_close: Option<(u64, Arc<[u8]>)>,
}

/// Limits that the peer has granted to this side.
#[derive(Debug, Default)]
struct SendCredit {
    /// Limit on the sum of all streams' highest offsets.
    session: u64,
    /// Sum of all streams' highest offsets.
    used: u64,
    /// Initial limit of a new stream.
    initial: u64,
    /// Number of streams that may be opened in total.
    streams: u64,
    /// Memory that the peer's streams share, in bytes.
    peer_memory: u64,
    /// Highest number of streams that share it.
    peer_streams: u64,
    /// Bytes in all send buffers.
    buffered: u64,
    /// Number of separate acknowledged ranges in all of them.
    pieces: usize,
}

/// Limits that this side has granted to the peer.
#[derive(Debug, Default)]
struct ReceiveCredit {
    /// Limit that the peer has been granted.
    granted: u64,
    /// Sum of all streams' highest offsets.
    used: u64,
    /// The part of `used` that is read or dropped.
    released: u64,
    /// Highest remaining session credit since all streams were last checked for grants.
    left_at_offers: u64,
    /// Initial limit of a new stream.
    initial: u64,
    /// Number of streams that the peer may open in total.
    streams: u64,
    /// A CREDIT of the session is queued.
    session_queued: bool,
    /// A CREDIT of streams is queued.
    streams_queued: bool,
}

#[derive(Debug, Default)]
struct Counters {
    written: u64,
    read: u64,
    opened: u64,
    duplicates_received: u64,
    duplicates_sent: u64,
    data_sent: u64,
    reorder: u64,
    reorder_peak: u64,
    /// How long received bytes have waited for earlier ones.
    waits: Waits,
    received_peak: u64,
    /// Bytes that have reached the peer in order.
    delivered: u64,
    /// Number of separate received ranges of all streams.
    pieces: usize,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Number of bytes appended.
    pub len: usize,
    /// The last byte of the stream has been read.
    pub finished: bool,
}

impl Session {
    /// A session without paths.
    pub fn new(config: Config, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let schedulers = Schedulers::new(&config, now)?;
        let selecting = Selecting::new(&config.selector);
        let receive_credit = ReceiveCredit {
            granted: config.receive_window(),
            initial: reader::FIRST,
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
        let datagrams = Datagrams::new(config.role, config.datagrams.clone());
        Ok(Self {
            config,
            datagrams,
            schedulers,
            selecting,
            paths: Paths::default(),
            streams: BTreeMap::new(),
            ready: BTreeSet::new(),
            writers: Writers::default(),
            trips_computed_at: None,
            waits_since: None,
            control: first.into_iter().map(|frame| (now, frame)).collect(),
            newest_open: None,
            events: VecDeque::new(),
            reports: Reports::default(),
            unjoined: UnjoinedPaths::default(),
            has_policies: false,
            secondaries_until: None,
            spare: Spare::default(),
            next_stream: 0,
            own_streams: 0,
            retired: RangeSet::new(),
            send_credit: SendCredit::default(),
            receive_credit,
            counters: Counters::default(),
            backlog: Backlog::default(),
            next_token: 0,
            pathless_since: Some(now),
            handled: now,
            latest: now,
            closed: false,
            pending_close: None,
        })
    }

    /// Whether another path may join.
    pub fn check_path(&self) -> Result<(), PathRefused> {
        match self.schedulers.max_paths() {
            Some((most, scheduler)) if self.paths.len() >= most => {
                Err(PathRefused::TooMany { scheduler, most })
            }
            _ => Ok(()),
        }
    }

    /// A carrier has joined and can carry frames in both directions. Ignored if the number is in
    /// use or if [`Session::check_path`] refuses the path.
    pub fn path_up(&mut self, id: PathId, now: Instant) {
        if self.closed || self.paths.contains_key(&id) || self.check_path().is_err() {
            return;
        }
        let path = Path::new(id, now);
        self.paths.insert(path);
        self.pathless_since = None;
        self.schedulers.paths_changed();
        let (policy, state) = self.unjoined.take(id);
        if let Some((version, policy)) = policy {
            self.on_policy(id, version, policy);
        }
        if let Some((version, state)) = state {
            self.on_path_state(id, version, state, now);
        }
    }

    /// Counts frames that the driver itself has sent on a path, in `bytes`, before it has sent any
    /// of the session's: the peer's reports include them.
    pub fn path_sent(&mut self, id: PathId, bytes: u64) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.outbound.sent += bytes;
        }
    }

    /// Sets the link of a path. Paths with the same number share one, so that data that needs two
    /// paths is sent over two links. By default each path has a link of its own.
    pub fn path_link(&mut self, id: PathId, link: u64) {
        if let Some(path) = self.paths.get_mut(&id) {
            path.standing.link = Some(link);
        }
        self.datagrams.path_link(id, link, self.latest);
        self.schedulers.note_change();
    }

    /// A carrier has ended; its unacknowledged data goes over the others.
    pub fn path_down(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.remove(&id) else {
            return;
        };
        self.stream_path_down(id, now);
        let (is_abandoned, sent) = (path.peer.is_abandoned, path.peer.state_version_sent);
        self.take_back(path, now);
        self.note_policies();
        // The peer's end of it may otherwise wait a long time for its timeouts.
        if !is_abandoned && !self.paths.is_empty() {
            self.queue_path_state(id, sent + 1, ReportedState::Left, now);
        }
        if self.paths.is_empty() {
            self.pathless_since = Some(now);
        } else if self
            .paths
            .values()
            .all(|path| path.state == PathState::Stalled)
        {
            self.reactivate_all(now);
        }
        self.schedulers.paths_changed();
    }

    /// New measurements of a path's carrier, taken now.
    pub fn path_stats(&mut self, id: PathId, sample: PathSample, now: Instant) {
        self.latest = self.latest.max(now);
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        let is_news = path.sample != sample || path.has_own_queue_ended(self.latest);
        if is_news {
            path.update(sample, self.latest);
            self.schedulers.note_change();
        }
        path.postpone_unsent(self.latest);
        let is_stalled = path.state == PathState::Stalled;
        let link = path.standing.link;
        self.stream_path_stats(id, &sample, now);
        if is_news && link.is_some() {
            self.share_queues(link);
        }
        if is_stalled {
            self.recover_path(id, self.latest);
        }
        if !is_news && self.trips_computed_at == Some(self.schedulers.changes()) {
            return;
        }
        self.trips_computed_at = Some(self.schedulers.changes());
        let delivering = self.paths.values();
        let delivering = delivering.filter(|path| path.state == PathState::Active);
        let trip = delivering.clone().map(|path| path.srtt() / 2).min();
        let least = delivering.map(|path| path.min_round_trip() / 2).min();
        for path in self.paths.values_mut() {
            path.set_report_trip(trip, least);
        }
    }

    /// Carriers over one link share one queue: bytes of one carrier delay those of the others.
    fn share_queues(&mut self, link: Option<u64>) {
        let siblings = self
            .paths
            .values()
            .filter(|path| path.standing.link == link);
        let queueing = siblings.filter(|path| path.is_queueing()).count();
        for path in self
            .paths
            .values_mut()
            .filter(|path| path.standing.link == link)
        {
            path.share_queue(queueing > usize::from(path.is_queueing()));
        }
    }

    /// Whether a scheduler needs [`PathSample::local_queue`].
    pub fn reads_local_queue(&self) -> bool {
        self.schedulers.read_local_queue()
    }

    /// Ends the session. The CLOSE is sent to the peer over every path.
    pub fn close(&mut self, code: u64, reason: &str, _now: Instant) {
        if self.closed {
            return;
        }
        let code = code.min(varint::MAX);
        self.end(code, reason.into());
        let reason = reason.as_bytes();
        let reason: Arc<[u8]> = reason[..reason.len().min(crate::frame::MAX_TEXT)].into();
        self.pending_close = Some((code, reason));
    }

    /// Whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether a CLOSE is still to be sent after the end.
    pub fn is_close_pending(&self) -> bool {
        self.pending_close.is_some() && !self.paths.values().all(|path| path.outbound.close_sent)
    }

    /// Whether the session has ended and nothing is left to send on this path.
    pub fn has_left(&self, id: PathId) -> bool {
        let is_sent = |path: &Path| self.pending_close.is_none() || path.outbound.close_sent;
        self.closed && self.paths.get(&id).is_none_or(is_sent)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events
            .pop_front()
            .or_else(|| self.datagrams.poll_event())
    }

    /// This side's paths.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.values()
    }

    fn end(&mut self, code: u64, reason: PeerText) {
        self.closed = true;
        self.schedulers.note_change();
        self.streams.clear();
        self.ready.clear();
        self.writers.clear();
        self.control.clear();
        self.reports = Reports::default();
        self.datagrams.end();
        self.send_credit.buffered = 0;
        self.send_credit.pieces = 0;
        self.counters.reorder = 0;
        self.counters.pieces = 0;
        self.paths.values_mut().for_each(|path| {
            path.outbound.flights.clear();
            path.outbound.control.clear();
            path.inbound.partial = Vec::new();
        });
        self.events.clear();
        self.events.push_back(Event::Closed { code, reason });
    }

    /// Index of a stream among those of its opener, and whether this side is the opener.
    fn split_id(&self, stream: StreamId) -> (u64, bool) {
        let ours = match self.config.role {
            Role::Client => 0,
            Role::Server => 1,
        };
        (stream / 2, stream % 2 == ours)
    }
}

#[cfg(any(test, feature = "testing"))]
pub(crate) mod tests;
