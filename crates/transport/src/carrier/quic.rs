//! Datagram carriers: one QUIC connection per link, which carries datagrams (RFC 9221).
//!
//! A datagram carrier proves the same keys as a TCP carrier, with the same verifiers
//! ([`tls`](super::tls)), and joins a session with the same HELLO. One bidirectional stream carries
//! that handshake and nothing else. Every later packet of the engine is one QUIC datagram: it is
//! encrypted, acknowledged and subject to congestion control, but never repeated.
//!
//! | Part | Contents |
//! |---|---|
//! | [`QuicDialer`] | the client: a UDP socket bound to a link, TLS, HELLO |
//! | [`QuicListener`] | the server: address validation, TLS, HELLO |
//! | [`DatagramCarrier`] | an established carrier at either side |
//! | `config` | parameters of QUIC, and the reasons for them |
//! | `controller` | the connection of the congestion control ([`BoundedCubic`]) with quinn |
//! | `runtime` | quinn's tasks, with a limit on what waits between them |
//! | `socket` | UDP sockets, with their errors |
//!
//! # Queues
//!
//! quinn drops the oldest datagram when its buffer overflows. This module never lets it overflow:
//! [`DatagramCarrier::send`] refuses datagrams without room; the room is the amount that leaves in
//! a few milliseconds. The engine holds all other datagrams, and decides which of them to drop.
//!
//! # ECN
//!
//! quinn-udp marks the outer packets ECT(0), and quinn treats a returned CE mark like a loss
//! (RFC 9002, section 7.1). Received marks are not visible per datagram, and a single datagram
//! cannot be sent with its own mark. Marks of inner packets therefore end at the entry and at the
//! exit of the bond. [`QuicSample::ecn_marks`] counts the marks that the path has set.
//!
//! [`BoundedCubic`]: sumlink_bond::datagram::BoundedCubic

mod carrier;
mod client;
mod config;
mod controller;
mod error;
#[cfg(test)]
mod fixture;
mod runtime;
mod server;
mod socket;
#[cfg(test)]
mod spoofing;
#[cfg(test)]
mod tests;

pub use carrier::{DatagramCarrier, QuicSample, SendError};
pub use client::{Opened, QuicDialer};
pub use error::{Ended, QuicError};
pub use server::{Attempt, QuicListener, ServerDatagrams};
pub use sumlink_bond::datagram::quic::HANDSHAKE_PATIENCE;
