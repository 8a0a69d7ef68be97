//! Each side reports the state of its paths to the other.

use std::time::Duration;

use super::pair::{Pair, Side};
use crate::frame::ReportedState;
use crate::path::{Path, PathState};
use crate::{Event, LossState, PathId, PathSample};

const SOON: Duration = Duration::from_millis(100);

fn has_reported(pair: &Pair, side: Side, event: &Event) -> bool {
    pair.events.contains(&(side, event.clone()))
}

#[test]
fn a_path_that_one_side_abandons_is_abandoned_by_the_other() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let id = pair.open();
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &vec![7; 5_000_000], true);
    pair.run_for(Duration::from_millis(200));
    let gone = PathId(1);
    pair.client.path_down(gone, pair.now);
    let left = Event::PathLeft { path: gone };
    assert!(pair.run_until(|pair| has_reported(pair, Side::Server, &left), SOON));
    // The caller ends the path on that report.
    pair.kill_path(gone);
    pair.run_to_end(Duration::from_secs(5));
    assert_eq!(pair.program(Side::Client, id).received.len(), 5_000_000);
    let reported = pair.events.iter().filter(|(_, event)| *event == left);
    assert_eq!(reported.count(), 1, "the receiver does not report it back");
}

#[test]
fn the_peer_of_a_stalled_path_pings_and_receives_the_recovery() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let id = pair.open();
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &vec![7; 20_000_000], true);
    pair.run_for(Duration::from_millis(200));
    let dead = PathId(1);
    pair.carriers.get_mut(&dead).unwrap().blackhole = true;
    let stalled_at_peer = Event::PathStalledAtPeer { path: dead };
    let hears = |pair: &Pair| has_reported(pair, Side::Client, &stalled_at_peer);
    assert!(pair.run_until(hears, Duration::from_secs(1)));
    let stalled = |pair: &Pair| {
        let stats = pair.client.path_stats_all(pair.now);
        stats.iter().any(|path| path.stalled_for.is_some())
    };
    assert!(stalled(&pair));
    // The client only has PINGs to send, and finds that its own direction is dead, too.
    let stalls = |pair: &Pair| pair.client.paths[&dead].state() == PathState::Stalled;
    assert!(pair.run_until(stalls, Duration::from_secs(1)));
    pair.carriers.get_mut(&dead).unwrap().blackhole = false;
    assert!(pair.run_until(|pair| !stalled(pair), Duration::from_secs(1)));
    pair.run_to_end(Duration::from_secs(10));
    assert_eq!(pair.program(Side::Client, id).received.len(), 20_000_000);
}

/// A transfer over two paths; the second one has just begun to pause as BBR does and sends hardly
/// anything.
fn with_a_pause() -> (Pair, PathId) {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let (id, paused) = (pair.open(), PathId(1));
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &vec![7; 20_000_000], true);
    pair.run_for(Duration::from_millis(500));
    let carrier = pair.carriers.get_mut(&paused).unwrap();
    (carrier.blackhole, carrier.pauses) = (true, true);
    let stalls = |pair: &Pair| pair.server.paths[&paused].state() == PathState::Stalled;
    assert!(
        pair.run_until(stalls, Duration::from_millis(200)),
        "its data goes over the other path"
    );
    (pair, paused)
}

#[test]
fn a_measurement_pause_of_tcp_is_not_reported_as_a_stall() {
    let (mut pair, paused) = with_a_pause();
    pair.run_for(Duration::from_millis(150));
    let carrier = pair.carriers.get_mut(&paused).unwrap();
    (carrier.blackhole, carrier.pauses) = (false, false);
    pair.run_to_end(Duration::from_secs(10));
    let of_paths = |event: &Event| {
        matches!(
            event,
            Event::PathStalled { .. }
                | Event::PathRecovered { .. }
                | Event::PathStalledAtPeer { .. }
        )
    };
    let reported = pair.events.iter().filter(|(_, event)| of_paths(event));
    assert_eq!(reported.collect::<Vec<_>>(), [] as [&(Side, Event); 0]);
    assert_eq!(pair.server.paths[&paused].unreliability(pair.now), 0.0);
    assert_eq!(pair.server.paths[&paused].state(), PathState::Active);
}

