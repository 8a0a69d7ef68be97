//! Decision tables: FBDT's picks in constructed situations.

use std::time::Duration;

use proptest::prelude::*;

use super::forward::FORWARD_STAYS;
use super::*;
use crate::path::{PathSample, PathState};
use crate::scheduler::fixture::Fixture;
use crate::selector::Selection;
use crate::{Class, Priority};

const BUDGET: u64 = 10_000;

#[test]
fn forward_takes_the_front_and_backward_the_back_until_they_meet() {
    let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
    fixture.write(0, 60_000);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000));
    assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(50_000..60_000));
    assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(40_000..50_000));
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(10_000..20_000));
    fixture.queue_on(0, 1_000_000);
    // The backward path is faster this time: it takes bytes planned for the other.
    assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(30_000..40_000));
    assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(20_000..30_000));
    assert_eq!(fixture.unsent(), 0);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), None);
}

#[test]
fn segments_and_offsets_follow_the_rates() {
    // thesis eq. 4.4: 30 : 20 : 50 Mbit/s; eq. 4.5: each begins where the one before ends.
    let mut fixture = Fixture::new(&[(30.0, 10), (20.0, 20), (50.0, 30)]);
    fixture.write(0, 100_000);
    let mut fbdt = Fbdt::default();
    assert_eq!(fixture.send(&mut fbdt, 0, 1000), Some(0..1000));
    let window = &fbdt.windows[&0][0];
    assert_eq!(window.range, 0..100_000);
    let segments = [
        (PathId(0), 0..30_000),
        (PathId(1), 30_000..50_000),
        (PathId(2), 50_000..100_000),
    ];
    assert_eq!(window.segments, segments);
    assert_eq!(fixture.send(&mut fbdt, 1, 1000), Some(49_000..50_000));
    assert_eq!(fixture.send(&mut fbdt, 2, 1000), Some(99_000..100_000));
}

#[test]
fn a_finished_segment_realigns_the_unsent_bytes() {
    let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 20), (80.0, 30)]);
    fixture.write(0, 90_000);
    let mut fbdt = Fbdt::default();
    fixture.queue_on(0, 1_000_000);
    fixture.queue_on(2, 1_000_000);
    for end in [60_000, 50_000, 40_000] {
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(end - 10_000..end));
    }
    // Path 1 has finished 30..60; 0..30 and 60..90 are unsent, and its third of them is now 20..30
    // and 60..70.
    assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(60_000..70_000));
    let segments: Vec<_> = fbdt.windows[&0][0]
        .segments
        .iter()
        .map(|(_, range)| range.clone())
        .collect();
    assert_eq!(segments, [0..20_000, 20_000..70_000, 70_000..90_000]);
    fixture.queue_on(1, 1_000_000);
    fixture.queue_on(2, 0);
    assert_eq!(fixture.send(&mut fbdt, 2, BUDGET), Some(80_000..90_000));
    fixture.queue_on(0, 0);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000));
}

#[test]
fn the_next_window_opens_once_the_open_ones_are_sent() {
    let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
    fixture.write(0, 10_000_000);
    // Twice the bandwidth-delay product: 20 MB/s over 12 ms.
    let size = 480_000;
    assert_eq!(
        fixture.send(&mut fbdt, 1, BUDGET),
        Some(size - BUDGET..size)
    );
    let mut sent = BUDGET;
    while sent < size {
        let range = fixture.send(&mut fbdt, 0, BUDGET).unwrap();
        assert!(range.end <= size);
        sent += range.end - range.start;
    }
    assert_eq!(
        fixture.send(&mut fbdt, 0, BUDGET),
        Some(size..size + BUDGET)
    );
    assert_eq!(
        fixture.send(&mut fbdt, 1, BUDGET),
        Some(2 * size - BUDGET..2 * size)
    );
    assert_eq!(fbdt.windows[&0].len(), 2);
}

#[test]
fn a_slow_path_is_left_idle_at_the_tail_of_an_object() {
    let links = [(80.0, 10), (8.0, 200)];
    for (len, welcome) in [
        (1_000, false),
        (100_000, false),
        (900_000, false),
        (3_000_000, true),
    ] {
        let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
        fixture.write(0, len);
        assert_eq!(
            fixture.send(&mut fbdt, 1, BUDGET).is_some(),
            welcome,
            "{len} bytes"
        );
        assert!(fixture.send(&mut fbdt, 0, BUDGET).is_some());
    }
    // The fast path is busy for longer than the slow one takes.
    let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
    fixture.write(0, 8_000);
    fixture.queue_on(0, 3_000_000);
    assert_eq!(fixture.send(&mut fbdt, 1, BUDGET), Some(3_904..8_000));
}

