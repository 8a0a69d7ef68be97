//! Published ports: the messages between client and server, and the client's side.
//!
//! docs/protocol-publish.md describes the exchange. The server's side is in the room `server`.

mod client;
mod datagrams;
mod traffic;
pub(crate) mod wire;

pub(crate) use client::{End, Publisher, session_of, until_end};
