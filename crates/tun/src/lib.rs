//! A TUN device as an entry: everything that the kernel routes into it uses the session.
//!
//! - [`Device`] is the device; [`serve`] passes its traffic to an opener. TCP connections are
//!   rewritten so that the kernel terminates them at a listener of this process, datagrams and ICMP
//!   echo requests become datagrams of the session.
//! - [`LanEcho`] answers a LAN's echo requests without a device, for a gateway that captures TCP
//!   and UDP with a packet filter.
//! - [`StatsHandle`] has the counters of both.
//! - [`packet`] and [`nat`] are the parts without sockets.
//!
//! # What programs see
//!
//! - **TCP.** A connection is confirmed when its target has answered. If the target refuses, or a
//!   rule or a limit forbids the connection, the program gets a reset; if the target cannot be
//!   reached, an ICMP error.
//! - **UDP.** Each source address has one source at the exit, whatever its remotes. Datagrams may
//!   be as long as the session carries; fragments are reassembled here. The path MTU is that of the
//!   device, because the session splits what its links do not carry. A longer datagram than the
//!   session carries causes "fragment reassembly time exceeded", or "packet too big" if it came in
//!   one packet.
//! - **ICMP.** Echo requests travel to the target and back. Failures at the exit come back as ICMP
//!   errors in the name of the remote. The device counts as a hop: a packet with a hop limit of 1
//!   is answered with "time exceeded".
//! - **Other protocols** are answered with "protocol unreachable".
//! - **Marks.** The DSCP of a flow's first packet may select its class. ECN and DSCP end here.
//!
//! A packet filter of the host must let connections from the device's own range to its address
//! pass.
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

pub use config::{DeviceConfig, MIN_MTU};
pub use device::{Device, Limits, Offload};
pub use error::TunError;
pub use lan_echo::LanEcho;
pub use serve::serve;
pub use stats::{Drops, Flows, Stats, StatsHandle};
pub use sumlink_tun_device::DeviceError;

mod config;
mod device;
mod error;
mod lan_echo;
mod locals;
mod mailbox;
pub mod nat;
pub mod packet;
mod port;
mod reporter;
mod serve;
mod sink;
mod sources;
mod stack;
mod stats;
#[expect(
    unsafe_code,
    reason = "addresses of packet sockets and waiting for a device have no safe wrapper"
)]
mod system;
mod tcp;
