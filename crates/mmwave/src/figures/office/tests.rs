use super::*;

const FEW: Office = Office {
    draws: 12,
    ..Office::THESIS
};

#[test]
fn the_named_cells_are_one_and_five_meters_away() {
    let corner = Point::new(0.0, 0.0, HEIGHT);
    let far = |cell| corner.distance(Office::middle(cell).unwrap());
    assert!((far((1, 1)) - 1.0).abs() < 1e-9 && (far((3, 3)) - 5.0).abs() < 1e-9);
    assert!(Office::middle((0, 1)).is_err() && Office::middle((1, 5)).is_err());
}

#[test]
fn the_index_counts_sectors_by_their_difference_alone() {
    let index = |other: &[f64], near: &[f64]| competition(other, near, 3.0);
    assert_eq!(index(&[10.0, 0.0, 5.0], &[5.0, 5.0, 4.0]), 1.0);
    assert_eq!(index(&[10.0, 10.0], &[5.0, 5.0]), 2.0);
    // Sectors that nobody decodes count, too.
    assert_eq!(index(&[1.5, -5.0], &[9.0, -9.0]), 1.0);
    assert_eq!(index(&[0.0], &[0.0]), 1.0);
}

#[test]
fn power_control_gives_near_and_far_client_the_same_best_sector() {
    let with = Office {
        gamma_db: Some(4.0),
        ..Office::THESIS
    };
    let best = |snr: &Vec<f64>| snr.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let good = |snr: &Vec<f64>| good_beams(snr, 1.0);
    let ([near, far], [near_pc, far_pc]) = (
        Office::THESIS.two_clients().unwrap(),
        with.two_clients().unwrap(),
    );
    assert!(best(&near) - best(&far) > 3.0);
    assert!((best(&near_pc) - best(&far_pc)).abs() < 3.0);
    assert!(good(&near_pc) < good(&near) && good(&far_pc) < good(&far));
    assert!((1..=18).contains(&good(&near_pc)) && (1..=18).contains(&good(&far_pc)));
}

#[test]
fn brackets_contain_all_clients() {
    let (none, shares) = brackets(&[0, 1, 6, 7, 36], 36);
    assert_eq!((none, shares), (0.2, [0.4, 0.2, 0.0, 0.0, 0.0, 0.2]));
    let sum: f64 = brackets(&[64, 33, 12], 64).1.iter().sum();
    assert!((sum - 1.0).abs() < 1e-12);
}

#[test]
fn power_control_leaves_fewer_good_beams_and_a_fairer_map() {
    let with = Office {
        gamma_db: Some(4.0),
        ..FEW
    };
    let mean = |office: &Office| {
        let all = office.good_beams().unwrap();
        all.iter().sum::<usize>() as f64 / all.len() as f64
    };
    assert!(
        mean(&with) < mean(&FEW) / 1.5,
        "{} {}",
        mean(&with),
        mean(&FEW)
    );
    let drowned = |office: &Office| {
        let map = office.heat_map().unwrap();
        let all: Vec<f64> = map.into_iter().flatten().collect();
        all.iter().filter(|index| **index < 0.1).count()
    };
    assert!(
        drowned(&with) < drowned(&FEW),
        "{} {}",
        drowned(&with),
        drowned(&FEW)
    );
}

#[test]
fn both_rooms_and_codebooks_give_every_sector_an_snr() {
    for room in [Room::Inh, Room::Tgad] {
        for sectors in [36, 64] {
            let office = Office {
                room,
                sectors,
                ..FEW
            };
            let snr = office.snr((3, 3), 0, None).unwrap();
            assert!(snr.len() == sectors && snr.iter().all(|snr| snr.is_finite()));
        }
    }
    assert!(Office { sectors: 37, ..FEW }.snr((3, 3), 0, None).is_err());
}
