//! The task that owns a session: its engine, its carriers, and its ends of the streams' pipes.
//!
//! All work of one session happens in this task, sequentially. The data path therefore needs no
//! lock between paths, and every decision sees the newest state of all of them. Encryption happens
//! here, too: at 14 Gbit/s per core it does not limit a session.

mod bucket;
mod carriers;
mod commands;
mod datagrams;
mod events;
mod moving;
mod report;
mod status;
mod streams;
mod totals;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use sumlink_bond::opens::{Unconfirmed, Waiting};
use sumlink_bond::turns::{OVERDUE_PAUSE, ROUNDS};
use sumlink_bond::{Health, Known, Traffic};
use sumlink_engine::{ConfigError, Role, Session, StreamId};
use tokio::sync::broadcast;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Sleep;

use crate::api::config::{SessionConfig, engine_config};
use crate::api::status::SessionEvent;
use crate::api::stream::Stream;
use crate::carrier::keys::PublicKey;
use crate::carrier::{Carrier, Moved};
use crate::links::policy::Policies;
use crate::session::account::Account;
use crate::session::command::{Command, Opening};
use crate::session::former::Former;
use crate::session::pipe::Pools;
use crate::session::sources::{SourceHandle, Sources};

pub(crate) use carriers::CarrierNews;
use datagrams::Datagrams;
use moving::Moving;
pub(crate) use report::session_span;
pub(crate) use status::LinkStates;
use status::RateWindow;
use streams::Local;

/// A stream opened by the peer.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: StreamId,
    pub(crate) target: Vec<u8>,
    pub(crate) stream: Stream,
}

/// Receivers of notifications from a session's task.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) incoming: Option<UnboundedSender<Incoming>>,
    pub(crate) carriers: Option<UnboundedSender<CarrierNews>>,
    /// The receiver of `carriers` also needs the traffic of the links.
    pub(crate) wants_traffic: bool,
    pub(crate) events: broadcast::Sender<SessionEvent>,
    /// Gets the session's counters at its end.
    pub(crate) former: Former,
    pub(crate) links: LinkStates,
    /// The policies of the client's links; they count each link's traffic.
    pub(crate) policies: Option<Policies>,
    /// At a server, counts the client's traffic.
    pub(crate) account: Option<Arc<Account>>,
    /// Maximum number of paths of the session.
    pub(crate) max_paths: usize,
    /// The programs' sources of datagrams.
    pub(crate) sources: Arc<Sources>,
    /// Whether datagrams may use UDP at this side.
    pub(crate) udp: bool,
    /// Receives the sources that the peer opens; none if this side has no exit for datagrams.
    pub(crate) datagram_exit: Option<UnboundedSender<SourceHandle>>,
}

impl Listeners {
    /// Whether the bytes on the links are counted.
    fn counts_usage(&self) -> bool {
        self.policies.is_some() || self.account.is_some()
    }

    /// Counts bytes on a link.
    fn count(&self, link: &str, moved: Moved) {
        if let Some(policies) = &self.policies {
            policies.count(link, moved.sum());
        }
        if let Some(account) = &self.account {
            account.count(moved);
        }
    }
}

/// A session's task.
#[derive(Debug)]
pub(crate) struct Driver {
    engine: Session,
    role: Role,
    id: [u8; 16],
    peer: PublicKey,
    /// The client's name as configured at the server.
    client: Option<String>,
    /// When the session got its first path.
    began: Option<Instant>,
    scheduler: String,
    memory: u64,
    /// Time zero of the engine.
    epoch: Instant,
    carriers: Vec<Carrier>,
    /// The carrier that is served first; rotates.
    turn: usize,
    locals: HashMap<StreamId, Local>,
    /// Memory of the streams' pipes.
    pools: Arc<Pools>,
    /// Maximum number of paths that the peer may add.
    max_paths: usize,
    datagrams: Datagrams,
    datagram_policies: datagrams::Policies,
    /// Streams that wait until the peer allows more.
    waiting: Waiting<Opening>,
    /// Targets to which streams are opened without waiting for the peer.
    known: Known,
    /// Streams opened in this way, in order; may include confirmed ones.
    early_opens: Unconfirmed<StreamId>,
    commands: UnboundedReceiver<Command>,
    sender: UnboundedSender<Command>,
    listeners: Listeners,
    timer: Pin<Box<Sleep>>,
    rates: RateWindow,
    /// A program has received data or room for more, and waits to run on this thread.
    must_yield: bool,
    /// When carriers are next checked for silence.
    health: Health,
    /// Rate-limits the notification that bytes move.
    moving: Moving,
    /// The traffic of each link's carriers, if traffic is reported.
    traffic: Traffic<String>,
    /// Totals of ended paths, by link.
    totals: totals::Totals,
    /// When the links' usage was last counted.
    usage_counted: Instant,
    /// Bytes have moved since then.
    has_moved: bool,
    /// After the end: deadline for sending the last frames.
    close_deadline: Option<Instant>,
    /// Why the session ended.
    ended: Option<String>,
}

