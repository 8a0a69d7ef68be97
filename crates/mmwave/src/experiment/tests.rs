use super::*;
use crate::cell::SCHEMES;

fn experiment(kind: Kind) -> Experiment {
    Experiment {
        name: "e".to_owned(),
        kind,
        schemes: vec!["80211-thesis", "jpoc"],
        rules: BTreeMap::new(),
        seeds: 1..=2,
        cell: CellConfig {
            stations: 6,
            intervals: 20,
            ..CellConfig::default()
        },
    }
}

fn points(experiment: &Experiment) -> Vec<Point> {
    let tasks = experiment.tasks();
    let each = tasks.iter().map(|task| experiment.point(task));
    each.collect::<Result<_, _>>().unwrap()
}

#[test]
fn every_scheme_has_every_value_and_a_line() {
    let jain = experiment(Kind::Jain(vec![0.1, 0.5]));
    let points = points(&jain);
    let found: Vec<_> = points
        .iter()
        .map(|p| (p.scheme(), p.find("blockage")))
        .collect();
    let expected = ["80211-thesis", "jpoc"].map(|s| [0.1, 0.5].map(|b| (s, Some(b))));
    assert_eq!(found, expected.concat());
    assert!(
        points
            .iter()
            .all(|p| p.find("jain").is_some_and(|j| j > 1.0 / 6.0))
    );
    let [(_, picture)] = &jain.pictures(&points)[..] else {
        panic!("one picture");
    };
    assert_eq!(picture.matches("<polyline").count(), 2 * 2, "{picture}");
    assert!(picture.contains(">jpoc</text>") && picture.ends_with("</svg>\n"));
    let table = csv(&points);
    assert!(table.starts_with("scheme,blockage,jain,"), "{table}");
    assert_eq!(table.lines().count(), 5);
}

#[test]
fn a_parameter_with_one_value_has_no_curve() {
    let jain = experiment(Kind::Jain(vec![0.1]));
    assert!(jain.pictures(&points(&jain)).is_empty());
    assert!(jain.pictures(&[]).is_empty());
}

#[test]
fn single_seeds_average_to_the_mean() {
    let of = |seeds| Experiment {
        seeds,
        ..experiment(Kind::Jain(vec![0.4]))
    };
    let jain = |seeds| points(&of(seeds))[0].find("jain").unwrap();
    let mean = (jain(1..=1) + jain(2..=2)) / 2.0;
    assert!((jain(1..=2) - mean).abs() < 1e-12);
}

#[test]
fn the_thesis_baseline_needs_more_mini_slots_than_jpoc() {
    let overhead = experiment(Kind::Overhead {
        stations: vec![12],
        failure: 0.2,
    });
    let points = points(&overhead);
    let mini_slots = |index: usize| points[index].find("mini_slots").unwrap();
    assert!(
        mini_slots(0) > mini_slots(1) && mini_slots(1) >= 36.0,
        "{points:?}"
    );
    assert!(points[0].find("failure").unwrap() <= 0.2);
}

/// A point of the chart of mini-slots.
fn measured(scheme: &str, stations: u64, mini_slots: f64, failure: f64) -> Point {
    let mut point = Point::new();
    point.text("scheme", scheme);
    point.count("stations", stations);
    point.number("mini_slots", mini_slots);
    point.number("failure", failure);
    point
}

#[test]
fn the_chart_of_mini_slots_shows_only_points_that_its_title_is_true_of() {
    let overhead = experiment(Kind::Overhead {
        stations: vec![8, 16],
        failure: 0.1,
    });
    let points = [
        measured("80211-thesis", 8, 324.0, 0.098),
        measured("80211-thesis", 16, 576.0, 0.1),
        measured("jpoc", 8, 40.0, 0.05),
        measured("jpoc", 16, 90.0, 0.116),
    ];
    let pictures = overhead.pictures(&points);
    let [("", mini_slots), ("-ratio", ratio)] = &pictures[..] else {
        panic!("two pictures: {pictures:?}");
    };
    let title = "Mini-slots of an A-BFT with which at most 10 % of attempts fail";
    assert!(
        mini_slots.contains(&format!("<title>{title}</title>")),
        "{mini_slots}"
    );
    assert!(mini_slots.contains(">jpoc (not with 16)<"), "{mini_slots}");
    let dots = |svg: &str| svg.matches("<circle").count();
    assert_eq!(dots(mini_slots), 3, "{mini_slots}");
    // Only with 8 clients do both meet the target.
    assert_eq!(dots(ratio), 1, "{ratio}");
}

