//! Properties of every selector, whatever the paths do.

use proptest::prelude::*;

use super::fixture::{Fixture, World};
use super::global::{Global, MIN};
use super::{Decision, NAMES, Selection, Selector};

/// The paths for a period: (Mbit/s, round-trip milliseconds), whether each delivers, and the
/// duration.
type Period = (Vec<(f64, u64)>, Vec<bool>, f64);

fn periods(paths: usize) -> impl Strategy<Value = Vec<Period>> {
    let link = (0.001..100.0f64, 1..1500u64);
    let links = proptest::collection::vec(link, paths);
    let works = proptest::collection::vec(proptest::bool::weighted(0.8), paths);
    proptest::collection::vec((links, works, 0.1..8.0f64), 1..8)
}

fn play(
    name: &str,
    paths: usize,
    periods: &[Period],
    look: &mut dyn FnMut(&Fixture),
) -> Vec<Decision> {
    let mut fixture = Fixture::new(name, &vec![(10.0, 20); paths]);
    let mut all = Vec::new();
    for (links, works, seconds) in periods {
        fixture.links.clone_from(links);
        fixture.works.clone_from(works);
        for _ in 0..(seconds / 0.05) as usize {
            all.extend(fixture.run(0.05));
            look(&fixture);
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn some_delivering_path_is_always_active_soon(
        paths in 1..5usize,
        periods in periods(4),
        which in 0..NAMES.len(),
    ) {
        let periods = cut(&periods, paths);
        // All active paths may fail between two reviews; the next review follows at once.
        let mut without = 0;
        play(NAMES[which], paths, &periods, &mut |fixture| {
            let works = fixture.works.iter().any(|works| *works);
            let carries = (0..paths)
                .any(|path| fixture.works[path] && !fixture.selection(path).rests());
            without = if works && !carries { without + 1 } else { 0 };
            assert!(without * 50 <= 1600, "no path carries anything for {} ms", without * 50);
        });
    }

    #[test]
    fn a_parked_path_is_tried_again(periods in periods(3), which in 0..NAMES.len()) {
        let mut fixture = Fixture::new(NAMES[which], &[(10.0, 20); 3]);
        for (links, works, seconds) in &periods {
            fixture.links.clone_from(links);
            fixture.works.clone_from(works);
            fixture.run(*seconds);
        }
        // From now on all paths deliver steadily.
        fixture.works.fill(true);
        fixture.links.fill((10.0, 20));
        let is_parked = |path: &usize| fixture.selection(*path) == Selection::Parked;
        let parked: Vec<usize> = (0..3).filter(is_parked).collect();
        let later = fixture.run(700.0);
        for path in parked {
            let again = |d: &Decision| d.path.0 as usize == path && !d.selection.rests();
            prop_assert!(later.iter().any(again), "{path}");
        }
    }

    #[test]
    fn the_same_paths_give_the_same_decisions(periods in periods(3), which in 0..NAMES.len()) {
        let run = || play(NAMES[which], 3, &periods, &mut |_| {});
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn every_decision_changes_an_existing_path_and_has_a_reason(
        periods in periods(3),
        which in 0..NAMES.len(),
    ) {
        for decision in play(NAMES[which], 3, &periods, &mut |_| {}) {
            prop_assert!(decision.path.0 < 3 && !decision.reason.is_empty());
            let reason = &decision.reason;
            prop_assert!(!reason.contains("NaN") && !reason.contains("inf "), "{reason}");
        }
    }

    #[test]
    fn alpha_stays_within_its_bounds(periods in periods(3), most in 0.01..1.0f64) {
        let config = format!("global:alpha={most}").parse().expect("it is in its range");
        let mut global = Global::new(&config);
        let mut world = World::new(3);
        for (links, works, seconds) in &periods {
            for _ in 0..(seconds / 0.01) as usize {
                world.step(&mut global, links, works);
                let alpha = global.threshold().expect("it has one");
                prop_assert!((MIN..=most.max(MIN)).contains(&alpha), "{alpha}");
            }
        }
    }
}

/// Keeps only the first paths.
fn cut(periods: &[Period], paths: usize) -> Vec<Period> {
    let cut = |(links, works, seconds): &Period| {
        (links[..paths].to_vec(), works[..paths].to_vec(), *seconds)
    };
    periods.iter().map(cut).collect()
}
