use std::ffi::{CStr, CString};
use std::ptr;

use super::*;

/// A UDP packet from 192.0.2.1 to 10.0.0.2.
const PACKET: [u8; 29] = [
    0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0xb0, 0xcd, 192, 0, 2, 1, 10, 0, 0, 2, 0, 53, 0xc3, 0x50,
    0, 9, 0, 0, b'x',
];

fn settings(mode: &CStr, steering: &CStr, queue: u32) -> SumlinkEdgeConfig {
    SumlinkEdgeConfig {
        mode: mode.as_ptr(),
        steering: steering.as_ptr(),
        sack: ptr::null(),
        boost: 1,
        links: 2,
        queue,
        rates: ptr::null(),
    }
}

fn refusal(config: &SumlinkEdgeConfig) -> String {
    let mut error = [0x7f; 200];
    let edge = unsafe { sumlink_edge_new(config, error.as_mut_ptr(), error.len()) };
    assert!(edge.is_null());
    unsafe { CStr::from_ptr(error.as_ptr()) }
        .to_str()
        .unwrap()
        .into()
}

#[test]
fn packets_are_spread_and_the_full_queue_drops() {
    let config = settings(c"lwip", c"roundrobin", 1);
    let mut room = vec![0; SUMLINK_EDGE_PACKET_MAX];
    unsafe {
        let edge = sumlink_edge_new(&config, ptr::null_mut(), 0);
        assert!(!edge.is_null());
        for _ in 0..3 {
            sumlink_edge_handle_far(edge, PACKET.as_ptr(), PACKET.len(), 5);
        }
        for link in 0..2 {
            assert_eq!(sumlink_edge_link_queue(edge, link), 1);
            let small = sumlink_edge_poll_link(edge, link, 6, room.as_mut_ptr(), 1500);
            assert_eq!(small, SUMLINK_EDGE_TOO_SMALL);
            let len = sumlink_edge_poll_link(edge, link, 6, room.as_mut_ptr(), room.len());
            assert_eq!(room[..len], PACKET);
            let none = sumlink_edge_poll_link(edge, link, 6, room.as_mut_ptr(), room.len());
            assert_eq!(none, 0);
        }
        assert_eq!(sumlink_edge_link_queue(edge, 9), 0);
        let mut counters = SumlinkEdgeCounters::default();
        sumlink_edge_counters(edge, &mut counters);
        assert_eq!((counters.down_packets, counters.dropped), (3, 1));
        assert_eq!(
            sumlink_edge_flow(edge, 1, &mut SumlinkEdgeFlow::default()),
            0
        );
        sumlink_edge_free(edge);
    }
}

#[test]
fn user_packets_reach_the_far_side_and_malformed_ones_are_counted() {
    let config = settings(c"lwip+visible", c"qdepl", 40);
    let mut room = vec![0; SUMLINK_EDGE_PACKET_MAX];
    unsafe {
        let edge = sumlink_edge_new(&config, ptr::null_mut(), 0);
        sumlink_edge_handle_user(edge, PACKET.as_ptr(), PACKET.len(), 1);
        let len = sumlink_edge_poll_far(edge, room.as_mut_ptr(), room.len());
        assert_eq!(room[..len], PACKET);
        sumlink_edge_handle_user(edge, ptr::null(), 0, 2);
        sumlink_edge_handle_far(edge, [1, 2, 3].as_ptr(), 3, 3);
        let mut counters = SumlinkEdgeCounters::default();
        sumlink_edge_counters(edge, &mut counters);
        assert_eq!(counters.malformed, 2);
        sumlink_edge_handle_timeout(edge, 4);
        sumlink_edge_free(edge);
        sumlink_edge_free(ptr::null_mut());
    }
}

