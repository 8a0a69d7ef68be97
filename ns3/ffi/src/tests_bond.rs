use std::ffi::{CStr, CString};
use std::ptr;

use sumlink_congestion::NAMES;

use crate::*;

const MS: u64 = 1_000_000;

fn bond(name: &str, flows: u8) -> *mut Bond {
    let name = CString::new(name).unwrap();
    let made = unsafe { sumlink_bond_new(name.as_ptr(), flows, ptr::null_mut(), 0) };
    assert!(!made.is_null());
    made
}

/// Acknowledges one packet, with a window's worth in flight.
fn ack(bond: *mut Bond, flow: u8, now: u64, rtt: u64) {
    let ack = SumlinkBondAck {
        now,
        rtt,
        acknowledged: now,
        sent: now + 1,
        acked: 1,
        in_flight: 1000,
    };
    unsafe { sumlink_bond_on_ack(bond, flow, &ack) };
}

fn refusal(name: Option<&CStr>, flows: u8) -> String {
    let mut error = [0x7f; 60];
    let name = name.map_or(ptr::null(), CStr::as_ptr);
    let made = unsafe { sumlink_bond_new(name, flows, error.as_mut_ptr(), error.len()) };
    assert!(made.is_null());
    let said = unsafe { CStr::from_ptr(error.as_ptr()) };
    said.to_str().unwrap().into()
}

#[test]
fn invalid_configurations_are_refused_with_a_reason() {
    assert!(refusal(Some(c"tahoe"), 2).contains("tahoe"));
    assert_eq!(
        refusal(Some(c"lia"), 0),
        "a connection needs at least one flow"
    );
    assert_eq!(refusal(None, 2), "no congestion control given");
    assert_eq!(refusal(Some(c"\xff"), 2), "a name is not UTF-8");
    // Truncated, with a terminating zero.
    assert_eq!(
        refusal(Some(&CString::new("x".repeat(200)).unwrap()), 1).len(),
        59
    );
    unsafe { sumlink_bond_free(ptr::null_mut()) };
}

#[test]
fn every_control_grows_halves_and_restarts() {
    for name in NAMES {
        let bond = bond(name, 2);
        unsafe {
            let first = sumlink_bond_cwnd(bond, 0);
            let threshold = sumlink_bond_ssthresh(bond, 0);
            // WhiteHaul starts with a finite threshold; the others start without one.
            assert_eq!(threshold.is_finite(), name == "whitehaul", "{name}");
            for at in 1..=8 {
                ack(bond, 0, at * 20 * MS, 20 * MS);
                ack(bond, 1, at * 20 * MS, 30 * MS);
            }
            let grown = sumlink_bond_cwnd(bond, 0);
            assert!(grown > first, "{name}: {first} to {grown}");
            sumlink_bond_on_loss(bond, 0, 200 * MS);
            let less = sumlink_bond_cwnd(bond, 0);
            assert!(less < grown, "{name}: {grown} to {less}");
            sumlink_bond_on_recovery_exit(bond, 0, 220 * MS);
            sumlink_bond_on_rto(bond, 0, 230 * MS, 0);
            assert_eq!(sumlink_bond_cwnd(bond, 0), 1.0, "{name}");
            sumlink_bond_on_rto(bond, 0, 240 * MS, 1);
            sumlink_bond_on_recovery_exit(bond, 0, 250 * MS);
            sumlink_bond_free(bond);
        }
    }
}

#[test]
fn siblings_see_each_other_if_the_control_is_coupled() {
    // Growth of one flow's window beyond its threshold, with a sibling whose window is large or
    // small.
    let growth = |name, sibling: u64| unsafe {
        let bond = bond(name, 2);
        for at in 1..=sibling {
            ack(bond, 1, at * MS, 20 * MS);
        }
        ack(bond, 0, 1000 * MS, 20 * MS);
        sumlink_bond_on_loss(bond, 0, 1001 * MS);
        sumlink_bond_on_recovery_exit(bond, 0, 1002 * MS);
        let before = sumlink_bond_cwnd(bond, 0);
        ack(bond, 0, 1003 * MS, 20 * MS);
        let grown = sumlink_bond_cwnd(bond, 0) - before;
        sumlink_bond_free(bond);
        grown
    };
    assert_eq!(growth("uncoupled", 90), growth("uncoupled", 1));
    for name in ["lia", "rtt-compensator", "cs218"] {
        assert!(growth(name, 90) < growth(name, 1), "{name}");
    }
}

#[test]
fn round_trip_times_are_smoothed_and_idle_windows_decay() {
    let bond = bond("reno", 1);
    unsafe {
        assert_eq!(sumlink_bond_srtt(bond, 0), 0);
        ack(bond, 0, 100 * MS, 80 * MS);
        ack(bond, 0, 200 * MS, 160 * MS);
        // 7/8 of 80 plus 1/8 of 160.
        assert_eq!(sumlink_bond_srtt(bond, 0), 90 * MS);
        // 3/4 of 40 plus 1/4 of the difference to 80.
        assert_eq!(sumlink_bond_rttvar(bond, 0), 50 * MS);
        ack(bond, 0, 300 * MS, 0);
        assert_eq!(sumlink_bond_srtt(bond, 0), 90 * MS);
        for at in 0..30 {
            ack(bond, 0, 400 * MS + at, 0);
        }
        let before = sumlink_bond_cwnd(bond, 0);
        sumlink_bond_on_idle_end(bond, 0, 1300 * MS, 900 * MS);
        assert_eq!(sumlink_bond_cwnd(bond, 0), before);
        sumlink_bond_on_idle_end(bond, 0, 3000 * MS, 1100 * MS);
        assert_eq!(sumlink_bond_cwnd(bond, 0), before / 2.0);
        sumlink_bond_free(bond);
    }
}

#[test]
fn an_unknown_flow_has_no_state() {
    let bond = bond("olia", 2);
    ack(bond, 2, MS, MS);
    unsafe {
        sumlink_bond_on_loss(bond, 2, 2 * MS);
        sumlink_bond_on_rto(bond, 255, 3 * MS, 0);
        sumlink_bond_on_recovery_exit(bond, 2, 4 * MS);
        sumlink_bond_on_idle_end(bond, 2, 5 * MS, MS);
        assert_eq!(sumlink_bond_cwnd(bond, 2), 0.0);
        assert_eq!(sumlink_bond_ssthresh(bond, 2), 0.0);
        assert_eq!(sumlink_bond_srtt(bond, 2), 0);
        assert_eq!(sumlink_bond_cwnd(bond, 1), 10.0);
        sumlink_bond_free(bond);
    }
}

#[test]
fn run_names_every_control() {
    let run = include_str!("../../run");
    for name in NAMES {
        assert!(run.contains(&format!("\"{name}\"")), "{name}");
    }
}