/// TCP's timeout may end the pause, or nothing may.
#[test]
fn a_path_that_dies_during_a_measurement_pause_is_reported_after_it() {
    for times_out in [true, false] {
        let (mut pair, paused) = with_a_pause();
        pair.carriers.get_mut(&paused).unwrap().pauses = !times_out;
        let stalled_at_peer = Event::PathStalledAtPeer { path: paused };
        let hears = |pair: &Pair| has_reported(pair, Side::Client, &stalled_at_peer);
        assert!(pair.run_until(hears, Duration::from_millis(400)));
        assert!(pair.server.paths[&paused].unreliability(pair.now) > 0.5);
        pair.carriers.get_mut(&paused).unwrap().blackhole = false;
        let recovered = Event::PathRecovered { path: paused };
        let is_told = |pair: &Pair| has_reported(pair, Side::Server, &recovered);
        assert!(pair.run_until(is_told, Duration::from_secs(1)));
    }
}

/// The stall had not been reported.
#[test]
fn a_pausing_path_is_retried_without_a_report_when_the_other_one_ends() {
    let (mut pair, paused) = with_a_pause();
    pair.server.path_down(PathId(0), pair.now);
    assert_eq!(pair.server.paths[&paused].state(), PathState::Active);
    let recovered = Event::PathRecovered { path: paused };
    while let Some(event) = pair.server.poll_event() {
        assert_ne!(event, recovered);
    }
}

#[test]
fn a_state_received_before_the_path_joins_applies_when_it_does() {
    let mut pair = Pair::connected(&[(50.0, 5)]);
    let (late, left) = (PathId(1), PathId(2));
    pair.client
        .on_path_state(late, 1, ReportedState::Stalled, pair.now);
    pair.client
        .on_path_state(left, 1, ReportedState::Left, pair.now);
    assert_eq!(
        [pair.add_path(50.0, 5), pair.add_path(50.0, 5)],
        [late, left]
    );
    let since = |pair: &Pair, id| pair.client.paths[&id].stalled_since();
    assert_eq!(since(&pair, late), Some(pair.now));
    assert_eq!(since(&pair, PathId(0)), None);
    let hears = |pair: &Pair| {
        let events = [
            Event::PathStalledAtPeer { path: late },
            Event::PathLeft { path: left },
        ];
        events
            .iter()
            .all(|event| has_reported(pair, Side::Client, event))
    };
    assert!(pair.run_until(hears, SOON));
}

/// Frames of several paths overtake each other, and late ones are sent again over another path.
#[test]
fn an_obsolete_path_state_changes_nothing() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let path = PathId(1);
    let mut said = Vec::new();
    for (version, word) in [
        (1, ReportedState::Stalled),
        (1, ReportedState::Stalled),
        (2, ReportedState::Delivers),
        (1, ReportedState::Stalled),
        (2, ReportedState::Delivers),
        (4, ReportedState::Delivers),
        (3, ReportedState::Stalled),
    ] {
        pair.client.on_path_state(path, version, word, pair.now);
        said.extend(std::iter::from_fn(|| pair.client.poll_event()));
    }
    assert_eq!(
        said,
        [
            Event::PathStalledAtPeer { path },
            Event::PathRecoveredAtPeer { path }
        ]
    );
    assert_eq!(pair.client.paths[&path].stalled_since(), None);
}