impl Driver {
    /// A session without carriers, and its command channel.
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
            datagrams: Datagrams::new(
                Arc::clone(&listeners.sources),
                listeners.datagram_exit.clone(),
            ),
            datagram_policies: datagrams::Policies::new(config),
            waiting: Waiting::default(),
            known: Known::default(),
            early_opens: Unconfirmed::default(),
            commands,
            sender: sender.clone(),
            listeners,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            rates: RateWindow::default(),
            must_yield: false,
            health: Health::new(Duration::ZERO),
            moving: Moving::new(now),
            traffic: Traffic::new(Duration::ZERO),
            totals: totals::Totals::default(),
            usage_counted: now,
            has_moved: false,
            close_deadline: None,
            ended: None,
        };
        Ok((driver, sender))
    }

    fn now(&self) -> sumlink_engine::Instant {
        self.epoch.elapsed()
    }

    /// After the end: whether the last frames have been sent or their deadline has passed.
    fn has_left(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(until) = self.close_deadline else {
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

    /// Arms the timer for the next due event; false if one is already due.
    fn arm(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.now();
        // Due data that could not be sent waits for a carrier, which wakes this task. The timer
        // covers the case that a path is no longer the best one and its carrier stays full.
        let engine = self.engine.poll_timeout().map(|at| match at > now {
            true => at,
            false => now + OVERDUE_PAUSE,
        });
        let mut at = self.epoch + engine.unwrap_or(now + Duration::from_secs(3600));
        if !self.carriers.is_empty() && self.listeners.carriers.is_some() {
            at = at.min(self.epoch + self.health.due());
            if let Some(due) = self.moving.due() {
                at = at.min(due);
            }
        }
        let due = self.unconfirmed_due().into_iter().chain(self.waiting_due());
        if let Some(due) = due.min() {
            at = at.min(self.epoch + due);
        }
        let due = self.datagrams.due().into_iter().chain(self.rest_due());
        if let Some(due) = due.min() {
            at = at.min(due);
        }
        if let Some(due) = self.usage_due() {
            at = at.min(due);
        }
        if let Some(until) = self.close_deadline {
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
            moved |= this.take_datagrams(cx);
            moved |= this.receive(cx);
            moved |= this.receive_datagrams(cx);
            this.sample(cx);
            this.sample_datagrams();
            let now = this.now();
            this.engine.handle_timeout(now);
            moved |= this.events();
            moved |= this.deliver_datagrams();
            moved |= this.transmit_datagrams(cx);
            moved |= this.transmit(cx);
            moved |= this.events();
            this.end_unconfirmed(this.now());
            this.refuse_waiting();
            this.rates.note(Instant::now(), &this.engine);
            this.look_for_silence();
            this.notify_moving(moved && !this.locals.is_empty());
            this.notify_traffic();
            this.notify_datagrams();
            this.has_moved |= moved && this.is_in_use();
            this.count_usage();
            if this.close_deadline.is_some() && this.has_left(cx) {
                return Poll::Ready(this.ended.clone().unwrap_or_default());
            }
            if !moved && this.arm(cx) {
                this.carriers.iter_mut().for_each(Carrier::acknowledge);
                return Poll::Pending;
            }
            // Tasks woken from here run on this thread, after this task. Otherwise a reading
            // program would get one chunk for all the rounds, and a writing program would let the
            // engine run dry.
            if std::mem::take(&mut this.must_yield) {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
