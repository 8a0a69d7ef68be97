//! The ports on which clients ask.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use sumlink_proxy::{Client, Origin, Usage};
use sumlink_util::plain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{debug, error, info, warn};

use crate::clients::{Clients, Limits, Refused};
use crate::forwarder::{Forwarder, Step, Via};

/// Longest question over UDP, in bytes. The rest of a longer one is cut off, and it is malformed.
const MAX_QUESTION: usize = 4096;

/// Longest question over TCP, in bytes: as over UDP.
const MAX_TCP_QUESTION: usize = MAX_QUESTION;

/// Questions of one connection that wait for answers. Further ones are not read.
const PIPELINE: usize = 64;

/// Pause after a connection could not be accepted, for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another program has it.
    #[error(
        "cannot answer DNS at {0}: another program has the port (`ss -lunpt sport = :{port}` shows \
         which); choose another address", port = .0.port()
    )]
    Taken(SocketAddr),
    /// Ports below 1024 need a privilege.
    #[error("cannot answer DNS at {0}: not permitted; CAP_NET_BIND_SERVICE is required")]
    NotPermitted(SocketAddr),
    /// The address does not belong to this machine.
    #[error(
        "cannot answer DNS at {0}: this machine does not have that address (`ip address` lists its \
         addresses)"
    )]
    NoSuchAddress(SocketAddr),
    /// Another reason.
    #[error("cannot answer DNS at {0}: {reason}", reason = plain(.1))]
    Other(SocketAddr, io::Error),
}

/// Ports that are open and answer nothing until [`Server::serve`]. Each address has UDP and TCP.
///
/// Only clients in given networks are served: the forwarder is no open resolver. Others get no
/// answer over UDP, and their connections are reset.
#[derive(Debug)]
pub struct Server {
    ports: Vec<(UdpSocket, TcpListener)>,
    addresses: Vec<SocketAddr>,
    clients: Arc<Clients>,
}

impl Server {
    /// Opens the ports. With port 0, the system chooses one, which both protocols have. Each is an
    /// address of one interface, so that answers come from the address that was asked. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// See the variants of [`BindError`].
    pub async fn bind(
        addresses: &[SocketAddr],
        clients: Vec<IpNet>,
        limits: Limits,
    ) -> Result<Self, BindError> {
        let mut ports = Vec::with_capacity(addresses.len());
        let mut bound = Vec::with_capacity(addresses.len());
        for &address in addresses {
            let both = async {
                let tcp = TcpListener::bind(address).await?;
                let local = tcp.local_addr()?;
                let udp = UdpSocket::bind(local).await?;
                io::Result::Ok((udp, tcp, local))
            };
            let (udp, tcp, local) = both.await.map_err(|error| match error.kind() {
                io::ErrorKind::AddrInUse => BindError::Taken(address),
                io::ErrorKind::PermissionDenied => BindError::NotPermitted(address),
                io::ErrorKind::AddrNotAvailable => BindError::NoSuchAddress(address),
                _ => BindError::Other(address, error),
            })?;
            ports.push((udp, tcp));
            bound.push(local);
        }
        Ok(Self {
            ports,
            addresses: bound,
            clients: Arc::new(Clients::new(clients, limits)),
        })
    }

    /// The addresses of the ports.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Answers until `shutdown` completes, then closes the ports and all connections.
    pub async fn serve(self, forwarder: Forwarder, shutdown: impl Future<Output = ()>) {
        let mut ports = JoinSet::new();
        for ((udp, tcp), address) in self.ports.into_iter().zip(self.addresses) {
            info!(%address, "answering DNS");
            let (forwarder, clients) = (&forwarder, &self.clients);
            ports.spawn(serve_udp(
                udp,
                address,
                forwarder.clone(),
                Arc::clone(clients),
            ));
            ports.spawn(serve_tcp(
                tcp,
                address,
                forwarder.clone(),
                Arc::clone(clients),
            ));
        }
        tokio::select! {
            () = shutdown => {}
            // A port ends only when it fails.
            _ = async { while ports.join_next().await.is_some() {} } => {}
        }
    }
}

async fn serve_udp(
    socket: UdpSocket,
    address: SocketAddr,
    forwarder: Forwarder,
    clients: Arc<Clients>,
) {
    let socket = Arc::new(socket);
    let mut waiting = JoinSet::new();
    let mut buffer = vec![0; MAX_QUESTION];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            Some(_) = waiting.join_next() => continue,
        };
        let (length, client) = match received {
            Ok(received) => received,
            // An ICMP error about an earlier answer.
            Err(error) if is_passing(&error) => continue,
            Err(error) => {
                error!(error = %plain(&error), "cannot answer DNS over UDP any more");
                return;
            }
        };
        // Port 0 cannot be answered.
        if client.port() == 0 || !is_admitted(&forwarder, &clients, client) {
            continue;
        }
        match forwarder.begin(&buffer[..length], Via::Udp) {
            Step::Ignore => {}
            Step::Reply(reply) => send(&socket, &reply, client).await,
            Step::Ask(question) => {
                let asker = Client::from(Origin::at_entry(client, address));
                let Some(mut place) = clients.query(asker) else {
                    forwarder.counters().limited.count();
                    continue;
                };
                let (socket, forwarder) = (Arc::clone(&socket), forwarder.clone());
                waiting.spawn(async move {
                    tokio::select! {
                        reply = forwarder.finish(question, asker) => {
                            if let Some(reply) = reply {
                                send(&socket, &reply, client).await;
                            }
                        }
                        () = place.lost() => forwarder.counters().limited.count(),
                    }
                });
            }
        }
    }
}

