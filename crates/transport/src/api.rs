//! The library's interface: the client's handle, its streams and targets, configuration and status.

pub(crate) mod client;
pub mod config;
pub mod status;
pub(crate) mod stream;
pub mod target;