#[test]
fn different_budgets_do_not_leave_bytes_unsent() {
    let links = [(800.0, 12), (8.0, 1)];
    let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
    fixture.write(0, 30_000);
    for _ in 0..100 {
        fixture.send(&mut fbdt, 0, 100);
        fixture.send(&mut fbdt, 1, 20_000);
    }
    assert!(fixture.unsent() < 30_000 - 100 * 100 / 2);
    let mut rounds = 0;
    while fixture.unsent() > 0 {
        let moved = [
            fixture.send(&mut fbdt, 0, 100),
            fixture.send(&mut fbdt, 1, 20_000),
        ];
        assert!(
            moved.iter().any(Option::is_some),
            "{} bytes are left for the other",
            fixture.unsent()
        );
        rounds += 1;
        assert!(rounds < 1000);
    }
}

#[test]
fn the_forward_role_stays_until_another_path_is_clearly_better() {
    let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
    fixture.write(0, 10_000_000);
    let forward = |fixture: &mut Fixture, fbdt: &mut Fbdt| {
        fixture.now += 2 * FORWARD_STAYS;
        fixture.send(fbdt, 0, 1000);
        fbdt.forward.path().map(|id| id.0)
    };
    assert_eq!(forward(&mut fixture, &mut fbdt), Some(0));
    let srtt = |fixture: &mut Fixture, ms: u64| {
        let path = fixture.paths.get_mut(&PathId(0)).unwrap();
        let sample = crate::PathSample {
            srtt: Duration::from_millis(ms),
            ..*path.sample()
        };
        path.update(sample, crate::Instant::ZERO);
    };
    srtt(&mut fixture, 17);
    assert_eq!(
        forward(&mut fixture, &mut fbdt),
        Some(0),
        "slower, but not by half"
    );
    srtt(&mut fixture, 19);
    assert_eq!(
        forward(&mut fixture, &mut fbdt),
        Some(1),
        "slower by more than half"
    );
    srtt(&mut fixture, 10);
    assert_eq!(
        forward(&mut fixture, &mut fbdt),
        Some(1),
        "better, but not by half"
    );
    let now = fixture.now;
    fixture.paths.get_mut(&PathId(1)).unwrap().note_stall(now);
    assert_eq!(
        forward(&mut fixture, &mut fbdt),
        Some(0),
        "a stall suffices"
    );
    fixture.paths.get_mut(&PathId(0)).unwrap().state = PathState::Stalled;
    fbdt.paths_changed();
    fixture.send(&mut fbdt, 1, 1000);
    assert_eq!(
        fbdt.forward.path().map(|id| id.0),
        Some(1),
        "a stalled path is not forward"
    );
}

#[test]
fn a_fast_path_becomes_forward_again_after_fades() {
    let (mut fixture, mut fbdt) = (Fixture::new(&[(30.0, 20), (6.0, 80)]), Fbdt::default());
    fixture.write(0, 10_000_000);
    let now = fixture.now;
    let fading = fixture.paths.get_mut(&PathId(0)).unwrap();
    (0..5).for_each(|_| fading.note_stall(now));
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000 - 2500));
    let forward_at = |fixture: &mut Fixture, fbdt: &mut Fbdt, mbit: f64| {
        fixture.change(0, |sample| sample.delivery_rate = (mbit * 1e6 / 8.0) as u64);
        fixture.now += 2 * FORWARD_STAYS;
        fixture.send(fbdt, 1, 1000);
        fbdt.forward.path().map(|id| id.0)
    };
    // The path fades and recovers.
    for (mbit, forward) in [(30.0, 0), (1.0, 1), (30.0, 0)] {
        let now = forward_at(&mut fixture, &mut fbdt, mbit);
        assert_eq!(now, Some(forward), "at {mbit} Mbit/s");
    }
}