#[test]
fn a_receiver_orders_a_nodes_numbered_packets() {
    let config = settings(c"lwa", c"roundrobin", 40);
    let mut room = vec![0; SUMLINK_EDGE_PACKET_MAX];
    unsafe {
        let edge = sumlink_edge_new(&config, ptr::null_mut(), 0);
        let reorder = sumlink_reorder_new(1_000);
        let mut pdus = Vec::new();
        for n in 0..3 {
            let mut packet = PACKET;
            packet[28] = n;
            sumlink_edge_handle_far(edge, packet.as_ptr(), packet.len(), 1);
            let link = n % 2;
            let len = sumlink_edge_poll_link(edge, link, 1, room.as_mut_ptr(), room.len());
            pdus.push(room[..len].to_vec());
        }
        let mut arrive = |n: usize, now| {
            sumlink_reorder_handle(reorder, pdus[n].as_ptr(), pdus[n].len(), now);
            let mut out = Vec::new();
            loop {
                match sumlink_reorder_poll(reorder, room.as_mut_ptr(), room.len()) {
                    0 => return out,
                    len => out.push(room[len - 1]),
                }
            }
        };
        assert_eq!(arrive(0, 2), [0]);
        assert_eq!(arrive(2, 3), [0; 0]);
        assert_eq!(sumlink_reorder_poll_timeout(reorder), 1_003);
        assert_eq!(arrive(1, 4), [1, 2]);
        assert_eq!(sumlink_reorder_poll_timeout(reorder), SUMLINK_EDGE_NEVER);
        sumlink_reorder_handle_timeout(reorder, 5_000);
        sumlink_reorder_free(reorder);
        sumlink_edge_free(edge);
    }
}

#[test]
fn errors_are_one_line() {
    let unknown = CString::new("mptcp").unwrap();
    assert_eq!(
        refusal(&settings(&unknown, c"qdepl", 40)),
        "unknown mode `mptcp`; choose lwip, lwa or lwip+visible"
    );
    let steering = refusal(&settings(c"lwip", c"best", 40));
    assert!(
        steering.starts_with("unknown steering `best`"),
        "{steering}"
    );
    let queue = refusal(&settings(c"lwip", c"qdepl", 0));
    assert!(
        queue.starts_with("link 0 has a queue of 0 packets"),
        "{queue}"
    );
    let mut config = settings(c"lwip", c"qdepl", 40);
    config.rates = [0.0, -1.0].as_ptr();
    assert!(refusal(&config).starts_with("the rate of link 1"));
    let mut short = [0x7f; 8];
    let none = unsafe { sumlink_edge_new(ptr::null(), short.as_mut_ptr(), short.len()) };
    assert!(none.is_null());
    assert_eq!(unsafe { CStr::from_ptr(short.as_ptr()) }, c"no conf");
}

/// Compares the headers with the code: functions with their number of parameters, and fields in
/// order.
#[test]
fn the_headers_match_the_code() {
    let header = concat!(
        include_str!("../sumlink_edge.h"),
        include_str!("../sumlink_congestion.h"),
        include_str!("../sumlink_session.h")
    );
    let code = concat!(
        include_str!("node.rs"),
        include_str!("receiver.rs"),
        include_str!("bond.rs"),
        include_str!("session.rs")
    );
    let declared: Vec<_> = header.split(';').filter_map(function).collect();
    let defined: Vec<_> = code
        .split("extern \"C\" fn ")
        .skip(1)
        .filter_map(function)
        .collect();
    assert_eq!(declared.len(), 41);
    assert_eq!(declared, defined);

    let fields = |text: &str, start: &str, end: &str, name: fn(&str) -> Option<&str>| {
        text.split(start)
            .skip(1)
            .flat_map(|part| part.split(end).next().unwrap().lines())
            .filter_map(name)
            .map(String::from)
            .collect::<Vec<_>>()
    };
    let of_header = fields(header, "typedef struct {", "}", |line| {
        line.trim().strip_suffix(';')?.rsplit([' ', '*']).next()
    });
    let of_code = fields(code, "#[repr(C)]", "\n}", |line| {
        line.trim()
            .strip_prefix("pub ")?
            .split_once(':')
            .map(|(name, _)| name)
    });
    assert_eq!(of_header.len(), 51);
    assert_eq!(of_header, of_code);
}

/// Name and number of parameters of the function whose parentheses come first.
fn function(text: &str) -> Option<(String, usize)> {
    let (before, after) = text.split_once('(')?;
    let name = before.rsplit([' ', '*', '\n']).next()?;
    let parameters = after.split(')').next()?;
    let count = parameters
        .split(',')
        .filter(|parameter| !parameter.trim().is_empty())
        .count();
    name.starts_with("sumlink_").then(|| (name.into(), count))
}
