//! Real programs through the device and the echo capture, in separate network namespaces.
//!
//! Needs root or unprivileged user namespaces; fails without both, unless `SUMLINK_SKIP_NETNS=1` is
//! set.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "for tests")]

mod datagrams;
mod echo;
mod lan_echo;
mod programs;
mod tcp;
mod world;
