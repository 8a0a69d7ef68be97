//! sumlink's sessions over real sockets, and the library that programs use instead of the proxy.
//!
//! A [`Client`] bonds all links of this machine to a [`Server`]; [`Client::open_stream`] gives a
//! [`Stream`] that reads and writes like a TCP connection, as fast as all links together:
//!
//! ```no_run
//! use sumlink_transport::config::ClientConfig;
//! use sumlink_transport::{Client, SecretKey, Target};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let server_key = "E2tQXpu0P3xCZrF0yeGJBQ0Bci9M4rTDNOPhUkWxGhI=".parse()?;
//! let key = SecretKey::load("client.key".as_ref())?;
//! let config = ClientConfig::new("bond.example.org:7000", server_key, key);
//! let client = Client::connect(config).await?;
//! let mut stream = client.open_stream(Target::new("example.org", 80)?).await?;
//! stream.write_all(b"GET / HTTP/1.0\r\nHost: example.org\r\n\r\n").await?;
//! let mut page = Vec::new();
//! stream.read_to_end(&mut page).await?;
//! println!("{} bytes over {} paths", page.len(), client.status().await.paths.len());
//! # Ok(())
//! # }
//! ```
//!
//! A session belongs to one task, which owns the engine ([`sumlink_engine`]), the carriers and the
//! session's ends of the streams. Programs exchange whole chunks with it; nothing on the data path
//! takes a lock shared between paths.
//!
//! # Rooms
//!
//! The modules are grouped by subject. The public ones are re-exported at the root of the crate.
//!
//! | Room | Contents |
//! |---|---|
//! | `api` | the client's handle, streams, configuration, status and events |
//! | `session` | the session's task (commands, carriers, stream ends, totals), the streams' pipes |
//! | `carrier` | one TCP connection with TLS: handshake, keys, options, TCP_INFO, pacing; [`quic`] |
//! | [`links`] | the machine's links from rtnetlink, their policies, the dialing of carriers |
//! | `publishing` | published ports: messages, and the client's side |
//! | `server` | the port for all clients, half-open connections, each client's sessions |
//! | `local` | accept loop, connection slots, addresses, file descriptors, the order of tasks |
//!
//! `api`, `session` and `links` refer to each other: the client's handle starts a session and the
//! link manager, and both use the configuration, streams and status that `api` defines. `carrier`
//! and `links` do so because a carrier's socket is bound to a link. `carrier` and `local` know
//! no session, and `local` no links. What a server does with a stream (egress policy, dialing of
//! its target, relay) is in [`sumlink_exit`], below this crate.

#![deny(unsafe_code)]

mod api;
mod carrier;
#[cfg(test)]
mod fixture;
pub mod links;
mod local;
mod publishing;
mod server;
mod session;

pub use api::client::Client;
pub use api::error::{ConnectError, SetPolicyError};
pub use api::status::{PathEvent, SessionEvent, SessionStatus};
pub use api::stream::{Lent, Stream};
pub use api::{config, datagrams, join, publish, status};
pub use carrier::groups::CarrierGroups;
pub use carrier::handshake::CarrierError;
#[cfg(feature = "fuzz")]
pub use carrier::handshake::fuzz;
pub use carrier::keys::{PublicKey, SecretKey};
pub use carrier::{congestion, keys, quic, socket, tcp_info, tls};
pub use links::policy;
pub use links::policy::{LinkPolicy, LinkReport};
pub use local::proxy_header::ProxyHeaderError;
pub use local::{accept, address, descriptors, saved_syn, slots, tasks};
pub use server::{ClientUsage, Restriction, Server, ServerError, ServerHandle, Sockets};
pub use sumlink_bond::Early;
pub use sumlink_engine::frame::RefuseCode;
pub use sumlink_engine::scheduler::fbdt::{Coupling, FbdtConfig, WindowRule};
pub use sumlink_engine::{Class, ConfigError, Hints, Priority, Redundancy};
pub use sumlink_exit::target::{OpenError, Target};
pub use sumlink_exit::{egress, processors, resolver, speed, target, udp};
