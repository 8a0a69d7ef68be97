//! A UDP port with one target for all datagrams.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::Received;
use sumlink_exit::recent::Recent;
use sumlink_exit::udp_io::{Packet, UdpIo, UdpOptions};
use sumlink_util::plain;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use crate::class::{Flow, class_of_datagrams};
use crate::socks5::send_all;
use crate::source::{Source, Throttle};
use crate::{Class, ClassRule, DatagramOpener, SourceLimit, Target, UdpForward};

/// Datagrams of one local address that wait for its task.
const QUEUE: usize = 256;

/// Events and datagrams taken at once.
const BATCH: usize = 64;

/// Idle time after which a local address makes room for a new one.
const YIELD_AFTER: Duration = Duration::from_secs(5);

/// Receive buffer of the port in bytes: many local addresses share it.
const RECEIVE_BUFFER: usize = 1 << 20;

/// Why binding a UDP port failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpBindError {
    /// Another program uses the port.
    #[error(
        "cannot bind UDP port {0}: the port is taken; choose another one, or stop the program that \
         has it (`ss -lunp` shows which)"
    )]
    Taken(SocketAddr),
    /// Ports below 1024 require a privilege.
    #[error(
        "cannot bind UDP port {0}: not permitted; choose a port above 1023, or grant \
         CAP_NET_BIND_SERVICE"
    )]
    NotPermitted(SocketAddr),
    /// The address does not belong to this machine.
    #[error(
        "cannot bind UDP port {0}: this machine does not have that address (`ip address` lists its \
         addresses)"
    )]
    NoSuchAddress(SocketAddr),
    /// Another reason.
    #[error("cannot bind UDP port {0}: {reason}", reason = plain(.1))]
    Other(SocketAddr, io::Error),
}

/// A bound UDP port that forwards nothing until [`UdpForwarder::serve`].
///
/// Every local address that sends to the port is a separate source, so the target sees different
/// ports and replies find their way back. A reply comes from the port, and from the address to
/// which the program has sent. Datagrams that reach a source from elsewhere than the target are
/// dropped: the program could not distinguish them.
#[derive(Debug)]
pub struct UdpForwarder {
    io: Arc<UdpIo>,
    address: SocketAddr,
    target: Target,
    limit: SourceLimit,
    rules: Arc<[ClassRule]>,
}

impl UdpForwarder {
    /// Binds the port. `[::]:PORT` takes IPv4 as well. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// As the variants of [`UdpBindError`] say.
    pub fn bind(forward: UdpForward) -> Result<Self, UdpBindError> {
        let UdpForward { listen, target } = forward;
        let options = UdpOptions {
            traffic_class: true,
            local_address: listen.ip().is_unspecified(),
            receive_buffer: RECEIVE_BUFFER,
            ..UdpOptions::default()
        };
        let bound = UdpIo::bind(listen, options).and_then(|io| {
            let address = io.local_addr()?;
            Ok((io, address))
        });
        let (io, address) = bound.map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => UdpBindError::Taken(listen),
            io::ErrorKind::PermissionDenied => UdpBindError::NotPermitted(listen),
            io::ErrorKind::AddrNotAvailable => UdpBindError::NoSuchAddress(listen),
            _ => UdpBindError::Other(listen, error),
        })?;
        Ok(Self {
            io: Arc::new(io),
            address,
            target,
            limit: SourceLimit::default(),
            rules: Arc::default(),
        })
    }

    /// Serves local addresses within this limit, shared with the other entries that have it. When
    /// it is reached, a new one takes the place of the one that was idle longest, if it was idle
    /// for 5 s.
    pub fn with_sources(mut self, limit: SourceLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Gives each source the class of the first rule that matches its first datagram.
    pub fn with_classes(mut self, rules: Arc<[ClassRule]>) -> Self {
        self.rules = rules;
        self
    }

    /// The bound address; with port 0, it has the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Forwards datagrams over `opener` until `shutdown` completes, then closes the port.
    pub async fn serve<D: DatagramOpener>(self, opener: D, shutdown: impl Future<Output = ()>) {
        let (address, target) = (self.address, self.target.clone());
        info!(%address, %target, "forwarding datagrams");
        let mut peers = Peers {
            forwarder: self,
            opener,
            open: Recent::default(),
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
                ready = peers.forwarder.io.ready() => {
                    if let Err(error) = ready {
                        error!(%address, %error, "cannot forward datagrams any more");
                        break;
                    }
                    peers.take(&mut arrived);
                }
                Some(ended) = peers.tasks.join_next() => match ended {
                    Ok((address, number)) => peers.ended(address, number),
                    Err(error) => error!(%error, "a task of forwarded datagrams panicked"),
                },
            }
            let dropped = std::mem::take(&mut peers.dropped);
            if let Some(dropped) = log.count(dropped, Instant::now()) {
                warn!(%address, dropped, "forwarded datagrams are dropped");
            }
        }
        info!(%address, %target, "no longer forwarding datagrams");
    }
}

