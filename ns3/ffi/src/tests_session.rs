use std::ffi::{CStr, CString};
use std::ptr;

use sumlink_schedulers::NAMES;

use crate::*;

const MS: u64 = 1_000_000;
const PATHS: u32 = 2;

/// Both ends, the one that opens the stream first, with two paths of equal round-trip time.
fn pair(scheduler: &str) -> [*mut End; 2] {
    let name = CString::new(scheduler).unwrap();
    [1, 0].map(|opens| unsafe {
        let end = sumlink_session_new(name.as_ptr(), opens, 0, ptr::null_mut(), 0);
        assert!(!end.is_null(), "{scheduler}");
        for path in 0..PATHS {
            sumlink_session_path_up(end, path, 0);
        }
        sample(end);
        end
    })
}

fn sample(end: *mut End) {
    let sample = SumlinkSessionSample {
        srtt: 20 * MS,
        rttvar: MS,
        min_rtt: 20 * MS,
        cwnd: 1 << 20,
        delivery_rate: 1_000_000,
        mss: 1400,
        ..SumlinkSessionSample::default()
    };
    for path in 0..PATHS {
        unsafe { sumlink_session_path_sample(end, path, &sample, 0) };
    }
}

/// Moves bytes between the ends over all paths; returns the bytes that each path carried.
fn exchange(ends: [*mut End; 2], now: u64) -> [usize; PATHS as usize] {
    let mut carried = [0; PATHS as usize];
    for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
        for path in 0..PATHS {
            let mut len = 0;
            let frames =
                unsafe { sumlink_session_poll_transmit(from, path, 10_000, now, &mut len) };
            assert_eq!(frames.is_null(), len == 0);
            let taken = unsafe { sumlink_session_handle_frames(to, path, frames, len, now) };
            assert_eq!(taken, 1);
            carried[path as usize] += len;
        }
    }
    carried
}

fn free(ends: [*mut End; 2]) {
    for end in ends {
        unsafe { sumlink_session_free(end) };
    }
}

#[test]
fn bytes_go_over_both_paths_and_arrive_in_order_under_every_scheduler() {
    for scheduler in NAMES {
        let ends = pair(scheduler);
        let data: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let (mut written, mut read, mut carried) = (0, Vec::new(), [0, 0]);
        for step in 1..10_000 {
            let now = step * MS;
            for end in ends {
                sample(end);
                if unsafe { sumlink_session_poll_timeout(end) } <= now {
                    unsafe { sumlink_session_handle_timeout(end, now) };
                }
            }
            let rest = &data[written..];
            written += unsafe { sumlink_session_write(ends[0], rest.as_ptr(), rest.len(), now) };
            let both = exchange(ends, now);
            carried = [carried[0] + both[0], carried[1] + both[1]];
            let mut len = 0;
            let bytes = unsafe { sumlink_session_read(ends[1], now, &mut len) };
            if !bytes.is_null() {
                read.extend_from_slice(unsafe { std::slice::from_raw_parts(bytes, len) });
            }
            if read.len() == data.len() {
                break;
            }
        }
        assert!(
            read == data,
            "{scheduler}: {} of {}",
            read.len(),
            data.len()
        );
        let mut counters = SumlinkSessionCounters::default();
        unsafe { sumlink_session_counters(ends[0], &mut counters) };
        assert_eq!((counters.written, counters.active_paths), (200_000, 2));
        unsafe { sumlink_session_counters(ends[1], &mut counters) };
        assert_eq!(counters.read, 200_000);
        assert!(carried[0] > 0, "{scheduler}: {carried:?}");
        free(ends);
    }
}

#[test]
fn the_data_of_an_ended_path_moves_to_the_other() {
    let ends = pair("roundrobin");
    exchange(ends, MS);
    let data = [7; 30_000];
    let written = unsafe { sumlink_session_write(ends[0], data.as_ptr(), data.len(), MS) };
    assert_eq!(written, data.len());
    let mut len = 0;
    // Bytes are given to the path and lost.
    let lost = unsafe { sumlink_session_poll_transmit(ends[0], 1, 10_000, MS, &mut len) };
    assert!(!lost.is_null() && len > 5_000);
    for end in ends {
        unsafe { sumlink_session_path_down(end, 1, 2 * MS) };
    }
    for step in 3..100 {
        exchange(ends, step * MS);
    }
    let bytes = unsafe { sumlink_session_read(ends[1], 100 * MS, &mut len) };
    let read = unsafe { std::slice::from_raw_parts(bytes, len) };
    assert!(read == data);
    free(ends);
}

#[test]
fn invalid_arguments_are_refused_and_garbage_ends_a_session() {
    let refusal = |name: *const std::ffi::c_char| {
        let mut error = [0x7f; 100];
        let made = unsafe { sumlink_session_new(name, 1, 0, error.as_mut_ptr(), error.len()) };
        assert!(made.is_null());
        let said = unsafe { CStr::from_ptr(error.as_ptr()) };
        said.to_str().unwrap().to_owned()
    };
    assert!(refusal(c"best".as_ptr()).contains("best"));
    assert_eq!(refusal(ptr::null()), "no scheduler given");
    assert_eq!(refusal(c"\xff".as_ptr()), "a name is not UTF-8");
    unsafe { sumlink_session_free(ptr::null_mut()) };

    let ends = pair("fbdt");
    let garbage = [0xff; 64];
    let taken =
        unsafe { sumlink_session_handle_frames(ends[1], 0, garbage.as_ptr(), garbage.len(), MS) };
    assert_eq!(taken, 0);
    free(ends);
}

#[test]
fn run_names_every_scheduler() {
    let run = include_str!("../../run");
    for name in NAMES {
        assert!(run.contains(&format!("\"{name}\"")), "{name}");
    }
}
