//! The task that owns a session: its engine, its carriers, and its ends of the streams' pipes.
//!
//! Everything of one session happens here, one thing after the other, so the data path needs no lock between paths
//! and every decision sees the newest state of all of them. Encryption is done here, too: at 14 Gbit/s a core it is
//! not what limits a session.

mod status;
mod streams;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use sumlink_engine::{Class, Config, ConfigError, Event, PathId, Role, Session, StreamId};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{broadcast, oneshot};
use tokio::time::Sleep;

use crate::carrier::Carrier;
use crate::config::SessionConfig;
use crate::keys::PublicKey;
use crate::pipe::{Pipe, Pools};
use crate::status::{PathEvent, SessionStatus};
use crate::stream::Stream;
use crate::target::OpenError;

pub(crate) use status::LinkStates;
use status::RateWindow;
use streams::Local;

/// Where the outcome of opening a stream goes.
pub(crate) type OpenReply = oneshot::Sender<Result<Stream, OpenError>>;

/// What a session's task is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// A program has written, read or let go of a stream.
    Touched(StreamId),
    /// Open a stream.
    Open {
        target: Vec<u8>,
        class: Class,
        reply: OpenReply,
    },
    /// Somebody no longer waits for a stream to be opened.
    Cancelled,
    /// The target of a stream that the peer opened is connected.
    Accept(StreamId),
    /// The target of a stream that the peer opened cannot be connected.
    Refuse(StreamId, OpenError),
    /// A carrier is ready to be a path.
    Add(Box<Carrier>),
    /// A path is to leave.
    Remove(PathId, String),
    /// Tell about the session.
    Status(oneshot::Sender<SessionStatus>),
    /// End the session.
    Close(String),
}

/// A stream that the peer opened.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: StreamId,
    pub(crate) target: Vec<u8>,
    pub(crate) stream: Stream,
}

/// What becomes of carriers, for who makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CarrierNews {
    /// Nothing has been confirmed on it for too long: try the link anew.
    Silent { id: PathId, link: String },
    /// It has ended.
    Ended {
        id: PathId,
        link: String,
        reason: String,
    },
}

/// Who learns what from a session's task.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) incoming: Option<UnboundedSender<Incoming>>,
    pub(crate) carriers: Option<UnboundedSender<CarrierNews>>,
    pub(crate) events: broadcast::Sender<PathEvent>,
    pub(crate) links: LinkStates,
    /// Paths that the session may have at once.
    pub(crate) max_paths: usize,
}

/// A session's task.
#[derive(Debug)]
pub(crate) struct Driver {
    engine: Session,
    role: Role,
    id: [u8; 16],
    peer: PublicKey,
    scheduler: String,
    memory: u64,
    /// Time zero of the engine.
    epoch: Instant,
    carriers: Vec<Carrier>,
    /// Which carrier is served first: the turn goes round.
    turn: usize,
    locals: HashMap<StreamId, Local>,
    /// What the streams' pipes may hold.
    pools: Arc<Pools>,
    /// Paths that the peer may bring at most.
    max_paths: usize,
    /// Streams that wait for the peer to allow more.
    waiting: VecDeque<(Vec<u8>, Class, OpenReply)>,
    commands: UnboundedReceiver<Command>,
    sender: UnboundedSender<Command>,
    listeners: Listeners,
    timer: Pin<Box<Sleep>>,
    rates: RateWindow,
    /// Frames on their way from the engine to a carrier.
    frames: Vec<u8>,
    /// When carriers are next looked at for silence.
    silence_check: Instant,
    /// After the end: until when the last frames may leave.
    farewell_until: Option<Instant>,
    /// Why the session ended.
    ended: Option<String>,
}

/// Bytes taken from one carrier before the others get their turn.
const RECEIVE_QUOTA: usize = 512 * 1024;

/// Pieces given to one carrier before the others get their turn.
const SEND_PIECES: usize = 4;

/// Rounds in one go, before other tasks of the runtime get theirs.
const ROUNDS: usize = 16;

/// A carrier on which nothing is confirmed for this long is worth a new attempt on its link.
const SILENCE: Duration = Duration::from_secs(3);

