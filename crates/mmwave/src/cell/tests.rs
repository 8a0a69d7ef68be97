use super::*;

fn config(stations: usize, blockage: f64) -> CellConfig {
    CellConfig {
        stations,
        blockage: Blockage::Probability(blockage),
        ..CellConfig::default()
    }
}

fn outcome(config: &CellConfig, scheme: &str, seed: u64) -> Outcome {
    let cell = Cell::draw(config, seed).unwrap();
    run(&cell, &Access::named(scheme).unwrap(), seed).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for scheme in SCHEMES {
        let config = config(6, 0.3);
        assert_eq!(
            outcome(&config, scheme, 5),
            outcome(&config, scheme, 5),
            "{scheme}"
        );
        assert_ne!(
            outcome(&config, scheme, 5),
            outcome(&config, scheme, 6),
            "{scheme}"
        );
    }
    assert!(Access::named("wimax").is_none());
}

#[test]
fn a_single_client_without_blockage_has_all_the_data_time() {
    for scheme in SCHEMES {
        // Close enough for every receiver to hear.
        let config = CellConfig {
            radius: 3.0,
            facing_deg: 20.0,
            ..config(1, 0.0)
        };
        let outcome = outcome(&config, scheme, 3);
        let station = outcome.stations[0];
        assert_eq!(station.attempts, 1 + station.failures, "{scheme}");
        let first = station.first.expect("heard");
        let data: f64 = outcome.intervals[first..]
            .iter()
            .map(|one| one.parts.data_us * 1e-6)
            .sum();
        assert!((station.allocated_s - data).abs() < 1e-9, "{scheme}");
        assert_eq!(station.allocated_s, station.used_s);
        assert!(
            (station.megabits / station.used_s - 4620.0).abs() < 1.0,
            "{scheme}"
        );
        assert_eq!(outcome.jain(), 1.0);
    }
}

#[test]
fn data_time_is_shared_and_never_exceeded() {
    for scheme in SCHEMES {
        let outcome = outcome(&config(16, 0.2), scheme, 11);
        let given: f64 = outcome.stations.iter().map(|one| one.allocated_s).sum();
        let data: f64 = outcome
            .intervals
            .iter()
            .filter(|one| one.sharing > 0)
            .map(|one| one.parts.data_us * 1e-6)
            .sum();
        assert!((given - data).abs() < 1e-6, "{scheme}: {given} {data}");
        for interval in &outcome.intervals {
            assert!(
                interval
                    .trained
                    .iter()
                    .all(|index| interval.contenders.contains(index))
            );
            let heard = |index: &usize| {
                interval
                    .sent
                    .iter()
                    .any(|f| f.contender == *index && f.heard)
            };
            assert!(
                interval.trained.iter().all(heard) || scheme == "80211ad" || scheme == "80211ay"
            );
        }
    }
}

#[test]
fn blockages_are_the_same_for_every_scheme() {
    // Without contention, schemes differ only in the time of training: a single near client is
    // always heard.
    let config = CellConfig {
        radius: 2.0,
        facing_deg: 10.0,
        ..config(1, 0.3)
    };
    let lost = |scheme: &str| {
        let station = outcome(&config, scheme, 2).stations[0];
        station.attempts - station.failures
    };
    assert_eq!(lost("80211-thesis"), lost("jpoc"));
    // One training at the start, and one after each of about 30 blockages.
    assert!((20..45).contains(&lost("jpoc")), "{}", lost("jpoc"));
}

#[test]
fn jpoc_is_fairer_than_802_11ad_under_frequent_blockage() {
    // Up to 30 % the thesis' baseline and JPOC are equal.
    let mean = |scheme: &str| {
        let all = (0..6).map(|seed| outcome(&config(16, 0.6), scheme, seed).jain());
        all.sum::<f64>() / 6.0
    };
    let jpoc = mean("jpoc");
    assert!(
        jpoc > mean("80211-thesis"),
        "{jpoc} {}",
        mean("80211-thesis")
    );
    assert!(jpoc > mean("80211ad") + 0.1, "{jpoc} {}", mean("80211ad"));
}

/// Share of failed attempts and Jain's index, with seeds that were not seen when the parameters
/// were chosen.
fn failures(config: &CellConfig, jpoc: Jpoc) -> (f64, f64) {
    let all: Vec<Outcome> = (201..=210)
        .map(|seed| {
            let cell = Cell::draw(config, seed).unwrap();
            run(&cell, &Access::Jpoc(jpoc), seed).unwrap()
        })
        .collect();
    let sum: f64 = all.iter().map(Outcome::jain).sum();
    (
        crate::figures::access::failure(&all),
        sum / all.len() as f64,
    )
}

