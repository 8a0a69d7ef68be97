//! The program from outside, run the way a user runs it.

#![allow(clippy::print_stderr, reason = "a test")]

mod cc;
mod common;
mod files;
mod messages;
mod mmwave;
mod sim;
mod verbs;