/// What is due and cannot be sent is tried again after this time.
const OVERDUE_PAUSE: Duration = Duration::from_millis(5);

/// How long a CLOSE may take to leave.
const FAREWELL: Duration = Duration::from_secs(1);

/// Streams that may wait for the peer to allow more.
const MAX_WAITING: usize = 4096;

impl Driver {
    /// A session without carriers, and where it takes commands.
    pub(crate) fn new(
        role: Role,
        id: [u8; 16],
        peer: PublicKey,
        config: &SessionConfig,
        listeners: Listeners,
    ) -> Result<(Self, UnboundedSender<Command>), ConfigError> {
        let engine = Session::new(engine_config(role, config), Duration::ZERO)?;
        let (sender, commands) = unbounded_channel();
        let now = Instant::now();
        let driver = Self {
            engine,
            role,
            id,
            peer,
            scheduler: config.scheduler.clone(),
            memory: config.memory,
            epoch: now,
            carriers: Vec::new(),
            turn: 0,
            locals: HashMap::new(),
            pools: Pools::new(config.split().pool),
            max_paths: listeners.max_paths,
            waiting: VecDeque::new(),
            commands,
            sender: sender.clone(),
            listeners,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            rates: RateWindow::default(),
            frames: Vec::with_capacity(128 * 1024),
            silence_check: now + SILENCE,
            farewell_until: None,
            ended: None,
        };
        Ok((driver, sender))
    }

