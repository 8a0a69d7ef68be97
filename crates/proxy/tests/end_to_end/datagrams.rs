//! Datagrams through SOCKS5 associations and forwards, with the real exit behind them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sumlink_exit::datagram::{DatagramSocket, FlowFailure, PairSocket, Received, SendError, pair};
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::relay::Buffered;
use sumlink_exit::udp::{UdpExit, UdpSettings};
use sumlink_proxy::{Class, DatagramOpener, OpenError, Opener, Target};
use tokio::io::DuplexStream;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::common::within;

mod associations;
mod forwards;

/// Time in which a datagram that must not arrive would have arrived.
const SILENCE: Duration = Duration::from_millis(100);

/// A session with a server on this machine.
#[derive(Clone)]
struct Session {
    exit: UdpExit,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The class of each source and of each datagram.
    classes: Mutex<Vec<(Option<Target>, Option<Class>)>>,
    served: Mutex<Vec<AbortHandle>>,
    /// Sources wait for it while the session is down.
    restored: Notify,
    is_down: Mutex<bool>,
}

/// A socket that notes classes.
struct Noting {
    socket: PairSocket,
    shared: Arc<Shared>,
}

impl Session {
    fn new() -> Self {
        let rules = ["allow 127.0.0.0/8", "allow [::1]"].map(|rule| rule.parse().unwrap());
        let (_, policy) = watch::channel(Arc::new(EgressPolicy::new(rules)));
        Self {
            exit: UdpExit::new(policy, UdpSettings::default(), None),
            shared: Arc::default(),
        }
    }

    /// The server forgets all sources, as when it is restarted.
    fn restart(&self) {
        for served in self.shared.served.lock().unwrap().drain(..) {
            served.abort();
        }
    }

    fn sources(&self) -> usize {
        self.exit.stats().sources
    }

    async fn until(&self, sources: usize) {
        within(async {
            while self.sources() != sources {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    fn classes(&self) -> Vec<(Option<Target>, Option<Class>)> {
        self.shared.classes.lock().unwrap().clone()
    }
}

impl DatagramOpener for Session {
    type Socket = Noting;

    async fn bind(&self, class: Option<Class>) -> Result<Noting, OpenError> {
        if *self.shared.is_down.lock().unwrap() {
            self.shared.restored.notified().await;
        }
        self.shared.classes.lock().unwrap().push((None, class));
        let (near, far) = pair(1024);
        let exit = self.exit.clone();
        let served = tokio::spawn(async move { exit.serve(far).await });
        self.shared
            .served
            .lock()
            .unwrap()
            .push(served.abort_handle());
        let shared = Arc::clone(&self.shared);
        Ok(Noting {
            socket: near,
            shared,
        })
    }
}

impl Opener for Session {
    type Stream = Buffered<DuplexStream>;

    async fn open(&self, _: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        Err(OpenError::Refused)
    }
}

impl DatagramSocket for Noting {
    fn send(&self, remote: &Target, payload: Bytes, class: Option<Class>) -> Result<(), SendError> {
        let mut classes = self.shared.classes.lock().unwrap();
        classes.push((Some(remote.clone()), class));
        self.socket.send(remote, payload, class)
    }

    async fn receive(&mut self, out: &mut Vec<(Target, Received)>, limit: usize) -> usize {
        self.socket.receive(out, limit).await
    }

    fn report(&self, remote: &Target, failure: FlowFailure) {
        self.socket.report(remote, failure);
    }
}

async fn hear(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 1 << 16];
    let (length, from) = within(socket.recv_from(&mut buffer)).await.unwrap();
    (buffer[..length].to_vec(), from)
}

async fn silent(socket: &UdpSocket) -> bool {
    timeout(SILENCE, socket.peek_from(&mut [0])).await.is_err()
}

async fn remote(listen: &str) -> (UdpSocket, Target) {
    let socket = UdpSocket::bind(listen).await.unwrap();
    let target = socket.local_addr().unwrap().into();
    (socket, target)
}

async fn echo(listen: &str) -> Target {
    let (socket, target) = remote(listen).await;
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            socket.send_to(&buffer[..length], from).await.unwrap();
        }
    });
    target
}
