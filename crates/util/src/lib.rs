//! Text helpers shared by all crates. No dependencies, no system calls.

#![forbid(unsafe_code)]

mod plain;

pub use plain::{Plain, plain};
