//! The program from outside, run the way a user runs it.

#![allow(clippy::print_stderr, reason = "a test")]

mod common;
mod files;