#[test]
fn a_learned_k_meets_the_target_that_k_4_misses() {
    for (stations, blockage) in [(16, 0.2), (16, 0.6), (24, 0.2), (32, 0.2)] {
        let config = config(stations, blockage);
        let (thesis, learned) = (
            failures(&config, Jpoc::THESIS),
            failures(&config, Jpoc::LEARNED),
        );
        assert!(learned.0 <= 0.1, "{blockage}: {learned:?}");
        assert!(thesis.0 > 0.15, "{blockage}: {thesis:?}");
        assert!(learned.1 >= thesis.1, "{blockage}: {learned:?} {thesis:?}");
    }
}

#[test]
fn a_client_below_gamma_is_heard_once_it_adds_power() {
    // Power control leaves this client 6 dB below gamma, that is without a good-beam.
    let config = CellConfig {
        intervals: 30,
        ..config(1, 0.0)
    };
    let weak = Jpoc {
        margin_db: EDGE_DB - 12.0,
        ..Jpoc::THESIS
    };
    let failed = |jpoc| failures(&config, jpoc).0;
    assert_eq!(failed(weak), 1.0);
    assert!(
        failed(Jpoc {
            ramp_db: 3.0,
            ..weak
        }) < 1.0
    );
}

#[test]
fn blockers_of_model_a_make_clients_contend_again() {
    let config = CellConfig {
        stations: 4,
        intervals: 40,
        blockage: Blockage::ModelA { meters: 1.0 },
        power_dbm: (20.0, 0.0),
        ..CellConfig::default()
    };
    let outcome = outcome(&config, "jpoc", 4);
    let attempts: u32 = outcome.stations.iter().map(|one| one.attempts).sum();
    assert!(attempts > 4, "{attempts}");
}

#[test]
fn a_walking_client_keeps_its_link_while_its_beams_fit() {
    let config = CellConfig {
        walk: Some(Walk {
            speed: 3.0,
            pause: 0.0,
            turning: 0.0,
        }),
        intervals: 600,
        ..config(2, 0.0)
    };
    let outcome = outcome(&config, "jpoc", 2);
    let standing = self::outcome(
        &CellConfig {
            walk: None,
            ..config
        },
        "jpoc",
        2,
    );
    let sum = |outcome: &Outcome, of: fn(&StationOutcome) -> f64| -> f64 {
        outcome.stations.iter().map(of).sum()
    };
    // Whenever the signal falls, and after each loss of the link; a standing client trains once.
    let trained = |one: &StationOutcome| f64::from(one.attempts - one.failures);
    assert!(sum(&outcome, trained) >= 2.0 * 3.0);
    assert!(sum(&standing, trained) <= 2.0 * 3.0);
    let gone = |one: &StationOutcome| one.gone as f64;
    assert!(sum(&outcome, gone) > sum(&standing, gone));
}

#[test]
fn a_turning_client_trains_more_often_than_a_standing_one() {
    let turning = |turning| CellConfig {
        walk: Some(Walk {
            speed: 0.0,
            pause: 0.0,
            turning,
        }),
        intervals: 600,
        ..config(2, 0.0)
    };
    let of = |degrees: f64| {
        let outcome = outcome(&turning(degrees), "jpoc", 2);
        let sum = |of: fn(&StationOutcome) -> f64| outcome.stations.iter().map(of).sum::<f64>();
        (
            sum(|one| f64::from(one.attempts)),
            sum(|one| one.gone as f64),
        )
    };
    let (stands, turns) = (of(0.0), of(37.0));
    assert!(
        turns.0 > 3.0 * stands.0 && turns.1 > stands.1,
        "{stands:?} {turns:?}"
    );
}

#[test]
fn clients_that_skip_useless_trainings_fail_less_and_have_as_much_data() {
    let walking = |skip_useless| CellConfig {
        walk: Some(Walk::PEDESTRIAN),
        intervals: 300,
        skip_useless,
        ..config(4, 0.0)
    };
    let of = |skip| {
        let outcome = outcome(&walking(skip), "jpoc", 2);
        let sum = |of: fn(&StationOutcome) -> f64| outcome.stations.iter().map(of).sum::<f64>();
        (
            sum(|one| f64::from(one.failures)),
            sum(|one| one.used_s),
            sum(|one| f64::from(one.skipped)),
        )
    };
    let (always, wise) = (of(false), of(true));
    assert_eq!(always.2, 0.0);
    assert!(
        wise.2 > 0.0 && wise.0 < 0.5 * always.0,
        "{always:?} {wise:?}"
    );
    assert!(wise.1 > 0.97 * always.1, "{always:?} {wise:?}");
}

#[test]
fn clients_that_only_listen_need_no_training() {
    let config = CellConfig {
        chatty: 4,
        skip_useless: true,
        intervals: 300,
        ..config(1, 0.0)
    };
    let outcome = outcome(&config, "jpoc", 1);
    let others = |one: &IntervalOutcome| one.contenders.iter().any(|index| *index > 0);
    assert!(!outcome.intervals.iter().any(others));
}

