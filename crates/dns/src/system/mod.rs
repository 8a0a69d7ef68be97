//! The resolver settings of this machine: how its own programs come to use the forwarder.
//!
//! - [`resolved`]: through systemd-resolved, which forgets the settings when the device vanishes.
//! - [`resolv_conf`]: by a file, with its earlier content in a state file until it is restored.
//!
//! [`resolved::is_used`] says which of them fits a machine.

mod error;
mod files;
pub mod resolv_conf;
pub mod resolved;
