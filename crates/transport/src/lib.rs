//! sumlink's sessions over real sockets, and the library that programs use instead of the proxy.
//!
//! A [`Client`] bonds all links of this machine to a [`Server`]; [`Client::open_stream`] gives a
//! [`Stream`] that reads and writes like a TCP connection, as fast as all links together:
//!
//! ```no_run
//! use sumlink_transport::config::{Carriers, ClientConfig, SessionConfig};
//! use sumlink_transport::{Client, SecretKey, Target};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect(ClientConfig {
//!     server: "bond.example.org:7000".to_owned(),
//!     server_key: "E2tQXpu0P3xCZrF0yeGJBQ0Bci9M4rTDNOPhUkWxGhI=".parse()?,
//!     key: SecretKey::load("client.key".as_ref())?,
//!     links: Vec::new(), // every link that leads to the server
//!     congestion: None,
//!     groups: None,
//!     carriers: Carriers::ONE,
//!     state: None,
//!     session: SessionConfig::default(),
//! })
//! .await?;
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

#![deny(unsafe_code)]

pub mod accept;
pub mod address;
mod carrier;
mod client;
pub mod config;
pub mod congestion;
pub mod descriptors;
mod dial;
mod driver;
pub mod egress;
#[cfg(test)]
mod fixture;
mod groups;
mod handshake;
mod happy_eyeballs;
pub mod keys;
pub mod links;
pub mod local_hop;
mod pacing;
mod pipe;
pub mod policy;
mod prompt_repair;
pub mod relay;
#[expect(unsafe_code, reason = "getsockopt(TCP_SAVED_SYN) has no safe wrapper")]
pub mod saved_syn;
mod server;
pub mod socket;
#[expect(
    unsafe_code,
    reason = "these options of setsockopt have no safe wrapper"
)]
mod sockopt;
pub mod status;
mod stream;
pub mod target;
pub mod tasks;
#[expect(unsafe_code, reason = "getsockopt(TCP_INFO) has no safe wrapper")]
pub mod tcp_info;
pub mod tls;
#[expect(
    unsafe_code,
    reason = "sock_diag(7) has no wrapper among the dependencies"
)]
mod unread;

pub use client::{Client, ConnectError, SetPolicyError};
pub use dial::dial;
pub use groups::CarrierGroups;
pub use handshake::CarrierError;
#[cfg(feature = "fuzz")]
pub use handshake::fuzz;
pub use keys::{PublicKey, SecretKey};
pub use policy::{LinkPolicy, LinkReport};
pub use server::{Server, ServerError, ServerHandle};
pub use status::{PathEvent, SessionEvent, SessionStatus};
pub use stream::{Lent, Stream};
pub use sumlink_bond::Early;
pub use sumlink_engine::frame::RefuseCode;
pub use sumlink_engine::scheduler::fbdt::{Coupling, FbdtConfig, WindowRule};
pub use sumlink_engine::{Class, ConfigError, Hints, Priority, Redundancy};
pub use target::{OpenError, Target};
