//! The edge node as a Linux program. Packets arrive on a TUN device, `sumlink-edge` decides how to
//! forward them, and one UDP tunnel per link carries them to the other end, which runs this crate
//! with [`Role::User`].
//!
//! - [`Node`] is one end: [`Node::open`] opens the device and the sockets, [`Node::start`] forwards
//!   packets on a thread until [`Running::stop`].
//! - [`config`] has its settings, [`status`] its reports.
//! - [`wire`] is the tunnel header.
//!
//! No state outlives the process: the device is not persistent, and its addresses and routes
//! disappear with it. docs/edge-node.md is the manual.

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
