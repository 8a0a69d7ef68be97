//! Runs the program as a user does.

#![allow(clippy::print_stderr, reason = "a test")]

mod common;
mod files;
