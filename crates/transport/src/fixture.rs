//! Shared test fixtures: a server on loopback, and addresses that do not answer.

#[path = "../../exit/src/fixture.rs"]
mod sockets;

use std::net::SocketAddr;

use crate::api::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use crate::carrier::keys::SecretKey;
use crate::server::Server;
pub(crate) use sockets::{Silent, closed_port};
use sumlink_exit::egress::EgressPolicy;

/// A server configuration: a free loopback port, one client, streams to loopback allowed.
pub(crate) fn server_config(key: &SecretKey, client: &SecretKey) -> ServerConfig {
    let authorized = vec![AuthorizedClient {
        key: client.public(),
        name: String::new(),
        publish: Vec::new(),
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

impl Silent {
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
