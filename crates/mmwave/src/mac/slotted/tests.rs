use super::*;

/// No capture: a frame is heard only if it is alone.
const DEAF: Hearing = Hearing {
    min_snr_db: 1.0,
    capture_db: 60.0,
    weak_is_silent: false,
};

fn rounds(rules: &Slotted, hearing: &Hearing, snr: &[Vec<f64>], count: u64) -> Vec<Round> {
    let mut random = Random::new(9);
    (0..count)
        .map(|_| {
            let mut sweeps = vec![Sweep::default(); snr.len()];
            let mut contenders: Vec<_> = sweeps
                .iter_mut()
                .zip(snr)
                .map(|(s, v)| (s, v.as_slice()))
                .collect();
            contend(rules, hearing, &mut contenders, &mut random)
        })
        .collect()
}

/// Share of contenders that were trained.
fn trained(rounds: &[Round]) -> f64 {
    let all: Vec<_> = rounds.iter().flat_map(|round| &round.trained).collect();
    all.iter().filter(|one| one.is_some()).count() as f64 / all.len() as f64
}

#[test]
fn slots_last_as_long_as_in_the_standard() {
    let slot = |frames_per_slot| {
        let rules = Slotted {
            frames_per_slot,
            ..Slotted::AD
        };
        rules.slot_us()
    };
    assert_eq!([8, 16, 32, 36].map(slot), [163.0, 290.0, 545.0, 609.0]);
    assert_eq!(Slotted::AD.duration_us(), 2320.0);
    assert_eq!(Slotted::THESIS.duration_us(), 4872.0);
    // 0.1 + 16 * 13.411 + 15 + 24.945 + 18 = 272.6
    assert_eq!(Slotted::AY.slot_us(), 273.0);
    assert_eq!(Slotted::THESIS.mini_slots(), 288);
}

#[test]
fn without_capture_it_matches_the_closed_form() {
    for clients in [1, 2, 4, 8, 16] {
        let snr = vec![vec![10.0; 36]; clients as usize];
        let count = 8000 / u64::from(clients);
        let share = trained(&rounds(&Slotted::THESIS, &DEAF, &snr, count));
        let expected = alone(8, clients).unwrap();
        let deviation = (expected * (1.0 - expected) / 8000.0).sqrt();
        // Contenders of one round are not independent, hence the larger tolerance.
        assert!(
            (share - expected).abs() < 6.0 * deviation + 1e-9,
            "{clients}: {share} {expected}"
        );
    }
    assert!(alone(0, 1).is_err() && alone(8, 0).is_err());
}

#[test]
fn slots_for_ten_percent_of_failure() {
    // Smallest number of slots with (1 - 1/S)^(N-1) >= 0.9.
    for (clients, slots) in [(4, 29), (8, 67), (16, 143)] {
        assert!(alone(slots, clients).unwrap() >= 0.9);
        assert!(alone(slots - 1, clients).unwrap() < 0.9);
    }
}

#[test]
fn the_near_client_drowns_the_far_one() {
    let snr = vec![vec![30.0; 36], vec![10.0; 36]];
    let one_slot = Slotted::THESIS.with_slots(1);
    for round in rounds(&one_slot, &Hearing::THESIS, &snr, 20) {
        assert!(round.trained[0].is_some() && round.trained[1].is_none());
    }
}

#[test]
fn the_standard_answers_no_client_if_two_are_heard_in_a_slot() {
    // Each is stronger in one half of the sectors.
    let half = |first: bool| {
        (0..16)
            .map(|n| if (n < 8) == first { 20.0 } else { 2.0 })
            .collect()
    };
    let snr: Vec<Vec<f64>> = vec![half(true), half(false)];
    let rules = Slotted {
        retry: false,
        ..Slotted::AD.with_slots(1)
    };
    let only = &rounds(&rules, &Hearing::THESIS, &snr, 1)[0];
    assert_eq!(only.sent.iter().filter(|frame| frame.heard).count(), 16);
    assert_eq!(only.trained, [None, None]);
    let strongest = Slotted {
        feedback: Feedback::Strongest,
        ..rules
    };
    assert_eq!(trained(&rounds(&strongest, &Hearing::THESIS, &snr, 1)), 0.5);
}

#[test]
fn thirty_six_sectors_take_three_slots_of_sixteen() {
    // Only the last sector is good: without the third slot no feedback is sent.
    let mut good_last = vec![-10.0; 36];
    good_last[35] = 10.0;
    let mut sweep = Sweep::default();
    let mut random = Random::new(4);
    let mut frames = 0;
    for interval in 1..50 {
        let mut contenders = [(&mut sweep, good_last.as_slice())];
        let round = contend(&Slotted::AD, &Hearing::THESIS, &mut contenders, &mut random);
        frames += round.sent.len();
        if let Some(trained) = round.trained[0] {
            assert_eq!(trained.sector, 35);
            assert_eq!(frames % 36, 0);
            assert!(interval <= 3, "three slots fit three intervals, one each");
            return;
        }
    }
    panic!("a client alone was never heard");
}

#[test]
fn a_client_that_fails_too_often_sits_out() {
    let rules = Slotted {
        retry_limit: 2,
        backoff: 8,
        ..Slotted::THESIS.with_slots(1)
    };
    let snr = [-10.0; 36];
    let mut sweep = Sweep::default();
    let mut random = Random::new(1);
    let took_part: Vec<bool> = (0..400)
        .map(|_| {
            let mut contenders = [(&mut sweep, snr.as_slice())];
            contend(&rules, &Hearing::THESIS, &mut contenders, &mut random).took_part[0]
        })
        .collect();
    assert_eq!(took_part[..3], [true; 3]);
    // Three tries, then 3.5 A-BFTs of silence on average.
    let share = took_part.iter().filter(|one| **one).count() as f64 / 400.0;
    assert!((share - 3.0 / 6.5).abs() < 0.08, "{share}");
}

#[test]
fn retries_help_few_clients_and_harm_many() {
    let gain = |clients: usize| {
        let snr = vec![vec![10.0; 16]; clients];
        let without = Slotted {
            retry: false,
            ..Slotted::AD
        };
        let share = |rules: &Slotted| trained(&rounds(rules, &DEAF, &snr, 500));
        share(&Slotted::AD) - share(&without)
    };
    // Retries collide with clients in later slots: 0.52 becomes 0.46 for six clients.
    assert!(gain(2) > 0.01, "{}", gain(2));
    assert!(gain(6) < -0.03, "{}", gain(6));
}

#[test]
fn more_slots_and_channels_train_more_clients() {
    let snr = vec![vec![10.0; 36]; 16];
    let share = |rules: &Slotted| trained(&rounds(rules, &DEAF, &snr, 200));
    assert!(share(&Slotted::AY) > 2.0 * share(&Slotted::AD));
    assert!(Slotted::AD.with_slots(0).checked().is_err());
    assert!(Slotted::THESIS.checked().is_ok());
}