    fn now(&self) -> sumlink_engine::Instant {
        self.epoch.elapsed()
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Touched(id) => self.serve_local(id),
            Command::Open {
                target,
                class,
                reply,
            } => self.open(target, class, reply),
            Command::Cancelled => self.cancel_opens(),
            Command::Accept(id) => {
                // The peer may have reset it meanwhile.
                let _ = self.engine.accept(id, now);
            }
            Command::Refuse(id, error) => {
                self.locals.remove(&id);
                self.engine.reset(id, error.code(), now);
            }
            Command::Add(carrier) => self.add(*carrier),
            Command::Remove(id, reason) => {
                if let Some(index) = self.carriers.iter().position(|carrier| carrier.id == id) {
                    self.end_carrier(index, &reason);
                }
            }
            Command::Status(reply) => {
                let _ = reply.send(self.status());
            }
            Command::Close(reason) => self.engine.close(0, &reason, now),
        }
    }

    fn add(&mut self, mut carrier: Carrier) {
        if self.carriers.iter().any(|other| other.id == carrier.id) {
            tracing::warn!(
                path = carrier.id.0,
                "the peer used a path number twice; the second is dropped"
            );
            return;
        }
        if self.carriers.len() >= self.max_paths {
            tracing::warn!(
                path = carrier.id.0,
                "too many paths in this session; one is dropped"
            );
            return;
        }
        let now = self.now();
        self.engine.path_up(carrier.id, now);
        self.engine
            .path_stats(carrier.id, carrier.sample(Instant::now()));
        tracing::info!(path = carrier.id.0, link = %carrier.link, remote = %carrier.remote, "path up");
        let (path, link) = (carrier.id.0, carrier.link.clone());
        let _ = self.listeners.events.send(PathEvent::Up { path, link });
        self.carriers.push(carrier);
    }

    fn end_carrier(&mut self, index: usize, reason: &str) {
        let carrier = self.carriers.swap_remove(index);
        let now = self.now();
        self.engine.path_down(carrier.id, now);
        // At the end of a session the ends of its paths are no news.
        if !self.engine.is_closed() {
            tracing::info!(path = carrier.id.0, link = %carrier.link, reason, "path down");
        }
        let (id, link, reason) = (carrier.id, carrier.link, reason.to_owned());
        let event = PathEvent::Down {
            path: id.0,
            link: link.clone(),
            reason: reason.clone(),
        };
        let _ = self.listeners.events.send(event);
        if let Some(listener) = &self.listeners.carriers {
            let _ = listener.send(CarrierNews::Ended { id, link, reason });
        }
    }

    /// Takes what has arrived on every carrier; whether anything had.
    fn receive(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let mut index = 0;
        while index < self.carriers.len() {
            let now = self.epoch.elapsed();
            let carrier = &mut self.carriers[index];
            let (id, engine) = (carrier.id, &mut self.engine);
            let mut fault = None;
            let result = carrier.poll_receive(cx, RECEIVE_QUOTA, |bytes| {
                if let Err(error) = engine.handle_frames(id, bytes, now) {
                    fault.get_or_insert(error);
                }
            });
            if let Some(error) = fault {
                tracing::warn!(%error, peer = %self.peer, "the peer broke the protocol; its session is closed");
            }
            match result {
                Poll::Ready(Ok(0)) => self.end_carrier(index, "the peer closed the connection"),
                Poll::Ready(Err(error)) => self.end_carrier(index, &broken(&error)),
                Poll::Ready(Ok(_)) => {
                    moved = true;
                    index += 1;
                }
                Poll::Pending => index += 1,
            }
        }
        moved
    }

    /// Gives every carrier that takes bytes what the engine has for it; whether it had anything.
    fn transmit(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        let clock = Instant::now();
        for carrier in &mut self.carriers {
            let sample = carrier.sample(clock);
            self.engine.path_stats(carrier.id, sample);
        }
        self.turn = self.turn.wrapping_add(1);
        let count = self.carriers.len();
        let mut broken_carriers = Vec::new();
        for step in 0..count {
            let index = (self.turn + step) % count;
            match self.transmit_on(index, cx) {
                Ok(any) => moved |= any,
                Err(error) => broken_carriers.push((self.carriers[index].id, broken(&error))),
            }
        }
        for (id, reason) in broken_carriers {
            if let Some(index) = self.carriers.iter().position(|carrier| carrier.id == id) {
                self.end_carrier(index, &reason);
            }
        }
        moved
    }

    fn transmit_on(&mut self, index: usize, cx: &mut Context<'_>) -> io::Result<bool> {
        let carrier = &mut self.carriers[index];
        let mut moved = false;
        for _ in 0..SEND_PIECES {
            match carrier.poll_writable(cx) {
                Poll::Ready(result) => result?,
                Poll::Pending => return Ok(moved),
            }
            self.frames.clear();
            let now = self.epoch.elapsed();
            self.engine
                .path_stats(carrier.id, carrier.sample(Instant::now()));
            if self
                .engine
                .poll_transmit(carrier.id, carrier.budget(), now, &mut self.frames)
                == 0
            {
                return Ok(moved);
            }
            moved = true;
            carrier.send(&self.frames)?;
        }
        // What the last piece left is written, or a wake-up asked for.
        if let Poll::Ready(result) = carrier.poll_writable(cx) {
            result?;
        }
        Ok(moved)
    }

    fn events(&mut self) -> bool {
        let mut moved = false;
        while let Some(event) = self.engine.poll_event() {
            moved = true;
            match event {
                Event::Opened { stream, target, .. } => self.incoming(stream, target),
                Event::Accepted { stream } => self.accepted(stream),
                Event::Readable { stream } => self.give_down(stream),
                Event::Writable { stream } => self.serve_local(stream),
                Event::Reset { stream, code } => {
                    self.fail_local(stream, OpenError::from_code(code))
                }
                Event::StreamsAvailable => self.open_waiting(),
                Event::PathStalled { path, silent_for } => {
                    let reason = format!("nothing delivered for {} ms", silent_for.as_millis());
                    let link = self.link_of(path);
                    tracing::info!(path = path.0, %link, %reason, "path stalled");
                    let event = PathEvent::Stalled {
                        path: path.0,
                        link,
                        reason,
                    };
                    let _ = self.listeners.events.send(event);
                }
                Event::PathRecovered { path } => {
                    let link = self.link_of(path);
                    tracing::info!(path = path.0, %link, "path recovered");
                    let _ = self
                        .listeners
                        .events
                        .send(PathEvent::Recovered { path: path.0, link });
                }
                Event::Closed { reason, .. } => self.end(reason),
                _ => {}
            }
        }
        moved
    }

    fn end(&mut self, reason: String) {
        self.farewell_until = Some(Instant::now() + FAREWELL);
        self.locals
            .drain()
            .for_each(|(_, local)| local.fail(OpenError::SessionClosed));
        for (_, _, reply) in self.waiting.drain(..) {
            let _ = reply.send(Err(OpenError::SessionClosed));
        }
        tracing::info!(%reason, peer = %self.peer, "session closed");
        let _ = self.listeners.events.send(PathEvent::Closed {
            reason: reason.clone(),
        });
        self.ended = Some(reason);
    }

    /// After the end: whether all has been said that should be.
    fn has_left(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(until) = self.farewell_until else {
            return false;
        };
        let mut unsaid = self.engine.has_farewell();
        for carrier in &mut self.carriers {
            if !unsaid {
                carrier.send_end();
            }
            unsaid |= carrier.poll_writable(cx).is_pending();
        }
        !unsaid || self.carriers.is_empty() || Instant::now() >= until
    }

    fn look_for_silence(&mut self) {
        let clock = Instant::now();
        if clock < self.silence_check {
            return;
        }
        self.silence_check = clock + SILENCE;
        let Some(listener) = &self.listeners.carriers else {
            return;
        };
        for path in self.engine.path_stats_all(self.now()) {
            if path.stuck_for.is_some() {
                self.silence_check = clock + SILENCE / 6;
            }
            if path.stuck_for.is_some_and(|time| time >= SILENCE) {
                let link = self.link_of(path.id);
                let _ = listener.send(CarrierNews::Silent { id: path.id, link });
            }
        }
    }

    fn link_of(&self, id: PathId) -> String {
        let carrier = self.carriers.iter().find(|carrier| carrier.id == id);
        carrier
            .map(|carrier| carrier.link.clone())
            .unwrap_or_default()
    }

    /// Arms the timer for what is due next; false when it is due already.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.now();
        // What is due and could not be sent waits for a carrier, which wakes this task by itself.
        // This is only in case that the carrier of a path that is best no more stays full.
        let engine = self.engine.poll_timeout().map(|at| match at > now {
            true => at,
            false => now + OVERDUE_PAUSE,
        });
        let mut at = self.epoch + engine.unwrap_or(now + Duration::from_secs(3600));
        if !self.carriers.is_empty() && self.listeners.carriers.is_some() {
            at = at.min(self.silence_check);
        }
        if let Some(until) = self.farewell_until {
            at = at.min(until);
        }
        self.timer.as_mut().reset(at.into());
        self.timer.as_mut().poll(cx).is_pending()
    }
}