#[test]
fn a_path_that_may_not_carry_data_loses_the_forward_role_at_once() {
    type Change = fn(&mut Path);
    let changes: [(&str, Change); 3] = [
        ("parked", |path| path.standing.selection = Selection::Parked),
        ("a backup", |path| {
            path.standing.policy.priority = Priority::Backup
        }),
        ("secondary", |path| {
            path.standing.policy.priority = Priority::Secondary
        }),
    ];
    for (what, change) in changes {
        let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
        fixture.write(0, 10_000_000);
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000));
        assert_eq!(fixture.send(&mut fbdt, 1, BUDGET).unwrap().end, 480_000);
        change(fixture.paths.get_mut(&PathId(0)).unwrap());
        let next = fixture.send(&mut fbdt, 1, BUDGET);
        assert_eq!(next, Some(10_000..20_000), "{what}");
        assert_eq!(fbdt.forward.path(), Some(PathId(1)), "{what}");
    }
}

/// Bytes that a path gets until it is left idle, if each of them stays in flight.
fn fill(fixture: &mut Fixture, fbdt: &mut Fbdt, path: u32) -> u64 {
    let mut got = 0;
    while let Some(range) = fixture.send(fbdt, path, BUDGET) {
        got += range.end - range.start;
        let path = fixture.paths.get_mut(&PathId(path)).unwrap();
        let sample = crate::PathSample {
            in_flight: got,
            ..*path.sample()
        };
        path.update(sample, crate::Instant::ZERO);
    }
    got
}

#[test]
fn coupled_windows_are_scaled_by_alpha_and_beta() {
    let links = [(80.0, 10), (80.0, 20)];
    let coupled = |coupling| {
        let mut fixture = Fixture::new(&links);
        fixture.write(0, 20_000_000);
        fixture.fbdt.coupling = coupling;
        fixture
    };
    // Twice the bandwidth-delay product plus the initial window, as in the fixture.
    let cwnd = [214_600.0, 414_600.0];
    let close = |got: u64, window: f64| (0.0..BUDGET as f64).contains(&(got as f64 - window));
    let (mut fixture, mut fbdt) = (
        coupled(Coupling::Scaled {
            alpha: 0.5,
            beta: 0.25,
        }),
        Fbdt::default(),
    );
    let forward = fill(&mut fixture, &mut fbdt, 0);
    let backward = fill(&mut fixture, &mut fbdt, 1);
    assert_eq!(fbdt.forward.path(), Some(PathId(0)));
    assert!(close(forward, 0.5 * cwnd[0]), "{forward}");
    assert!(close(backward, 0.25 * cwnd[1]), "{backward}");
    // Rates of 21.46 and 20.73 MB/s by eq. 4.3: together they may have the first one's rate.
    let (mut fixture, mut fbdt) = (coupled(Coupling::Fair), Fbdt::default());
    let rates = [cwnd[0] / 0.01, cwnd[1] / 0.02];
    let factor = rates[0] / (rates[0] + rates[1]);
    for (path, cwnd) in cwnd.into_iter().enumerate() {
        let got = fill(&mut fixture, &mut fbdt, path as u32);
        assert!(close(got, factor * cwnd), "{got} of {}", factor * cwnd);
    }
}

#[test]
fn streams_share_by_weight_and_a_new_one_is_served_next() {
    let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10)]), Fbdt::default());
    fixture.write_as(0, Class::Background, 10_000_000);
    fixture.write_as(2, Class::Background, 10_000_000);
    let counts = |fixture: &mut Fixture, fbdt: &mut Fbdt, times: usize| {
        let before: Vec<u64> = fixture.streams.values().map(Stream::highest_sent).collect();
        (0..times).for_each(|_| {
            fixture.send(fbdt, 0, BUDGET);
        });
        let after = fixture.streams.values().map(Stream::highest_sent);
        after
            .zip(before)
            .map(|(after, before)| (after - before) / BUDGET)
            .collect::<Vec<u64>>()
    };
    assert_eq!(counts(&mut fixture, &mut fbdt, 20), [10, 10]);
    fixture.streams.get_mut(&2).unwrap().hints.priority = 2;
    assert_eq!(counts(&mut fixture, &mut fbdt, 50), [10, 40]);
    // Twenty thousand bytes of an interactive stream do not wait for the service of the others.
    fixture.write_as(4, Class::Interactive, 20_000);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000));
    assert_eq!(fixture.last_served, 4);
}

/// One path, and `streams` bulk streams that have been served once or twice.
fn many_streams(streams: u64) -> (Fixture, Fbdt) {
    let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10)]), Fbdt::default());
    (0..streams).for_each(|id| fixture.write(id, 1_000_000));
    for _ in 0..streams + 50 {
        fixture.send(&mut fbdt, 0, BUDGET);
    }
    (fixture, fbdt)
}

