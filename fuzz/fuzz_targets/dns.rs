//! A DNS message: a question of a client, and a response of a resolver. Nothing may panic, and what
//! the forwarder makes of it must be a message again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| sumlink_dns::fuzz::message(bytes));
