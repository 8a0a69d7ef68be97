//! UDP ASSOCIATE (RFC 1928, section 7): a UDP port for a program while its connection lives.
//!
//! - **Who may send.** Only the host of the controlling connection. If the request names a port,
//!   only from that port; otherwise the port of the first valid datagram is taken. One port has two
//!   reasons: replies have one destination, and other users of the same host must not use or read
//!   the association. A request that names the address of another host has passed a NAT that
//!   changed both, or names its target; its address and port are ignored.
//! - From then on the kernel drops datagrams of others: the socket is connected.
//! - **Fragments** are dropped, as the RFC permits, and so are malformed datagrams.
//! - **Replies** have the target by which the program has addressed the remote: a name if it used
//!   one. Only the server knows the address of a name.
//! - **Failures** have no place in the protocol. They are counted and logged for debugging.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use bytes::Bytes;
use sumlink_exit::datagram::Received;
use sumlink_exit::udp_io::{Arrival, Packet, SEND_PAUSE, UdpIo, UdpOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::message::{Address, DatagramHeader, Reply, Request};
use crate::associations::Associations;
use crate::classes::Classes;
use crate::origin::canonical;
use crate::source::{Source, Throttle};
use crate::{Client, DatagramOpener, Target, Usage};

/// Events taken from the session at once.
const BATCH: usize = 64;

/// Receive buffer of an association's port in bytes.
const RECEIVE_BUFFER: usize = 1 << 20;

/// How often a full send buffer is tried again before datagrams to the program are dropped.
const SEND_TRIES: usize = 20;

/// Serves an association until its connection ends.
pub(super) async fn serve<D: DatagramOpener>(
    mut connection: TcpStream,
    request: &Request,
    user: Option<Vec<u8>>,
    associations: Associations<D>,
    classes: Classes,
) {
    let Associations {
        opener: Some(opener),
        origin,
        limit,
        usage,
    } = associations
    else {
        return;
    };
    let bound = match limit.place(Client::from(origin)) {
        Some(place) => bind(&connection, request).map(|bound| (place, bound)),
        None => Err(io::ErrorKind::QuotaExceeded.into()),
    };
    let (mut place, (io, local, host, client)) = match bound {
        Ok(bound) => bound,
        Err(error) => {
            debug!(%error, "cannot open a SOCKS5 association");
            let reply = Reply::Failure.encode();
            if connection.write_all(&reply).await.is_ok() {
                sumlink_exit::relay::part(connection).await;
            }
            return;
        }
    };
    let reply = Reply::Succeeded.encode_with(local);
    if connection.write_all(&reply).await.is_err() {
        return;
    }
    debug!(%local, %host, ?client, "SOCKS5 association");
    let mut association = Association {
        program: Program {
            host,
            client,
            user,
            classes,
            drops: Drops::default(),
            strangers: Throttle::default(),
        },
        source: Source::new(opener, Some(origin), None, limit.idle()),
        uses: [usage, Some(place.usage())],
        io,
    };
    tokio::select! {
        () = association.run(&mut connection) => {}
        () = place.lost() => debug!(%local, "a SOCKS5 association makes room"),
    }
    let drops = &association.program.drops;
    let unsent = association.source.dropped();
    debug!(%local, ?drops, unsent, "SOCKS5 association ended");
}

/// Opens the port: on the address to which the program has connected, which it can reach.
fn bind(
    connection: &TcpStream,
    request: &Request,
) -> io::Result<(UdpIo, SocketAddr, IpAddr, Option<SocketAddr>)> {
    let mut local = canonical(connection.local_addr()?);
    local.set_port(0);
    let mut peer = canonical(connection.peer_addr()?);
    let options = UdpOptions {
        traffic_class: true,
        receive_buffer: RECEIVE_BUFFER,
        ..UdpOptions::default()
    };
    let io = UdpIo::bind_family(local, options)?;
    let local = io.local_addr()?;
    let client = named_port(request, peer.ip()).map(|port| {
        peer.set_port(port);
        peer
    });
    if let Some(client) = client {
        io.connect(client)?;
    }
    Ok((io, local, peer.ip(), client))
}

/// The port from which the program has announced to send.
fn named_port(request: &Request, host: IpAddr) -> Option<u16> {
    let is_own = match &request.address {
        Address::Ip(ip) => ip.is_unspecified() || ip.to_canonical() == host,
        Address::Name(_) => false,
    };
    (is_own && request.port != 0).then_some(request.port)
}

struct Association<D: DatagramOpener> {
    io: UdpIo,
    source: Source<D>,
    program: Program,
    /// The uses of the places that the connection and the source have.
    uses: [Option<Usage>; 2],
}

/// The program's side of an association.
struct Program {
    /// The host of the controlling connection.
    host: IpAddr,
    /// The address of the program's socket, once it is known.
    client: Option<SocketAddr>,
    user: Option<Vec<u8>>,
    classes: Classes,
    drops: Drops,
    strangers: Throttle,
}

/// Datagrams that were dropped, by cause.
#[derive(Debug, Default, PartialEq, Eq)]
struct Drops {
    /// From another address than the program's.
    strangers: u64,
    fragments: u64,
    /// Without a complete header or a valid target.
    malformed: u64,
    /// To the program, because its send buffer was full or they were too long with their header.
    unsent: u64,
    /// Failures reported by the session.
    failures: u64,
}

impl<D: DatagramOpener> Association<D> {
    async fn run(&mut self, connection: &mut TcpStream) {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                () = end(connection) => return,
                ready = self.io.ready() => {
                    if ready.is_err() {
                        return;
                    }
                    self.take();
                    self.used();
                }
                _ = self.source.receive(&mut events, BATCH) => {
                    self.used();
                    self.pass(&mut events).await;
                }
            }
        }
    }

    fn used(&mut self) {
        self.uses.iter_mut().flatten().for_each(Usage::used);
    }

    /// Takes datagrams from the program.
    fn take(&mut self) {
        let (program, source) = (&mut self.program, &mut self.source);
        let before = (program.client, program.drops.strangers);
        let received = self.io.try_receive(|arrival| {
            if let Some((target, payload, class)) = program.accept(arrival) {
                // The protocol has no place for an error; the source counts it.
                let _ = source.send(&target, payload, class);
            }
        });
        if let Err(error) = received
            && error.kind() != io::ErrorKind::WouldBlock
        {
            // The program has closed its socket, or the kernel is short of memory.
            debug!(%error, "cannot receive from a SOCKS5 program");
        }
        if before.0.is_none()
            && let Some(client) = program.client
            && let Err(error) = self.io.connect(client)
        {
            debug!(%client, %error, "cannot leave strangers to the kernel");
        }
        let strangers = program.drops.strangers - before.1;
        if let Some(dropped) = program.strangers.count(strangers, Instant::now()) {
            warn!(
                host = %program.host,
                dropped,
                "datagrams of strangers to a SOCKS5 association are dropped"
            );
        }
    }

    /// Passes events to the program.
    async fn pass(&mut self, events: &mut Vec<(Target, Received)>) {
        let mut heads = Vec::new();
        let mut replies: Vec<(Range<usize>, Bytes)> = Vec::with_capacity(events.len());
        for (target, event) in events.drain(..) {
            match event {
                Received::Datagram(payload) => {
                    let start = heads.len();
                    DatagramHeader::from(&target).encode(&mut heads);
                    replies.push((start..heads.len(), payload));
                }
                Received::Failed(failure) => {
                    self.program.drops.failures += 1;
                    debug!(%target, %failure, "datagrams of a SOCKS5 program fail");
                }
            }
        }
        let Some(client) = self.program.client else {
            return;
        };
        let packets: Vec<Packet<'_>> = replies
            .iter()
            .map(|(head, body)| Packet {
                remote: Some(client),
                local: None,
                head: &heads[head.clone()],
                body,
            })
            .collect();
        self.program.drops.unsent += send_all(&self.io, &packets).await;
    }
}

