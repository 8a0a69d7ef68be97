//! A source of datagrams that may reach its remotes over different ways.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::select_all;
use sumlink_exit::datagram::{DatagramSocket, FlowFailure, Received, SendError};
use sumlink_exit::recent::Recent;
use sumlink_proxy::{Class, DatagramOpener, Origin, Source, Target};
use tokio::time::Instant;

use super::local::LinkOpener;
use super::{Shared, Way};
use crate::rules::Protocol;

/// Most remotes of a source with a remembered way.
const REMOTES: usize = 1024;

/// Failures that wait to be received. Further ones are dropped.
const FAILURES: usize = 64;

/// Idle time after which the source's exit over one way is closed (RFC 4787, REQ-5).
const IDLE: Duration = Duration::from_secs(300);

/// Silence after which a flow that took a link because the bond was down may change its way. A call
/// stays where it is, and a tunnel with keepalives returns to the bond.
const RETURN_AFTER: Duration = Duration::from_secs(10);

/// Interval between checks of the link of a flow over the best link.
const LOOK: Duration = Duration::from_secs(1);

/// Silence after which an exit over a link that reports failures is opened again.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// One source of a [`Router`](super::Router). Each remote has its way, decided by its first
/// datagram; the source has one socket for each way, so that a remote sees the same address of it
/// as the others on that way (RFC 4787, REQ-1).
///
/// The exits are opened, and blocked datagrams answered, while a caller waits for
/// [`DatagramSocket::receive`].
pub struct RouterSocket<O: DatagramOpener> {
    shared: Arc<Shared<O>>,
    origin: Option<Origin>,
    class: Option<Class>,
    /// Never contended: receiving has the socket for itself.
    exits: Mutex<Exits<O>>,
}

struct Exits<O: DatagramOpener> {
    routes: Recent<Target, Route>,
    bond: Option<Source<O>>,
    links: Vec<LinkExit>,
    failures: VecDeque<(Target, Received)>,
    /// The exit that is polled first next time.
    turn: usize,
}

/// The source's exit over one link.
struct LinkExit {
    name: String,
    source: Source<LinkOpener>,
    /// When something was last received over it, or it was opened.
    heard: Instant,
}

/// The way of a remote.
#[derive(Debug)]
struct Route {
    way: Way,
    /// The link, unless the way is the bond.
    link: Option<String>,
    /// The generation of the rules that have decided.
    generation: u64,
    /// The last datagram in either direction.
    last: Instant,
    /// When the link was last seen to be usable.
    looked: Instant,
}

impl<O: DatagramOpener> RouterSocket<O> {
    pub(super) fn new(
        shared: Arc<Shared<O>>,
        origin: Option<Origin>,
        class: Option<Class>,
    ) -> Self {
        Self {
            shared,
            origin,
            class,
            exits: Mutex::default(),
        }
    }

    /// Decides anew about a remote, if its way is unknown or must change.
    fn update(&self, exits: &mut Exits<O>, remote: &Target, now: Instant) {
        let generation = self.shared.parts.rules.generation();
        let known = exits.routes.touch(remote);
        if let Some(route) = known
            && route.generation == generation
            && self.holds(route, now)
        {
            route.last = now;
            return;
        }
        let protocol = match remote.port {
            0 => Protocol::Icmp,
            _ => Protocol::Udp,
        };
        let way = self.shared.way(protocol, remote, self.origin);
        let link = match &way {
            Way::Bond | Way::Blocked => None,
            Way::Link(name) => Some(name.clone()),
            Way::Direct { .. } => self.shared.parts.local.links().into_iter().next(),
        };
        let before = exits.routes.get(remote);
        if before.is_none_or(|before| before.way != way) {
            self.shared.counters.flow(&way);
        }
        while exits.routes.len() >= REMOTES && exits.routes.get(remote).is_none() {
            exits.routes.pop_oldest();
        }
        let route = Route {
            way,
            link,
            generation,
            last: now,
            looked: now,
        };
        exits.routes.insert(remote.clone(), route);
    }

    /// Whether a flow keeps its way, although the bond or a link may have changed.
    fn holds(&self, route: &mut Route, now: Instant) -> bool {
        match route.way {
            Way::Bond => !self.shared.is_fallback(),
            Way::Link(_) | Way::Blocked => true,
            Way::Direct { is_fallback } => {
                let silence = now.saturating_duration_since(route.last);
                if is_fallback && silence >= RETURN_AFTER {
                    return false;
                }
                if now.saturating_duration_since(route.looked) < LOOK {
                    return true;
                }
                route.looked = now;
                let links = self.shared.parts.local.links();
                match &route.link {
                    Some(link) => links.contains(link),
                    None => links.is_empty(),
                }
            }
        }
    }
}

