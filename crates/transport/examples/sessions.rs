//! Measures a server with many idle sessions: its memory, processor time and wake-ups.
//!
//! `cargo run --release -p sumlink-transport --example sessions -- NUMBER [SECONDS]`
//!
//! The clients run in a process of their own, each with its own key and one link, the loopback
//! device. Each side needs two open files for a session.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use sumlink_transport::config::{AuthorizedClient, ClientConfig, ServerConfig};
use sumlink_transport::{Client, PublicKey, SecretKey, Server, descriptors};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Clients that connect at once: a server lets 32 connections of an address wait for their key.
const AT_ONCE: usize = 16;

/// Pause between the last connection and the measurement.
const SETTLING: Duration = Duration::from_secs(15);

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    descriptors::raise();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [number] => measure(number.parse()?, 30).await,
        ["--clients", folder, server, key, number] => {
            connect(Path::new(folder), server, key.parse()?, number.parse()?).await
        }
        [number, seconds] => measure(number.parse()?, seconds.parse()?).await,
        _ => Err("usage: sessions NUMBER [SECONDS]".into()),
    }
}

/// The server's process.
async fn measure(number: usize, seconds: u64) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("sumlink-sessions-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let measured = measure_with(&folder, number, seconds).await;
    fs::remove_dir_all(&folder)?;
    measured
}

async fn measure_with(folder: &Path, number: usize, seconds: u64) -> Result<()> {
    let key = SecretKey::generate()?;
    let mut authorized = Vec::new();
    for client in 0..number {
        let key = SecretKey::generate()?;
        key.save(&folder.join(client.to_string()))?;
        authorized.push(AuthorizedClient {
            key: key.public(),
            name: format!("client-{client}"),
            publish: Vec::new(),
        });
    }
    let public = key.public();
    let server = Server::bind(ServerConfig::new("127.0.0.1:0".parse()?, key, authorized)).await?;
    let address = server.local_addr()?;
    tokio::spawn(server.run(std::future::pending()));
    sleep(Duration::from_secs(1)).await;
    let before = Process::now()?;

    let mut clients = Command::new(std::env::current_exe()?)
        .arg("--clients")
        .arg(folder)
        .args([address.to_string(), public.to_string(), number.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = clients.stdout.take().ok_or("no output")?;
    let line = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map(|_| line)
    });
    let line = line.await??;
    if line.trim() != "connected" {
        clients.wait()?;
        return Err("the clients did not connect".into());
    }
    sleep(SETTLING).await;
    let idle = Process::now()?;
    sleep(Duration::from_secs(seconds)).await;
    let after = Process::now()?;
    clients.kill()?;
    clients.wait()?;

    let each = |value: f64| value / number as f64;
    let time = seconds as f64;
    println!(
        "{number} idle sessions: {:.1} MB resident ({:.1} kB a session), {:.3} wake-ups a second \
         and session, {:.1} % of a processor; {:.2} ms of processor time for each connection",
        after.resident / 1e6,
        each(after.resident - before.resident) / 1e3,
        each((after.switches - idle.switches) / time),
        (after.processor_s - idle.processor_s) / time * 100.0,
        each(idle.processor_s - before.processor_s) * 1e3,
    );
    Ok(())
}

/// The clients' process, which stays until it is killed.
async fn connect(folder: &Path, server: &str, key: PublicKey, number: usize) -> Result<()> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut connecting = JoinSet::new();
    for client in 0..number {
        let own = SecretKey::load(&folder.join(client.to_string()))?;
        let config = ClientConfig::new(server, key, own);
        let place = Arc::clone(&places).acquire_owned().await?;
        connecting.spawn(async move {
            let client = Client::connect(config).await;
            drop(place);
            client
        });
    }
    let mut clients = Vec::new();
    while let Some(connected) = connecting.join_next().await {
        clients.push(connected??);
    }
    println!("connected");
    std::future::pending().await
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
