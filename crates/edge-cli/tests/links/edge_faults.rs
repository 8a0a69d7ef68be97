//! `sumlink-edge` under faults: outages of all links, invalid packets, and more flows than its
//! limit.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use sumlink_lab::Side;

use crate::edge::{Edge, MODES, NODE, USER, count};
use sumlink_test_support::emulated::segments::{SYN, Segment, send_below_ip, send_raw};
use sumlink_test_support::emulated::{PATIENCE, until, until_within};

/// An address without a host in the users' network.
const UNUSED: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 9);

/// Longer than a transfer stalls after an outage of both links of 1 or 2 s, on any machine.
const STALL: Duration = Duration::from_secs(15);

/// Default limit on flows.
const MAX_FLOWS: u64 = 100_000;

#[test]
fn both_links_may_fail_under_load_and_return() {
    for mode in MODES {
        let Some(edge) = Edge::start(&format!("mode = \"{mode}\""), "uplink = \"a\"") else {
            return;
        };
        let expected = edge.offer(4_000_000);
        let mut curl = edge.curl();
        edge.until_copied(500_000);
        for link in ["a", "b"] {
            edge.bench.set(link, "rate=0");
        }
        for end in ["node", "user"] {
            edge.until_states(end, ["down", "down"]);
        }
        let lines = edge.node.lines_with("link down");
        assert_eq!(lines, 2, "{mode}: {}", edge.node.log());
        for (link, rate) in [("a", "rate=16mbit"), ("b", "rate=8mbit")] {
            edge.bench.set(link, rate);
        }
        // The sender's timer may have backed off for about as long as the outage.
        edge.goes_on(300_000, STALL);
        edge.until_states("node", ["up", "up"]);
        assert!(curl.wait().unwrap().success(), "{mode}");
        assert_eq!(edge.copy(), expected, "{mode}");
        edge.stop();
    }
}

/// A SYN with these options.
fn syn(ends: [(Ipv4Addr, u16); 2], options: &[u8]) -> Vec<u8> {
    let syn = Segment {
        sequence: 9,
        flags: SYN,
        options,
        ..Segment::default()
    };
    syn.between(ends)
}

#[test]
fn invalid_tcp_segments_do_no_harm() {
    for mode in MODES {
        let Some(edge) = Edge::start(&format!("mode = \"{mode}\""), "") else {
            return;
        };
        for (side, from, to) in [(Side::Server, NODE, USER), (Side::Client, USER, NODE)] {
            let ends = [(from, 7), (to, 9)];
            let whole = syn(ends, &[]);
            let mut bad: Vec<Vec<u8>> = (0..20).map(|len| whole[..len].to_vec()).collect();
            for (at, byte) in [(12, 0), (12, 0xf0), (16, !whole[16])] {
                let mut broken = whole.clone();
                broken[at] = byte;
                bad.push(broken);
            }
            // Options without a length, of length 0, and beyond the header.
            for options in [[1, 1, 1, 2], [2, 0, 1, 1], [5, 40, 0, 0], [3, 1, 0, 0]] {
                bad.push(syn(ends, &options));
            }
            send_raw(&edge.bench, side, to, bad);
        }
        let malformed = until("the malformed are counted", || {
            let malformed = count(&edge.status("node"), "/core/malformed");
            (malformed > 20).then_some(malformed)
        });
        assert!(malformed < 60, "{mode}: {malformed}");
        until("the log tells of them", || {
            (edge.node.lines_with("packets that cannot be read") > 0).then_some(())
        });
        // Any number of packets causes at most two lines.
        assert!(edge.node.lines_with("packets that cannot be read") <= 2);
        let expected = edge.offer(1_000_000);
        assert!(edge.curl().wait().unwrap().success(), "{mode}");
        assert_eq!(edge.copy(), expected, "{mode}");
        edge.stop();
    }
}

