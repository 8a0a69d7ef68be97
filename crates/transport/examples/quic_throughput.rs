//! Throughput of datagrams on loopback, with packets of an Ethernet link: over a bare pair of quinn
//! endpoints, over a datagram carrier, and over the whole bond from a flow of the client through
//! the server's exit to a UDP socket.
//!
//! ```sh
//! cargo run --release -p sumlink-transport --example quic_throughput [SECONDS [BYTES]]
//! ```
//!
//! Prints for each the datagrams received in Gbit/s, the share that was lost, the CPU time of the
//! process for each gigabyte, of both ends together, and the round trip at the end.

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use sumlink_engine::{Class, PathId};
use sumlink_exit::udp_io::{UdpIo, UdpOptions};
use sumlink_transport::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::quic::{DatagramCarrier, HANDSHAKE_PATIENCE, QuicDialer, QuicListener};
use sumlink_transport::tls::{self, Authorized};
use sumlink_transport::{Client, SecretKey, Server};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Datagrams that a receiver takes at once.
const BATCH: usize = 256;

/// MTU of the pretended link.
const PACKET: u16 = 1500;

/// Time for congestion control and the search for the largest packet, before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);

/// Bytes between the program that sends over the bond and the one that receives. They are less
/// than the queue of a flow, so that only the network loses datagrams.
const AHEAD: u64 = 1 << 20;

/// Datagrams that the program sends at once.
const BURST: usize = 64;

/// Pause of a program that is [`AHEAD`].
const PAUSE: Duration = Duration::from_micros(200);

/// Nothing arrives for this long if the rest is lost.
const LOST: Duration = Duration::from_millis(50);

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let bytes = arguments.next().map_or(Ok(1400), |text| text.parse())?;
    let duration = Duration::from_secs_f64(seconds);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    for turn in 1..=2 {
        runtime.block_on(bare(turn, duration, bytes))?;
        runtime.block_on(carrier(turn, duration, bytes))?;
        runtime.block_on(bond(turn, duration, bytes))?;
    }
    Ok(())
}

async fn bare(turn: u32, duration: Duration, bytes: usize) -> Outcome<()> {
    let (client, server) = (SecretKey::generate()?, SecretKey::generate()?);
    let authorized = Authorized::new([client.public()]);
    let tls = QuicServerConfig::try_from(tls::server_config(&server, &authorized))?;
    let any: SocketAddr = "127.0.0.1:0".parse()?;
    let config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    let listener = quinn::Endpoint::server(config, any)?;
    let dialer = quinn::Endpoint::client(any)?;
    let tls = QuicClientConfig::try_from(tls::client_config(&client, &server.public()))?;
    let config = quinn::ClientConfig::new(Arc::new(tls));
    let connect = dialer.connect_with(config, listener.local_addr()?, "sumlink.invalid")?;
    let accept = async {
        listener
            .accept()
            .await
            .ok_or("closed")?
            .await
            .map_err(|_| "failed")
    };
    let (sender, receiver) = tokio::join!(connect, accept);
    let (sender, receiver) = (sender?, receiver?);
    let counts = Arc::new(Counts::default());
    let (sent, received) = (Arc::clone(&counts), Arc::clone(&counts));
    let payload = Bytes::from(vec![0; bytes]);
    let sending = tokio::spawn(async move {
        loop {
            // The path takes datagrams of this size only after the search for its limit.
            let len = sender.max_datagram_size().unwrap_or(0).min(payload.len());
            if sender
                .send_datagram_wait(payload.slice(..len))
                .await
                .is_err()
            {
                return;
            }
            sent.sent.fetch_add(len as u64, Ordering::Relaxed);
            sent.srtt
                .store(sender.rtt().as_micros() as u64, Ordering::Relaxed);
        }
    });
    let receiving = tokio::spawn(async move {
        while let Ok(datagram) = receiver.read_datagram().await {
            received
                .received
                .fetch_add(datagram.len() as u64, Ordering::Relaxed);
        }
    });
    measure(turn, "quinn", duration, &counts).await?;
    sending.abort();
    receiving.abort();
    Ok(())
}

