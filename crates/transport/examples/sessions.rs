//! Measures a server with many sessions: its memory, processor time and wake-ups.
//!
//! ```text
//! cargo run --release -p sumlink-transport --example sessions -- \
//!     NUMBER [--seconds 60] [--rate KBIT_PER_S] [--full NUMBER]
//! ```
//!
//! Without further options the sessions are idle. With `--rate`, each client downloads at that
//! rate over one stream; `--full` clients download as fast as possible instead. The clients and
//! their targets run in other processes, each client with its own key and one link, the
//! loopback device. The server needs an open file for a session and another one for a stream.

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Buf;
use sumlink_transport::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::{
    Client, PublicKey, SecretKey, Server, ServerHandle, Stream, Target, descriptors,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Clients that connect at once: a server lets 32 connections of an address wait for their key.
const AT_ONCE: usize = 16;

/// Most clients of one process, each of which has two open files, and two for a stream.
const OF_PROCESS: usize = 2500;

/// Pause between the last connection and the measurement. An idle client ends its QUIC connection
/// after a minute, and the server returns the memory to the kernel within two more.
const SETTLING: Duration = Duration::from_secs(190);

/// The same for clients that download.
const SETTLING_ACTIVE: Duration = Duration::from_secs(20);

/// Time between two writes of a target that limits its rate.
const TICK: Duration = Duration::from_millis(100);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The measurement.
#[derive(Clone, Copy, Debug)]
struct Plan {
    number: usize,
    seconds: u64,
    /// Bytes per second of each client's stream; without streams 0.
    rate: u64,
    /// The clients that download without a limit.
    full: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    descriptors::raise();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--clients", folder, server, key, from, to, rate, full] = words.as_slice() {
        let clients = from.parse()?..to.parse()?;
        let (rate, full) = (rate.parse()?, full.parse()?);
        return connect(Path::new(folder), server, key.parse()?, clients, rate, full).await;
    }
    let (Some(number), true) = (words.first(), words.len() % 2 == 1) else {
        return Err("usage: sessions NUMBER [--seconds 60] [--rate KBIT] [--full NUMBER]".into());
    };
    let mut plan = Plan {
        number: number.parse()?,
        seconds: 60,
        rate: 0,
        full: 0,
    };
    for option in words[1..].chunks(2) {
        match option {
            ["--seconds", seconds] => plan.seconds = seconds.parse()?,
            ["--rate", kbit] => plan.rate = kbit.parse::<u64>()? * 125,
            ["--full", number] => plan.full = number.parse()?,
            _ => return Err(format!("unknown option {}", option[0]).into()),
        }
    }
    let folder = std::env::temp_dir().join(format!("sumlink-sessions-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let mut clients = Vec::new();
    let measured = measure(&folder, plan, &mut clients).await;
    for mut child in clients {
        child.kill()?;
        child.wait()?;
    }
    fs::remove_dir_all(&folder)?;
    measured
}

/// The server's process.
async fn measure(folder: &Path, plan: Plan, clients: &mut Vec<Child>) -> Result<()> {
    let key = SecretKey::generate()?;
    let mut authorized = Vec::new();
    for client in 0..plan.number {
        let key = SecretKey::generate()?;
        key.save(&folder.join(client.to_string()))?;
        authorized.push(AuthorizedClient {
            key: key.public(),
            name: format!("client-{client}"),
            publish: Vec::new(),
        });
    }
    let public = key.public();
    let mut config = ServerConfig::new("127.0.0.1:0".parse()?, key, authorized)
        .egress(EgressPolicy::new(["allow 127.0.0.0/8".parse()?]));
    // Here all clients have the same address.
    config.half_open.per_address = config.half_open.total;
    let server = Server::bind(config).await?;
    let (address, handle) = (server.local_addr()?, server.handle());
    tokio::spawn(server.run(std::future::pending()));
    sleep(Duration::from_secs(1)).await;
    let before = Process::now()?;

    for from in (0..plan.number).step_by(OF_PROCESS) {
        let to = plan.number.min(from + OF_PROCESS);
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--clients")
            .arg(folder)
            .args([address.to_string(), public.to_string()])
            .args([from, to].map(|number| number.to_string()))
            .args([plan.rate.to_string(), plan.full.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("no output")?;
        clients.push(child);
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(output).read_line(&mut line).map(|_| line)
        });
        if line.await??.trim() != "connected" {
            return Err("the clients did not connect".into());
        }
    }
    let connected = Process::now()?;
    sleep(match plan.rate > 0 || plan.full > 0 {
        true => SETTLING_ACTIVE,
        false => SETTLING,
    })
    .await;
    let (bytes, began, start) = (sent(&handle).await, Instant::now(), Process::now()?);
    sleep(Duration::from_secs(plan.seconds)).await;
    let (end, time, bytes) = (
        Process::now()?,
        began.elapsed().as_secs_f64(),
        sent(&handle).await - bytes,
    );

    let each = |value: f64| value / plan.number as f64;
    let busy = end.processor_s - start.processor_s;
    println!(
        "{} sessions: {:.1} MB resident ({:.1} kB each), {:.3} wake-ups a second each, {:.2} % of \
         a processor, {:.2} ms of processor time for each connection",
        plan.number,
        end.resident / 1e6,
        each(end.resident - before.resident) / 1e3,
        each((end.switches - start.switches) / time),
        busy / time * 100.0,
        each(connected.processor_s - before.processor_s) * 1e3,
    );
    if plan.rate > 0 || plan.full > 0 {
        println!(
            "{:.1} Mbit/s, {:.2} s of processor time for each GB",
            bytes * 8.0 / time / 1e6,
            busy / (bytes / 1e9),
        );
    }
    Ok(())
}

/// Stream bytes that the server has sent.
async fn sent(server: &ServerHandle) -> f64 {
    let present = server.status().await;
    let totals = server.totals(&present);
    totals.iter().map(|client| client.bytes_sent as f64).sum()
}

/// A process of clients, which stays until it is killed.
async fn connect(
    folder: &Path,
    server: &str,
    key: PublicKey,
    numbers: Range<usize>,
    rate: u64,
    full: usize,
) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let target = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(serve(tcp));
        }
    });
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut connecting = JoinSet::new();
    for number in numbers {
        let own = SecretKey::load(&folder.join(number.to_string()))?;
        let config = ClientConfig::new(server, key, own).links(vec![LinkConfig::named("lo")]);
        let place = Arc::clone(&places).acquire_owned().await?;
        connecting.spawn(async move {
            let client = Client::connect(config).await?;
            let stream = match number < full || rate > 0 {
                true => Some(client.open_stream(Target::from(target)).await?),
                false => None,
            };
            drop(place);
            Ok::<_, Box<dyn Error + Send + Sync>>((number, client, stream))
        });
    }
    let mut clients = Vec::new();
    let mut streams = Vec::new();
    while let Some(connected) = connecting.join_next().await {
        let (number, client, stream) = connected??;
        clients.push(client);
        streams.extend(stream.map(|stream| (number, stream)));
    }
    for (number, stream) in streams {
        tokio::spawn(download(stream, if number < full { 0 } else { rate }));
    }
    println!("connected");
    std::future::pending().await
}

