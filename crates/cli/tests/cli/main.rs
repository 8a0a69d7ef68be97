//! Runs the program as a user does.

#![allow(clippy::print_stderr, reason = "a test")]

mod activation;
mod cc;
mod check;
mod common;
mod daemons;
mod dependencies;
mod diag;
mod files;
mod logs;
mod luci;
mod messages;
mod monitor;
mod page;
mod prometheus;
mod same_path;
mod shared_store;
mod units;
mod verbs;
