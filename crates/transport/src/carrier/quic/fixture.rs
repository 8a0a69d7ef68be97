//! Both ends of a datagram carrier, and a bad path between them, for tests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sumlink_engine::PathId;
use sumlink_link::{Link, LinkConfig};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{DatagramCarrier, Opened, QuicDialer, QuicError, QuicListener, ServerDatagrams};
use crate::carrier::keys::SecretKey;
use crate::carrier::tls::Authorized;

/// Longer than anything takes in a test, even on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// The session of all tests.
pub(super) const SESSION: [u8; 16] = [7; 16];

/// The MTU of the links of all tests, unless stated otherwise.
pub(super) const PACKET: u16 = 1500;

/// A server and the key of its client.
pub(super) struct Ends {
    pub(super) client: SecretKey,
    pub(super) server: SecretKey,
    pub(super) listener: QuicListener,
}

impl Ends {
    pub(super) fn new() -> Self {
        let (client, server) = (key(), key());
        let authorized = Authorized::new([client.public()]);
        let listener = listen(&server, &authorized);
        Self {
            client,
            server,
            listener,
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    pub(super) fn dialer(&self) -> QuicDialer {
        QuicDialer::new(self.client.clone(), &self.server.public())
    }

    /// A connection of the client before its HELLO, by way of `address`.
    pub(super) async fn open(&self, address: SocketAddr) -> Result<Opened, QuicError> {
        let dialer = self.dialer();
        dialer
            .connect(Some("lo"), address, Some(PACKET), SOON)
            .await
    }

    /// The next connection at the server.
    pub(super) async fn accept(&self) -> Result<ServerDatagrams, QuicError> {
        self.listener.next().await.unwrap().prove(SOON).await
    }

    /// Both ends of a carrier by way of `address`: the client's and the server's.
    pub(super) async fn join(&self, address: SocketAddr) -> (DatagramCarrier, DatagramCarrier) {
        let client = async {
            let opened = self.open(address).await.unwrap();
            opened.hello(SESSION, PathId(3), "lo".to_owned()).await
        };
        let server = async { self.accept().await.unwrap().welcome().await };
        let (client, server) = tokio::join!(client, server);
        (client.unwrap(), server.unwrap())
    }
}

/// A new key.
pub(super) fn key() -> SecretKey {
    SecretKey::generate().unwrap()
}

/// A server on a free port of loopback.
pub(super) fn listen(key: &SecretKey, authorized: &Authorized) -> QuicListener {
    QuicListener::bind("127.0.0.1:0".parse().unwrap(), key, authorized).unwrap()
}

/// The direction of a packet on a [`Road`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

/// Forwards the UDP packets of one client to a server, and of the server to the client.
pub(super) struct Road {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Road {
    /// `rule` decides for each packet which packets are forwarded instead, and to which server.
    pub(super) async fn new<R>(mut rule: R) -> Self
    where
        R: FnMut(Direction, Vec<u8>) -> (Vec<Vec<u8>>, SocketAddr) + Send + 'static,
    {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let back = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = front.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut client, mut up, mut down) = (None, vec![0; 65536], vec![0; 65536]);
            loop {
                let (direction, packet) = tokio::select! {
                    Ok((len, from)) = front.recv_from(&mut up) => {
                        client = Some(from);
                        (Direction::ToServer, up[..len].to_vec())
                    }
                    Ok((len, _)) = back.recv_from(&mut down) => {
                        (Direction::ToClient, down[..len].to_vec())
                    }
                };
                let (packets, server) = rule(direction, packet);
                for packet in packets {
                    match direction {
                        Direction::ToServer => drop(back.send_to(&packet, server).await),
                        Direction::ToClient => {
                            let client = client.expect("the client speaks first");
                            drop(front.send_to(&packet, client).await);
                        }
                    }
                }
            }
        });
        Self { address, task }
    }
}

/// A [`Road`] with a rate, a delay and a queue in each direction, in real time.
pub(super) async fn bottleneck(config: LinkConfig, server: SocketAddr) -> Road {
    let front = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let back = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = front.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut client = None;
        let (mut up, mut down) = (Link::new(config.clone()), Link::new(config));
        let mut buffer = vec![0; 65536];
        let epoch = Instant::now();
        loop {
            let deadlines = [up.next_deadline(), down.next_deadline()];
            let next = deadlines.into_iter().flatten().min().unwrap_or(SOON);
            tokio::select! {
                Ok(()) = front.readable() => {}
                Ok(()) = back.readable() => {}
                () = tokio::time::sleep_until(epoch + next) => {}
            }
            let now = epoch.elapsed();
            while let Ok((len, from)) = front.try_recv_from(&mut buffer) {
                client = Some(from);
                up.enqueue(now, buffer[..len].to_vec());
            }
            while let Ok((len, _)) = back.try_recv_from(&mut buffer) {
                down.enqueue(now, buffer[..len].to_vec());
            }
            while let Some(delivery) = up.poll(now) {
                drop(back.send_to(&delivery.packet, server).await);
            }
            while let (Some(client), Some(delivery)) = (client, down.poll(now)) {
                drop(front.send_to(&delivery.packet, client).await);
            }
        }
    });
    Road { address, task }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.task.abort();
    }
}
