//! Sources between a client's end in memory and real sockets on loopback.

mod expiry;
mod failures;
mod limits;
mod mapping;
mod services;

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::datagram::{FlowFailure, PairSocket, Received, pair};
use crate::target::Target;

/// Longer than any step takes; a test that reaches this time has failed.
const LONG: Duration = Duration::from_secs(30);

/// Room of each direction of a source's ends.
const ROOM: usize = 1024;

/// A client with its exit.
struct Bench {
    policy: watch::Sender<Arc<EgressPolicy>>,
    exit: UdpExit,
}

/// A source: the client's end of it, and its end.
struct Open {
    near: PairSocket,
    served: JoinHandle<Ended>,
}

fn rules(text: &str) -> Arc<EgressPolicy> {
    let rules = text.split(';').map(|rule| rule.parse().unwrap());
    Arc::new(EgressPolicy::new(rules))
}

fn loopback() -> Arc<EgressPolicy> {
    rules("allow 127.0.0.0/8;allow [::1]")
}

impl Bench {
    fn new(settings: UdpSettings) -> Self {
        let (policy, updates) = watch::channel(loopback());
        let exit = UdpExit::new(updates, settings, None);
        Self { policy, exit }
    }

    fn open(&self) -> Open {
        let (near, far) = pair(ROOM);
        let exit = self.exit.clone();
        let served = tokio::spawn(async move { exit.serve(far).await });
        Open { near, served }
    }

    /// Waits until the counters satisfy a condition.
    async fn until(&self, condition: impl Fn(&UdpStats) -> bool) {
        let met = async {
            while !condition(&self.exit.stats()) {
                tokio::task::yield_now().await;
            }
        };
        let met = timeout(LONG, met).await;
        assert!(met.is_ok(), "{:?}", self.exit.stats());
    }
}

impl Open {
    fn send(&self, target: &Target, payload: &[u8]) {
        let payload = Bytes::copy_from_slice(payload);
        self.near.send(target, payload, None).unwrap();
    }

    /// The next event; `None` at the end of the source.
    async fn event(&mut self) -> Option<(Target, Received)> {
        let mut events = Vec::new();
        let received = self.near.receive(&mut events, 1);
        timeout(LONG, received).await.expect("an event");
        events.pop()
    }

    async fn datagram(&mut self) -> (Target, Bytes) {
        match self.event().await {
            Some((target, Received::Datagram(payload))) => (target, payload),
            other => panic!("no datagram but {other:?}"),
        }
    }

    async fn failure(&mut self) -> (Target, FlowFailure) {
        match self.event().await {
            Some((target, Received::Failed(failure))) => (target, failure),
            other => panic!("no failure but {other:?}"),
        }
    }

    /// Sends to an echo, and expects the answer from the same target.
    async fn exchange(&mut self, target: &Target, payload: &[u8]) {
        self.send(target, payload);
        let (from, answer) = self.datagram().await;
        assert_eq!((&from, &answer[..]), (target, payload));
    }
}

async fn remote(listen: &str) -> (UdpSocket, Target) {
    let socket = UdpSocket::bind(listen).await.unwrap();
    let target = socket.local_addr().unwrap().into();
    (socket, target)
}

/// A remote that returns every datagram.
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

async fn hear(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 1 << 16];
    let heard = timeout(LONG, socket.recv_from(&mut buffer)).await;
    let (length, from) = heard.expect("a datagram").unwrap();
    (buffer[..length].to_vec(), from)
}

fn by_name(name: &str, target: &Target) -> Target {
    Target::new(name, target.port).unwrap()
}
