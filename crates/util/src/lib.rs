//! Texts and kinds of errors, shared by all crates. No dependencies, no system calls.

#![forbid(unsafe_code)]

mod plain;
mod reasons;
mod shortage;

pub use plain::{Plain, plain};
pub use reasons::Reasons;
pub use shortage::is_shortage;