async fn send(socket: &UdpSocket, reply: &[u8], client: SocketAddr) {
    if let Err(error) = socket.send_to(reply, client).await {
        debug!(%client, error = %plain(&error), "an answer is not sent");
    }
}

async fn serve_tcp(
    listener: TcpListener,
    address: SocketAddr,
    forwarder: Forwarder,
    clients: Arc<Clients>,
) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_passing(&error) => continue,
            Err(error) => {
                warn!(error = %plain(&error), "cannot accept a connection for DNS");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let asker = Client::from(Origin::at_entry(client, address));
        match clients.connection(client.ip(), asker) {
            Ok(mut place) => {
                let (forwarder, clients) = (forwarder.clone(), Arc::clone(&clients));
                let usage = place.usage();
                connections.spawn(async move {
                    let peer = Peer {
                        address: client,
                        asker,
                        usage,
                    };
                    tokio::select! {
                        () = connection(stream, peer, &forwarder, clients) => {}
                        () = place.lost() => forwarder.counters().limited.count(),
                    }
                });
            }
            Err(refused) => {
                count(&forwarder, refused);
                // A reset instead of an orderly end: no state of the connection remains.
                let _ = stream.set_zero_linger();
            }
        }
    }
}

/// The other end of a connection.
struct Peer {
    address: SocketAddr,
    asker: Client,
    /// The use of the connection's place.
    usage: Usage,
}

/// Serves one connection. Answers are sent as soon as they are known, in any order (RFC 7766,
/// section 7).
async fn connection(stream: TcpStream, peer: Peer, forwarder: &Forwarder, clients: Arc<Clients>) {
    let Peer {
        address: client,
        asker,
        mut usage,
    } = peer;
    let _ = stream.set_nodelay(true);
    let (mut reader, mut writer) = stream.into_split();
    let (replies, mut ready) = mpsc::channel::<Vec<u8>>(PIPELINE);
    let idle = clients.limits().idle;
    let write = async move {
        while let Some(reply) = ready.recv().await {
            let Ok(length) = u16::try_from(reply.len()) else {
                continue;
            };
            let mut frame = length.to_be_bytes().to_vec();
            frame.extend(reply);
            timeout(idle, writer.write_all(&frame)).await??;
        }
        writer.shutdown().await
    };
    let read = async {
        let mut asked = JoinSet::new();
        while let Some(question) = question(&mut reader, idle, !asked.is_empty()).await {
            while asked.try_join_next().is_some() {}
            if question.is_empty() {
                continue;
            }
            usage.used();
            if !is_admitted(forwarder, &clients, client) {
                break;
            }
            if asked.len() >= PIPELINE {
                asked.join_next().await;
            }
            match forwarder.begin(&question, Via::Tcp) {
                Step::Ignore => break,
                Step::Reply(reply) => {
                    if replies.send(reply).await.is_err() {
                        break;
                    }
                }
                Step::Ask(question) => {
                    let Some(mut place) = clients.query(asker) else {
                        forwarder.counters().limited.count();
                        break;
                    };
                    let (forwarder, replies) = (forwarder.clone(), replies.clone());
                    asked.spawn(async move {
                        tokio::select! {
                            reply = forwarder.finish(question, asker) => {
                                if let Some(reply) = reply {
                                    // The connection may have ended.
                                    let _ = replies.send(reply).await;
                                }
                            }
                            () = place.lost() => forwarder.counters().limited.count(),
                        }
                    });
                }
            }
        }
        while asked.join_next().await.is_some() {}
        drop(replies);
    };
    let (written, ()) = tokio::join!(write, read);
    if let Err(error) = written {
        debug!(%client, error = %plain(&error), "a connection of a client ended");
    }
}

/// The next question of a connection; `None` at its end. An empty one means that the time without
/// questions is over while others wait for answers.
async fn question(reader: &mut OwnedReadHalf, idle: Duration, is_asking: bool) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    if timeout(idle, reader.readable()).await.is_err() {
        return is_asking.then(Vec::new);
    }
    let whole = async {
        reader.read_exact(&mut length).await?;
        let length = usize::from(u16::from_be_bytes(length));
        if length == 0 || length > MAX_TCP_QUESTION {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut question = vec![0; length];
        reader.read_exact(&mut question).await?;
        io::Result::Ok(question)
    };
    timeout(idle, whole).await.ok()?.ok()
}

fn is_admitted(forwarder: &Forwarder, clients: &Clients, client: SocketAddr) -> bool {
    match clients.admit(client.ip()) {
        Ok(()) => true,
        Err(refused) => {
            count(forwarder, refused);
            false
        }
    }
}

fn count(forwarder: &Forwarder, refused: Refused) {
    match refused {
        Refused::Stranger => forwarder.counters().strangers.count(),
        Refused::Limited => forwarder.counters().limited.count(),
    }
}

/// Whether an error concerns a single client, or none.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
    )
}