#[test]
fn speech_among_five_hundred_bulk_streams_is_served_at_once() {
    let (mut fixture, mut fbdt) = many_streams(500);
    for (id, last) in [(1000, 70), (1001, 499)] {
        fixture.write_as(id, Class::Conversational, 200);
        fixture.last_served = last;
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..200));
        assert_eq!(fixture.last_served, id);
        fixture.send(&mut fbdt, 0, BUDGET);
    }
    // So are further bytes of it, even if the other streams just reach the number that is compared.
    for streams in [500, 60] {
        fixture.streams.retain(|id, _| *id < streams || *id == 1000);
        for round in 0..100 {
            fixture.write_as(1000, Class::Conversational, 200);
            fixture.send(&mut fbdt, 0, BUDGET);
            assert_eq!(fixture.last_served, 1000, "{round}");
            fixture.send(&mut fbdt, 0, BUDGET);
        }
    }
}

#[test]
fn weights_count_among_two_hundred_streams() {
    let (mut fixture, mut fbdt) = many_streams(200);
    fixture.streams.get_mut(&150).unwrap().hints.priority = 3;
    fbdt.stream_ready(150);
    let before: Vec<u64> = fixture.streams.values().map(Stream::highest_sent).collect();
    for _ in 0..2 * 207 {
        fixture.send(&mut fbdt, 0, BUDGET);
    }
    let after = fixture.streams.values().map(Stream::highest_sent);
    let pieces: Vec<u64> = after.zip(before).map(|(a, b)| (a - b) / BUDGET).collect();
    assert!((15..=17).contains(&pieces[150]), "{}", pieces[150]);
    let others = pieces.iter().enumerate().filter(|(id, _)| *id != 150);
    assert!(
        others.clone().all(|(_, n)| (1..=3).contains(n)),
        "{pieces:?}"
    );
}

#[test]
fn a_deadline_counts_among_five_hundred_streams() {
    let (mut fixture, mut fbdt) = many_streams(500);
    let (now, ms) = (fixture.now, Duration::from_millis);
    // Many streams past their deadline come before it.
    for id in 0..499 {
        fixture.write(id, 1000);
        let send = &mut fixture.streams.get_mut(&id).unwrap().send;
        send.wants(ms(1), now - ms(10));
    }
    fixture.write_as(1000, Class::Interactive, 10_000);
    let send = &mut fixture.streams.get_mut(&1000).unwrap().send;
    send.wants(ms(500), now);
    // It is the first of its class, so it is served next, but has then had its share.
    assert_eq!(fixture.send(&mut fbdt, 0, 5_000), Some(0..5_000));
    fixture.send(&mut fbdt, 0, BUDGET);
    assert!(fixture.last_served != 1000, "the deadline is not in danger");
    let queued = &mut fixture.paths.get_mut(&PathId(0)).unwrap().outbound.flights;
    queued.clear();
    fixture.now += ms(490);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(5_000..10_000));
    assert_eq!(fixture.last_served, 1000);
}

/// A path may not be useful for the streams in danger, because another one is faster; it is useful
/// for bulk.
#[test]
fn urgent_streams_do_not_hide_the_others() {
    let (mut fixture, mut fbdt) = many_streams(500);
    let (now, ms) = (fixture.now, Duration::from_millis);
    for id in 1000..1040 {
        fixture.write_as(id, Class::Interactive, 10_000);
        let send = &mut fixture.streams.get_mut(&id).unwrap().send;
        send.wants(ms(10), now);
        fbdt.stream_ready(id);
    }
    fixture.now += ms(5);
    for path in fixture.paths.values_mut() {
        path.outbound.flights.clear();
    }
    let ids: Vec<u64> = fixture.view(|view| {
        let order = fbdt.turns.order(&fixture.paths[&PathId(0)], true, view);
        order.iter().map(|stream| stream.id()).collect()
    });
    assert!(
        ids.iter().filter(|id| **id >= 1000).count() >= 16,
        "{ids:?}"
    );
    assert!(ids.iter().any(|id| *id < 500), "{ids:?}");
}

