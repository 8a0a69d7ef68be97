//! Packets that find all queues full: the far end notices one of them.

use etherparse::TcpOptionElement as Option_;

use super::scripted::{KEY, ack, answer, data, data_at, drain, ms, sent};
use crate::packet::fixture::Draft;
use crate::visible::Boost;
use crate::{Config, Edge};

/// A flow whose SYNs have these options, and queues of four packets, which the far end has just
/// overfilled: of twenty segments, four went to each link and twelve had no room. The first one is
/// acknowledged.
fn overfilled(options: &[Option_]) -> (Edge, Vec<Vec<u8>>) {
    let mut config = Config {
        steering: "roundrobin".into(),
        ..Config::default()
    };
    config.visible.boost = Boost::Off;
    config.links.iter_mut().for_each(|link| link.queue = 4);
    let mut edge = Edge::new(config).unwrap();
    let with = |draft: Draft| {
        let draft = draft.option(Option_::WindowScale(7));
        options.iter().cloned().fold(draft, Draft::option)
    };
    edge.handle_user(with(Draft::up(500).syn()).packet(), ms(0));
    edge.handle_far(with(Draft::down(999).syn().ack(501)).packet(), ms(1));
    edge.handle_user(Draft::up(501).ack(1000).window(1000).packet(), ms(2));
    sent(&mut edge, ms(2));
    for n in 0..20 {
        edge.handle_far(data(n), ms(3));
    }
    let delivered = sent(&mut edge, ms(4));
    edge.handle_user(ack(2000, &[]), ms(40));
    drain(&mut edge);
    (edge, delivered)
}

/// The far end would repair the twelve one per round trip (RFC 6582).
#[test]
fn a_far_end_without_sack_and_timestamps_repairs_one_of_the_packets_that_had_no_room() {
    let (mut edge, delivered) = overfilled(&[]);
    assert_eq!(delivered.len(), 8);
    assert_eq!(edge.counters().dropped, 12);
    // The user waits for the ninth segment, and the far end hears of it.
    edge.handle_user(ack(9000, &[]), ms(41));
    drain(&mut edge);
    for n in 20..24 {
        edge.handle_far(data(n), ms(42));
        sent(&mut edge, ms(42));
        let duplicate = answer(&mut edge, ack(9000, &[]), ms(43)).unwrap();
        assert_eq!(duplicate.ack, 9000);
    }
    assert!(sent(&mut edge, ms(44)).is_empty(), "it has not slowed down");
    // It has now. The others follow at once, each of them once.
    edge.handle_far(data(8), ms(50));
    let mut again = Vec::new();
    for at in 50..60 {
        again.extend(sent(&mut edge, ms(at)));
    }
    again.sort();
    let mut expected: Vec<_> = (8..20).map(data).collect();
    expected.sort();
    assert_eq!(again, expected);
    let passed = answer(&mut edge, ack(25_000, &[]), ms(70)).unwrap();
    assert_eq!(passed.ack, 25_000, "no partial acknowledgment in between");
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 0);
    // The queues are full a second time: the far end hears of that as well.
    for n in 24..40 {
        edge.handle_far(data(n), ms(71));
    }
    let delivered = sent(&mut edge, ms(72)).len();
    assert_eq!(delivered, 8);
    edge.handle_far(data(32), ms(90));
    assert_eq!(sent(&mut edge, ms(91)).len(), 8);
}

/// No further repetition releases them: a sender of NewReno stood still for more than a second.
#[test]
fn packets_without_room_follow_a_far_end_that_has_slowed_down() {
    let (mut edge, _) = overfilled(&[]);
    edge.handle_user(ack(9000, &[]), ms(41));
    edge.handle_far(data(8), ms(50));
    let mut come = Vec::new();
    for n in 20..40 {
        edge.handle_far(data(n), ms(50));
    }
    for at in 50..60 {
        come.extend(sent(&mut edge, ms(at)));
    }
    come.sort();
    let mut expected: Vec<_> = (8..40).map(data).collect();
    expected.sort();
    assert_eq!(come, expected);
}

/// With each packet behind the missing one the user's window grows, and no acknowledgment would be
/// a duplicate (RFC 5681).
#[test]
fn growing_windows_do_not_hide_full_queues() {
    let (mut edge, _) = overfilled(&[]);
    edge.handle_user(ack(9000, &[]), ms(41));
    drain(&mut edge);
    let mut growing = |number, window| {
        let packet = Draft::up(501).ack(number).window(window).packet();
        answer(&mut edge, packet, ms(43)).unwrap().window
    };
    assert_eq!(
        [1006, 1012, 1018].map(|window| growing(9000, window)),
        [1000; 3]
    );
    assert_eq!(growing(10_000, 1024), 1024);
}

/// Its repetition must not be lost to the queue that it has just overfilled: it would wait for its
/// timer.
#[test]
fn a_packet_that_the_far_end_repeats_has_room() {
    let (mut edge, _) = overfilled(&[]);
    edge.handle_user(ack(9000, &[]), ms(41));
    for n in 20..28 {
        edge.handle_far(data(n), ms(42)); // the queues are full again
    }
    edge.handle_far(data(8), ms(43));
    assert!(sent(&mut edge, ms(44)).contains(&data(8)));
}

/// It sees which packets are missing, and repairs them within a round trip.
#[test]
fn a_far_end_with_sack_repairs_all_that_had_no_room() {
    let (mut edge, delivered) = overfilled(&[Option_::SelectiveAcknowledgementPermitted]);
    assert_eq!(delivered.len(), 8);
    edge.handle_far(data(8), ms(50));
    assert_eq!(sent(&mut edge, ms(50)), [data(8)]);
}

/// From the echo of an older one, the far end would conclude that its reduction was unnecessary.
#[test]
fn packets_that_waited_are_echoed_with_the_timestamp_of_the_repetition() {
    let (mut edge, _) = overfilled(&[]);
    edge.handle_user(ack(9000, &[]), ms(41));
    edge.handle_far(data_at(8, 500), ms(50));
    sent(&mut edge, ms(51));
    drain(&mut edge);
    let mut echo = |number, echo| {
        let draft = Draft::up(501).ack(number).window(1000);
        let packet = draft.option(Option_::Timestamp(9, echo)).packet();
        let passed = answer(&mut edge, packet, ms(60)).unwrap();
        passed.options.timestamps.unwrap().1
    };
    assert_eq!(echo(10_000, 78), 500, "the repeated packet");
    assert_eq!(echo(11_000, 80), 500, "one that had waited");
    assert_eq!(
        echo(21_000, 89),
        500,
        "the last one sent before the repetition"
    );
    edge.handle_far(data_at(20, 510), ms(61));
    sent(&mut edge, ms(61));
    let draft = Draft::up(501).ack(22_000).window(1000);
    let packet = draft.option(Option_::Timestamp(9, 510)).packet();
    let passed = answer(&mut edge, packet, ms(70)).unwrap();
    assert_eq!(passed.options.timestamps, Some((9, 510)), "its own");
}