#[test]
fn fewer_assumed_beams_mean_more_mini_slots() {
    let sweep = experiment(Kind::GoodBeams(vec![1.0, 4.0]));
    let points = points(&sweep);
    let of = |index: usize, name: &str| points[index].find(name).unwrap();
    assert_eq!((of(0, "good_beams"), of(1, "good_beams")), (1.0, 4.0));
    // The slotted scheme has no K.
    assert_eq!(of(0, "failure"), of(1, "failure"));
    assert!(of(2, "mini_slots") > of(3, "mini_slots"), "{points:?}");
    let pictures = sweep.pictures(&points);
    assert_eq!(pictures.len(), 2);
    assert!(pictures[0].1.contains("(K)</text>"));
}

#[test]
fn a_higher_gamma_leaves_more_good_beams_to_collide() {
    let mut sweep = experiment(Kind::Gamma(vec![4.0, 20.0]));
    sweep.schemes = vec!["jpoc-thesis"];
    let points = points(&sweep);
    let [low, high] = [0, 1].map(|index: usize| points[index].find("mini_slots").unwrap());
    assert!(low < high, "{points:?}");
}

#[test]
fn every_number_of_stations_is_listed_and_drawn() {
    let stations = experiment(Kind::Stations(vec![1, 5]));
    let points = points(&stations);
    let counts: Vec<_> = points.iter().map(|p| p.find("stations")).collect();
    assert_eq!(counts, [Some(1.0), Some(5.0), Some(1.0), Some(5.0)]);
    for point in &points {
        let figure = |name: &str| point.find(name).unwrap();
        assert!(figure("first_90_s") >= figure("first_s") && figure("first_s") >= 0.1 - 1e-9);
        assert!((0.0..1.0).contains(&figure("gone")), "{point:?}");
    }
    let pictures = stations.pictures(&points);
    assert_eq!(pictures.len(), 3);
    assert!(pictures.iter().all(|one| one.1.contains(">clients</text>")));
}

#[test]
fn settings_of_a_scheme_take_effect() {
    let mut stations = experiment(Kind::Stations(vec![6]));
    let mini_slots = |points: &[Point]| points[0].find("mini_slots").unwrap();
    assert_eq!(mini_slots(&points(&stations)), 288.0);
    let few = crate::mac::slotted::Slotted::THESIS.with_slots(2);
    stations.rules.insert("80211-thesis", Access::Slotted(few));
    assert_eq!(mini_slots(&points(&stations)), 72.0);
    // As many good-beams as mini-slots cannot be resolved.
    let mut jpoc = Jpoc::THESIS;
    jpoc.target.good_beams = 36.0;
    stations.rules.insert("jpoc", Access::Jpoc(jpoc));
    let error = stations.point(&stations.tasks()[1]).unwrap_err();
    assert!(
        matches!(error, MmwaveError::TooFewMiniSlots { .. }),
        "{error}"
    );
}

#[test]
fn walking_clients_train_more_often() {
    let mut mobility = experiment(Kind::Mobility(vec![0.0, 1.4]));
    mobility.cell.intervals = 300;
    mobility.cell.blockage = crate::cell::Blockage::Probability(0.0);
    mobility.schemes = vec!["jpoc"];
    let points = points(&mobility);
    let of = |name: &str| [0, 1].map(|index: usize| points[index].find(name).unwrap());
    let [stands, walks] = of("attempts_per_minute");
    // Once a minute against every 15 to 20 s.
    assert!(walks > 1.5 * stands, "{stands} {walks}");
    let [stands, walks] = of("mbps");
    assert!(walks < stands, "{stands} {walks}");
    let pictures = mobility.pictures(&points);
    assert!(pictures.len() == 2 && pictures.iter().all(|one| one.1.contains("walking")));
}

#[test]
fn an_unreachable_target_has_no_mini_slots() {
    // More slots do not help clients that are never heard.
    let mut deaf = experiment(Kind::Overhead {
        stations: vec![2],
        failure: 0.1,
    });
    deaf.cell.power_dbm.1 = -100.0;
    deaf.cell.reachable = false;
    deaf.cell.intervals = 2;
    let thesis = deaf.point(&deaf.tasks()[0]).unwrap();
    assert_eq!(thesis.find("mini_slots"), None);
    assert_eq!(
        csv(&[thesis]),
        "scheme,stations,mini_slots,failure,good_beams\n80211-thesis,2,,,\n"
    );
}

#[test]
fn invalid_values_are_rejected() {
    let wrong = Experiment {
        schemes: SCHEMES.to_vec(),
        ..experiment(Kind::Jain(vec![1.5]))
    };
    assert!(wrong.tasks().iter().all(|task| wrong.point(task).is_err()));
}
