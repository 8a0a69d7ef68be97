//! Packets from a TUN device. For any input: parsing stays within the packet, a rewritten segment
//! has the new addresses and can be rewritten back, connections and their peers stay one to one,
//! and a reassembled datagram has as many bytes as its fragments had.
#![no_main]

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sumlink_tun::nat::{Flow, Nat, Verdict};
use sumlink_tun::packet::icmp::{self, Problem};
use sumlink_tun::packet::reassembly::Reassembly;
use sumlink_tun::packet::{self, Body, Packet, Segment, build, rewrite};
use tokio::time::Instant;

/// Most connections in the table.
const CONNECTIONS: usize = 8;

struct World {
    nat: Nat<Flow>,
    /// Numbers of the connections that were opened.
    opened: HashMap<Flow, u64>,
    reassembly: Reassembly,
    now: Instant,
}

fuzz_target!(|bytes: &[u8]| {
    let peers = |addresses: [&str; 2]| addresses.map(|ip| ip.parse().unwrap()).to_vec();
    let mut world = World {
        nat: Nat::new(
            peers(["198.18.74.2", "198.18.74.3"]),
            peers(["fd73::2", "fd73::3"]),
            CONNECTIONS,
        ),
        opened: HashMap::new(),
        reassembly: Reassembly::default(),
        now: Instant::now(),
    };
    let mut rest = bytes;
    while let [step, length, tail @ ..] = rest {
        let (own, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        match step % 8 {
            0 => world.packet(own),
            // With a right version and length, most packets are parsed further.
            1..4 => world.packet(&framed(own, *step)),
            4 => world.now += Duration::from_millis(u64::from(*length) * 500),
            5 => world.answered(*step),
            6 => world.accepted(*step),
            _ => world.ended(*step),
        }
        world.nat.expire(world.now);
        assert!(world.nat.len() <= CONNECTIONS);
    }
    world.reassembly.expire(world.now + Duration::from_secs(60));
});

/// A packet with this body: of TCP, UDP or ICMP, or a fragment, over either family.
fn framed(body: &[u8], step: u8) -> Vec<u8> {
    let is_v4 = step & 8 == 0;
    let protocol = match (step >> 4 & 3, is_v4) {
        (0, _) => 6,
        (1, _) => 17,
        (2, true) => 1,
        (2, false) => 58,
        (_, true) => 17,
        (_, false) => 44,
    };
    let mut packet = match is_v4 {
        true => {
            let fragment = if step >> 4 & 3 == 3 {
                body.first().copied().unwrap_or(0)
            } else {
                0
            };
            let flags = [fragment & 0x20, fragment & 0x1f];
            let length = ((20 + body.len()) as u16).to_be_bytes();
            let mut packet = vec![0x45, 0, length[0], length[1], 0, 7, flags[0], flags[1]];
            packet.extend([64, protocol, 0, 0, 10, 0, 0, step >> 6, 203, 0, 113, 7]);
            packet
        }
        false => {
            let length = (body.len() as u16).to_be_bytes();
            let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            packet.extend([
                0x20,
                1,
                0xd,
                0xb8,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                step >> 6,
            ]);
            packet.extend([0x20, 1, 0xd, 0xb8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
            packet
        }
    };
    packet.extend(body);
    packet
}

impl World {
    fn packet(&mut self, bytes: &[u8]) {
        let Ok(packet) = packet::parse(bytes) else {
            return;
        };
        assert!(packet.len <= bytes.len());
        if icmp::may_report(&packet) {
            let problem = Problem::TooBig { mtu: 1400 };
            let error = icmp::error(problem, packet.destination, bytes).expect("a report");
            assert!(!icmp::may_report(&packet::parse(&error).expect("a packet")));
        }
        match &packet.body {
            Body::Tcp(segment) => self.segment(&packet, segment, bytes),
            Body::Udp(datagram) => assert!(bytes.get(datagram.payload.clone()).is_some()),
            Body::Echo(echo) => assert!(bytes.get(echo.payload.clone()).is_some()),
            Body::Fragment(fragment) => {
                let whole = self.reassembly.push(&packet, fragment, bytes, self.now);
                if let Some(whole) = whole {
                    let mut sent = 0;
                    build::fragments(&whole, 600, 1, |part| sent += part.len());
                    let is_parsed = packet::parse(&whole).is_ok();
                    assert!(sent >= whole.len() || whole.len() <= 40 || !is_parsed);
                }
            }
            Body::Icmp(_) | Body::Other(_) => {}
        }
    }

    fn segment(&mut self, packet: &Packet, segment: &Segment, bytes: &[u8]) {
        let flow = Flow {
            source: packet.from(segment.source_port),
            destination: packet.to(segment.destination_port),
        };
        if let Some(reset) = build::reset(packet, segment) {
            packet::parse(&reset).expect("a packet");
        }
        match self.nat.outbound(&flow, segment.flags, self.now) {
            Verdict::New => {
                if let Some(number) = self.nat.insert(flow, flow, self.now) {
                    self.opened.insert(flow, number);
                }
            }
            Verdict::Pass(peer) => {
                // Unless the segment has just ended it, the peer has this flow.
                let back = self.nat.inbound(peer, segment.flags, self.now);
                assert!(back.is_none_or(|back| back == flow));
                let listener = SocketAddr::new(own(flow.source), 4);
                let mut rewritten = bytes.to_vec();
                assert!(rewrite(
                    &mut rewritten,
                    segment.header,
                    false,
                    peer,
                    listener
                ));
                let again = packet::parse(&rewritten).expect("a packet");
                let Body::Tcp(new) = &again.body else {
                    panic!("no longer a segment");
                };
                assert_eq!(again.from(new.source_port), peer);
                assert_eq!(again.to(new.destination_port), listener);
            }
            Verdict::Repeated | Verdict::Canceled | Verdict::Unknown => {}
        }
    }

    /// One of the flows that were opened.
    fn some(&self, step: u8) -> Option<(Flow, u64)> {
        let mut all: Vec<(Flow, u64)> = self.opened.iter().map(|(k, v)| (*k, *v)).collect();
        all.sort_unstable_by_key(|(_, number)| *number);
        let count = all.len().max(1);
        all.get(usize::from(step >> 3) % count).copied()
    }

    fn answered(&mut self, step: u8) {
        let Some((flow, number)) = self.some(step) else {
            return;
        };
        if self.nat.opening(&flow, number).is_none() {
            return;
        }
        match step & 128 {
            0 => assert!(self.nat.connecting(&flow, number).is_some()),
            _ => self.nat.refused(&flow, number),
        }
    }

    fn accepted(&mut self, step: u8) {
        let address: IpAddr = if step & 128 == 0 {
            [198, 18, 74, 2].into()
        } else {
            "fd73::2".parse().unwrap()
        };
        let peer = SocketAddr::new(address, 1024 + u16::from(step >> 3 & 15));
        if let Some((flow, held)) = self.nat.accepted(peer) {
            assert_eq!(flow, held);
            assert_eq!(self.nat.accepted(peer), None);
        }
    }

    fn ended(&mut self, step: u8) {
        if let Some((flow, number)) = self.some(step) {
            self.nat.ended(&flow, number, self.now);
        }
    }
}

/// The device's address of the same family.
fn own(source: SocketAddr) -> IpAddr {
    match source {
        SocketAddr::V4(_) => [198, 18, 74, 1].into(),
        SocketAddr::V6(_) => "fd73::1".parse().unwrap(),
    }
}
