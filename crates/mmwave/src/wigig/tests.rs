use sumlink_link::{Link, LinkConfig, QueueLimit};

use super::*;
use crate::cell::SCHEMES;
use crate::mac::slotted::{Slotted, alone};

const MINUTE: Duration = Duration::from_secs(60);

fn link(scheme: &str, others: usize, blockage: f64) -> WigigLink {
    WigigLink {
        blockage: Blockage::Probability(blockage),
        ..WigigLink::new(Access::named(scheme).unwrap(), others)
    }
}

/// Mean length of outages in beacon intervals over seeds, and their number.
fn mean_outage(link: &WigigLink, seeds: u64, duration: Duration) -> (f64, usize) {
    let each = (1..=seeds).flat_map(|seed| outages(&link.schedule(seed, duration).unwrap()));
    let all: Vec<usize> = each.collect();
    (
        all.iter().sum::<usize>() as f64 / all.len() as f64,
        all.len(),
    )
}

#[test]
fn the_same_seed_gives_the_same_schedule_and_longer_ones_extend_it() {
    for scheme in SCHEMES {
        let link = link(scheme, 4, 0.2);
        let steps = link.schedule(3, Duration::from_secs(5)).unwrap();
        assert_eq!(steps.len(), 50, "{scheme}");
        assert_eq!(steps, link.schedule(3, Duration::from_secs(5)).unwrap());
        assert_ne!(steps, link.schedule(4, Duration::from_secs(5)).unwrap());
        let longer = link.schedule(3, Duration::from_secs(8)).unwrap();
        assert_eq!(longer[..50], steps, "{scheme}");
        assert!(steps[0].rate > 0, "{scheme}: begins with data");
    }
}

#[test]
fn an_outage_lasts_from_a_blockage_until_the_a_bft_is_won() {
    for scheme in SCHEMES {
        for others in [0, 8, 32] {
            let steps = link(scheme, others, 0.2).schedule(1, MINUTE).unwrap();
            for pair in steps.windows(2) {
                let (before, now) = (&pair[0], &pair[1]);
                let context = format!("{scheme}, {others}: {pair:?}");
                match now.service {
                    // A client with data had it before, or has just won.
                    Service::Data { .. } => {
                        let had = matches!(before.service, Service::Data { .. });
                        assert!(had || now.won, "{context}");
                    }
                    Service::Blocked => {
                        let had = matches!(before.service, Service::Data { .. });
                        assert!((had || now.won) && now.rate == 0, "{context}");
                    }
                    Service::Untrained => {
                        let lost = !matches!(before.service, Service::Data { .. });
                        assert!(lost && now.contended && !now.won, "{context}");
                        assert_eq!(now.rate, 0, "{context}");
                    }
                }
                // After a blockage it contends in the very next interval.
                let blocked = before.service == Service::Blocked;
                assert!(!blocked || now.contended, "{context}");
                assert!(now.contenders <= others + 1);
            }
        }
    }
}

#[test]
fn without_competitors_outages_last_as_long_as_blockages() {
    // With an access point nearby every A-BFT is won, and an outage is a series of blocked
    // intervals: geometric, 1 / (1 - p).
    for p in [0.2, 0.5] {
        let near = WigigLink {
            distance: Some(2.0),
            ..link("80211-thesis", 0, p)
        };
        let (mean, count) = mean_outage(&near, 4, 10 * MINUTE);
        let expected = 1.0 / (1.0 - p);
        let deviation = (p / ((1.0 - p) * (1.0 - p)) / count as f64).sqrt();
        let off = (mean - expected).abs();
        assert!(
            off < 5.0 * deviation,
            "{p}: {mean} of {count}, not {expected}"
        );
    }
}

#[test]
fn outages_are_within_the_bounds_of_contention_without_capture() {
    // A contention is won with at least q = (1 - 1/S)^(others) if all contend at once, and lost
    // again with p: the mean is between 1 / (1 - p), if every contention is won, and 1 / ((1 - p)
    // q).
    let (p, slots) = (0.4, 8);
    for others in [2, 6] {
        let config = WigigLink {
            distance: Some(5.0),
            ..link("80211-thesis", others, p)
        };
        let mut cell_config = config.config();
        cell_config.hearing.capture_db = 60.0;
        let mut lengths = Vec::new();
        for seed in 1..=4 {
            let cell = Cell::draw(&cell_config, seed).unwrap();
            let access = Access::Slotted(Slotted::THESIS);
            let mut runner = Runner::new(&cell, &access, seed).unwrap();
            let mut gone = 0;
            for _ in 0..3000 {
                runner.step().unwrap();
                match runner.service(0) {
                    Service::Data { .. } if gone > 0 => lengths.push(std::mem::take(&mut gone)),
                    Service::Data { .. } => {}
                    _ => gone += 1,
                }
            }
        }
        let count = lengths.len() as f64;
        let mean = lengths.iter().sum::<usize>() as f64 / count;
        let least = 1.0 / (1.0 - p);
        let q = alone(slots, others as u32 + 1).unwrap();
        let most = 1.0 / ((1.0 - p) * q);
        // Five standard errors of a geometric length.
        let room = 5.0 * most / count.sqrt();
        assert!(
            least - room < mean && mean < most + room,
            "{others}: {mean} not from {least} to {most}"
        );
        // Six of them have a measurable effect.
        assert!(others == 2 || mean > least + room, "{mean} {least} {room}");
    }
}

