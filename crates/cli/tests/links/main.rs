//! The built program over emulated links: with unmodified programs, faults of links, and malicious
//! peers.
//!
//! Needs root or unprivileged user namespaces; fails without both, unless `SUMLINK_SKIP_NETNS=1` is
//! set. Rates are small: these tests check function and not speed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod balancers;
mod bond;
mod chaos;
mod congestion;
mod curl;
mod datagrams;
mod doctor;
mod faults;
mod flood;
mod gateway;
mod hostile;
mod http3;
mod memory;
mod networks;
mod pairing;
mod peer;
mod policies;
mod programs;
mod publish;
mod quic;
mod schedulers;
mod selection;
mod servers;
mod services;
mod setup;
mod slow_links;
mod slow_readers;
mod socks;
mod split;
mod totals;
mod waste;
mod wireguard;

use sumlink_test_support::emulated::Bench;

/// A laboratory with these links and keys for both sides; `None` if such tests are disabled.
fn bench(links: &[String]) -> Option<Bench> {
    let mut bench = Bench::of(env!("CARGO_BIN_EXE_sumlink"), links)?;
    bench.server_key = bench.key("server.key");
    bench.client_key = bench.key("client.key");
    Some(bench)
}