/// Packets that no kernel's IP would send, put into the device below IP.
#[test]
fn broken_ip_headers_do_no_harm() {
    for mode in MODES {
        let Some(edge) = Edge::start(&format!("mode = \"{mode}\""), "") else {
            return;
        };
        let segment = syn([(NODE, 7), (USER, 9)], &[]);
        let v4 = [
            &[0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0][..],
            &NODE.octets(),
            &USER.octets(),
            &segment,
        ]
        .concat();
        let v6 = [&[0x60, 0, 0, 0, 0, 20, 6, 64][..], &[0xfd; 32], &segment].concat();
        let with = |packet: &[u8], changes: &[(usize, u8)]| {
            let mut packet = packet.to_vec();
            changes.iter().for_each(|&(at, byte)| packet[at] = byte);
            packet
        };
        let extended = |next| with(&v6[..48], &[(5, 8), (6, next), (41, 255)]);
        let kinds = [
            ("cut off", (1..20).map(|len| v4[..len].to_vec()).collect()),
            (
                "cut off, IPv6",
                (1..40).map(|len| v6[..len].to_vec()).collect(),
            ),
            (
                "of versions that there are not",
                [0x05, 0x55, 0xf5]
                    .map(|first| with(&v4, &[(0, first)]))
                    .to_vec(),
            ),
            (
                "with a header too short or too long",
                [0x40, 0x44, 0x4f]
                    .map(|first| with(&v4, &[(0, first)]))
                    .to_vec(),
            ),
            (
                "with a length less than the header, or beyond the end",
                [19, 200].map(|len| with(&v4, &[(3, len)])).to_vec(),
            ),
            ("the same of IPv6", vec![with(&v6, &[(4, 0xff), (5, 0xff)])]),
            (
                "with extensions that lead out of it",
                [0, 43, 51, 60].map(extended).to_vec(),
            ),
        ];
        for (side, end) in [(Side::Server, "node"), (Side::Client, "user")] {
            let malformed = || count(&edge.status(end), "/core/malformed");
            for (kind, packets) in &kinds {
                let packets: &Vec<Vec<u8>> = packets;
                let expected = malformed() + packets.len() as u64;
                send_below_ip(&edge.bench, side, "edge0", packets.clone());
                until(&format!("those are counted that are {kind}"), || {
                    (malformed() == expected).then_some(())
                });
            }
        }
        let expected = edge.offer(1_000_000);
        assert!(edge.curl().wait().unwrap().success(), "{mode}");
        assert_eq!(edge.copy(), expected, "{mode}");
        edge.stop();
    }
}

#[test]
fn fragments_pass_in_both_directions() {
    for mode in MODES {
        let Some(edge) = Edge::start(&format!("mode = \"{mode}\""), "") else {
            return;
        };
        // Four fragments at the device's MTU.
        let datagram: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        for (to, from, address) in [
            (Side::Client, Side::Server, USER),
            (Side::Server, Side::Client, NODE),
        ] {
            let bind = move || UdpSocket::bind((address, 4000)).unwrap();
            let receiver = edge.bench.lab.run(to, bind).unwrap();
            receiver
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            let bind = || UdpSocket::bind("0.0.0.0:0").unwrap();
            let sender = edge.bench.lab.run(from, bind).unwrap();
            let mut buffer = vec![0; 8000];
            let len = until("a datagram in fragments arrives", || {
                sender.send_to(&datagram, (address, 4000)).unwrap();
                receiver.recv(&mut buffer).ok()
            });
            assert_eq!(buffer[..len], datagram, "{mode}");
        }
        edge.stop();
    }
}

