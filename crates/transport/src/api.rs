//! The library's interface: the client's handle, its streams, configuration and status.

pub(crate) mod client;
pub mod config;
pub mod datagrams;
pub(crate) mod error;
pub mod join;
pub mod publish;
pub mod status;
pub(crate) mod stream;
