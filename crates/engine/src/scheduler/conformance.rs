//! Rules that every scheduler must follow, with made-up paths.
//!
//! Sessions with frames, losses of paths and hostile timing are in `session/tests`, which run for
//! every scheduler as well.

use std::time::Duration;

use super::case::{Case, Change, cases, check_heads, check_repeats, check_same, deliver};
use super::fixture::Fixture;
use super::model::Model;
use super::{Pick, Scheduler};
use crate::testing::{Candidates, case_count, property};
use crate::{Class, PathId, PathSample, Role, Session};

/// Number of random cases of each rule, unless `PROPTEST_CASES` is set.
const CASES: u32 = 40;

/// Everything is delivered, and the same inputs lead to the same decisions.
pub fn everything_is_delivered_and_reproducibly(candidates: &Candidates) {
    property(file!(), case_count(CASES), cases(), |case| {
        for (_, make) in candidates.each() {
            let first = deliver(make(), &case)?;
            check_same(&first, &deliver(make(), &case)?)?;
        }
        Ok(())
    });
}

/// The byte for which a reader waits is sent soon.
pub fn the_head_of_a_stream_is_not_starved(candidates: &Candidates) {
    property(file!(), case_count(CASES), cases(), |case| {
        for (_, make) in candidates.each() {
            check_heads(&deliver(make(), &case)?, &case)?;
        }
        Ok(())
    });
}

/// No more is sent again than [`Scheduler::repeat_limit`] permits, and nothing twice on one path.
pub fn duplicates_are_bounded(candidates: &Candidates) {
    property(file!(), case_count(CASES), cases(), |case| {
        for (_, make) in candidates.each() {
            check_repeats(&deliver(make(), &case)?, &case)?;
        }
        Ok(())
    });
}

/// Credit is neither exceeded nor left unused.
pub fn credit_is_used_and_not_exceeded(candidates: &Candidates) {
    for (name, make) in candidates.each() {
        let mut model = Model::new(make(), &[(80.0, 10), (80.0, 10)]);
        model.fixture.write(0, 700_000);
        model.fixture.write(2, 700_000);
        model.fixture.limit(0, 100_000);
        model.fixture.credit = 300_000;
        (0..500).for_each(|_| model.tick());
        // A stream without credit from its reader leaves a ninth of the credit to others.
        let left = model.fixture.credit;
        assert!(left < 200_000 / 8, "{name} leaves credit unused: {left}");
        assert!(
            model.fixture.streams[&0].highest_sent() <= 100_000,
            "{name}"
        );
    }
}

/// A path that the session does not have gets nothing.
pub fn an_unknown_path_gets_nothing(candidates: &Candidates) {
    for (name, make) in candidates.each() {
        let mut fixture = Fixture::new(&[]);
        fixture.write(0, 1000);
        let mut scheduler = make();
        scheduler.stream_gone(0);
        scheduler.paths_changed();
        let pick = fixture.pick(scheduler.as_mut(), PathId(9), 1000);
        assert_eq!(pick, Pick::Idle, "{name}");
    }
}

/// A path carries data before its carrier has measured anything.
pub fn paths_without_measurements_are_used(candidates: &Candidates) {
    for (name, make) in candidates.each() {
        let mut fixture = Fixture::new(&[(80.0, 0)]);
        fixture.change(0, |sample| *sample = PathSample::default());
        fixture.write(0, 10_000);
        let pick = fixture.pick(make().as_mut(), PathId(0), 16_000);
        assert!(matches!(pick, Pick::Send { .. }), "{name}");
    }
}

/// A session accepts no more paths than its scheduler supports.
pub fn a_path_beyond_the_limit_is_refused(candidates: &Candidates) {
    for (name, make) in candidates.each() {
        let now = Duration::from_secs(1);
        let mut session = Session::new(candidates.config(Role::Client, name), now).unwrap();
        let limit = make().max_paths().unwrap_or(32);
        for path in 0..32 {
            let refused = session.check_path();
            assert_eq!(refused.is_err(), path >= limit, "{name}, path {path}");
            session.path_up(PathId(path as u32), now);
        }
        assert_eq!(session.paths().count(), limit);
    }
}