/// A datagram of a local program.
struct Item {
    local: Option<IpAddr>,
    payload: Bytes,
}

/// A local address that sends to the port.
struct Peer {
    number: u64,
    sender: Sender<Item>,
    last: Instant,
    place: OwnedSemaphorePermit,
}

struct Peers<D> {
    forwarder: UdpForwarder,
    opener: D,
    open: Recent<SocketAddr, Peer>,
    /// Each returns the address and the number of its peer.
    tasks: JoinSet<(SocketAddr, u64)>,
    next: u64,
    /// Datagrams dropped since this was last read.
    dropped: u64,
}

impl<D: DatagramOpener> Peers<D> {
    fn take(&mut self, arrived: &mut Vec<(SocketAddr, Option<u8>, Item)>) {
        let received = self.forwarder.io.try_receive(|arrival| {
            let item = Item {
                local: arrival.local,
                payload: Bytes::copy_from_slice(arrival.payload),
            };
            arrived.push((arrival.remote, arrival.dscp, item));
        });
        if let Err(error) = received
            && error.kind() != io::ErrorKind::WouldBlock
        {
            debug!(%error, "cannot receive datagrams to forward");
        }
        let now = Instant::now();
        for (address, dscp, item) in arrived.drain(..) {
            self.deliver(address, dscp, item, now);
        }
    }

    fn deliver(&mut self, address: SocketAddr, dscp: Option<u8>, item: Item, now: Instant) {
        let mut item = item;
        if let Some(peer) = self.open.touch(&address) {
            peer.last = now;
            match peer.sender.try_send(item) {
                Ok(()) => return,
                Err(TrySendError::Full(_)) => {
                    self.dropped += 1;
                    return;
                }
                // Its source has just ended.
                Err(TrySendError::Closed(unsent)) => item = unsent,
            }
        }
        let place = match self.open.remove(&address) {
            Some(ended) => Some(ended.place),
            None => self.place(now),
        };
        let Some(place) = place else {
            self.dropped += 1;
            return;
        };
        let target = self.forwarder.target.clone();
        let flow = Flow {
            port: target.port,
            dscp,
            user: None,
        };
        let class = class_of_datagrams(&self.forwarder.rules, &flow);
        let source = Source::new(self.opener.clone(), class, self.forwarder.limit.idle());
        let (sender, receiver) = channel(QUEUE);
        // The channel is new and has room.
        let _ = sender.try_send(item);
        let io = Arc::clone(&self.forwarder.io);
        let number = self.next;
        self.next += 1;
        let peer = Peer {
            number,
            sender,
            last: now,
            place,
        };
        self.open.insert(address, peer);
        self.tasks.spawn(async move {
            forward(&io, address, &target, class, source, receiver).await;
            (address, number)
        });
    }

    /// A free place, or that of the peer that was idle longest.
    fn place(&mut self, now: Instant) -> Option<OwnedSemaphorePermit> {
        self.forwarder.limit.place().or_else(|| {
            let (_, oldest) = self.open.oldest()?;
            if now.saturating_duration_since(oldest.last) < YIELD_AFTER {
                return None;
            }
            self.open.pop_oldest().map(|(_, peer)| peer.place)
        })
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

/// Forwards the datagrams of one local address until its source ends or it loses its place.
async fn forward<D: DatagramOpener>(
    io: &UdpIo,
    address: SocketAddr,
    target: &Target,
    class: Option<Class>,
    mut source: Source<D>,
    mut receiver: Receiver<Item>,
) {
    let mut items = Vec::with_capacity(BATCH);
    let mut events = Vec::with_capacity(BATCH);
    let mut local = None;
    loop {
        tokio::select! {
            count = receiver.recv_many(&mut items, BATCH) => {
                if count == 0 {
                    return;
                }
                for item in items.drain(..) {
                    local = item.local;
                    source.send(target, item.payload, class);
                }
            }
            count = source.receive(&mut events, BATCH) => {
                if count == 0 {
                    return;
                }
                let is_own = |remote: &Target| remote == target;
                let packets: Vec<Packet<'_>> = events
                    .iter()
                    .filter_map(|(remote, event)| match event {
                        Received::Datagram(payload) if is_own(remote) => Some(Packet {
                            remote: Some(address),
                            local,
                            head: &[],
                            body: payload,
                        }),
                        Received::Datagram(_) => None,
                        Received::Failed(failure) => {
                            debug!(%target, %failure, "forwarded datagrams fail");
                            None
                        }
                    })
                    .collect();
                send_all(io, &packets).await;
                events.clear();
            }
        }
    }
}
