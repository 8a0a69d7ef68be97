//! Sources of datagrams and of echo requests: one for each address that sends.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use sumlink_exit::datagram::{Received, SendError};
use sumlink_exit::recent::Recent;
use sumlink_proxy::{Client, DatagramOpener, Origin, Place, Source, SourceLimit, Target};
use sumlink_transport::target::Host;
use tokio::task::JoinSet;
use tracing::{debug, error};

use crate::mailbox::{Item, Receiver, Sender, mailbox};
use crate::packet::build;
use crate::packet::header::header_len;
use crate::packet::icmp::{MAX_QUOTE, Problem};
use crate::reporter::Reporter;
use crate::sink::Sink;
use crate::stats::Counters;

/// Events taken at once.
const BATCH: usize = 64;

/// Most remotes of a source for which the last packet is kept, to quote it in an error.
const QUOTED: usize = 64;

/// The key of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A UDP socket.
    Udp(SocketAddr),
    /// A host, and the id of its echo requests.
    Echo(IpAddr, u16),
}

impl Key {
    /// The address as an [`Origin`] has it: with the id in place of a port.
    pub(crate) fn address(&self) -> SocketAddr {
        match *self {
            Self::Udp(address) => address,
            Self::Echo(address, id) => SocketAddr::new(address, id),
        }
    }
}

/// The state that all sources of an entry share.
pub(crate) struct Shared<S> {
    pub(crate) sink: Arc<S>,
    pub(crate) reporter: Reporter<S>,
    pub(crate) counters: Arc<Counters>,
}

/// The sources of an entry.
pub(crate) struct Sources<D, S> {
    opener: D,
    limit: SourceLimit,
    shared: Arc<Shared<S>>,
    open: HashMap<Key, Open>,
    /// Each returns the key and the number of its source.
    tasks: JoinSet<(Key, u64)>,
    next: u64,
}

struct Open {
    number: u64,
    sender: Sender,
}

impl<D: DatagramOpener, S: Sink> Sources<D, S> {
    pub(crate) fn new(opener: D, limit: SourceLimit, shared: Arc<Shared<S>>) -> Self {
        Self {
            opener,
            limit,
            shared,
            open: HashMap::new(),
            tasks: JoinSet::new(),
            next: 0,
        }
    }

    /// Sends a datagram from a source, which is opened if it is new. `origin` is called then.
    pub(crate) fn send(&mut self, key: Key, item: Item, origin: impl FnOnce(SocketAddr) -> Origin) {
        let counters = &self.shared.counters;
        let mut item = item;
        if let Some(open) = self.open.get(&key) {
            match open.sender.push(item) {
                Ok(dropped) => return counters.dropped.queue.add(dropped),
                // Its source has just ended, or lost its place.
                Err(unsent) => item = unsent,
            }
        }
        let origin = origin(key.address());
        let Some(place) = self.limit.place(Client::from(origin)) else {
            self.shared.counters.dropped.limit.increment();
            return;
        };
        let (opener, idle) = (self.opener.clone(), self.limit.idle());
        let source = Source::new(opener, Some(origin), item.class, idle);
        let (sender, receiver) = mailbox();
        // A new queue has room.
        let _ = sender.push(item);
        let number = self.next;
        self.next += 1;
        self.open.insert(key, Open { number, sender });
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let _counted = Counted::new(&shared.counters, key);
            run(&shared, key, source, receiver, place).await;
            (key, number)
        });
    }

    /// Waits until a source has ended, and forgets it. Waits forever if there is none. Cancel safe.
    pub(crate) async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok((key, number))) => {
                if self
                    .open
                    .get(&key)
                    .is_some_and(|open| open.number == number)
                {
                    self.open.remove(&key);
                }
            }
            Some(Err(error)) => {
                error!(
                    %error,
                    "internal error: one source of datagrams was closed; please report it"
                );
            }
            None => std::future::pending().await,
        }
    }
}

/// Counts a source while it exists.
struct Counted<'a> {
    counters: &'a Counters,
    key: Key,
}

impl<'a> Counted<'a> {
    fn new(counters: &'a Counters, key: Key) -> Self {
        match key {
            Key::Udp(_) => counters.traffic.sources.increment(),
            Key::Echo(..) => counters.traffic.echo_sources.increment(),
        }
        Self { counters, key }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        match self.key {
            Key::Udp(_) => self.counters.traffic.sources.decrement(),
            Key::Echo(..) => self.counters.traffic.echo_sources.decrement(),
        }
    }
}

/// The last packet to a remote.
struct Sent {
    quote: Vec<u8>,
    packet_len: usize,
    is_joined: bool,
}