impl<O: DatagramOpener> DatagramSocket for RouterSocket<O> {
    fn send(&self, remote: &Target, payload: Bytes, class: Option<Class>) -> Result<(), SendError> {
        let now = Instant::now();
        let mut exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        let exits = &mut *exits;
        self.update(exits, remote, now);
        let Some(route) = exits.routes.get(remote) else {
            return Ok(());
        };
        let sent = match (&route.way, &route.link) {
            (Way::Bond, _) => {
                let bond = exits.bond.get_or_insert_with(|| {
                    let opener = self.shared.parts.bond.clone();
                    Source::new(opener, self.origin, self.class, IDLE)
                });
                bond.send(remote, payload, class)
            }
            (Way::Blocked, _) => {
                exits.fail(remote, FlowFailure::Filtered);
                Ok(())
            }
            (_, None) => {
                exits.fail(remote, FlowFailure::NetworkUnreachable);
                Ok(())
            }
            (_, Some(link)) => {
                let known = exits.links.iter().position(|exit| exit.name == *link);
                let index = known.unwrap_or_else(|| {
                    let opener = self.shared.parts.local.over(link);
                    exits.links.push(LinkExit {
                        name: link.clone(),
                        source: Source::new(opener, self.origin, self.class, IDLE),
                        heard: now,
                    });
                    exits.links.len() - 1
                });
                match exits.links.get_mut(index) {
                    Some(exit) => exit.source.send(remote, payload, class),
                    None => Ok(()),
                }
            }
        };
        match sent {
            // This exit has ended, but not the source.
            Err(SendError::Closed) => Ok(()),
            sent => sent,
        }
    }

    async fn receive(&mut self, out: &mut Vec<(Target, Received)>, limit: usize) -> usize {
        let exits = self.exits.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !exits.failures.is_empty() {
            let count = exits.failures.len().min(limit);
            out.extend(exits.failures.drain(..count));
            return count;
        }
        loop {
            let start = out.len();
            // 0 is the end of an exit, which is opened again when it is needed.
            let count = exits.receive(out, limit).await;
            if count > 0 {
                exits.note(&out[start..], Instant::now());
                return count;
            }
        }
    }

    /// Entries do not report failures of programs.
    fn report(&self, _: &Target, _: FlowFailure) {}
}

impl<O: DatagramOpener> Exits<O> {
    fn fail(&mut self, remote: &Target, failure: FlowFailure) {
        if self.failures.len() < FAILURES {
            let failure = Received::Failed(failure);
            self.failures.push_back((remote.clone(), failure));
        }
    }

    /// Waits for one of the exits. Cancel safe, as each of them is.
    async fn receive(&mut self, out: &mut Vec<(Target, Received)>, limit: usize) -> usize {
        match (&mut self.bond, self.links.as_mut_slice()) {
            (None, []) => pending().await,
            (Some(bond), []) => bond.receive(out, limit).await,
            (None, [link]) => link.source.receive(out, limit).await,
            (bond, links) => {
                let mut waiting: Vec<_> = Vec::with_capacity(links.len() + 1);
                if let Some(bond) = bond {
                    waiting.push(boxed(bond, limit));
                }
                for link in links {
                    waiting.push(boxed(&mut link.source, limit));
                }
                // A busy exit does not keep the others waiting.
                self.turn = self.turn.wrapping_add(1);
                let first = self.turn % waiting.len();
                waiting.rotate_left(first);
                let (mut events, ..) = select_all(waiting).await;
                let count = events.len();
                out.append(&mut events);
                count
            }
        }
    }

    /// Updates the remotes of received events.
    fn note(&mut self, events: &[(Target, Received)], now: Instant) {
        for (remote, event) in events {
            let Some(route) = self.routes.touch(remote) else {
                continue;
            };
            let mut links = self.links.iter();
            let link = links.position(|exit| Some(&exit.name) == route.link.as_ref());
            match event {
                Received::Datagram(_) => {
                    route.last = now;
                    if let Some(exit) = link.and_then(|index| self.links.get_mut(index)) {
                        exit.heard = now;
                    }
                }
                Received::Failed(
                    FlowFailure::HostUnreachable
                    | FlowFailure::NetworkUnreachable
                    | FlowFailure::Other,
                ) => {
                    // The best link may be another one now.
                    if matches!(route.way, Way::Direct { .. }) {
                        self.routes.remove(remote);
                    }
                    if let Some(index) = link {
                        self.reopen(index, now);
                    }
                }
                Received::Failed(_) => {}
            }
        }
    }

    /// Closes a silent exit over a link, so that the next datagram opens another one: a socket is
    /// bound to an interface, and not to another one that later has the same name.
    fn reopen(&mut self, index: usize, now: Instant) {
        let exit = self.links.get(index);
        let is_silent = |exit: &LinkExit| now.saturating_duration_since(exit.heard) >= SILENT_AFTER;
        if exit.is_some_and(is_silent) {
            self.links.swap_remove(index);
        }
    }
}

type Receiving<'a> = Pin<Box<dyn Future<Output = Vec<(Target, Received)>> + Send + 'a>>;

/// Receives into a new vector.
fn boxed<D: DatagramOpener>(source: &mut Source<D>, limit: usize) -> Receiving<'_> {
    Box::pin(async move {
        let mut events = Vec::new();
        source.receive(&mut events, limit).await;
        events
    })
}

impl<O: DatagramOpener> Default for Exits<O> {
    fn default() -> Self {
        Self {
            routes: Recent::default(),
            bond: None,
            links: Vec::new(),
            failures: VecDeque::new(),
            turn: 0,
        }
    }
}

impl<O: DatagramOpener> fmt::Debug for RouterSocket<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouterSocket")
            .field("origin", &self.origin)
            .field("class", &self.class)
            .finish_non_exhaustive()
    }
}
