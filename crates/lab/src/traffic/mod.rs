//! The traffic of measurements: every system moves the same bytes in the same way.
//!
//! `sumlink-lab traffic serve` runs on the server's side and does what each connection asks for;
//! `sumlink-lab traffic run` opens the connections, and prints one [`FlowRecord`] for each flow. Only
//! receivers count, by the time at which bytes came out of the socket, and every byte is compared with
//! what must be there. Both programs share the machine's monotonic clock.
//!
//! Where no tunnel is measured but what a program does by itself, they are that program: with TLS on their
//! sockets ([`tls`]), or with sumlink's library in place of sockets ([`library`]).

mod client;
pub(crate) mod connection;
mod library;
mod live;
mod pattern;
mod record;
mod requests;
mod server;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sumlink_transport::{PublicKey, SecretKey};

use crate::error::LabError;
use crate::prose::print;
use crate::video::receive;

pub(crate) use live::{Arrival, Live, Pace};

/// `sumlink-lab traffic`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TrafficCommand {
    /// Do what connections ask for until killed; prints what uploads brought
    Serve {
        /// Where to listen
        #[arg(long)]
        listen: SocketAddr,
        /// Listen for MPTCP
        #[arg(long)]
        mptcp: bool,
        /// What carries the bytes, as a JSON object; the socket itself without it
        #[arg(long)]
        channel: Option<String>,
    },
    /// Receive one pushed video until killed; prints a line for each picture
    Watch {
        /// Where to listen
        #[arg(long)]
        listen: SocketAddr,
        /// Listen for MPTCP
        #[arg(long)]
        mptcp: bool,
        /// Expect RTMP, which ffmpeg takes
        #[arg(long)]
        rtmp: bool,
    },
    /// Carry out a workload and print what arrived
    Run {
        /// A JSON object
        #[arg(long)]
        spec: String,
    },
}

/// What `traffic run` does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// When the run begins, on the monotonic clock.
    pub(crate) epoch_ns: u64,
    /// How long it takes.
    pub(crate) duration_ms: u64,
    /// Length of the intervals in which bytes are counted.
    pub(crate) interval_ms: u64,
    /// The ways to the server, each with flows of its own.
    pub(crate) routes: Vec<Route>,
    /// Flows from the server to the client, and the other way.
    pub(crate) down: bool,
    pub(crate) up: bool,
    /// What each flow carries.
    pub(crate) load: Load,
    /// The class that the connections are told to have, and that of the bulk beside questions.
    #[serde(default)]
    pub(crate) class: Option<String>,
    #[serde(default)]
    pub(crate) load_class: Option<String>,
    /// A way that somebody else uses meanwhile, for as much as there is room for.
    pub(crate) rival: Option<Route>,
}

/// A way to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Route {
    /// The link to bind to.
    pub(crate) link: Option<String>,
    /// Where to connect to.
    pub(crate) target: SocketAddr,
    /// A SOCKS5 proxy on the way.
    pub(crate) socks: Option<SocketAddr>,
    /// The class that a connection is told to have: the proxy's user name, or the class of the library's stream.
    #[serde(default)]
    pub(crate) class: Option<String>,
    /// With an MPTCP socket.
    pub(crate) mptcp: bool,
    /// What carries the bytes.
    #[serde(default)]
    pub(crate) channel: Channel,
}

/// What stands between a flow and the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Channel {
    /// A socket.
    #[default]
    Socket,
    /// TLS over a socket, as sumlink's carriers speak it.
    Tls(Keys),
    /// sumlink's library, over all links: a system's name after `library:`.
    Library {
        keys: Keys,
        // By the name that programs of before know, which `--program` may name.
        #[serde(rename = "scheduler")]
        variant: String,
    },
}

/// Who one end is, and whom it expects at the other one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    /// The file with its own secret key.
    pub(crate) own: PathBuf,
    /// The other end's public key.
    pub(crate) peer: PublicKey,
}

impl Keys {
    fn secret(&self) -> Result<SecretKey, String> {
        SecretKey::load(&self.own).map_err(|error| error.to_string())
    }
}

impl Route {
    /// Straight to the server.
    pub(crate) fn direct(target: SocketAddr) -> Self {
        Self {
            link: None,
            target,
            socks: None,
            class: None,
            mptcp: false,
            channel: Channel::Socket,
        }
    }
}

/// What a flow carries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    Bulk,
    Files {
        sizes: Vec<u64>,
        count: u64,
        gap_ms: u64,
        /// Bits per second that those ahead of an object are given, at least.
        pace: Option<u64>,
    },
    Cbr {
        rate: u64,
        message: u64,
    },
    Requests {
        request: u64,
        answer: u64,
        gap_ms: u64,
        /// Beside it, on each way, one that is `Bulk`.
        bulk: bool,
    },
}

/// What a connection asks of the server; the first thing that it carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Number of the flow, for the server's record.
    flow: u32,
    epoch_ns: u64,
    duration_ms: u64,
    interval_ms: u64,
    /// From the server to the client, or the other way.
    down: bool,
    job: Job,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Job {
    /// Until the run is over.
    Bulk,
    /// So many bytes; an upload is confirmed by one byte.
    Object { size: u64 },
    /// Messages until the run is over.
    Cbr { rate: u64, message: u64 },
    /// Answers of one size to questions of another, until the run is over.
    Answers { request: u64, answer: u64 },
}

/// The monotonic clock in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// When a run begins and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) epoch_ns: u64,
    pub(crate) duration_ms: u64,
}

impl Window {
    fn end_ns(self) -> u64 {
        self.epoch_ns
            .saturating_add(self.duration_ms.saturating_mul(1_000_000))
    }

    /// What is left; `None` when it is over.
    pub(crate) fn left(self) -> Option<Duration> {
        let left = self.end_ns().saturating_sub(now_ns());
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// Seconds since the start.
    pub(crate) fn elapsed_s(self) -> f64 {
        now_ns().saturating_sub(self.epoch_ns) as f64 / 1e9
    }
}

/// Sleeps until a time of the monotonic clock.
pub(crate) fn sleep_until_ns(due: u64) {
    let left = due.saturating_sub(now_ns());
    if left > 0 {
        std::thread::sleep(Duration::from_nanos(left));
    }
}

/// Carries out the verb.
pub(crate) fn run(command: TrafficCommand) -> Result<(), LabError> {
    match command {
        TrafficCommand::Serve {
            listen,
            mptcp,
            channel,
        } => {
            let channel = channel.map(|text| serde_json::from_str(&text)).transpose();
            let channel: Option<Channel> =
                channel.map_err(|error| LabError::Usage(format!("--channel: {error}")))?;
            match channel.unwrap_or_default() {
                Channel::Library { keys, variant } => library::serve(listen, &keys, &variant),
                channel => server::serve(listen, mptcp, &channel),
            }
        }
        TrafficCommand::Watch {
            listen,
            mptcp,
            rtmp,
        } => receive::watch(listen, mptcp, rtmp),
        TrafficCommand::Run { spec } => {
            let spec: Spec = serde_json::from_str(&spec)
                .map_err(|error| LabError::Usage(format!("--spec: {error}")))?;
            let records = client::run(&spec);
            let text = serde_json::to_string(&records)
                .map_err(|error| LabError::system("writing JSON", error))?;
            print(&format!("{text}\n"))?;
            Ok(())
        }
    }
}
