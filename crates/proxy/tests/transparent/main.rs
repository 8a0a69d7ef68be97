//! Connections and datagrams to other machines, passed on by a real packet filter in network
//! namespaces.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod tcp;
mod udp;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sumlink_exit::datagram::{PairSocket, pair};
use sumlink_exit::relay::Buffered;
use sumlink_proxy::{Class, DatagramOpener, OpenError, Opener, Origin, Target};
use tokio::io::DuplexStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use sumlink_test_support::netns::Netns;

/// Longer than any step takes; a test that reaches this time has failed.
const LONG: Duration = Duration::from_secs(30);

/// The mark of packets that are delivered to this machine whatever their address, and the routing
/// table for it.
const MARK: &str = "0x5d000000";
const TABLE: &str = "7442";

/// A gateway and a machine on the network behind it.
struct Network {
    gateway: Netns,
    machine: Netns,
}

impl Network {
    fn new() -> Option<Self> {
        let (gateway, machine) = (Netns::new()?, Netns::new()?);
        let there = machine.name();
        gateway.ip(&format!(
            "link add lan type veth peer name lan netns {there}"
        ));
        for (ns, last) in [(&gateway, 1), (&machine, 2)] {
            ns.ip(&format!("address add 192.168.9.{last}/24 dev lan"));
            ns.ip(&format!("address add fd00:9::{last}/64 dev lan nodad"));
            ns.ip("link set lan up");
        }
        machine.ip("route add default via 192.168.9.1");
        machine.ip("-6 route add default via fd00:9::1");
        for family in ["-4", "-6"] {
            gateway.ip(&format!(
                "{family} rule add fwmark {MARK}/0xff000000 lookup {TABLE}"
            ));
            gateway.ip(&format!(
                "{family} route add local default dev lo table {TABLE}"
            ));
        }
        Some(Self { gateway, machine })
    }

    /// Passes everything of a protocol from the network to these ports of the gateway.
    fn capture(&self, protocol: &str, v4: SocketAddr, v6: SocketAddr) {
        let (v4, v6) = (v4.port(), v6.port());
        self.gateway.nft(&format!(
            "table inet test {{
                chain capture {{
                    type filter hook prerouting priority mangle;
                    iifname lan fib daddr type != local meta nfproto ipv4 \
                        meta l4proto {protocol} tproxy ip to 127.0.0.1:{v4} meta mark set {MARK} \
                        accept
                    iifname lan fib daddr type != local meta nfproto ipv6 \
                        meta l4proto {protocol} tproxy ip6 to [::1]:{v6} meta mark set {MARK} \
                        accept
                }}
            }}"
        ));
    }
}

/// A program's request: a stream to a target, or a source.
type Asked = (Origin, Option<Target>, Option<Class>);

/// A session that records all requests with their origin. Its streams echo, except to port 9; the
/// far ends of its sources are kept.
#[derive(Clone, Default)]
struct Session {
    opened: Arc<Mutex<Vec<Asked>>>,
    bound: Arc<Mutex<Vec<Asked>>>,
    sources: Arc<Mutex<Vec<PairSocket>>>,
}

impl Opener for Session {
    type Stream = Buffered<DuplexStream>;

    async fn open(&self, _: Target, _: Option<Class>) -> Result<Self::Stream, OpenError> {
        panic!("entries know the origin");
    }

    async fn open_from(
        &self,
        origin: Origin,
        target: Target,
        class: Option<Class>,
    ) -> Result<Self::Stream, OpenError> {
        let is_refused = target.port == 9;
        let asked = (origin, Some(target), class);
        self.opened.lock().unwrap().push(asked);
        if is_refused {
            return Err(OpenError::Refused);
        }
        let (near, far) = tokio::io::duplex(1024);
        tokio::spawn(async move {
            let (mut read, mut write) = tokio::io::split(far);
            tokio::io::copy(&mut read, &mut write).await
        });
        Ok(Buffered::new(near))
    }
}

impl DatagramOpener for Session {
    type Socket = PairSocket;

    async fn bind(&self, _: Option<Class>) -> Result<PairSocket, OpenError> {
        panic!("entries know the origin");
    }

    async fn bind_from(
        &self,
        origin: Origin,
        class: Option<Class>,
    ) -> Result<PairSocket, OpenError> {
        self.bound.lock().unwrap().push((origin, None, class));
        let (near, far) = pair(1024);
        self.sources.lock().unwrap().push(far);
        Ok(near)
    }
}

/// Entries that run in the gateway until dropped.
struct Running {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Starts what `start` returns, and returns its ports.
    fn start<T: Send + 'static>(
        gateway: &Netns,
        start: impl AsyncFnOnce() -> (T, Vec<JoinHandle<()>>) + Send + 'static,
    ) -> (Self, T) {
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let path = format!("/run/netns/{}", gateway.name());
        let thread = std::thread::spawn(move || {
            let namespace = std::fs::File::open(path).unwrap();
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let (started, _tasks) = start().await;
                ready.send(started).unwrap();
                let _ = stopped.await;
            });
        });
        let started = is_ready.recv_timeout(LONG).expect("the entries start");
        let running = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        (running, started)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