impl Program {
    /// The target, payload and class of a datagram, if the program may send it.
    fn accept(&mut self, arrival: Arrival<'_>) -> Option<(Target, Bytes, Option<crate::Class>)> {
        let remote = arrival.remote;
        let is_own = match self.client {
            Some(client) => (client.ip(), client.port()) == (remote.ip(), remote.port()),
            None => remote.ip() == self.host,
        };
        if !is_own {
            self.drops.strangers += 1;
            return None;
        }
        let Ok(Some((header, length))) = DatagramHeader::decode(arrival.payload) else {
            self.drops.malformed += 1;
            return None;
        };
        if header.fragment != 0 {
            self.drops.fragments += 1;
            return None;
        }
        let Ok(target) = header.target() else {
            self.drops.malformed += 1;
            return None;
        };
        self.client.get_or_insert(remote);
        let user = self.user.as_deref();
        let class = self.classes.of_datagrams(&target, user, arrival.dscp);
        let payload = Bytes::copy_from_slice(arrival.payload.get(length..)?);
        Some((target, payload, class))
    }
}

/// Sends to a program. Returns how many datagrams were not sent.
pub(crate) async fn send_all(io: &UdpIo, packets: &[Packet<'_>]) -> u64 {
    let mut unsent = 0;
    let mut done = 0;
    for _ in 0..SEND_TRIES {
        done += io.send(&packets[done..], |_, error| {
            debug!(%error, "cannot send a datagram to a program");
            unsent += 1;
        });
        if done == packets.len() {
            return unsent;
        }
        sleep(SEND_PAUSE).await;
    }
    unsent + (packets.len() - done) as u64
}

/// Completes when the controlling connection has ended. Bytes of the program on it are ignored.
async fn end(connection: &mut TcpStream) {
    let mut ignored = [0; 256];
    while connection
        .read(&mut ignored)
        .await
        .is_ok_and(|length| length > 0)
    {}
}
