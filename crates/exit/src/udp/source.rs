//! One source: its sockets, and the datagrams between them and the client.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Ready;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::Ended;
use super::client::{Client, Direction, Place, count};
use super::echo::MIN_PAYLOAD;
use super::family::{Families, Kind};
use super::inside::Inside;
use super::names::{Named, choose};
use super::queries::Queries;
use super::remotes::Outbound;
use crate::datagram::{DatagramSocket, FlowFailure, MAX_PAYLOAD, Received};
use crate::dial::resolve;
use crate::resolver::Resolvers;
use crate::target::{Host, OwnService, Target};
use crate::udp_io::SEND_PAUSE;

/// Datagrams taken from the client's side at once.
const BATCH: usize = 128;

/// Longest name lookup. It exceeds the 5 s after which the system's resolver repeats its query.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a refused source may wait for its first datagrams.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);

/// Serves a source until it ends.
pub(super) async fn serve(
    client: &Client,
    resolvers: Option<&Resolvers>,
    mut socket: impl DatagramSocket,
) -> Ended {
    let Some(place) = client.place(Instant::now()) else {
        let mut first = Vec::new();
        let received = socket.receive(&mut first, BATCH);
        // Without a datagram there is no remote to report about.
        let _ = tokio::time::timeout(REFUSAL_PATIENCE, received).await;
        for (target, _) in first {
            socket.report(&target, FlowFailure::LimitReached);
        }
        return Ended::Refused;
    };
    Source::new(client, resolvers, place, socket).run().await
}

/// A source with its sockets.
struct Source<'a, S> {
    families: Families,
    /// Datagrams for the sockets.
    outgoing: VecDeque<(SocketAddr, Bytes)>,
    /// Bytes of memory charged for them while a send buffer is full.
    held: usize,
    /// When a full send buffer is tried again.
    retry: Option<Instant>,
    look_ups: JoinSet<(Target, Result<SocketAddr, FlowFailure>)>,
    queries: Queries<'a>,
    inside: Inside<'a, S>,
}

/// Why a source wakes up.
enum Event {
    FromClient(usize),
    FromNetwork(Kind, Ready),
    Resolved(Target, Result<SocketAddr, FlowFailure>),
    /// The result of a query to the server's resolvers.
    Answered(Target, Result<Bytes, FlowFailure>),
    SendAgain,
    Timer,
    Replaced,
}

impl<'a, S: DatagramSocket> Source<'a, S> {
    fn new(
        client: &'a Client,
        resolvers: Option<&'a Resolvers>,
        place: Place<'a>,
        socket: S,
    ) -> Self {
        Self {
            families: Families::default(),
            outgoing: VecDeque::new(),
            held: 0,
            retry: None,
            look_ups: JoinSet::new(),
            queries: Queries::new(resolvers),
            inside: Inside::new(client, place, socket),
        }
    }