/// Streams and paths that take turns in a regular ratio do not lead to starvation: each path could
/// always have the same streams, and send some of them from their end. With FBDT the head of a
/// stream then waited for up to 3.7 s.
pub fn streams_do_not_starve_by_synchronizing_with_the_paths(candidates: &Candidates) {
    let (bulk, large, small) = (Class::Background, Class::Streaming, Class::Interactive);
    let equal = vec![(40.0, 20), (40.0, 60)];
    let double = vec![(80.0, 20), (40.0, 60)];
    let cases = [
        (equal.clone(), vec![(bulk, 20_000_000, 0); 2]),
        (equal.clone(), vec![(bulk, 10_000_000, 0); 4]),
        (vec![(40.0, 20), (39.8, 60)], vec![(bulk, 20_000_000, 0); 2]),
        (vec![(8.0, 10), (8.0, 40)], vec![(large, 1_000_000, 0); 4]),
        (double.clone(), vec![(bulk, 10_000_000, 0); 3]),
        (double, vec![(large, 20_000_000, 0), (small, 10_000_000, 0)]),
        (equal, vec![(bulk, 500_000, 0); 80]),
    ];
    let mut faults = Vec::new();
    for (links, writes) in cases {
        let case = Case {
            links,
            writes,
            outages: Vec::new(),
            changes: Vec::new(),
            window: None,
        };
        let check = |scheduler| check_heads(&deliver(scheduler, &case)?, &case);
        faults.extend(
            candidates
                .each()
                .filter_map(|(_, make)| check(make()).err()),
        );
    }
    assert!(faults.is_empty(), "{faults:?}");
}

/// The two cases with which `broken.rs` proves that these rules can fail have no fault.
pub fn the_cases_that_broken_schedulers_fail_are_passed(candidates: &Candidates) {
    for (name, make) in candidates.each() {
        for changes in [Vec::new(), with_failed_path()] {
            assert!(faults_with(&make, changes).is_empty(), "{name}");
        }
    }
}

/// The faults of a scheduler with two megabytes written at once, which take its paths more than a
/// second, while these changes happen.
pub(super) fn faults_with(
    make: impl Fn() -> Box<dyn Scheduler>,
    changes: Vec<(u64, Change)>,
) -> Vec<&'static str> {
    let case = Case {
        links: vec![(8.0, 10), (5.0, 40)],
        writes: vec![(Class::Background, 1_000_000, 0); 2],
        outages: Vec::new(),
        changes,
        window: None,
    };
    let (Ok(first), Ok(again)) = (deliver(make(), &case), deliver(make(), &case)) else {
        return vec!["stuck"];
    };
    let checks = [
        ("starves", check_heads(&first, &case)),
        ("repeats", check_repeats(&first, &case)),
        ("varies", check_same(&first, &again)),
    ];
    let failed = checks.into_iter().filter(|(_, check)| check.is_err());
    failed.map(|(fault, _)| fault).collect()
}

/// The first of two paths fails, and others join.
pub(super) fn with_failed_path() -> Vec<(u64, Change)> {
    let joins = Change::Joins((4.0, 20));
    vec![
        (100, Change::Dies(0)),
        (150, joins),
        (200, Change::Queue(0, 50_000)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, PathRefused};

    #[test]
    fn the_refusal_of_a_path_names_scheduler_and_limit() {
        let refused = PathRefused::TooMany {
            scheduler: "musher",
            most: 2,
        };
        assert_eq!(
            refused.to_string(),
            "the scheduler musher takes 2 paths: configure that many links, or choose another \
             scheduler"
        );
    }

    #[test]
    fn a_scheduler_of_a_class_must_exist() {
        let mut config = Config::new(Role::Client);
        let classes = &mut config.class_schedulers;
        classes.insert(Class::Streaming, "fastest".to_owned());
        let refusal = config.check().unwrap_err().to_string();
        assert!(
            refusal.contains("unknown scheduler \"fastest\""),
            "{refusal}"
        );
    }
}
