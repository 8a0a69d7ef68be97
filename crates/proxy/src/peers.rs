//! The addresses that send to a UDP port. Each is a separate source.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use sumlink_exit::datagram::{Received, SendError};
use sumlink_exit::udp_io::{Arrival, UdpIo};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, error, warn};

use crate::source::Throttle;
use crate::{Class, Client, DatagramOpener, Origin, Place, Source, SourceLimit, Target};

/// Datagrams of one address that wait for its task.
const QUEUE: usize = 256;

/// Events and datagrams taken at once.
const BATCH: usize = 64;

/// A UDP port: where its datagrams go, and how it answers.
pub(crate) trait Port: Send + Sync + 'static {
    /// The port's notes about a datagram, besides its payload.
    type Label: Clone + Send + Sync + 'static;

    /// The socket.
    fn io(&self) -> &UdpIo;

    /// The label of a datagram; `None` drops it.
    fn label(&self, arrival: &Arrival<'_>) -> Option<Self::Label>;

    /// The program that sends from `peer`.
    fn origin(&self, peer: SocketAddr, label: &Self::Label) -> Origin;

    /// The target of a datagram, and its class.
    fn flow(&self, label: &Self::Label) -> (Cow<'_, Target>, Option<Class>);

    /// A datagram of `peer` was not sent.
    fn unsent(&self, peer: SocketAddr, label: &Self::Label, error: SendError);

    /// Passes events to `peer`; `last` is the label of its last datagram.
    fn answer(
        &self,
        peer: SocketAddr,
        last: &Self::Label,
        events: &[(Target, Received)],
    ) -> impl Future<Output = ()> + Send;
}

/// Serves a port until `shutdown` completes or its socket fails.
pub(crate) async fn serve<P: Port, D: DatagramOpener>(
    port: Arc<P>,
    address: SocketAddr,
    opener: D,
    limit: SourceLimit,
    shutdown: impl Future<Output = ()>,
) {
    let mut peers = Peers {
        port: Arc::clone(&port),
        opener,
        limit,
        open: HashMap::new(),
        tasks: JoinSet::new(),
        next: 0,
        dropped: 0,
    };
    let mut log = Throttle::default();
    let mut arrived = Vec::with_capacity(BATCH);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            ready = port.io().ready() => {
                if let Err(error) = ready {
                    error!(%address, %error, "cannot receive datagrams; the port is closed");
                    break;
                }
                peers.take(&mut arrived);
            }
            Some(ended) = peers.tasks.join_next() => match ended {
                Ok((address, number)) => peers.ended(address, number),
                Err(error) => error!(
                    %address,
                    %error,
                    "internal error: one source of datagrams was closed; please report it"
                ),
            },
        }
        let dropped = std::mem::take(&mut peers.dropped);
        if let Some(dropped) = log.count(dropped, Instant::now()) {
            warn!(
                %address,
                dropped,
                "datagrams to a UDP port are dropped: they arrive too fast, or no source is left"
            );
        }
    }
}

/// A datagram of a program.
struct Item<L> {
    label: L,
    payload: Bytes,
}

/// An address that sends to the port.
struct Peer<L> {
    number: u64,
    sender: Sender<Item<L>>,
}

struct Peers<P: Port, D> {
    port: Arc<P>,
    opener: D,
    limit: SourceLimit,
    open: HashMap<SocketAddr, Peer<P::Label>>,
    /// Each returns the address and the number of its peer.
    tasks: JoinSet<(SocketAddr, u64)>,
    next: u64,
    /// Datagrams dropped since this was last read.
    dropped: u64,
}

impl<P: Port, D: DatagramOpener> Peers<P, D> {
    fn take(&mut self, arrived: &mut Vec<(SocketAddr, Item<P::Label>)>) {
        let port = &self.port;
        let received = port.io().try_receive(|arrival| {
            if let Some(label) = port.label(&arrival) {
                let payload = Bytes::copy_from_slice(arrival.payload);
                arrived.push((arrival.remote, Item { label, payload }));
            }
        });
        if let Err(error) = received
            && error.kind() != io::ErrorKind::WouldBlock
        {
            debug!(%error, "cannot receive from a UDP port");
        }
        for (address, item) in arrived.drain(..) {
            self.deliver(address, item);
        }
    }

    fn deliver(&mut self, address: SocketAddr, item: Item<P::Label>) {
        let mut item = item;
        if let Some(peer) = self.open.get(&address) {
            match peer.sender.try_send(item) {
                Ok(()) => return,
                Err(TrySendError::Full(_)) => {
                    self.dropped += 1;
                    return;
                }
                // Its source has just ended, or lost its place.
                Err(TrySendError::Closed(unsent)) => item = unsent,
            }
        }
        let origin = self.port.origin(address, &item.label);
        let Some(place) = self.limit.place(Client::from(origin)) else {
            self.dropped += 1;
            return;
        };
        let (_, class) = self.port.flow(&item.label);
        let source = Source::new(self.opener.clone(), Some(origin), class, self.limit.idle());
        let (sender, receiver) = channel(QUEUE);
        let last = item.label.clone();
        // The channel is new and has room.
        let _ = sender.try_send(item);
        let number = self.next;
        self.next += 1;
        self.open.insert(address, Peer { number, sender });
        let port = Arc::clone(&self.port);
        self.tasks.spawn(async move {
            pass(&*port, address, last, source, receiver, place).await;
            (address, number)
        });
    }

    fn ended(&mut self, address: SocketAddr, number: u64) {
        if self
            .open
            .get(&address)
            .is_some_and(|peer| peer.number == number)
        {
            self.open.remove(&address);
        }
    }
}

/// Passes the datagrams of one address on until its source ends or it loses its place.
async fn pass<P: Port, D: DatagramOpener>(
    port: &P,
    address: SocketAddr,
    mut last: P::Label,
    mut source: Source<D>,
    mut receiver: Receiver<Item<P::Label>>,
    mut place: Place,
) {
    let mut items = Vec::with_capacity(BATCH);
    let mut events = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            count = receiver.recv_many(&mut items, BATCH) => {
                if count == 0 {
                    return;
                }
                place.used();
                for Item { label, payload } in items.drain(..) {
                    let (target, class) = port.flow(&label);
                    if let Err(error) = source.send(&target, payload, class) {
                        port.unsent(address, &label, error);
                    }
                    last = label;
                }
            }
            count = source.receive(&mut events, BATCH) => {
                if count == 0 {
                    return;
                }
                place.used();
                port.answer(address, &last, &events).await;
                events.clear();
            }
            () = place.lost() => {
                debug!(%address, "a source of datagrams makes room");
                return;
            }
        }
    }
}