/// Passes the datagrams of a source on until it ends or loses its place.
async fn run<D: DatagramOpener, S: Sink>(
    shared: &Shared<S>,
    key: Key,
    mut source: Source<D>,
    receiver: Receiver,
    mut place: Place,
) {
    let mut items = VecDeque::new();
    let mut events = Vec::with_capacity(BATCH);
    let mut sent = Recent::default();
    loop {
        tokio::select! {
            () = receiver.take(&mut items) => {
                if items.is_empty() {
                    return;
                }
                place.used();
                for item in items.drain(..) {
                    send(shared, &mut source, &mut sent, item);
                }
            }
            count = source.receive(&mut events, BATCH) => {
                if count == 0 {
                    return;
                }
                place.used();
                deliver(shared, key, &mut sent, &mut events);
            }
            () = place.lost() => {
                debug!(?key, "a source of datagrams makes room");
                return;
            }
        }
    }
}

fn send<D: DatagramOpener, S: Sink>(
    shared: &Shared<S>,
    source: &mut Source<D>,
    sent: &mut Recent<SocketAddr, Sent>,
    item: Item,
) {
    let remote = item.remote;
    note(sent, &item);
    let target = match remote.port() {
        0 => Target::echo(Host::Ip(remote.ip())),
        _ => Target::from(remote),
    };
    match source.send(&target, item.payload, item.class) {
        Ok(()) => {}
        Err(SendError::TooBig { most }) => {
            shared.counters.dropped.too_big.increment();
            let headers = header_len(remote.ip()) + build::UDP_HEADER;
            let mtu = u32::try_from(most.saturating_add(headers)).unwrap_or(u32::MAX);
            if let Some(sent) = sent.get(&remote) {
                report(shared, Problem::TooBig { mtu }, remote, sent);
            }
        }
        Err(error) => {
            debug!(%remote, %error, "a datagram is dropped");
            shared.counters.dropped.unsent.increment();
        }
    }
}

fn note(sent: &mut Recent<SocketAddr, Sent>, item: &Item) {
    let quote = &item.quote[..item.quote.len().min(MAX_QUOTE)];
    match sent.touch(&item.remote) {
        Some(known) => {
            known.quote.clear();
            known.quote.extend_from_slice(quote);
            known.packet_len = item.packet_len;
            known.is_joined = item.is_joined;
        }
        None => {
            if sent.len() >= QUOTED {
                sent.pop_oldest();
            }
            let new = Sent {
                quote: quote.to_vec(),
                packet_len: item.packet_len,
                is_joined: item.is_joined,
            };
            sent.insert(item.remote, new);
        }
    }
}

/// Passes events to the program.
fn deliver<S: Sink>(
    shared: &Shared<S>,
    key: Key,
    sent: &mut Recent<SocketAddr, Sent>,
    events: &mut Vec<(Target, Received)>,
) {
    let mut payloads: Vec<Bytes> = Vec::with_capacity(events.len());
    let mut from = None;
    let flush = |from: Option<SocketAddr>, payloads: &mut Vec<Bytes>| {
        if let Some(from) = from
            && !payloads.is_empty()
        {
            answer(shared, key, from, payloads);
        }
        payloads.clear();
    };
    for (target, event) in events.drain(..) {
        // All targets are addresses, and answers name them as they were sent.
        let Host::Ip(ip) = target.host else {
            continue;
        };
        let remote = SocketAddr::new(ip, target.port);
        let is_of_family = ip.is_ipv4() == key.address().is_ipv4();
        match event {
            Received::Datagram(payload) if is_of_family => {
                if from != Some(remote) {
                    flush(from, &mut payloads);
                    from = Some(remote);
                }
                payloads.push(payload);
            }
            Received::Datagram(_) => {}
            Received::Failed(failure) => {
                debug!(%remote, %failure, "datagrams fail");
                if let Some(sent) = sent.get(&remote) {
                    report(shared, Problem::of(failure), remote, sent);
                }
            }
        }
    }
    flush(from, &mut payloads);
}

fn answer<S: Sink>(shared: &Shared<S>, key: Key, from: SocketAddr, payloads: &[Bytes]) {
    let sink = &*shared.sink;
    match key {
        Key::Udp(program) => sink.datagrams(from, program, payloads),
        Key::Echo(program, id) => {
            let mut packet = Vec::new();
            for payload in payloads {
                packet.clear();
                build::echo_reply(&mut packet, from.ip(), program, sink.next_id(), id, payload);
                sink.packet(&packet);
            }
        }
    }
}

/// Reports a failure in the name of the remote, which is where traceroute and the like expect it to
/// come from.
fn report<S: Sink>(shared: &Shared<S>, problem: Problem, remote: SocketAddr, sent: &Sent) {
    let problem = match problem {
        // The program's own host has made fragments of this packet, or it was shorter than the
        // limit when it was sent. To report a path MTU would be wrong, so the report is a failed
        // reassembly.
        Problem::TooBig { mtu } if sent.is_joined || mtu as usize >= sent.packet_len => {
            Problem::Reassembly
        }
        problem => problem,
    };
    shared.reporter.report(problem, remote.ip(), &sent.quote);
}