/// Both ends report the start and the end of each stall, in turn.
#[test]
fn each_reported_stall_is_followed_by_a_recovery() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let (id, path) = (pair.open(), PathId(1));
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &vec![7; 20_000_000], true);
    for dead in [false, true, false, true, false] {
        pair.carriers.get_mut(&path).unwrap().blackhole = dead;
        pair.run_for(Duration::from_millis(400));
    }
    pair.run_to_end(Duration::from_secs(10));
    for side in [Side::Client, Side::Server] {
        let of_side = pair.events.iter().filter(|(of, _)| *of == side);
        let ills = of_side.filter_map(|(_, event)| match event {
            Event::PathStalled { path: of, .. } if *of == path => Some(("stalled", true)),
            Event::PathRecovered { path: of } if *of == path => Some(("stalled", false)),
            Event::PathStalledAtPeer { path: of } if *of == path => Some(("stalled_at_peer", true)),
            Event::PathRecoveredAtPeer { path: of } if *of == path => {
                Some(("stalled_at_peer", false))
            }
            _ => None,
        });
        let ills: Vec<_> = ills.collect();
        for kind in ["stalled", "stalled_at_peer"] {
            let of_kind = ills.iter().filter(|(of, _)| *of == kind);
            for (index, (_, is_ill)) in of_kind.clone().enumerate() {
                assert_eq!(*is_ill, index % 2 == 0, "{side:?}: {ills:?}");
            }
            assert_eq!(of_kind.count() % 2, 0, "{side:?}: {ills:?}");
        }
        assert!(ills.len() >= 4, "{side:?}: {ills:?}");
    }
}

#[test]
fn a_path_is_suspect_without_acknowledgments_of_the_peer_and_tcp() {
    let ms = Duration::from_millis;
    let mut path = Path::new(PathId(0), ms(0));
    let sample = |delivered| PathSample {
        srtt: ms(20),
        rttvar: ms(2),
        loss: LossState::Open,
        delivered,
        in_flight: 1,
        ..PathSample::default()
    };
    path.update(sample(0), ms(900));
    path.outbound.flights.push_back(crate::path::Flight {
        stream: 0,
        range: 0..1000,
        sent_at: ms(1000),
        expected_at: ms(1010),
        patience: Duration::from_millis(150),
        round_trip: Duration::from_millis(20),
        repeated: false,
        path_end: 1000,
        record_end: 1000,
    });
    assert_eq!(path.suspect_from(), None, "TCP does not report deliveries");
    path.update(sample(1), ms(1000));
    // Half a round trip, two variations and 15 ms after the expected arrival.
    assert_eq!(path.suspect_from(), Some(ms(1010 + 29)));
    assert!(!path.is_suspect(ms(1053)) && path.is_suspect(ms(1054)));
    // A round trip, 50 ms and 10 ms for a repair.
    assert_eq!(path.stalls_at(), Some(ms(1039 + 80)));
    path.update(sample(2), ms(1050));
    assert_eq!(
        path.suspect_from(),
        Some(ms(1050 + 29)),
        "a segment got through"
    );
}

/// A busy peer has unread bytes in its socket: four paths at 3.9 Gbit/s on two processors stalled
/// twice a second.
#[test]
fn data_acknowledged_to_tcp_gets_the_patience_of_a_stall() {
    let ms = Duration::from_millis;
    let sample = |delivered, in_flight, unsent| PathSample {
        srtt: ms(20),
        rttvar: ms(2),
        delivered,
        in_flight,
        unsent,
        ..PathSample::default()
    };
    let judged = |delivered, in_flight, unsent| {
        let mut path = Path::new(PathId(0), ms(0));
        path.update(sample(0, 0, 0), ms(900));
        path.outbound.flights.push_back(crate::path::Flight {
            stream: 0,
            range: 0..1000,
            sent_at: ms(1000),
            expected_at: ms(1010),
            patience: Duration::from_millis(29),
            round_trip: Duration::from_millis(20),
            repeated: false,
            path_end: 1000,
            record_end: 1300,
        });
        path.outbound.sent = 1300;
        path.progress.acknowledged_at = ms(1000);
        path.update(sample(delivered, in_flight, unsent), ms(1020));
        let late = (0..).find(|late| path.is_late(ms(1000 + late)));
        (late, path.suspect_from(), path.stalls_at())
    };
    // A round trip and two patiences; if TCP has acknowledgments for all, two round trips, four
    // variations and 150 ms after the time of sending.
    let (soon, stalls) = (Some(ms(1010 + 78)), Some(ms(1000 + 198)));
    assert_eq!(judged(1, 0, 0), (Some(10 + 198), None, stalls));
    let suspect = Some(ms(1020 + 29));
    assert_eq!(
        judged(1, 100, 0),
        (Some(10 + 29), suspect, soon),
        "its record is incomplete"
    );
    assert_eq!(
        judged(1, 0, 100),
        (Some(10 + 29), None, soon),
        "the window is closed"
    );
    assert_eq!(
        judged(0, 0, 0),
        (Some(10 + 29), None, soon),
        "TCP does not report deliveries"
    );
}

