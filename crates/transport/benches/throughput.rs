//! One stream over unshaped links, from a library source to a library sink, with both ends on this
//! machine.
//!
//! `cargo bench -p sumlink-transport --bench throughput [-- LINKS SECONDS [MIN_GBIT]]` as root:
//! two network namespaces joined by veth pairs, one task with one thread on each side. Exits with 1
//! if the median of three runs is below MIN_GBIT (default 3).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark")]

use std::net::SocketAddr;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sumlink_transport::config::{AuthorizedClient, ClientConfig, ServerConfig};
use sumlink_transport::{Client, SecretKey, Server, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn main() -> ExitCode {
    let arguments: Vec<f64> = std::env::args()
        .skip(1)
        .filter_map(|a| a.parse().ok())
        .collect();
    let argument = |index: usize, or: f64| arguments.get(index).copied().unwrap_or(or);
    let (links, seconds, least) = (
        argument(0, 2.0) as usize,
        argument(1, 5.0),
        argument(2, 3.0),
    );
    let namespaces = Namespaces::new(links);
    let mut results: Vec<f64> = (0..3).map(|_| run(&namespaces, seconds)).collect();
    results.sort_by(f64::total_cmp);
    println!(
        "{links} links, one stream: {:.2} Gbit/s (runs: {results:.2?})",
        results[1]
    );
    ExitCode::from(u8::from(results[1] < least))
}

/// Gbit/s of one run.
fn run(namespaces: &Namespaces, seconds: f64) -> f64 {
    let (server_key, client_key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let server_public = server_key.public();
    let authorized = vec![AuthorizedClient {
        key: client_key.public(),
        name: String::new(),
        publish: Vec::new(),
    }];
    let address: SocketAddr = "10.98.0.1:7000".parse().unwrap();
    let config = ServerConfig::new(address, server_key, authorized);
    let received = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received);
    let (ready, is_ready) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = namespaces.thread(1, async move {
        let server = Server::bind_with(config, move |_, _, mut stream| {
            let count = Arc::clone(&count);
            tokio::spawn(async move {
                let mut buffer = vec![0; 256 * 1024];
                while let Ok(len @ 1..) = stream.read(&mut buffer).await {
                    count.fetch_add(len as u64, Ordering::Relaxed);
                }
            });
        });
        let server = server.await.unwrap();
        ready.send(()).unwrap();
        server.run(async move { drop(stopped.await) }).await;
    });
    is_ready.recv().unwrap();
    let client = namespaces.thread(0, async move {
        let config = ClientConfig::new(address.to_string(), server_public, client_key);
        let client = Client::connect(config).await.unwrap();
        let mut stream = client
            .open_stream(Target::new("sink", 1).unwrap())
            .await
            .unwrap();
        let data = vec![7; 256 * 1024];
        let source = async {
            loop {
                stream.write_all(&data).await.unwrap();
            }
        };
        let warm_up = 1.0;
        let _: Result<(), _> =
            tokio::time::timeout(Duration::from_secs_f64(seconds + warm_up + 0.5), source).await;
        for path in client.status().await.paths {
            eprintln!(
                "  {}: share {:.2}, srtt {:.2} ms, {} retransmissions",
                path.link, path.send_share, path.srtt_ms, path.retransmissions
            );
        }
        client.close().await;
    });
    std::thread::sleep(Duration::from_secs(1));
    let (start, before) = (Instant::now(), received.load(Ordering::Relaxed));
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let bytes = received.load(Ordering::Relaxed) - before;
    let gbit = bytes as f64 * 8e-9 / start.elapsed().as_secs_f64();
    client.join().unwrap();
    drop(stop);
    server.join().unwrap();
    gbit
}

/// Two namespaces joined by veth pairs; dropping the value deletes them.
struct Namespaces {
    names: [String; 2],
}

impl Namespaces {
    fn new(links: usize) -> Self {
        let names = ["c", "s"].map(|side| format!("sumlink-bench-{side}-{}", std::process::id()));
        let this = Self { names };
        let [client, server] = &this.names;
        ip(&format!("netns add {client}"));
        ip(&format!("netns add {server}"));
        ip(&format!("-n {server} addr add 10.98.0.1/32 dev lo"));
        ip(&format!("-n {server} link set lo up"));
        for i in 1..=links {
            ip(&format!(
                "-n {client} link add veth{i} type veth peer name veth{i} netns {server}"
            ));
            ip(&format!("-n {client} addr add 10.97.{i}.2/24 dev veth{i}"));
            ip(&format!("-n {server} addr add 10.97.{i}.1/24 dev veth{i}"));
            ip(&format!("-n {client} link set veth{i} up"));
            ip(&format!("-n {server} link set veth{i} up"));
            ip(&format!(
                "-n {client} route add default via 10.97.{i}.1 dev veth{i} metric {i}"
            ));
        }
        this
    }

    fn thread(
        &self,
        side: usize,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> std::thread::JoinHandle<()> {
        let path = format!("/run/netns/{}", self.names[side]);
        std::thread::spawn(move || {
            let namespace = std::fs::File::open(path).unwrap();
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(work);
        })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.names
            .iter()
            .for_each(|name| ip(&format!("netns del {name}")));
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "ip {arguments} failed: are you root?"
    );
}
