//! The built program over emulated links: what it promises to unmodified programs, to the links they run over,
//! and to a server whose peers mean harm.
//!
//! Needs root or unprivileged user namespaces; fails where neither is to be had, unless
//! `SUMLINK_SKIP_NETNS=1` is set. Rates are small: these tests ask whether it works, not how fast.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod bond;
mod chaos;
mod congestion;
mod curl;
mod faults;
mod flood;
mod hostile;
mod memory;
mod networks;
mod peer;
mod policies;
mod programs;
mod schedulers;
mod selection;
mod slow_links;
mod slow_readers;
mod socks;
mod split;
mod waste;

use sumlink_test_support::emulated::Bench;

/// A laboratory with these links and keys for both sides; nothing where such tests are to be left out.
fn bench(links: &[String]) -> Option<Bench> {
    let mut bench = Bench::of(env!("CARGO_BIN_EXE_sumlink"), links)?;
    bench.server_key = bench.key("server.key");
    bench.client_key = bench.key("client.key");
    Some(bench)
}
