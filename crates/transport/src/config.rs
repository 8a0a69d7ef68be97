//! What a client and a server are told: plain structures, filled by the command line, a TOML file or a
//! program that uses this crate.

use std::net::SocketAddr;
use std::time::Duration;

use crate::egress::EgressPolicy;
use crate::keys::{PublicKey, SecretKey};

/// How a session uses memory and time; the same meaning on both sides.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// Scheduler that decides which path carries which bytes; see `sumlink_engine::scheduler::NAMES`.
    pub scheduler: String,
    /// What one session may hold of received and of sent bytes, each, in bytes.
    pub memory: u64,
    /// What one stream may hold of that, in bytes.
    pub stream_memory: u64,
    /// Streams that the peer may have open at once.
    pub max_streams: u64,
    /// How long a session without any path waits for one to come back.
    pub session_timeout: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            scheduler: "fbdt".to_owned(),
            memory: 64 << 20,
            stream_memory: 32 << 20,
            max_streams: 1024,
            session_timeout: Duration::from_secs(60),
        }
    }
}

/// Which links a client uses, and how.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// The interface's name, or a glob (`wwan*`).
    pub name: String,
    /// TCP congestion control for carriers over this link; the kernel's default when not given.
    pub congestion: Option<String>,
}

/// Everything a client is told.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server's host and port; a name is resolved by the local resolver.
    pub server: String,
    /// The server's public key; a server with another one is not talked to.
    pub server_key: PublicKey,
    /// This client's own key.
    pub key: SecretKey,
    /// The links to use; empty means every interface that can route to the server.
    pub links: Vec<LinkConfig>,
    /// TCP congestion control for links that name none; the kernel's default when not given.
    pub congestion: Option<String>,
    /// Memory, scheduler, timeouts.
    pub session: SessionConfig,
}

/// A client that may connect.
#[derive(Clone, Debug)]
pub struct AuthorizedClient {
    /// Its public key.
    pub key: PublicKey,
    /// A label for logs and status; may be empty.
    pub name: String,
}

/// What one client key may use at most.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// Sessions at once.
    pub sessions: usize,
    /// Paths of one session at once.
    pub paths: usize,
    /// Connections of one source address that have not yet proved a key.
    pub half_open: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            sessions: 16,
            paths: 32,
            half_open: 32,
        }
    }
}

/// Everything a server is told.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address and port for all clients; `[::]:PORT` takes IPv4 too.
    pub listen: SocketAddr,
    /// This server's own key.
    pub key: SecretKey,
    /// Who may connect. Nobody else can.
    pub authorized: Vec<AuthorizedClient>,
    /// Where streams may go.
    pub egress: EgressPolicy,
    /// What one client may use.
    pub limits: ClientLimits,
    /// TCP congestion control for carriers; the kernel's default when not given.
    pub congestion: Option<String>,
    /// Memory, scheduler, timeouts.
    pub session: SessionConfig,
}
