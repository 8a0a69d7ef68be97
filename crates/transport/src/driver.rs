//! The task that owns a session: its engine, its carriers, and its ends of the streams' pipes.
//!
//! Everything of one session happens here, one thing after the other, so the data path needs no lock between paths
//! and every decision sees the newest state of all of them. Encryption is done here, too: at 14 Gbit/s a core it is
//! not what limits a session.

mod carriers;
mod commands;
mod events;
mod known;
mod moving;
mod report;
mod status;
mod streams;
mod totals;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use sumlink_engine::{Config, ConfigError, Role, Session, StreamId};
use tokio::sync::broadcast;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Sleep;

use crate::carrier::Carrier;
use crate::config::SessionConfig;
use crate::keys::PublicKey;
use crate::pipe::Pools;
use crate::policy::Policies;
use crate::status::SessionEvent;
use crate::stream::Stream;

use carriers::SILENCE;
pub(crate) use carriers::{CarrierNews, LinkTraffic};
pub(crate) use commands::{Command, OpenReply, Opening};
use known::Known;
use moving::Moving;
pub(crate) use report::session_span;
pub(crate) use status::LinkStates;
use status::RateWindow;
use streams::Local;

/// A stream that the peer opened.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: StreamId,
    pub(crate) target: Vec<u8>,
    pub(crate) stream: Stream,
}

/// Who learns what from a session's task.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) incoming: Option<UnboundedSender<Incoming>>,
    pub(crate) carriers: Option<UnboundedSender<CarrierNews>>,
    /// That one also wants to know what the links move.
    pub(crate) wants_traffic: bool,
    pub(crate) events: broadcast::Sender<SessionEvent>,
    pub(crate) links: LinkStates,
    /// What the client's links may do; they are told what each moves.
    pub(crate) policies: Option<Policies>,
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
    /// The name that the server has for its client.
    client: Option<String>,
    /// When the session got its first path.
    began: Option<Instant>,
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
    waiting: VecDeque<Opening>,
    /// The peer has allowed a stream: before, it has not yet said how many it allows.
    has_opened: bool,
    /// Targets to which a stream need not wait for the peer's word.
    known: Known,
    /// Streams that did not, in the order in which they were opened; confirmed ones may be among them.
    early_opens: VecDeque<(Instant, StreamId)>,
    commands: UnboundedReceiver<Command>,
    sender: UnboundedSender<Command>,
    listeners: Listeners,
    timer: Pin<Box<Sleep>>,
    rates: RateWindow,
    /// A program has been given bytes or room for more, and waits for its turn on this thread.
    owes_turn: bool,
    /// Frames on their way from the engine to a carrier.
    frames: Vec<u8>,
    /// When carriers are next looked at for silence.
    silence_check: Instant,
    /// When it is told that bytes move.
    moving: Moving,
    /// What carriers had moved that have ended, by link, where traffic is told of.
    ended_bytes: BTreeMap<String, u64>,
    /// What paths had carried that have ended, by link.
    totals: totals::Totals,
    /// When the last account of traffic was given.
    traffic_told: Instant,
    /// When what the links moved was last counted.
    usage_counted: Instant,
    /// After the end: until when the last frames may leave.
    farewell_until: Option<Instant>,
    /// Why the session ended.
    ended: Option<String>,
}

/// How long a stream waits for a session and for its target.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Rounds in one go, before other tasks of the runtime get theirs.
const ROUNDS: usize = 16;

/// What is due and cannot be sent is tried again after this time.
const OVERDUE_PAUSE: Duration = Duration::from_millis(5);

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
            client: None,
            began: None,
            scheduler: config.schedulers(),
            memory: config.memory,
            epoch: now,
            carriers: Vec::new(),
            turn: 0,
            locals: HashMap::new(),
            pools: Pools::new(config.split().pool),
            max_paths: listeners.max_paths,
            waiting: VecDeque::new(),
            has_opened: false,
            known: Known::default(),
            early_opens: VecDeque::new(),
            commands,
            sender: sender.clone(),
            listeners,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            rates: RateWindow::default(),
            owes_turn: false,
            frames: Vec::with_capacity(128 * 1024),
            silence_check: now + SILENCE,
            moving: Moving::new(now),
            ended_bytes: BTreeMap::new(),
            totals: totals::Totals::default(),
            traffic_told: now,
            usage_counted: now,
            farewell_until: None,
            ended: None,
        };
        Ok((driver, sender))
    }

    fn now(&self) -> sumlink_engine::Instant {
        self.epoch.elapsed()
    }

    /// After the end: whether all has been said that should be.
    fn has_left(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(until) = self.farewell_until else {
            return false;
        };
        let mut unsaid = false;
        for carrier in &mut self.carriers {
            let has_left = self.engine.has_left(carrier.id);
            if has_left {
                carrier.send_end();
            }
            unsaid |= !has_left | carrier.poll_writable(cx).is_pending();
        }
        !unsaid || self.carriers.is_empty() || Instant::now() >= until
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
            if let Some(due) = self.moving.due() {
                at = at.min(due);
            }
        }
        let due = self.unconfirmed_due().into_iter().chain(self.waiting_due());
        if let Some(due) = due.min() {
            at = at.min(due);
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
            this.sample(cx);
            let now = this.now();
            this.engine.handle_timeout(now);
            moved |= this.events();
            moved |= this.transmit(cx);
            moved |= this.events();
            this.end_unconfirmed(Instant::now());
            this.refuse_waiting();
            this.rates.note(Instant::now(), &this.engine);
            this.look_for_silence();
            this.tell_moving(moved && !this.locals.is_empty());
            this.tell_traffic();
            this.count_usage();
            if this.farewell_until.is_some() && this.has_left(cx) {
                return Poll::Ready(this.ended.clone().unwrap_or_default());
            }
            if !moved && this.arm(cx) {
                this.carriers.iter_mut().for_each(Carrier::acknowledge);
                return Poll::Pending;
            }
            // Whoever is woken from here runs on this thread, after this task: a program that reads would get one
            // chunk for all the rounds, and one that writes would have the engine run dry.
            if std::mem::take(&mut this.owes_turn) {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

pub(crate) fn engine_config(role: Role, config: &SessionConfig) -> Config {
    let mut engine = Config::new(role);
    engine.scheduler.clone_from(&config.scheduler);
    engine.class_schedulers.clone_from(&config.class_schedulers);
    engine.own_schedulers.clone_from(&config.own_schedulers);
    engine.memory = config.split().engine;
    engine.stream_memory = config.stream_memory.min(engine.memory);
    engine.max_streams = config.max_streams;
    engine.session_timeout = config.session_timeout;
    engine.redundancy = config.redundancy;
    engine.fbdt.clone_from(&config.fbdt);
    engine.selector.clone_from(&config.selector);
    engine
}

#[cfg(test)]
mod tests {
    use sumlink_engine::Redundancy;
    use sumlink_engine::scheduler::fbdt::Coupling;

    use super::*;

    #[test]
    fn the_engine_hears_what_a_session_is_told() {
        let mut config = SessionConfig {
            redundancy: Redundancy::NONE,
            ..SessionConfig::default()
        };
        config.fbdt.coupling = Coupling::Fair;
        let engine = engine_config(Role::Server, &config);
        assert_eq!(engine.redundancy, Redundancy::NONE);
        assert_eq!(engine.fbdt, config.fbdt);
        config.fbdt.windows[0].least = 1;
        assert_eq!(config.check(), Err(ConfigError::Window));
    }
}
