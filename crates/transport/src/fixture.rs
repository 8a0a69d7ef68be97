//! Shared test fixtures: a server on loopback, and addresses that do not answer.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::api::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use crate::carrier::keys::SecretKey;
use crate::exit::egress::EgressPolicy;
use crate::server::Server;

/// A server configuration: a free loopback port, one client, streams to loopback allowed.
pub(crate) fn server_config(key: &SecretKey, client: &SecretKey) -> ServerConfig {
    let authorized = vec![AuthorizedClient {
        key: client.public(),
        name: String::new(),
    }];
    ServerConfig::new("127.0.0.1:0".parse().unwrap(), key.clone(), authorized)
        .egress(EgressPolicy::new(["allow 127.0.0.0/8".parse().unwrap()]))
}

/// The configuration of a client that uses loopback.
pub(crate) fn client_config(server: &SecretKey, key: &SecretKey, address: &str) -> ClientConfig {
    ClientConfig::new(address, server.public(), key.clone()).links(vec![LinkConfig::named("lo")])
}

/// Starts a server that runs as long as the test, and returns its address.
pub(crate) async fn serve(config: ServerConfig) -> SocketAddr {
    let server = Server::bind(config).await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(server.run(std::future::pending()));
    address
}

/// A listener with a full queue: SYNs to it are dropped and never answered.
pub(crate) struct Silent {
    pub(crate) address: SocketAddr,
    _queued: Vec<TcpStream>,
    _listener: TcpListener,
}

impl Silent {
    pub(crate) async fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        let patience = Duration::from_millis(250);
        while let Ok(Ok(stream)) = tokio::time::timeout(patience, TcpStream::connect(address)).await
        {
            queued.push(stream);
        }
        Self {
            address,
            _queued: queued,
            _listener: listener,
        }
    }

    /// Number of connections in this network namespace that wait for its answer.
    pub(crate) fn dials(&self) -> usize {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let port = format!(":{:04X}", self.address.port());
        let waiting = |line: &&str| {
            let mut words = line.split_whitespace().skip(2);
            let remote = words.next().is_some_and(|word| word.ends_with(&port));
            // SYN_SENT of include/net/tcp_states.h.
            remote && words.next() == Some("02")
        };
        table.lines().filter(waiting).count()
    }
}

/// A port on which nothing listens.
pub(crate) async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