#[test]
fn a_walk_at_speed_zero_is_standing() {
    let standing = config(4, 0.2);
    let walk = CellConfig {
        walk: Some(Walk {
            speed: 0.0,
            pause: 1.0,
            turning: 0.0,
        }),
        ..standing.clone()
    };
    for scheme in ["80211ad", "jpoc"] {
        assert_eq!(
            outcome(&standing, scheme, 3),
            outcome(&walk, scheme, 3),
            "{scheme}"
        );
    }
}

#[test]
fn chatty_clients_contend_and_get_no_data_time() {
    let config = CellConfig {
        chatty: 8,
        intervals: 300,
        ..config(1, 0.0)
    };
    let outcome = outcome(&config, "jpoc", 1);
    assert_eq!(outcome.stations.len(), 1);
    // Each of eight contends every 10 s of 30 s.
    let chatty: usize = outcome
        .intervals
        .iter()
        .map(|one| one.contenders.iter().filter(|index| **index > 0).count())
        .sum();
    assert_eq!(chatty, 24);
    assert!(outcome.intervals.iter().all(|one| one.sharing <= 1));
}

#[test]
fn mixed_clients_have_their_own_sectors() {
    let config = CellConfig {
        sectors: vec![36, 64],
        ..config(4, 0.2)
    };
    let cell = Cell::draw(&config, 1).unwrap();
    let sectors: Vec<usize> = cell
        .stations
        .iter()
        .map(|one| one.sweeps.client_db.len())
        .collect();
    assert_eq!(sectors, [36, 64, 36, 64]);
    let outcome = run(&cell, &Access::named("jpoc").unwrap(), 1).unwrap();
    assert!(outcome.intervals.iter().all(|one| one.mini_slots >= 64));
}

#[test]
fn clients_can_have_measured_beams() {
    // Two broad beams and a narrow one, synthetic.
    let mut text = String::new();
    for (beam, towards, width) in [("a", -40.0, 30.0), ("b", 40.0, 30.0), ("c", 0.0, 8.0)] {
        for azimuth in (-180..=180).step_by(5) {
            let off = (f64::from(azimuth) - towards) / width;
            let gain = (14.0 - 3.0 * off * off).max(-10.0);
            text += &format!("{beam},{azimuth},0,{gain}\n");
        }
    }
    let config = CellConfig {
        pattern: Some(Arc::new(text.parse().unwrap())),
        ..config(4, 0.2)
    };
    let cell = Cell::draw(&config, 1).unwrap();
    let beams = |one: &Station| one.sweeps.client_db.len();
    assert!(cell.stations.iter().all(|one| beams(one) == 3));
    for scheme in SCHEMES {
        let outcome = run(&cell, &Access::named(scheme).unwrap(), 1).unwrap();
        let sent = outcome.intervals.iter().flat_map(|one| &one.sent);
        assert!(sent.clone().count() > 0 && sent.map(|frame| frame.sector).all(|n| n < 3));
        assert!(
            outcome.stations.iter().all(|one| one.megabits > 0.0),
            "{scheme}"
        );
    }
}

#[test]
fn an_additional_client_moves_no_other() {
    let draw = |stations| Cell::draw(&config(stations, 0.2), 7).unwrap();
    let (few, many) = (draw(3), draw(5));
    for (one, other) in few.stations.iter().zip(&many.stations) {
        assert_eq!(
            (one.distance, &one.channel),
            (other.distance, &other.channel)
        );
    }
}

#[test]
fn invalid_cells_are_rejected() {
    let bad = [
        CellConfig {
            stations: 0,
            ..CellConfig::default()
        },
        CellConfig {
            radius: -1.0,
            ..CellConfig::default()
        },
        CellConfig {
            sectors: vec![37],
            ..CellConfig::default()
        },
        CellConfig {
            sectors: vec![],
            ..CellConfig::default()
        },
        CellConfig {
            blockage: Blockage::Probability(1.1),
            ..CellConfig::default()
        },
        CellConfig {
            blockage: Blockage::ModelA { meters: -1.0 },
            ..CellConfig::default()
        },
        CellConfig {
            intervals: 0,
            ..CellConfig::default()
        },
    ];
    for config in bad {
        assert!(Cell::draw(&config, 1).is_err(), "{config:?}");
    }
}

#[test]
fn jains_index_by_hand() {
    assert_eq!(jain(&[1.0, 1.0, 1.0, 1.0]), 1.0);
    assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    assert!((jain(&[1.0, 2.0]) - 0.9).abs() < 1e-12);
    assert_eq!(jain(&[0.0, 0.0]), 1.0);
}
