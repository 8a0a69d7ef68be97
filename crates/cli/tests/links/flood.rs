//! Thousands of strangers that open connections and never prove a key: the client's links recover
//! and the client starts all the same.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sumlink_lab::Side;
use sumlink_transport::descriptors;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::interval;

use crate::bond::{Bond, Plan};
use sumlink_test_support::emulated::until;

const LINKS: [&str; 2] = ["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=10ms"];

/// More than the server's slots for connections without a proved key.
const FULL: usize = 1500;

/// Most connections that a flood holds.
const MAX_HELD: usize = 2500;

/// Time limit for the return of a link or a client, with a margin for a busy machine. An idle
/// machine takes about 1 s.
const IN_TIME: Duration = Duration::from_secs(10);

/// Connections to the server from addresses of its own machine, over no link.
struct Flood {
    sources: Vec<IpAddr>,
    server: SocketAddr,
    /// Time between two connections of each source.
    every: Duration,
    /// The first byte of TLS that each connection sends; `None` sends nothing.
    first: Option<u8>,
    opened: AtomicUsize,
    ends: AtomicBool,
}

impl Flood {
    fn new(sources: Vec<IpAddr>, server: &str, every: Duration, first: Option<u8>) -> Self {
        Self {
            sources,
            server: server.parse().unwrap(),
            every,
            first,
            opened: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
        }
    }

    /// Fills the server's table at once, and continues until it is ended.
    async fn run(&self) {
        let mut held = VecDeque::new();
        let mut ticks = interval(self.every);
        while !self.ends.load(Ordering::Relaxed) {
            if self.opened.load(Ordering::Relaxed) >= FULL {
                ticks.tick().await;
            }
            for source in &self.sources {
                if let Some(tcp) = self.open(*source).await {
                    held.push_back(tcp);
                    self.opened.fetch_add(1, Ordering::Relaxed);
                }
            }
            while held.len() > MAX_HELD {
                held.pop_front();
            }
        }
    }

    async fn open(&self, source: IpAddr) -> Option<TcpStream> {
        let socket = match source {
            IpAddr::V4(_) => TcpSocket::new_v4(),
            IpAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.ok()?;
        socket.bind(SocketAddr::new(source, 0)).ok()?;
        let connecting = tokio::time::timeout(Duration::from_secs(1), socket.connect(self.server));
        let mut tcp = connecting.await.ok()?.ok()?;
        // Avoids a FIN that the kernel would have to remember.
        tcp.set_zero_linger().ok()?;
        if let Some(first) = self.first {
            tcp.write_all(&[first]).await.ok()?;
        }
        Some(tcp)
    }
}

/// During a flood, a link fails and returns, then the client ends and starts again.
fn survives(bond: &mut Bond, flood: Flood) {
    descriptors::raise();
    let flood = Arc::new(flood);
    let running = Arc::clone(&flood);
    // A thread starts in the namespace of its parent.
    let begin = move || thread::spawn(move || run(&running));
    let thread = bond.bench.lab.run(Side::Server, begin).unwrap();
    let end = End(Arc::clone(&flood));
    until("the flood has filled the table", || {
        (flood.opened.load(Ordering::Relaxed) >= FULL).then_some(())
    });
    bond.bench.set("b", "state=removed");
    bond.until_active(&["a"]);
    bond.bench.set("b", "state=up");
    let begun = Instant::now();
    bond.until_active(&["a", "b"]);
    let link = begun.elapsed();

    bond.client.signal("TERM");
    assert_eq!(bond.client.wait(), Some(0));
    let begun = Instant::now();
    bond.client = bond
        .bench
        .sumlink("client", &["client", "--config", "client.toml"]);
    bond.client.event("connected");
    let client = begun.elapsed();
    bond.until_active(&["a", "b"]);
    drop(end);
    thread.join().unwrap();
    let opened = flood.opened.load(Ordering::Relaxed);
    println!("{opened} connections; the link was back in {link:?}, the client in {client:?}");
    assert!(
        link < IN_TIME && client < IN_TIME,
        "link {link:?}, client {client:?}"
    );
}

fn run(flood: &Flood) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(flood.run());
}

/// Ends a flood when the test ends, also by a panic.
struct End(Arc<Flood>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Relaxed);
    }
}

#[test]
fn one_host_with_many_ipv6_networks_locks_out_no_client() {
    let Some(bench) = Plan::new(&LINKS).bench() else {
        return;
    };
    // A /60, as one customer gets.
    let sources: Vec<IpAddr> = (0..16)
        .map(|net| format!("2001:db8:0:{:x}::1", 0x10 + net).parse().unwrap())
        .collect();
    let lines: String = sources
        .iter()
        .map(|ip| format!("addr add {ip}/128 dev lo nodad\n"))
        .collect();
    let file = bench.write("ip-batch", lines);
    bench.run(Side::Server, &["ip", "-batch", file.to_str().unwrap()]);
    let mut bond = Plan::new(&LINKS).start_on(bench);
    bond.until_active(&["a", "b"]);
    // 53 per second.
    let every = Duration::from_millis(300);
    survives(
        &mut bond,
        Flood::new(sources, "[fd99::1]:7000", every, None),
    );
    bond.stop();
}

#[test]
fn twenty_ipv4_addresses_with_two_thousand_connections_per_second_lock_out_no_client() {
    let Some(mut bond) = Plan::new(&LINKS).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    // Each in its own network; half of them would fill the table every half a second.
    let sources = || (1..=20).map(|net| IpAddr::from([127, 1, net, 1])).collect();
    let every = Duration::from_millis(10);
    let server = "10.99.0.1:7000";
    survives(&mut bond, Flood::new(sources(), server, every, None));
    // 22 is the type of a handshake record, so it does not look like garbage yet.
    survives(&mut bond, Flood::new(sources(), server, every, Some(22)));
    bond.stop();
}