/// A stream served out of turn does not cause others to be examined again.
#[test]
fn an_urgent_piece_does_not_reexamine_the_other_streams() {
    let (mut fixture, mut fbdt) = many_streams(500);
    fixture.write(1000, 1_000_000);
    fbdt.stream_ready(1000);
    for _ in 0..20 {
        let stream = &fixture.streams[&1000];
        fbdt.turns.served(stream, BUDGET, true);
    }
    let looks = std::cell::Cell::new(0);
    let turns = &mut fbdt.turns.forward;
    let mut sorted = turns.sorted.take().unwrap();
    let start = |id, group| {
        looks.set(looks.get() + 1);
        turns.start(id, group)
    };
    let count = fixture.view(|view| {
        let path = &fixture.paths[&PathId(0)];
        sorted.order(path, view, start, |_| 0.0).len()
    });
    assert_eq!(count, 16);
    assert!(looks.get() < 50, "{}", looks.get());
}

#[test]
fn streams_without_credit_do_not_block_one_with_credit() {
    let (mut fixture, mut fbdt) = many_streams(500);
    let close = |fixture: &mut Fixture, id: u64| {
        let send = &mut fixture.streams.get_mut(&id).unwrap().send;
        send.limit = send.highest;
    };
    (0..500).for_each(|id| close(&mut fixture, id));
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), None);
    fixture.streams.get_mut(&300).unwrap().send.limit = 1 << 30;
    fbdt.stream_ready(300);
    assert!(fixture.send(&mut fbdt, 0, BUDGET).is_some());
    assert_eq!(fixture.last_served, 300);
}

#[test]
fn a_stream_about_to_miss_its_deadline_is_served_first_and_raced() {
    let (mut fixture, mut fbdt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), Fbdt::default());
    fixture.repeat_budget = 100_000;
    fixture.write_as(0, Class::Background, 10_000_000);
    fixture.write_as(2, Class::Background, 10_000);
    fixture.last_served = 2;
    let (now, far) = (fixture.now, Duration::from_millis(500));
    fixture.streams.get_mut(&2).unwrap().send.wants(far, now);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET).unwrap().start, 0);
    assert_eq!(fixture.last_served, 0, "the deadline is not in danger");
    // 5 ms of delay and 1 ms for the bytes, with 10 ms left.
    fixture
        .paths
        .values_mut()
        .for_each(|path| path.outbound.flights.clear());
    fixture.now += Duration::from_millis(490);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..10_000));
    assert_eq!(fixture.last_served, 2);
    let second = fixture.pick(&mut fbdt, PathId(1), BUDGET);
    assert_eq!(
        second,
        Pick::Race {
            stream: 2,
            range: 0..10_000
        }
    );
    // Streams past their deadline get no preference.
    fixture.write_as(2, Class::Background, 10_000);
    fixture.streams.get_mut(&2).unwrap().send.wants(far, now);
    fixture.now += Duration::from_secs(1);
    fixture.send(&mut fbdt, 0, BUDGET);
    assert_eq!(fixture.last_served, 0);
}

#[test]
fn speech_is_raced_on_the_two_best_paths_if_one_is_unreliable_and_bulk_is_not() {
    let links = [(80.0, 10), (80.0, 30), (80.0, 20)];
    let (speech, bulk) = (Class::Conversational, Class::Background);
    for (class, stalled, raced) in [
        (speech, true, true),
        (speech, false, false),
        (bulk, true, false),
    ] {
        let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
        fixture.repeat_budget = 10_000;
        if stalled {
            fixture.make_unreliable();
        }
        fixture.write_as(0, class, 200);
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..200));
        assert_eq!(fixture.pick(&mut fbdt, PathId(1), BUDGET), Pick::Idle);
        let pick = fixture.pick(&mut fbdt, PathId(2), BUDGET);
        assert_eq!(matches!(pick, Pick::Race { stream: 0, .. }), raced);
    }
}