#[test]
fn a_busy_peer_causes_no_stall_and_hardly_any_duplicates() {
    let mut pair = Pair::connected(&[(400.0, 2), (200.0, 3)]);
    pair.reports_deliveries = true;
    let id = pair.open();
    pair.write(Side::Client, id, &vec![7; 60_000_000], true);
    for _ in 0..8 {
        pair.run_for(Duration::from_millis(50));
        pair.pause(Side::Server, Duration::from_millis(90));
        pair.run_for(Duration::from_millis(90));
    }
    let stalls = |event: &Event| matches!(event, Event::PathStalled { .. });
    let stalled = pair.events.iter().filter(|(_, event)| stalls(event));
    assert_eq!(stalled.count(), 0, "{pair:?}");
    let received = pair.program(Side::Server, id).received.len() as u64;
    assert!(received > 20_000_000, "{received}: {pair:?}");
    let twice = pair.client.stats().duplicates_sent;
    assert!(twice < received / 100, "{twice} of {received}");
}

#[test]
fn a_trickling_path_is_suspect_and_its_growing_delay_adds_no_patience() {
    let ms = Duration::from_millis;
    let mut path = Path::new(PathId(0), ms(0));
    let sample = |delivered, srtt, rttvar, in_flight| PathSample {
        srtt: ms(srtt),
        rttvar: ms(rttvar),
        mss: 1448,
        delivered,
        in_flight,
        ..PathSample::default()
    };
    path.update(sample(100, 40, 5, 100_000), ms(1000));
    path.outbound.flights.push_back(crate::path::Flight {
        stream: 0,
        range: 0..100_000,
        sent_at: ms(980),
        expected_at: ms(1010),
        patience: Duration::from_millis(150),
        round_trip: Duration::from_millis(60),
        repeated: false,
        path_end: 100_000,
        record_end: 100_000,
    });
    path.outbound.sent = 100_000;
    // Half a round trip, two variations and 15 ms; then a round trip, 50 ms and 10 ms.
    let (suspect, stalls) = (Some(ms(1010 + 45)), Some(ms(1055 + 100)));
    assert_eq!((path.suspect_from(), path.stalls_at()), (suspect, stalls));
    path.update(sample(101, 90, 40, 100_000), ms(1060));
    path.confirm(1448, ms(1065));
    path.update(sample(102, 150, 80, 100_000), ms(1120));
    assert_eq!((path.suspect_from(), path.stalls_at()), (suspect, stalls));
    // 100,000 bytes in 40 ms were 250,000 in the 100 ms of a repair. A thirtieth of that counts,
    // from either source. One segment may complete the bytes that the peer acknowledges, as far as
    // they are one TLS record.
    path.confirm(16_384 + 8_332, ms(1124));
    assert_eq!(path.suspect_from(), suspect);
    path.confirm(16_384 + 8_334, ms(1125));
    let patience = 75 + 160 + 15;
    assert_eq!(path.suspect_from(), Some(ms(1125 + patience)));
    path.update(sample(111, 150, 80, 100_000), ms(1130));
    assert_eq!(path.suspect_from(), Some(ms(1130 + patience)));
    // After a timeout, with hardly anything in flight, a single segment does.
    path.update(sample(111, 150, 80, 1448), ms(1140));
    path.update(sample(112, 150, 80, 1448), ms(1150));
    assert_eq!(path.suspect_from(), Some(ms(1150 + patience)));
}

