//! The program from outside, run the way a user runs it.

#![allow(clippy::print_stderr, reason = "a test")]

mod cc;
mod check;
mod common;
mod daemons;
mod edge;
mod files;
mod logs;
mod messages;
mod mmwave;
mod same_path;
mod sim;
mod units;
mod verbs;
