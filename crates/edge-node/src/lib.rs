//! The edge node as a program for Linux: packets come from a TUN device, `sumlink-edge` decides what becomes of them, and
//! one UDP tunnel for each link carries them to the other end, which runs the same with [`Role::User`].
//!
//! - [`Node`] is one end: [`Node::open`] makes the device and the sockets, [`Node::start`] moves packets on a thread of its
//!   own until [`Running::stop`].
//! - [`config`] is what it is told, [`status`] what it tells of itself.
//! - [`wire`] is the header of the tunnels.
//!
//! Nothing outlives the process: the device is not persistent, and its addresses and routes go with
//! it. docs/edge-node.md is the manual.

#![cfg(target_os = "linux")]

pub mod config;
mod device;
mod end;
mod error;
mod node;
mod outbox;
mod receive;
pub mod status;
mod tunnel;
mod warnings;
pub mod wire;

pub use config::{LinkConfig, NodeConfig, Role, TunConfig};
pub use error::NodeError;
pub use node::{Node, NodeHandle, Notice, Running};
pub use status::NodeStatus;
