//! A whole host, or the network behind it, over a bond.
//!
//! - [`kernel`] makes the kernel bring everything without a specific route to this program, and
//!   removes every trace of it.
//! - [`rules`] says which way a connection or a flow takes.
//! - [`names`] has the names of addresses, as our own resolver has answered them.
//! - [`router`] applies the rules, between the entries and the bond.
#![forbid(unsafe_code)]

pub mod kernel;
pub mod names;
pub mod router;
pub mod rules;
