//! The traffic of measurements: every system moves the same bytes in the same way.
//!
//! `sumlink-lab traffic serve` runs on the server's side and serves the request of each connection;
//! `sumlink-lab traffic run` opens the connections, and prints one [`FlowRecord`] for each flow.
//! Only receivers count, by the time at which bytes came out of the socket, and every byte is
//! compared with the expected one. Both programs share the machine's monotonic clock.
//!
//! Systems that are not tunnels but part of a program are measured inside these programs: with TLS
//! on their sockets ([`tls`]), or with sumlink's library in place of sockets ([`library`]).

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod curl;
pub(crate) mod datagrams;
mod first_byte;
pub(crate) mod http3;
pub(crate) mod library;
mod live;
pub(crate) mod many;
mod names;
mod pattern;
mod record;
mod requests;
pub(crate) mod server;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sumlink_transport::{PublicKey, SecretKey};

pub(crate) use first_byte::first_byte;
pub(crate) use live::{Arrival, Live, Pace};

/// The parameters of `traffic run`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Start of the run on the monotonic clock.
    pub(crate) epoch_ns: u64,
    /// Duration of the run.
    pub(crate) duration_ms: u64,
    /// Length of the intervals in which bytes are counted.
    pub(crate) interval_ms: u64,
    /// Routes to the server, each with separate flows.
    pub(crate) routes: Vec<Route>,
    /// Flows from the server to the client, and in the other direction.
    pub(crate) down: bool,
    pub(crate) up: bool,
    /// The traffic of each flow.
    pub(crate) load: Load,
    /// The class of the connections, and that of the bulk traffic that accompanies questions.
    #[serde(default)]
    pub(crate) class: Option<String>,
    #[serde(default)]
    pub(crate) load_class: Option<String>,
    /// A route for a competing bulk flow.
    pub(crate) rival: Option<Route>,
    /// The keys of the client for HTTP/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) http3: Option<Keys>,
}

/// The parameters of `traffic serve --http3`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Http3 {
    pub(crate) listen: SocketAddr,
    pub(crate) keys: Keys,
}

/// A route to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Route {
    /// The link to bind to.
    pub(crate) link: Option<String>,
    /// Address to connect to.
    pub(crate) target: SocketAddr,
    /// A SOCKS5 proxy to use.
    pub(crate) socks: Option<SocketAddr>,
    /// Address to which datagrams are sent.
    #[serde(default)]
    pub(crate) datagrams: Option<SocketAddr>,
    /// Address of the server for HTTP/3.
    #[serde(default)]
    pub(crate) http3: Option<SocketAddr>,
    /// Address of the name server.
    #[serde(default)]
    pub(crate) resolver: Option<SocketAddr>,
    /// The link is that of a gateway: it names the flows, but no socket can be bound to it.
    #[serde(default)]
    pub(crate) behind_gateway: bool,
    /// The class of a connection: sent as the proxy's user name, or set on the library's stream.
    #[serde(default)]
    pub(crate) class: Option<String>,
    /// Use an MPTCP socket.
    pub(crate) mptcp: bool,
    /// The transport of the bytes.
    #[serde(default)]
    pub(crate) channel: Channel,
}

/// The transport between a flow and the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Channel {
    /// A plain socket.
    #[default]
    Socket,
    /// TLS over a socket, as in sumlink's carriers.
    Tls(Keys),
    /// sumlink's library, over all links: a system's name after `library:`.
    Library {
        keys: Keys,
        // The name that earlier programs expect, which `--program` may select.
        #[serde(rename = "scheduler")]
        variant: String,
    },
}

/// The identity of one end, and the expected identity of the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    /// The file with its secret key.
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
    /// Directly to the server.
    pub(crate) fn direct(target: SocketAddr) -> Self {
        Self {
            link: None,
            target,
            socks: None,
            datagrams: Some(datagrams_beside(target)),
            http3: Some(http3_beside(target)),
            resolver: None,
            behind_gateway: false,
            class: None,
            mptcp: false,
            channel: Channel::Socket,
        }
    }

    /// The link that sockets are bound to.
    pub(crate) fn device(&self) -> Option<&str> {
        self.link.as_deref().filter(|_| !self.behind_gateway)
    }
}

/// The address for datagrams of a server with this address for connections.
pub(crate) fn datagrams_beside(target: SocketAddr) -> SocketAddr {
    SocketAddr::new(target.ip(), target.port().saturating_add(1))
}

/// The address for HTTP/3 of a server with this address for connections.
pub(crate) fn http3_beside(target: SocketAddr) -> SocketAddr {
    SocketAddr::new(target.ip(), target.port().saturating_add(2))
}

/// The address for many connections at a time of a server with this address for connections.
pub(crate) fn many_beside(target: SocketAddr) -> SocketAddr {
    SocketAddr::new(target.ip(), target.port().saturating_add(3))
}

/// The address for curl of a server with this address for connections.
pub(crate) fn curl_beside(target: SocketAddr) -> SocketAddr {
    SocketAddr::new(target.ip(), target.port().saturating_add(4))
}

/// A route to a server that runs beside its target.
#[cfg(test)]
pub(crate) fn served(
    beside: fn(SocketAddr) -> SocketAddr,
    serve: fn(SocketAddr) -> std::io::Result<()>,
) -> Route {
    loop {
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let route = Route::direct(probe.local_addr().unwrap());
        drop(probe);
        match serve(beside(route.target)) {
            Ok(()) => return route,
            // The port beside a free one may be taken.
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The traffic of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Load {
    Bulk,
    Files {
        sizes: Vec<u64>,
        count: u64,
        gap_ms: u64,
        /// Minimum rate of the senders ahead of an object, in bits per second.
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
        /// Accompanied by a `Bulk` flow in each direction.
        bulk: bool,
    },
    /// A bulk download with curl.
    Curl,
    /// Short connections, all with the same answer.
    Connections {
        parallel: u64,
        answer: u64,
    },
    /// Connections that stay open.
    Open {
        count: u64,
    },
    /// Questions to a name server.
    Names {
        cached: bool,
        gap_ms: u64,
    },
    Datagrams {
        /// As in a `Schedule`.
        sizes: Vec<u32>,
        cycle_ns: u64,
        /// Both ends send over the same socket, whatever the run's direction.
        both_ways: bool,
        /// Accompanied by a `Bulk` flow in each direction.
        bulk: bool,
    },
    /// Bulk traffic over HTTP/3.
    Http3 {
        /// Accompanied by an `Echo` flow.
        probe: bool,
    },
    /// Small datagrams that return.
    Echo,
}

/// A connection's request to the server, sent as its first bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Number of the flow, for the server's record.
    flow: u32,
    epoch_ns: u64,
    duration_ms: u64,
    interval_ms: u64,
    /// From the server to the client; otherwise in the other direction.
    down: bool,
    job: Job,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Job {
    /// Until the run is over.
    Bulk,
    /// This number of bytes; an upload is confirmed by one byte.
    Object { size: u64 },
    /// Messages until the run is over.
    Cbr { rate: u64, message: u64 },
    /// Answers to questions, with these sizes, until the run is over.
    Answers { request: u64, answer: u64 },
    /// Datagrams until the run is over, from the server in `down`, to it in `up`.
    Datagrams {
        sizes: Vec<u32>,
        cycle_ns: u64,
        down: bool,
        up: bool,
    },
    /// Datagrams are returned until the run is over.
    Echo,
}

/// The monotonic clock in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

/// Start and end of a run.
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

    /// The remaining time; `None` when the run is over.
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
