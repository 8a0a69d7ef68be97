//! Datagrams on stream paths, and peers without datagrams.

use std::time::Duration;

use bytes::Bytes;

use crate::datagram::{CloseReason, DatagramCarrier, FlowConfig, FlowError};
use crate::frame::Frame;
use crate::{Class, Config, Event, Instant, PathId, PathSample, ProtocolError, Role, Session};

const PATH: PathId = PathId(3);
const MS: Duration = Duration::from_millis(1);

/// Client and server with one stream path.
fn pair(now: Instant) -> [Session; 2] {
    [Role::Client, Role::Server].map(|role| {
        let mut session = Session::new(Config::new(role), now).unwrap();
        session.path_up(PATH, now);
        let sample = PathSample {
            srtt: 20 * MS,
            min_rtt: 20 * MS,
            rttvar: MS,
            cwnd: 1 << 20,
            ..PathSample::default()
        };
        session.path_stats(PATH, sample, now);
        session
    })
}

/// Moves bytes both ways until there are no more; `passes` decides which of the client's frames
/// arrive.
fn exchange(sides: &mut [Session; 2], now: Instant, passes: impl Fn(&Frame<'_>) -> bool) {
    loop {
        let mut is_idle = true;
        for from in [0, 1] {
            let mut bytes = Vec::new();
            if sides[from].poll_transmit(PATH, 1 << 16, now, &mut bytes) == 0 {
                continue;
            }
            is_idle = false;
            let mut rest = &bytes[..];
            while let Some((frame, len)) = Frame::decode(rest).unwrap() {
                if from == 1 || passes(&frame) {
                    sides[1 - from]
                        .handle_frames(PATH, &rest[..len], now)
                        .unwrap();
                }
                rest = &rest[len..];
            }
        }
        if is_idle {
            return;
        }
    }
}

fn open(client: &mut Session, now: Instant) -> u64 {
    client.datagram_path_up(PATH, DatagramCarrier::Stream, 0, false, now);
    let config = FlowConfig {
        class: Some(Class::Conversational),
        ..FlowConfig::default()
    };
    client.open_flow(config, now).unwrap()
}

#[test]
fn datagrams_cross_a_stream_path_and_come_before_bulk() {
    let now = Instant::from_secs(1);
    let mut sides = pair(now);
    exchange(&mut sides, now, |_| true);
    let flow = open(&mut sides[0], now);
    let stream = sides[0].open_stream(b"t", Class::Background, now).unwrap();
    assert!(sides[0].write(stream, &[0; 100_000], now).unwrap() > 0);
    sides[0]
        .send_datagram(flow, Bytes::from_static(b"hello"), now)
        .unwrap();
    let mut bytes = Vec::new();
    sides[0].poll_transmit(PATH, 1 << 14, now, &mut bytes);
    let (first, _) = Frame::decode(&bytes).unwrap().unwrap();
    assert!(matches!(first, Frame::Datagram { .. }), "{first:?}");
    sides[1].handle_frames(PATH, &bytes, now).unwrap();
    assert_eq!(
        sides[1].poll_received(),
        Some((flow, Bytes::from_static(b"hello")))
    );
    // The server answers on the path on which the datagram came.
    sides[1]
        .send_datagram(flow, Bytes::from_static(b"world"), now)
        .unwrap();
    exchange(&mut sides, now, |_| true);
    assert_eq!(
        sides[0].poll_received(),
        Some((flow, Bytes::from_static(b"world")))
    );
    assert!(sides.iter().all(|side| side.datagram_stats().peer_speaks));
}

#[test]
fn large_datagrams_use_large_frames_and_the_largest_are_refused() {
    let now = Instant::from_secs(1);
    let mut sides = pair(now);
    let flow = open(&mut sides[0], now);
    for len in [16_000, 30_000] {
        sides[0]
            .send_datagram(flow, vec![7; len].into(), now)
            .unwrap();
        exchange(&mut sides, now, |_| true);
        assert_eq!(
            sides[1].poll_received().map(|(_, payload)| payload.len()),
            Some(len)
        );
    }
    let refused = sides[0].send_datagram(flow, vec![7; 65_507].into(), now);
    assert!(matches!(refused, Err(FlowError::TooBig { .. })));
}

#[test]
fn the_flows_of_a_path_end_with_the_session_but_not_with_the_path() {
    let now = Instant::from_secs(1);
    let mut sides = pair(now);
    let flow = open(&mut sides[0], now);
    sides[0].path_down(PATH, now);
    assert!(sides[0].datagram_path_stats_all(now).is_empty());
    sides[0].send_datagram(flow, Bytes::new(), now).unwrap();
    sides[0].close(0, "done", now);
    let gone = sides[0].send_datagram(flow, Bytes::new(), now);
    assert_eq!(gone, Err(FlowError::Closed));
    assert_eq!(sides[0].flow_stats().count(), 0);
}

#[test]
fn a_peer_without_datagrams_is_noticed_and_later_forgiven() {
    let mut now = Instant::from_secs(1);
    let mut sides = pair(now);
    let flow = open(&mut sides[0], now);
    let timeout = Config::new(Role::Client).datagrams.peer_timeout;
    // An old peer skips the frames.
    let is_old = |frame: &Frame<'_>| !matches!(frame, Frame::Datagram { .. });
    let end = now + timeout;
    while now < end {
        sides[0]
            .send_datagram(flow, Bytes::from_static(b"x"), now)
            .unwrap();
        exchange(&mut sides, now, is_old);
        now += 100 * MS;
        for side in &mut sides {
            side.handle_timeout(now);
        }
    }
    let error = sides[0].send_datagram(flow, Bytes::from_static(b"x"), now);
    assert_eq!(error, Err(FlowError::PeerWithoutDatagrams));
    assert!(sides[0].open_flow(FlowConfig::default(), now).is_err());
    // It was only an outage: the next probe is answered.
    let mut tries = 0;
    while sides[0].send_datagram(flow, Bytes::new(), now).is_err() {
        now = sides[0].poll_timeout().unwrap();
        sides[0].handle_timeout(now);
        exchange(&mut sides, now, |_| true);
        tries += 1;
        assert!(tries < 1000);
    }
}

#[test]
fn a_flow_that_carries_nothing_expires_on_both_sides() {
    let mut now = Instant::from_secs(1);
    let mut sides = pair(now);
    let flow = open(&mut sides[0], now);
    sides[0].send_datagram(flow, Bytes::new(), now).unwrap();
    exchange(&mut sides, now, |_| true);
    while now < Instant::from_secs(310) {
        now += Duration::from_secs(1);
        for side in &mut sides {
            side.handle_timeout(now);
        }
        exchange(&mut sides, now, |_| true);
    }
    let reason = CloseReason::Idle;
    for side in &mut sides {
        let events: Vec<Event> = std::iter::from_fn(|| side.poll_event()).collect();
        let closed = Event::FlowClosed { flow, reason };
        assert_eq!(events.iter().filter(|event| **event == closed).count(), 1);
        assert_eq!(side.datagram_stats().flows, 0);
    }
}

#[test]
fn malformed_packets_are_counted_and_false_reports_end_the_session() {
    let now = Instant::from_secs(1);
    let mut sides = pair(now);
    open(&mut sides[0], now);
    let handle = |side: &mut Session, bytes: &[u8]| {
        side.handle_datagram(PATH, Bytes::copy_from_slice(bytes), now)
    };
    for (number, bad) in [&[][..], &[0xc0], &[0x05], &[0x10]].into_iter().enumerate() {
        let mut packet = vec![number as u8, 0];
        packet.extend_from_slice(bad);
        let packet = if bad.is_empty() { &[0xff][..] } else { &packet };
        assert_eq!(handle(&mut sides[0], packet), Ok(()));
    }
    let stats = sides[0].datagram_stats();
    assert_eq!(stats.malformed, 4);
    // path, time, largest, further ranges, length of the first
    let report = [9, 0, 0x02, PATH.0 as u8, 0, 63, 0, 0];
    assert_eq!(handle(&mut sides[0], &report), Err(ProtocolError::Reported));
    assert!(sides[0].is_closed());
}

#[test]
fn a_stream_path_is_a_backup_while_a_quic_path_over_its_link_delivers() {
    let now = Instant::from_secs(1);
    let [mut client, _] = pair(now);
    client.datagram_path_up(PATH, DatagramCarrier::Stream, 7, false, now);
    client.datagram_path_up(PathId(4), DatagramCarrier::Quic, 7, false, now);
    let in_use = |client: &Session| {
        let stats = client.datagram_path_stats_all(now).into_iter();
        stats.map(|path| path.in_use).collect::<Vec<_>>()
    };
    assert_eq!(in_use(&client), [false, true]);
    client.datagram_path_down(PathId(4), now);
    assert_eq!(in_use(&client), [true]);
    client.datagram_path_down(PATH, now);
    assert_eq!(in_use(&client), [false], "only the peer's datagrams");
}