impl Future for Driver {
    /// Why the session ended.
    type Output = String;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<String> {
        let this = self.get_mut();
        for _ in 0..ROUNDS {
            let mut moved = false;
            while let Poll::Ready(Some(command)) = this.commands.poll_recv(cx) {
                this.command(command);
                moved = true;
            }
            moved |= this.receive(cx);
            let now = this.now();
            this.engine.handle_timeout(now);
            moved |= this.events();
            moved |= this.transmit(cx);
            moved |= this.events();
            this.rates.note(Instant::now(), &this.engine);
            this.look_for_silence();
            if this.farewell_until.is_some() && this.has_left(cx) {
                return Poll::Ready(this.ended.take().unwrap_or_default());
            }
            if !moved && this.arm(cx) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

pub(crate) fn engine_config(role: Role, config: &SessionConfig) -> Config {
    let mut engine = Config::new(role);
    engine.scheduler.clone_from(&config.scheduler);
    engine.memory = config.split().engine;
    engine.stream_memory = config.stream_memory.min(engine.memory);
    engine.max_streams = config.max_streams;
    engine.session_timeout = config.session_timeout;
    engine
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionReset => "the connection was reset".to_owned(),
        io::ErrorKind::TimedOut => "the network gave no answer".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was cut".to_owned(),
        _ => error.to_string(),
    }
}

/// The session's side of making a [`Stream`]: both halves of its pipe.
fn stream_pair(
    id: StreamId,
    sender: &UnboundedSender<Command>,
    pools: &Arc<Pools>,
) -> (Local, Stream) {
    let pipe = Pipe::new(id, sender.clone(), Arc::clone(pools));
    (Local::new(Arc::clone(&pipe)), Stream::new(pipe))
}