/// A token bucket passes a burst at line rate: 60 kB were in flight in a round trip of 1 ms. One
/// path carries 1.25 MB/s, the other may carry 375 kB/s. Both continue to do so and give no reason
/// for suspicion.
#[test]
fn a_path_at_its_sustained_rate_is_not_suspect_after_a_burst() {
    let ms = Duration::from_millis;
    for (delivery_rate, limit, rate) in [(1_250_000, 0, 1_250), (12_000_000, 375_000, 375)] {
        let mut path = Path::new(PathId(0), ms(0));
        let sample = |delivered, srtt| PathSample {
            srtt: ms(srtt),
            rttvar: ms(1),
            mss: 1448,
            delivered,
            in_flight: 60_000,
            delivery_rate,
            limit,
            ..PathSample::default()
        };
        path.update(sample(0, 1), ms(900));
        path.update(sample(40, 1), ms(1000));
        path.outbound.flights.push_back(crate::path::Flight {
            stream: 0,
            range: 0..60_000,
            sent_at: ms(1000),
            expected_at: ms(1001),
            patience: ms(18),
            round_trip: ms(1),
            repeated: false,
            path_end: 60_000,
            record_end: 60_000,
        });
        path.outbound.sent = 60_000;
        for time in 1..=150 {
            // The queue's part of the round trip is measured a round trip later.
            path.update(
                sample(40 + time * rate / 1448, 1 + time / 4),
                ms(1000 + time),
            );
            assert!(
                !path.is_suspect(ms(1000 + time)),
                "{limit}: after {time} ms"
            );
        }
        for time in 151..=400 {
            path.update(sample(40 + 150 * rate / 1448, 38), ms(1000 + time));
        }
        assert!(path.is_suspect(ms(1400)), "{limit}: nothing more arrives");
    }
}

/// A limit is known before anything is measured, and no burst exceeds it.
#[test]
fn a_limit_bounds_the_expected_rate_of_a_path() {
    let mut path = Path::new(PathId(0), Duration::ZERO);
    let mut sample = PathSample {
        srtt: Duration::from_millis(1),
        cwnd: 100_000,
        unsent: 37_500,
        limit: 375_000,
        ..PathSample::default()
    };
    for delivery_rate in [0, 1_500_000, 100_000_000] {
        sample.delivery_rate = delivery_rate;
        path.update(sample, Duration::from_secs(1));
        assert_eq!((path.rate(), path.shown_rate()), (375e3, 375e3));
        assert!(
            path.delay() >= Duration::from_millis(100),
            "{:?}",
            path.delay()
        );
    }
    sample.delivery_rate = 200_000;
    path.outbound.sent = 10_000_000;
    path.update(sample, Duration::from_secs(2));
    assert_eq!(path.rate(), 200e3);
}

#[test]
fn the_longest_stalled_path_is_replaced_even_if_it_is_the_last() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let stalled = |pair: &Pair| pair.server.longest_stalled_path(pair.now);
    let id = pair.open();
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &vec![7; 20_000_000], true);
    pair.run_for(Duration::from_millis(200));
    assert_eq!(stalled(&pair), None);
    for dead in [PathId(1), PathId(0)] {
        pair.carriers.get_mut(&dead).unwrap().blackhole = true;
        let is_found = |pair: &Pair| stalled(pair) == Some(PathId(1));
        assert!(pair.run_until(is_found, Duration::from_secs(1)), "{dead:?}");
    }
    // The other one has been stalled for longer. The last one never stalls, because no other path
    // can take its data.
    pair.kill_path(PathId(1));
    let is_found = |pair: &Pair| stalled(pair) == Some(PathId(0));
    assert!(pair.run_until(is_found, Duration::from_secs(1)));
    assert_eq!(pair.server.paths[&PathId(0)].state(), PathState::Active);
}
