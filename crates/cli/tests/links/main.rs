//! The built program over emulated links: what it promises to unmodified programs, to the links they run over,
//! and to a server whose peers mean harm.
//!
//! Needs root or unprivileged user namespaces; fails where neither is to be had, unless
//! `SUMLINK_SKIP_NETNS=1` is set. Rates are small: these tests ask whether it works, not how fast.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod bench;
mod bond;
mod chaos;
mod congestion;
mod curl;
mod daemon;
mod edge;
mod edge_deaths;
mod edge_faults;
mod edge_networks;
mod edge_router;
mod edge_sequences;
mod faults;
mod flood;
mod hostile;
mod memory;
mod networks;
mod peer;
mod policies;
mod programs;
mod schedulers;
mod segments;
mod selection;
mod slow_readers;
mod socks;
mod split;
mod traffic;
mod waste;