#[test]
fn flows_beyond_the_limit_replace_the_oldest() {
    let Some(edge) = Edge::start("mode = \"lwip+visible\"", "") else {
        return;
    };
    let fill = |ports: [u16; 2]| {
        for port in ports {
            let all = (1024..=u16::MAX).map(|from| syn([(NODE, from), (UNUSED, port)], &[]));
            send_raw(&edge.bench, Side::Server, UNUSED, all.collect());
        }
    };
    // The device's queue drops packets that arrive too fast, so some have to be sent again.
    until("the node knows all the flows it can", || {
        fill([1, 2]);
        (count(&edge.status("node"), "/core/flows") == MAX_FLOWS).then_some(())
    });
    let before = edge.node.resident();
    let forgotten = count(&edge.status("node"), "/core/forgotten");
    // A flow in use is not idle and is kept.
    let expected = edge.offer(9_000_000);
    let words = ["curl", "-sSf", "--limit-rate", "600K", "-o", "copy"];
    let words = [&words[..], &["http://10.99.0.1/file"]].concat();
    let mut curl = edge.bench.spawn(Side::Client, &words);
    edge.until_copied(100_000);
    // Each look sends 129,000 packets.
    until_within(
        4 * PATIENCE,
        "as many others have taken their place",
        || {
            fill([3, 4]);
            (count(&edge.status("node"), "/core/forgotten") > forgotten + MAX_FLOWS).then_some(())
        },
    );
    assert_eq!(count(&edge.status("node"), "/core/flows"), MAX_FLOWS);
    let lines = edge
        .node
        .lines_with("forgot the flows that were idle longest");
    assert!(lines > 0, "{}", edge.node.log());
    let grown = edge.node.resident().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    assert!(curl.try_wait().unwrap().is_none(), "in use all the time");
    assert!(curl.wait().unwrap().success());
    assert_eq!(edge.copy(), expected);
    let expected = edge.offer(1_000_000);
    assert!(edge.curl().wait().unwrap().success(), "a new one has room");
    assert_eq!(edge.copy(), expected);
    edge.stop();
}

/// Datagrams at a tunnel's port that are not the tunnel's: truncated, of another version or number,
/// numbered without a packet, probes of other lengths, answers to unsent probes.
#[test]
fn foreign_datagrams_do_no_harm() {
    for (mode, users, kind) in [
        ("lwip", "lwip", 0),
        ("lwa", "lwa", 2),
        ("lwip+visible", "lwip", 0),
    ] {
        let lines = |mode| format!("mode = \"{mode}\"");
        let Some(mut edge) = Edge::start(&lines(mode), &lines(users)) else {
            return;
        };
        // From the user's own address and port, because the sockets are connected. The user's end
        // is stopped to free them.
        edge.kill_user();
        let header = |kind: u8| [0xed, 0x10 | kind, 0, 0, 0, 0, 0, 9];
        let mut bad: Vec<Vec<u8>> = (0..8).map(|len| header(0)[..len].to_vec()).collect();
        bad.push([&header(0)[..], &[0x45, 0, 0]].concat());
        for (at, byte) in [(0, 0xee), (1, 0x20), (1, 0x1f), (3, 7)] {
            let mut other = header(kind).to_vec();
            other[at] = byte;
            other.extend([0x45; 40]);
            bad.push(other);
        }
        for kind in 1..5 {
            for len in [0, 1, 3, 7, 9, 600] {
                bad.push([&header(kind)[..], &vec![0xff; len]].concat());
            }
        }
        // Arbitrary numbers, each with an invalid packet.
        for number in 0..64u32 {
            let number = (number * 0x00fe_dcba).to_be_bytes();
            bad.push([&header(2)[..], &number[..3], &[0x45; 60]].concat());
        }
        let ends = [2, 1].map(|host| SocketAddrV4::new(Ipv4Addr::new(10, 77, 1, host), 7400));
        let send = move || {
            let socket = UdpSocket::bind(ends[0]).unwrap();
            for datagram in &bad {
                socket.send_to(datagram, ends[1]).unwrap();
            }
        };
        edge.bench.lab.run(Side::Client, send).unwrap();
        until("they are counted", || {
            (count(&edge.status("node"), "/links/0/foreign") > 20).then_some(())
        });
        until("the log tells of them", || {
            (edge.node.lines_with("of another tunnel number") > 0).then_some(())
        });
        edge.restart_user();
        let expected = edge.offer(1_000_000);
        assert!(edge.curl().wait().unwrap().success(), "{mode}");
        assert_eq!(edge.copy(), expected, "{mode}");
        edge.stop();
    }
}
