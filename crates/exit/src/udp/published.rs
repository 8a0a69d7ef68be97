//! A published port: a source with sockets that anyone may send to.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Bytes;
use tokio::io::Ready;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::Ended;
use super::client::{Client, Direction, count};
use super::inside::{REPORTS, deliver};
use super::remotes::UNSOLICITED_LIFETIME;
use crate::bucket::Bucket;
use crate::datagram::{DatagramSocket, FlowFailure, Received};
use crate::recent::Recent;
use crate::target::{Host, Target};
use crate::udp_io::{Packet, SEND_PAUSE, UdpIo, UdpOptions};

/// Datagrams taken from the client's side at once.
const BATCH: usize = 128;

/// A bound UDP port.
#[derive(Debug)]
pub struct PublishedPort {
    /// One for each address family.
    sockets: Vec<UdpIo>,
}

impl PublishedPort {
    /// Binds the port on this address; on all addresses of both families if it is `None`. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// Those of bind(2). Without IPv6 on this machine, IPv4 is enough for all addresses.
    pub fn bind(address: Option<IpAddr>, port: u16, receive_buffer: usize) -> io::Result<Self> {
        let bind = |ip: IpAddr, port| {
            let options = UdpOptions {
                errors: true,
                local_address: ip.is_unspecified(),
                receive_buffer,
                ..UdpOptions::default()
            };
            UdpIo::bind_family(SocketAddr::new(ip, port), options)
        };
        let sockets = match address {
            Some(ip) if !ip.is_unspecified() => vec![bind(ip, port)?],
            _ => {
                let v4 = bind(Ipv4Addr::UNSPECIFIED.into(), port)?;
                // Port 0 is for tests.
                let port = v4.local_addr()?.port();
                match bind(Ipv6Addr::UNSPECIFIED.into(), port) {
                    Ok(v6) => vec![v4, v6],
                    Err(error) if lacks_v6(&error) => vec![v4],
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(Self { sockets })
    }

    /// The bound address, that of IPv4 if there are two.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let first = self.sockets.first();
        first.map_or_else(|| Err(io::ErrorKind::NotFound.into()), UdpIo::local_addr)
    }

    fn of(&self, remote: &SocketAddr) -> Option<&UdpIo> {
        self.sockets.iter().find(|io| {
            io.local_addr()
                .is_ok_and(|local| local.is_ipv6() == remote.is_ipv6())
        })
    }

    async fn arrived(&self) -> (&UdpIo, Ready) {
        let ready = async |index: usize| match self.sockets.get(index) {
            Some(io) => match io.ready().await {
                Ok(ready) => (io, ready),
                Err(_) => pending().await,
            },
            None => pending().await,
        };
        tokio::select! {
            arrived = ready(0) => arrived,
            arrived = ready(1) => arrived,
        }
    }
}

/// Whether the machine has IPv6 disabled.
fn lacks_v6(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

/// A remote that has sent to the port.
struct Remote {
    heard: Instant,
    /// The address to which it has sent, from which it gets answers.
    local: Option<IpAddr>,
}

struct Published<'a, S> {
    client: &'a Client,
    port: &'a PublishedPort,
    socket: S,
    remotes: Recent<SocketAddr, Remote>,
    outgoing: VecDeque<(SocketAddr, Bytes)>,
    /// When a full send buffer is tried again.
    retry: Option<Instant>,
    reports: Bucket,
    is_closed: bool,
}

/// Serves the port until the client's end of the source has gone.
///
/// Any remote may send. The client can send only to remotes that have sent before: the port was
/// published to answer, and the egress policy has not checked its remotes.
pub(super) async fn serve(
    client: &Client,
    port: &PublishedPort,
    socket: impl DatagramSocket,
) -> Ended {
    let published = Published {
        client,
        port,
        socket,
        remotes: Recent::default(),
        outgoing: VecDeque::new(),
        retry: None,
        reports: Bucket::new(REPORTS, REPORTS, Instant::now()),
        is_closed: false,
    };
    published.run().await
}

impl<S: DatagramSocket> Published<'_, S> {
    async fn run(mut self) -> Ended {
        let mut inbox = Vec::with_capacity(BATCH);
        while !self.is_closed {
            let retry = self.retry;
            tokio::select! {
                received = self.socket.receive(&mut inbox, BATCH), if retry.is_none() => {
                    if received == 0 {
                        break;
                    }
                    let now = Instant::now();
                    for (target, event) in inbox.drain(..) {
                        if let Received::Datagram(payload) = event {
                            self.answer(&target, payload, now);
                        }
                    }
                    self.flush(now);
                }
                (io, ready) = self.port.arrived() => {
                    let now = Instant::now();
                    if ready.is_error() {
                        io.take_errors(|error| self.failed(error.remote, error.failure, now));
                    }
                    let received = io.try_receive(|arrival| {
                        self.arrived(arrival.remote, arrival.local, arrival.payload, now);
                    });
                    if let Err(error) = received
                        && error.kind() != io::ErrorKind::WouldBlock
                    {
                        debug!(%error, "cannot receive datagrams of a published port");
                    }
                }
                () = sleep_until(retry.unwrap_or_else(Instant::now)), if retry.is_some() => {
                    self.flush(Instant::now());
                }
            }
        }
        Ended::Closed
    }

    /// A remote has sent.
    fn arrived(
        &mut self,
        address: SocketAddr,
        local: Option<IpAddr>,
        payload: &[u8],
        now: Instant,
    ) {
        let counters = &self.client.counters;
        // Nothing could be sent back to this port.
        if address.port() == 0 {
            return;
        }
        match self.remotes.touch(&address) {
            Some(remote) => *remote = Remote { heard: now, local },
            None => {
                if self.remotes.len() >= self.client.settings.unsolicited.max(1) {
                    let oldest = self.remotes.oldest().map(|(_, remote)| remote.heard);
                    let is_silent = oldest.is_some_and(|heard| {
                        now.saturating_duration_since(heard) >= UNSOLICITED_LIFETIME
                    });
                    if !is_silent {
                        return count(&counters.over_limit);
                    }
                    self.remotes.pop_oldest();
                }
                self.remotes.insert(address, Remote { heard: now, local });
            }
        }
        if self
            .client
            .within_rate(Direction::ToClient, payload.len(), now)
        {
            let payload = Bytes::copy_from_slice(payload);
            let target = Target::from(address);
            self.is_closed |= !deliver(self.client, &self.socket, &target, payload);
        }
    }

    /// The client sends to a remote.
    fn answer(&mut self, target: &Target, payload: Bytes, now: Instant) {
        let address = match &target.host {
            Host::Ip(ip) => SocketAddr::new(ip.to_canonical(), target.port),
            Host::Name(_) => return count(&self.client.counters.refused),
        };
        if self.remotes.touch(&address).is_none() {
            return count(&self.client.counters.refused);
        }
        if self
            .client
            .within_rate(Direction::ToNetwork, payload.len(), now)
        {
            self.outgoing.push_back((address, payload));
        }
    }

    /// Sends the queued datagrams, up to a full send buffer.
    fn flush(&mut self, now: Instant) {
        self.retry = None;
        let counters = &self.client.counters;
        while let Some((first, _)) = self.outgoing.front() {
            let first = *first;
            let same = self.outgoing.iter().take_while(|(to, _)| *to == first);
            let local = self.remotes.get(&first).and_then(|remote| remote.local);
            let packets: Vec<Packet<'_>> = same
                .map(|(remote, body)| Packet {
                    remote: Some(*remote),
                    local,
                    head: &[],
                    body,
                })
                .collect();
            let mut failure = None;
            let handled = match self.port.of(&first) {
                Some(io) => io.send(&packets, |_, error| {
                    count(&counters.unsent);
                    failure = FlowFailure::from_send(&error);
                }),
                None => packets.len(),
            };
            let is_full = handled < packets.len();
            for _ in self.outgoing.drain(..handled) {
                count(&counters.sent);
            }
            if let Some(failure) = failure {
                self.failed(first, failure, now);
            }
            if is_full {
                self.retry = Some(now + SEND_PAUSE);
                return;
            }
        }
    }

    /// Datagrams to a remote do not arrive.
    fn failed(&mut self, address: SocketAddr, failure: FlowFailure, now: Instant) {
        if self.remotes.get(&address).is_some() && self.reports.take(1, now) {
            count(&self.client.counters.icmp_errors);
            self.socket.report(&address.into(), failure);
        }
    }
}
