//! The timestamps that the user and the far end see.

use etherparse::TcpOptionElement as Option_;

use super::{ack, answer, data, data_at, ms, sent, started};
use crate::packet::fixture::Draft;
use crate::{Config, Edge};

/// A user that has seen a later timestamp discards older ones (PAWS): a retransmission with its own
/// timestamp would cost all packets in flight.
#[test]
fn retransmissions_get_no_later_timestamp_than_needed() {
    let mut edge = started(Config::default(), 4);
    answer(&mut edge, ack(2000, &[]), ms(41)).unwrap();
    edge.handle_far(data_at(1, 500), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data(1)]);
    // A packet that had no room gets the timestamp of the one after it, in the packet and in its
    // copy.
    edge.handle_far(data_at(6, 76), ms(42));
    edge.handle_far(data_at(5, 505), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data_at(6, 76), data_at(5, 76)]);
    edge.handle_far(data_at(5, 506), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data_at(5, 76)]);
    // New data keeps its timestamp.
    edge.handle_far(data_at(7, 510), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data_at(7, 510)]);
    // The user has seen a later one, possibly from a packet without a copy.
    let seen = |echo| {
        let draft = Draft::up(501).ack(2000).window(1000);
        draft.option(Option_::Timestamp(9, echo)).packet()
    };
    edge.handle_user(seen(400), ms(43));
    edge.handle_user(seen(300), ms(43));
    edge.handle_far(data_at(1, 520), ms(44));
    assert_eq!(sent(&mut edge, ms(44)), [data_at(1, 400)]);
    let at = edge.poll_timeout().unwrap();
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data_at(1, 400)]);
}

/// A retransmission is echoed to the far end with its own timestamp, whatever the user saw.
/// Otherwise the far end would consider it unnecessary, and take the time since the first attempt
/// for a round trip.
#[test]
fn the_far_end_gets_its_own_timestamp_back() {
    let echo = |edge: &mut Edge, number, echo, at| {
        let draft = Draft::up(501).ack(number).window(1000);
        let packet = draft.option(Option_::Timestamp(9, echo)).packet();
        answer(edge, packet, at).unwrap().options.timestamps
    };
    let mut edge = started(Config::default(), 4);
    edge.handle_far(data_at(1, 500), ms(41));
    assert_eq!(sent(&mut edge, ms(41)), [data(1)]);
    // Not in a duplicate, which answers another packet. Later ones with the same echo agree.
    assert_eq!(echo(&mut edge, 2000, 70, ms(42)), Some((9, 70)));
    assert_eq!(echo(&mut edge, 3000, 71, ms(43)), Some((9, 500)));
    assert_eq!(echo(&mut edge, 4000, 71, ms(44)), Some((9, 500)));
    // A packet sent once, even if the node sent it with a later timestamp, is echoed with the far
    // end's.
    assert_eq!(echo(&mut edge, 5000, 73, ms(45)), Some((9, 73)));
    edge.handle_far(data_at(4, 74), ms(46));
    edge.handle_far(data_at(5, 75), ms(46));
    sent(&mut edge, ms(46));
    assert_eq!(echo(&mut edge, 5000, 90, ms(47)), Some((9, 74)), "boosted");
    let at = edge.poll_timeout().unwrap();
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data_at(4, 90)]);
    assert_eq!(echo(&mut edge, 6000, 90, at), Some((9, 74)));
}