#[test]
fn races_use_another_link_and_not_another_carrier_of_the_same_link() {
    // Two carriers of the first link, then one of a slower link.
    let links = [(80.0, 10), (80.0, 10), (80.0, 60)];
    let on_links = |numbers: [Option<u64>; 3]| {
        let mut fixture = Fixture::new(&links);
        fixture.repeat_budget = 10_000;
        fixture.make_unreliable();
        for (path, link) in fixture.paths.values_mut().zip(numbers) {
            path.standing.link = link;
        }
        fixture.write_as(0, Class::Conversational, 200);
        (fixture, Fbdt::default())
    };
    let race = Pick::Race {
        stream: 0,
        range: 0..200,
    };
    let (mut fixture, mut fbdt) = on_links([Some(7), Some(7), Some(8)]);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..200));
    assert_eq!(fixture.pick(&mut fbdt, PathId(1), BUDGET), Pick::Idle);
    assert_eq!(fixture.pick(&mut fbdt, PathId(2), BUDGET), race);
    // A single link has no second path to race on; paths without a link number count as separate
    // links.
    let (mut fixture, mut fbdt) = on_links([Some(7); 3]);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..200));
    assert_eq!(fixture.pick(&mut fbdt, PathId(1), BUDGET), Pick::Idle);
    let (mut fixture, mut fbdt) = on_links([None; 3]);
    assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..200));
    assert_eq!(fixture.pick(&mut fbdt, PathId(1), BUDGET), race);
}

#[test]
fn races_do_not_wait_for_a_path_that_may_not_or_cannot_carry_them() {
    // The second one would be the best to race on.
    let links = [(80.0, 10), (80.0, 12), (80.0, 60)];
    type Change = fn(&mut Fixture);
    let changes: [(&str, Change); 4] = [
        ("nothing", |_| {}),
        ("it is metered", |fixture| {
            fixture
                .paths
                .get_mut(&PathId(1))
                .unwrap()
                .standing
                .policy
                .metered = true;
        }),
        ("it is full", |fixture| {
            fixture.change(1, |sample| sample.full = true);
        }),
        ("it is suspect", |fixture| {
            fixture.change(1, |sample| sample.in_flight = 1000);
            // The piece itself has been duplicated.
            fixture.paths.get_mut(&PathId(1)).unwrap().outbound.flights[0].repeated = true;
            fixture.now += Duration::from_millis(100);
        }),
    ];
    for (what, change) in changes {
        let (mut fixture, mut fbdt) = (Fixture::new(&links), Fbdt::default());
        fixture.repeat_budget = 10_000;
        fixture.make_unreliable();
        fixture.write_as(2, Class::Background, 1000);
        fixture.take(1, 2, 0..1000);
        change(&mut fixture);
        fixture.write_as(0, Class::Conversational, 200);
        assert_eq!(fixture.send(&mut fbdt, 0, BUDGET), Some(0..200), "{what}");
        let race = Pick::Race {
            stream: 0,
            range: 0..200,
        };
        let is_second = what == "nothing";
        let pick = fixture.pick(&mut fbdt, PathId(2), BUDGET);
        assert_eq!(pick == race, !is_second, "{what}: {pick:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// While nothing is in flight, at least one path has to take bytes, however little is known of
    /// some paths and whatever is left of the windows. Otherwise nothing would ever change.
    #[test]
    fn idle_paths_never_all_refuse_the_bytes(
        links in prop::collection::vec((0.0..6.0f64, 0.0..6.0f64, any::<bool>(), 1..200u64), 2..=6),
        len in 1..100_000usize,
        gone in prop::collection::vec((0..100_000u64, 1..30_000u64), 0..6),
    ) {
        let paths = links.iter().map(|&(rate, rtt, ..)| (rate.exp(), rtt.exp() as u64));
        let paths: Vec<_> = paths.collect();
        let (mut fixture, mut fbdt) = (Fixture::new(&paths), Fbdt::default());
        fixture.fbdt = FbdtConfig::default();
        for (path, &(.., is_new, cwnd)) in fixture.paths.values_mut().zip(&links) {
            if is_new {
                let sample = PathSample { cwnd: cwnd * 1448, ..*path.sample() };
                path.update(sample, fixture.now);
                path.outbound.sent = 10_000;
                path.outbound.confirmed = path.outbound.sent;
            }
        }
        fixture.write(0, len);
        let unsent = &mut fixture.streams.get_mut(&0).unwrap().send.unsent;
        for (start, len) in gone {
            unsent.remove(start..start + len);
        }
        let ids: Vec<u32> = (0..links.len() as u32).collect();
        while fixture.unsent() > 0 {
            let taken = ids.iter().find_map(|id| fixture.send(&mut fbdt, *id, u64::MAX));
            prop_assert!(taken.is_some(), "{} bytes are left", fixture.unsent());
            // It arrives at once: nothing is in flight any more.
            fixture.paths.values_mut().for_each(|path| path.outbound.flights.clear());
        }
    }
}
