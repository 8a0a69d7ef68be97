//! The gateway's DNS forwarder: programs of this machine and hosts of the LAN ask it, and it asks
//! upstream resolvers over a bond.
//!
//! - [`Server`] has the ports. It answers given networks only, within [`Limits`].
//! - [`Forwarder`] decides: [`Rules`] by domain, special names, the cache, private addresses.
//! - [`Upstream`] is a resolver: the bond's server, or one that is asked over UDP, TCP, TLS or
//!   HTTPS.
//! - [`system`] makes the programs of this machine use the forwarder.
//!
//! Nothing leaks beside the bond: an upstream reaches the network only through its opener. Only
//! [`Server`] opens sockets, to receive questions.
//!
//! Messages are forwarded as bytes, so that all types of records pass, with signatures. Each
//! question upstream is written anew: its ID and its source port are unpredictable, and nothing in
//! it identifies the client. No message of an upstream or of a client can make the forwarder panic
//! or allocate without bound.
#![forbid(unsafe_code)]

mod cache;
mod chain;
mod clients;
mod clock;
mod flight;
mod forwarder;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod lifetime;
mod log;
mod private;
mod resolved;
mod rules;
mod server;
mod settings;
mod special;
mod statistics;
pub mod stub;
pub mod system;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upstream;
mod wire;

pub use clients::Limits;
pub use forwarder::{Forwarder, Via};
pub use private::is_private;
pub use rules::{Action, Rules};
pub use server::{BindError, Server};
pub use settings::{Observer, Settings};
pub use statistics::{Statistics, UpstreamStatistics};
pub use upstream::{
    ExchangeError, Roots, RootsError, Upstream, UpstreamAddress, UpstreamAddressError,
};
pub use wire::{MAX_NAME, Name, NameError};
