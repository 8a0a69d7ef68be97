//! The edge node over emulated links.
//!
//! Needs root or unprivileged user namespaces; fails without both, unless `SUMLINK_SKIP_NETNS=1` is
//! set.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod edge;
mod edge_deaths;
mod edge_faults;
mod edge_networks;
mod edge_router;
mod edge_sequences;

use sumlink_test_support::emulated::Bench;

/// A laboratory with these links; `None` if such tests are disabled.
fn bench(links: &[String]) -> Option<Bench> {
    Bench::of(env!("CARGO_BIN_EXE_sumlink-edge"), links)
}