    async fn run(mut self) -> Ended {
        let mut inbox = Vec::with_capacity(BATCH);
        let timer = sleep_until(self.inside.expiry.deadline());
        tokio::pin!(timer);
        loop {
            // Until then, the client's datagrams wait in the session, which drops the older ones.
            let retry = self.retry;
            let event = tokio::select! {
                received = self.inside.socket.receive(&mut inbox, BATCH), if retry.is_none() => {
                    Event::FromClient(received)
                }
                (kind, ready) = self.families.arrived() => Event::FromNetwork(kind, ready),
                Some(Ok((target, result))) = self.look_ups.join_next() => {
                    Event::Resolved(target, result)
                }
                (target, result) = self.queries.next() => Event::Answered(target, result),
                () = retried(retry), if retry.is_some() => Event::SendAgain,
                () = &mut timer => Event::Timer,
                () = self.inside.place.lost() => Event::Replaced,
            };
            let now = Instant::now();
            self.inside.update_policy();
            match event {
                Event::FromClient(0) => return Ended::Closed,
                Event::FromClient(_) => {
                    for (target, event) in inbox.drain(..) {
                        // The client reports nothing about its programs.
                        if let Received::Datagram(payload) = event {
                            self.outbound(&target, payload, now);
                        }
                    }
                    self.flush(now);
                }
                Event::FromNetwork(kind, ready) => self.inbound(kind, ready, now),
                Event::Resolved(target, result) => {
                    self.resolved(&target, result, now);
                    self.flush(now);
                }
                Event::Answered(target, result) => self.inside.answered(&target, result, now),
                Event::SendAgain => self.flush(now),
                Event::Timer if now >= self.inside.expiry.deadline() => return Ended::Idle,
                Event::Timer => timer.as_mut().reset(self.inside.expiry.deadline()),
                Event::Replaced => return Ended::Replaced,
            }
            // A deadline may also have moved to an earlier time: a DNS server has answered.
            if self.inside.expiry.deadline() < timer.deadline() {
                timer.as_mut().reset(self.inside.expiry.deadline());
            }
            if self.inside.is_closed {
                return Ended::Closed;
            }
        }
    }

    /// Queues a datagram from the client.
    fn outbound(&mut self, target: &Target, payload: Bytes, now: Instant) {
        let inside = &mut self.inside;
        if payload.len() > MAX_PAYLOAD {
            inside.report(target, FlowFailure::TooBig { mtu: 0 }, now);
            return;
        }
        if target.is_echo() && payload.len() < MIN_PAYLOAD {
            return count(&inside.client.counters.unsent);
        }
        if !inside
            .client
            .within_rate(Direction::ToNetwork, payload.len(), now)
        {
            return;
        }
        match target.own_service() {
            None => {}
            Some(OwnService::Resolver) => return self.ask(target, &payload, now),
            Some(_) => return inside.report(target, FlowFailure::NameNotResolved, now),
        }
        match &target.host {
            Host::Ip(ip) => {
                let address = SocketAddr::new(ip.to_canonical(), target.port);
                self.send(address, target, payload, now);
            }
            Host::Name(_) => {
                match inside
                    .names
                    .outbound(target, payload, &mut inside.account, now)
                {
                    Named::Resolved(address, payload) => self.send(address, target, payload, now),
                    Named::LookUp => self.look_up(target, now),
                    Named::Kept => {}
                    Named::Full => inside.over_limit(target, now),
                }
            }
        }
    }

    /// Passes a query to the server's resolvers.
    fn ask(&mut self, target: &Target, query: &[u8], now: Instant) {
        let inside = &mut self.inside;
        inside.expiry.sent(target.port, now);
        inside.place.touch(now);
        match self.queries.ask(target, query, inside.client) {
            Ok(()) => count(&inside.client.counters.sent),
            Err(FlowFailure::LimitReached) => inside.over_limit(target, now),
            Err(failure) => inside.report(target, failure, now),
        }
    }

    /// Queues a datagram for an address, if the policy allows it.
    fn send(&mut self, address: SocketAddr, target: &Target, payload: Bytes, now: Instant) {
        let inside = &mut self.inside;
        let (policy, account) = (&inside.policy, &mut inside.account);
        match inside
            .remotes
            .outbound(address, target, policy, account, now)
        {
            Outbound::Allowed => self.outgoing.push_back((address, payload)),
            Outbound::Refused { report } => {
                count(&inside.client.counters.refused);
                if matches!(target.host, Host::Name(_)) {
                    inside.names.refused(target, now);
                }
                if report {
                    inside.report(target, FlowFailure::NotAllowed, now);
                }
            }
            Outbound::Full => inside.over_limit(target, now),
        }
    }

