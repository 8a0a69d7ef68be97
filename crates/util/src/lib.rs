//! What all of sumlink says in the same way. No dependencies, no system calls.

#![forbid(unsafe_code)]

mod plain;

pub use plain::{Plain, plain};
