//! A whole host, or the network behind it, over a bond.
//!
//! - [`kernel`] makes the kernel bring everything without a specific route to this program, and
//!   removes every trace of it.
#![forbid(unsafe_code)]

pub mod kernel;