    fn look_up(&mut self, target: &Target, now: Instant) {
        let target = target.clone();
        let look_ups = Arc::clone(&self.inside.client.look_ups);
        let policy = Arc::clone(&self.inside.policy);
        self.look_ups.spawn(async move {
            let addresses = resolve(&target, now + LOOK_UP_TIMEOUT, look_ups).await;
            let address = addresses
                .map_err(FlowFailure::from)
                .and_then(|addresses| choose(&target, addresses, &policy));
            (target, address)
        });
    }

    fn resolved(&mut self, target: &Target, result: Result<SocketAddr, FlowFailure>, now: Instant) {
        let inside = &mut self.inside;
        let address = result.ok();
        let waiting = inside
            .names
            .resolved(target, address, &mut inside.account, now);
        if let Err(failure) = result {
            if failure == FlowFailure::NotAllowed {
                count(&inside.client.counters.refused);
            }
            inside.report(target, failure, now);
        }
        for payload in waiting {
            if let Some(address) = address {
                self.send(address, target, payload, now);
            }
        }
    }

    /// Sends the queued datagrams. Those behind a full send buffer are kept if the client has
    /// memory left for it.
    fn flush(&mut self, now: Instant) {
        self.inside.account.release(std::mem::take(&mut self.held));
        // Datagrams of one remote side by side take fewer system calls. Their order stays.
        let queued = self.outgoing.make_contiguous();
        if queued.windows(2).any(|pair| pair[0].0 != pair[1].0) {
            queued.sort_by_key(|(remote, _)| *remote);
        }
        self.send_queued(now);
        let held = self.outgoing.iter().map(|(_, payload)| payload.len()).sum();
        if self.inside.account.charge(held) {
            self.held = held;
            self.retry = (!self.outgoing.is_empty()).then(|| now + SEND_PAUSE);
        } else {
            self.retry = None;
            for _ in self.outgoing.drain(..) {
                count(&self.inside.client.counters.over_limit);
            }
        }
    }

    /// Sends the queued datagrams, up to a full send buffer.
    fn send_queued(&mut self, now: Instant) {
        while let Some((first, _)) = self.outgoing.front() {
            let kind = Kind::of(first);
            let (queued, _) = self.outgoing.as_slices();
            let same = queued.iter().take_while(|(to, _)| Kind::of(to) == kind);
            let count_same = same.count();
            let queued = &queued[..count_same];
            let mut failures = Vec::new();
            let handled = match self.families.open(kind, self.inside.client, now) {
                Ok(io) => io.send(queued, |index, error| failures.push((index, error))),
                Err(failure) => {
                    for (remote, _) in self.outgoing.drain(..count_same) {
                        self.inside.unsent(remote, failure, now);
                    }
                    continue;
                }
            };
            let is_full = handled < count_same;
            let mut failures = failures.into_iter().peekable();
            for (index, (remote, _)) in self.outgoing.drain(..handled).enumerate() {
                match failures.next_if(|(failed, _)| *failed == index) {
                    Some((_, error)) => {
                        debug!(%remote, %error, "cannot send a datagram");
                        match FlowFailure::from_send(&error) {
                            Some(failure) => self.inside.unsent(remote, failure, now),
                            None => count(&self.inside.client.counters.unsent),
                        }
                    }
                    None => {
                        count(&self.inside.client.counters.sent);
                        self.inside.expiry.sent(remote.port(), now);
                    }
                }
            }
            self.inside.place.touch(now);
            if is_full {
                break;
            }
        }
    }

    /// Takes datagrams and errors from a socket.
    fn inbound(&mut self, kind: Kind, ready: Ready, now: Instant) {
        let Some(io) = self.families.io(kind) else {
            return;
        };
        if ready.is_error() {
            io.take_errors(|error| self.inside.error(error, now));
        }
        let received = io.try_receive(|arrival| self.inside.arrived(arrival, now));
        if let Err(error) = received
            && error.kind() != io::ErrorKind::WouldBlock
        {
            debug!(%error, "cannot receive datagrams");
        }
    }
}

/// Waits until a full send buffer is tried again.
async fn retried(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