#[test]
fn more_competitors_and_802_11ad_mean_longer_outages_than_jpoc() {
    let mean = |scheme: &str, others| mean_outage(&link(scheme, others, 0.2), 5, MINUTE);
    for others in [8, 32] {
        let ((ad, _), (jpoc, count)) = (mean("80211ad", others), mean("jpoc", others));
        // Outages are at least as long as blockages, 1 / (1 - p); five standard errors are allowed.
        let floor = 1.25;
        let chance = 5.0 * (0.2f64 / 0.64 / count as f64).sqrt();
        assert!(jpoc > floor - chance, "{others}: {jpoc}");
        assert!(ad > jpoc + chance, "{others}: {ad} {jpoc}");
    }
    let (few, _) = mean("80211ad", 1);
    let (many, _) = mean("80211ad", 32);
    assert!(many > 2.0 * few, "{few} {many}");
}

#[test]
fn data_time_is_shared_with_those_that_have_a_sector() {
    // Never blocked, and all trained by the time the link is used: 4620 Mbit/s, less the MAC
    // overhead, in equal shares.
    for others in [0, 1, 3] {
        let near = WigigLink {
            distance: Some(2.0),
            ..link("80211ay", others, 0.0)
        };
        let steps = near.schedule(1, Duration::from_secs(2)).unwrap();
        assert!(outages(&steps).is_empty());
        for step in &steps {
            let Service::Data { snr_db, part_s } = step.service else {
                panic!("{step:?}");
            };
            let mcs = best_mcs(snr_db).unwrap();
            // Only whole exchanges of frames fit into a service period.
            let most = packet_mbps(&mcs) * 1e6 * part_s / 0.1;
            let reached = step.rate as f64 / most;
            assert!((0.9..=1.0).contains(&reached), "{reached}");
            let turns = step.turns.unwrap();
            assert!((f64::from(turns.count) * turns.length_us * 1e-6 - part_s).abs() < 1e-9);
            let end_us = turns.first_us + 9.0 * turns.every_us + turns.length_us;
            assert!((end_us - 100_000.0).abs() < 1e-6, "{turns:?}");
            let whole = part_s * (others + 1) as f64;
            // BTI 3 ms and A-BFT 8.7 ms of 100 ms carry no data.
            assert!((0.085..0.09).contains(&whole), "{whole}");
            assert!(step.rate < WigigLink::max_bps());
        }
    }
}

#[test]
fn a_timeline_has_a_trace_for_each_interval_with_data() {
    let steps = link("jpoc", 8, 0.2).schedule(2, MINUTE).unwrap();
    let timeline = timeline(&steps, 0.1);
    assert!(timeline.is_sorted_by_key(|(at, _)| *at));
    let (mut sent, mut expected) = (0.0, 0.0);
    let mut silent = false;
    for step in &steps {
        let mut due = timeline.iter().filter(|(at, _)| *at == step.at);
        let change = due.find(|(_, change)| matches!(change, Change::Rate(_) | Change::Trace(_)));
        match change {
            Some((_, Change::Trace(trace))) => {
                assert!(step.rate > 0, "{step:?}");
                assert!(trace.period() <= Duration::from_millis(100), "{step:?}");
                sent += trace.opportunities() as f64 * 12_000.0;
                silent = false;
            }
            Some((_, Change::Rate(rate))) => {
                assert!((*rate, step.rate, silent) == (0, 0, false), "{step:?}");
                silent = true;
            }
            _ => assert!(silent && step.rate == 0, "{step:?}"),
        }
        expected += step.rate as f64 * 0.1 * 0.1;
    }
    assert!((sent / expected - 1.0).abs() < 1e-3, "{sent} {expected}");
    let own = link("jpoc", 8, 0.2).timeline(2, MINUTE, 0.1);
    assert_eq!(timeline, own.unwrap());
}

