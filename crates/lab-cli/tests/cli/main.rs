//! Runs the program as a user does.

#![allow(clippy::print_stderr, reason = "a test")]

mod cc;
mod common;
mod files;
mod messages;
mod mmwave;
mod sim;
mod verbs;
