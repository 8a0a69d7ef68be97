//! Packet by packet: handling of acknowledgments, and of packets that cannot be parsed.

mod acknowledgments;
mod flows;
mod links;
mod options;
mod owed;
mod timestamps;

use std::time::Duration;

use etherparse::TcpOptionElement as Option_;

use crate::flow::FlowKey;
use crate::packet::Segment;
use crate::packet::fixture::{Draft, far, segment, user};
use crate::{Config, Edge, Instant, LinkId};

pub(super) const KEY: fn() -> FlowKey = || FlowKey {
    far: far(),
    user: user(),
};

pub(super) fn ms(n: u64) -> Instant {
    Duration::from_millis(n)
}

/// Exchanges SYNs, and sends `count` segments of 1000 bytes from 1000 on; the user acknowledges the
/// first.
pub(super) fn started(config: Config, count: u32) -> Edge {
    let mut edge = Edge::new(config).unwrap();
    let syn = Draft::up(500)
        .syn()
        .option(Option_::WindowScale(7))
        .option(Option_::MaximumSegmentSize(1000));
    edge.handle_user(
        syn.option(Option_::SelectiveAcknowledgementPermitted)
            .packet(),
        ms(0),
    );
    let syn = Draft::down(999)
        .syn()
        .ack(501)
        .option(Option_::WindowScale(7));
    edge.handle_far(
        syn.option(Option_::SelectiveAcknowledgementPermitted)
            .packet(),
        ms(1),
    );
    edge.handle_user(Draft::up(501).ack(1000).window(1000).packet(), ms(2));
    for n in 0..count {
        edge.handle_far(data(n), ms(3));
    }
    sent(&mut edge, ms(4));
    edge.handle_user(ack(2000, &[]), ms(40));
    drain(&mut edge);
    edge
}

pub(super) fn data(n: u32) -> Vec<u8> {
    data_at(n, 70 + n)
}

/// The same with another timestamp.
pub(super) fn data_at(n: u32, timestamp: u32) -> Vec<u8> {
    let draft = Draft::down(1000 + 1000 * n)
        .ack(501)
        .option(Option_::Timestamp(timestamp, 1));
    draft.payload(&[n as u8; 1000]).packet()
}

pub(super) fn ack(number: u32, blocks: &[(u32, u32)]) -> Vec<u8> {
    Draft::up(501)
        .ack(number)
        .window(1000)
        .option(Option_::Timestamp(9, 70))
        .sack(blocks)
        .packet()
}

/// The packets given to the links.
pub(super) fn sent(edge: &mut Edge, now: Instant) -> Vec<Vec<u8>> {
    let links = [LinkId(0), LinkId(1)];
    let mut packets = Vec::new();
    for link in links {
        while let Some(packet) = edge.poll_link(link, now) {
            packets.push(packet.to_vec());
        }
    }
    packets
}

pub(super) fn drain(edge: &mut Edge) -> Vec<Segment> {
    std::iter::from_fn(|| edge.poll_far())
        .map(|packet| segment(&packet))
        .collect()
}

/// The acknowledgment passed to the far end, if any.
pub(super) fn answer(edge: &mut Edge, packet: Vec<u8>, now: Instant) -> Option<Segment> {
    edge.handle_user(packet, now);
    let mut packets = drain(edge);
    assert!(packets.len() <= 1);
    packets.pop()
}
