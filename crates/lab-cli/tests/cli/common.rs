//! The built program, run as a user runs it.

pub(crate) use sumlink_test_support::{Bench, Ran};

pub(crate) fn new() -> Bench {
    Bench::of(env!("CARGO_BIN_EXE_sumlink-lab"))
}