#[test]
fn a_packet_waits_for_a_service_period() {
    // One small packet every 1.7 ms on a link without outages. The queue is empty, and a packet
    // still waits half the time between two service periods on average.
    let wait_ms = |periods: u32| {
        let near = WigigLink {
            distance: Some(3.0),
            periods,
            ..link("80211ay", 8, 0.0)
        };
        let mut timeline = near.timeline(1, Duration::from_secs(2), 1.0).unwrap();
        timeline.retain(|(_, change)| matches!(change, Change::Rate(_) | Change::Trace(_)));
        let mut changes = timeline.into_iter().peekable();
        let mut link = Link::new(LinkConfig {
            rate: 0,
            delay: Duration::ZERO,
            loss: 0.0,
            queue: QueueLimit::Bytes(1 << 20),
            seed: 1,
        });
        let mut waits = Vec::new();
        for number in 0..1000u64 {
            let at = Duration::from_micros(1_700 * number);
            while let Some((due, change)) = changes.next_if(|(due, _)| *due <= at) {
                link.set(due, change);
            }
            link.enqueue(at, at.as_nanos().to_be_bytes().to_vec());
            while let Some(delivery) = link.poll(at) {
                let sent: [u8; 16] = delivery.packet.try_into().unwrap();
                let sent = u128::from_be_bytes(sent);
                waits.push((delivery.due.as_nanos() - sent) as f64 / 1e6);
            }
        }
        assert!(waits.len() > 900, "{}", waits.len());
        let mean = waits.iter().sum::<f64>() / waits.len() as f64;
        (mean, waits.iter().copied().fold(0.0, f64::max))
    };
    // Rounds of 8.8 ms, of which the station has a ninth; BTI, A-BFT and ATI come to 12 ms.
    let (mean, most) = wait_ms(10);
    assert!((3.0..7.0).contains(&mean), "{mean}");
    assert!((8.8..8.8 + 13.0).contains(&most), "{most}");
    // One round for all: at most nine tenths of a beacon interval.
    let (mean, most) = wait_ms(1);
    assert!((35.0..50.0).contains(&mean), "{mean}");
    assert!((80.0..100.0).contains(&most), "{most}");
}

#[test]
fn fewer_periods_are_longer_and_carry_no_less() {
    let of = |periods| WigigLink {
        periods,
        ..link("jpoc", 8, 0.2)
    };
    let all = [1, 10, 100].map(|periods| of(periods).schedule(1, MINUTE).unwrap());
    let mean = |steps: &[Step]| steps.iter().map(|step| step.rate as f64).sum::<f64>();
    let means = [mean(&all[0]), mean(&all[1]), mean(&all[2])];
    assert!(means[0] >= means[1] && means[1] > means[2], "{means:?}");
    assert!(
        means[1] > 0.95 * means[0] && means[2] > 0.5 * means[0],
        "{means:?}"
    );
    for (one, ten) in all[0].iter().zip(&all[1]) {
        assert_eq!((one.service, one.won), (ten.service, ten.won));
    }
    assert!(of(0).check().is_err() && of(101).check().is_err());
}

#[test]
fn invalid_links_are_rejected() {
    assert!(link("jpoc", 1023, 0.2).check().is_ok());
    assert!(link("jpoc", 1024, 0.2).check().is_err());
    assert!(link("jpoc", usize::MAX, 0.2).check().is_err());
    assert!(link("jpoc", 1, 1.2).check().is_err());
    for distance in [-1.0, 25.1, f64::NAN] {
        let far = WigigLink {
            distance: Some(distance),
            ..link("jpoc", 1, 0.2)
        };
        assert!(far.check().is_err(), "{distance}");
        assert!(far.timeline(1, MINUTE, 1.0).is_err());
    }
}

#[test]
fn blockers_in_the_room_cut_the_link_too() {
    let blocked = WigigLink {
        blockage: Blockage::ModelA { meters: 0.1 },
        ..link("jpoc", 2, 0.0)
    };
    let steps = blocked.schedule(1, Duration::from_secs(10)).unwrap();
    assert_eq!(steps.len(), 100);
    assert!(steps[0].rate > 0);
}

#[test]
fn a_walking_station_changes_its_rate_every_interval() {
    let walks = WigigLink {
        walk: Some(Walk::PEDESTRIAN),
        ..link("jpoc", 2, 0.0)
    };
    let steps = walks.schedule(1, MINUTE).unwrap();
    let snr: Vec<f64> = steps
        .iter()
        .filter_map(|step| match step.service {
            Service::Data { snr_db, .. } => Some(snr_db),
            _ => None,
        })
        .collect();
    let changes = snr.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes * 3 > snr.len(), "{changes} of {}", snr.len());
    assert_eq!(steps, walks.schedule(1, MINUTE).unwrap());
}

/// Rates in Mbit/s and outages of the first 3 s, as text for comparison.
fn summary(scheme: &str) -> String {
    let steps = link(scheme, 8, 0.2);
    let steps = steps.schedule(1, Duration::from_secs(3)).unwrap();
    let each = steps.iter().map(|step| match step.rate {
        0 => ".".to_owned(),
        rate => format!("{}", rate / 1_000_000),
    });
    each.collect::<Vec<_>>().join(" ")
}

#[test]
fn the_schedule_of_a_seed_is_stable() {
    assert_eq!(
        summary("80211ad"),
        "362 362 464 820 543 . . . . 543 406 . . . 464 406 464 362 362 362 464 362 464 543 543 \
         464 464 406 362 362"
    );
    assert_eq!(
        summary("jpoc-thesis"),
        "369 369 472 553 369 . . . 414 369 414 . 369 414 369 369 369 369 369 369 369 369 369 369 \
         369 369 369 369 369 369"
    );
}