async fn carrier(turn: u32, duration: Duration, bytes: usize) -> Outcome<()> {
    let (client, server) = (SecretKey::generate()?, SecretKey::generate()?);
    let authorized = Authorized::new([client.public()]);
    let listener = QuicListener::bind("127.0.0.1:0".parse()?, &server, &authorized)?;
    let address = listener.local_addr()?;
    let dialer = QuicDialer::new(client, &server.public());
    let connect = async {
        let opened = dialer
            .connect(Some("lo"), address, Some(PACKET), HANDSHAKE_PATIENCE)
            .await?;
        opened.hello([0; 16], PathId(0), "lo".to_owned()).await
    };
    let accept = async {
        let attempt = listener.next().await.expect("the listener is open");
        attempt.prove(HANDSHAKE_PATIENCE).await?.welcome().await
    };
    let (mut sender, mut receiver) = tokio::try_join!(connect, accept)?;
    let counts = Arc::new(Counts::default());
    let (sent, received) = (Arc::clone(&counts), Arc::clone(&counts));
    let payload = Bytes::from(vec![0; bytes]);
    let sending = tokio::spawn(async move { feed(&mut sender, &payload, &sent).await });
    let receiving = tokio::spawn(async move {
        let mut batch = Vec::with_capacity(BATCH);
        while receiver.receive(&mut batch, BATCH).await.is_ok() {
            let bytes: usize = batch.drain(..).map(|datagram| datagram.len()).sum();
            received.received.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    });
    measure(turn, "carrier", duration, &counts).await?;
    sending.abort();
    receiving.abort();
    Ok(())
}

async fn bond(turn: u32, duration: Duration, bytes: usize) -> Outcome<()> {
    let (client, key) = (SecretKey::generate()?, SecretKey::generate()?);
    let server_key = key.public();
    let authorized = vec![AuthorizedClient {
        key: client.public(),
        name: String::new(),
        publish: Vec::new(),
    }];
    let config = ServerConfig::new("127.0.0.1:0".parse()?, key, authorized)
        .egress(EgressPolicy::new(["allow 127.0.0.0/8".parse()?]));
    let server = Server::bind(config).await?;
    let address = server.local_addr()?.to_string();
    let serving = tokio::spawn(server.run(std::future::pending()));
    let config =
        ClientConfig::new(address, server_key, client).links(vec![LinkConfig::named("lo")]);
    let client = Client::connect(config).await?;
    let options = UdpOptions {
        receive_buffer: 8 << 20,
        ..UdpOptions::default()
    };
    let sink = UdpIo::bind("127.0.0.1:0".parse()?, options)?;
    let flow = client.open_flow(sink.local_addr()?.into(), Some(Class::Background), None);
    let counts = Arc::new(Counts::default());
    let (sent, received) = (Arc::clone(&counts), Arc::clone(&counts));
    let payload = Bytes::from(vec![0; bytes]);
    let sending = tokio::spawn(async move {
        let (mut lost, mut last) = (0, (0, Instant::now()));
        loop {
            let arrived = sent.received.load(Ordering::Relaxed);
            if arrived > last.0 {
                last = (arrived, Instant::now());
            }
            let under_way = sent.sent.load(Ordering::Relaxed) - arrived - lost;
            if under_way >= AHEAD {
                if last.1.elapsed() >= LOST {
                    lost += under_way;
                }
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            for _ in 0..BURST {
                if flow.send(payload.clone()).is_ok() {
                    sent.sent.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            }
            tokio::task::yield_now().await;
        }
    });
    let receiving = tokio::spawn(async move {
        while sink.ready().await.is_ok() {
            let mut bytes = 0;
            let _ = sink.try_receive(|arrival| bytes += arrival.payload.len() as u64);
            received.received.fetch_add(bytes, Ordering::Relaxed);
        }
    });
    let trip = Arc::clone(&counts);
    let watching = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            for path in client.status().await.datagram_paths {
                let srtt = (path.srtt_ms * 1e3) as u64;
                trip.srtt.store(srtt, Ordering::Relaxed);
            }
        }
    });
    measure(turn, "bond", duration, &counts).await?;
    watching.abort();
    sending.abort();
    receiving.abort();
    serving.abort();
    Ok(())
}

async fn feed(sender: &mut DatagramCarrier, payload: &Bytes, counts: &Counts) {
    loop {
        sender.writable().await;
        let srtt = sender.sample().srtt.as_micros() as u64;
        counts.srtt.store(srtt, Ordering::Relaxed);
        let len = sender.max_datagram().min(payload.len());
        while sender.send_space() > len {
            if sender.send(payload.slice(..len)).is_err() {
                return;
            }
            counts.sent.fetch_add(len as u64, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
    /// Smoothed round trip in microseconds.
    srtt: AtomicU64,
}

async fn measure(turn: u32, name: &str, duration: Duration, counts: &Counts) -> Outcome<()> {
    tokio::time::sleep(WARM_UP).await;
    let read = || {
        (
            counts.sent.load(Ordering::Relaxed),
            counts.received.load(Ordering::Relaxed),
        )
    };
    let (begun, cpu, before) = (Instant::now(), cpu_time()?, read());
    tokio::time::sleep(duration).await;
    let (elapsed, cpu, after) = (begun.elapsed(), cpu_time()? - cpu, read());
    let (sent, received) = (after.0 - before.0, after.1 - before.1);
    println!(
        "turn {turn} {name:8} {:6.2} Gbit/s  lost {:5.2} %  {:5.2} CPU s/GB  rtt {:5.1} ms",
        received as f64 * 8e-9 / elapsed.as_secs_f64(),
        100.0 * sent.saturating_sub(received) as f64 / sent.max(1) as f64,
        cpu.as_secs_f64() / (received as f64 * 1e-9),
        counts.srtt.load(Ordering::Relaxed) as f64 * 1e-3,
    );
    Ok(())
}

/// CPU time of this process, in user and kernel mode.
fn cpu_time() -> Outcome<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let microseconds =
        usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(u64::try_from(microseconds)?))
}