/// Requests bytes at this rate, and drops them.
async fn download(mut stream: Stream, rate: u64) -> std::io::Result<()> {
    stream.write_all(&rate.to_be_bytes()).await?;
    loop {
        let mut received = stream.received().await?;
        let len = received.remaining();
        if len == 0 {
            return Ok(());
        }
        received.advance(len);
    }
}

/// A target: sends zeros at the requested rate in bytes per second; 0 is as fast as possible.
async fn serve(mut tcp: TcpStream) -> std::io::Result<()> {
    let rate = tcp.read_u64().await?;
    let zeros = vec![0; 64 * 1024];
    let mut due = 0;
    let mut ticks = tokio::time::interval(TICK);
    loop {
        if rate == 0 {
            tcp.write_all(&zeros).await?;
            continue;
        }
        ticks.tick().await;
        due += rate * TICK.as_millis() as u64 / 1000;
        while due > 0 {
            let len = zeros.len().min(due as usize);
            tcp.write_all(&zeros[..len]).await?;
            due -= len as u64;
        }
    }
}

/// The resources that this process has used so far.
struct Process {
    /// Resident memory in bytes.
    resident: f64,
    /// Processor time in seconds.
    processor_s: f64,
    /// How often its threads have waited.
    switches: f64,
}

impl Process {
    fn now() -> Result<Self> {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
        let seconds =
            |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        let status = fs::read_to_string("/proc/self/status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = resident.and_then(|line| line.split_whitespace().next()?.parse().ok());
        let resident: f64 = resident.ok_or("no VmRSS")?;
        Ok(Self {
            resident: resident * 1024.0,
            processor_s: seconds(usage.user_time()) + seconds(usage.system_time()),
            switches: usage.voluntary_context_switches() as f64,
        })
    }
}
