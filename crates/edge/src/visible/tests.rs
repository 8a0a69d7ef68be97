use proptest::prelude::*;

use super::*;

const TRIP: Duration = Duration::from_millis(40);

fn situation(milliseconds: u64) -> Situation {
    Situation {
        now: Duration::from_millis(milliseconds),
        duplicate: true,
        beyond_initial: true,
        kept: true,
        boostable: true,
        lost: false,
        repeated: false,
        repaired: 0,
        free: 1.0,
        flows: 1,
        trip: Some(TRIP),
    }
}

/// As in the paper, with either reading of line 1.
fn printed() -> Parameters {
    Parameters {
        proof: false,
        ..Parameters::default()
    }
}

fn steps(visible: &mut Visible, situations: impl IntoIterator<Item = Situation>) -> Vec<Step> {
    let parameters = printed();
    situations
        .into_iter()
        .map(|s| visible.acknowledgment(&parameters, &s))
        .collect()
}

#[test]
fn a_gap_is_boosted_held_repaired_twice_then_passed_on() {
    let mut visible = Visible::new(&Parameters::default());
    let steps = steps(&mut visible, (0..9).map(|n| situation(10 * n)));
    let (boost, hold, repair, pass) = (Step::Boost, Step::Hold, Step::Retransmit, Step::Pass);
    assert_eq!(
        steps,
        [boost, hold, hold, hold, hold, repair, repair, pass, pass]
    );
    assert_eq!(visible.held_for(), TRIP);
}

#[test]
fn with_many_fewer_are_boosted_as_queues_fill_and_flows_come() {
    let parameters = Parameters {
        boost: Boost::Many,
        ..Parameters::default()
    };
    let boosts = |free, flows| {
        let mut visible = Visible::new(&parameters);
        let seen = (0..60).map(|n| Situation {
            free,
            flows,
            ..situation(n)
        });
        seen.filter(|seen| visible.acknowledgment(&parameters, seen) == Step::Boost)
            .count()
    };
    let alone = [1.0, 0.7, 0.5, 0.3, 0.25].map(|free| boosts(free, 1));
    assert_eq!(alone, [5, 4, 3, 2, 0]);
    assert_eq!(
        [2, 3, 5, 8, 1000].map(|flows| boosts(1.0, flows)),
        [3, 2, 1, 1, 1]
    );
}

#[test]
fn no_more_than_the_average_are_held() {
    let mut visible = Visible::new(&Parameters::default());
    let steps = steps(&mut visible, (0..40).map(|_| situation(0)));
    assert_eq!(steps.iter().filter(|&&step| step == Step::Hold).count(), 15);
    assert_eq!(steps[16], Step::Retransmit);
}

#[test]
fn full_queues_many_flows_and_missing_packets_end_it() {
    let first = |change: fn(&mut Situation)| {
        let mut situation = situation(0);
        change(&mut situation);
        steps(&mut Visible::new(&Parameters::default()), [situation])[0]
    };
    assert_eq!(
        first(|s| s.free = 0.25),
        Step::Pass,
        "boosting stops before buffers fill"
    );
    assert_eq!(first(|s| s.flows = 5), Step::Hold);
    assert_eq!(
        first(|s| s.kept = false),
        Step::Pass,
        "the sender must repair a packet that the node has no copy of"
    );
    assert_eq!(first(|s| s.boostable = false), Step::Hold);
    assert_eq!(first(|s| s.beyond_initial = false), Step::Retransmit);
    assert_eq!(
        first(|s| (s.boostable, s.trip) = (false, None)),
        Step::Retransmit
    );
}

#[test]
fn the_average_rises_slowly_and_falls_fast() {
    let parameters = Parameters {
        held_at_first: 8.0,
        ..Parameters::default()
    };
    let new = Situation {
        duplicate: false,
        ..situation(0)
    };
    let mut visible = Visible::new(&parameters);
    steps(&mut visible, (0..16).map(|_| situation(0)).chain([new]));
    assert_eq!(visible.held_average(), 8.0 + 0.125 * 8.0);
    steps(&mut visible, [situation(0), new, new]);
    assert_eq!(visible.held_average(), 9.0 - 0.75 * 8.0);
}

#[test]
fn with_proof_a_late_packet_is_waited_for_and_a_lost_one_is_repaired_unseen() {
    let parameters = Parameters::default();
    let mut visible = Visible::new(&parameters);
    let mut step = |change: &dyn Fn(&mut Situation)| {
        let mut situation = situation(0);
        change(&mut situation);
        visible.acknowledgment(&parameters, &situation)
    };
    assert_eq!(step(&|_| {}), Step::Boost);
    for n in 0..1000 {
        // Beyond PH^a, the holding time and full queues.
        assert_eq!(step(&|s| (s.now, s.free) = (n * TRIP, 0.0)), Step::Hold);
    }
    assert_eq!(step(&|s| s.lost = true), Step::Repair);
    assert_eq!(
        step(&|s| s.repaired = 1),
        Step::Hold,
        "the repair is on its way"
    );
    assert_eq!(step(&|s| (s.repaired, s.lost) = (1, true)), Step::Repair);
    assert_eq!(step(&|s| s.repaired = 2), Step::Hold);
    let given_up = step(&|s| (s.repaired, s.lost) = (2, true));
    assert_eq!(given_up, Step::Pass);
}

#[test]
fn a_gap_that_the_far_end_repairs_is_not_hidden() {
    let parameters = Parameters::default();
    let mut visible = Visible::new(&parameters);
    let mut step = |lost, repaired| {
        let theirs = Situation {
            repeated: true,
            lost,
            repaired,
            ..situation(0)
        };
        visible.acknowledgment(&parameters, &theirs)
    };
    assert_eq!(step(false, 0), Step::Pass, "neither boosted nor held");
    assert_eq!(step(true, 0), Step::Retransmit);
    assert_eq!(step(true, 2), Step::Pass);
}

proptest! {
    /// With proof, for any input: only lost packets are sent again, at most RT^max times, and
    /// only late ones of the node are hidden.
    #[test]
    fn only_lost_packets_are_repaired(
        seen in proptest::collection::vec(
            (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), 0.0f64..=1.0),
            1..300,
        ),
    ) {
        let parameters = Parameters::default();
        let mut visible = Visible::new(&parameters);
        let (mut now, mut repaired) = (0, 0);
        for (duplicate, lost, repeated, kept, free) in seen {
            now += 1;
            let seen = Situation {
                duplicate, lost, repeated, kept, free, repaired, ..situation(now)
            };
            let step = visible.acknowledgment(&parameters, &seen);
            match step {
                _ if !duplicate => prop_assert_eq!(step, Step::Pass),
                Step::Boost => prop_assert!(kept && !repeated && repaired == 0),
                Step::Hold => prop_assert!(kept && !lost && !repeated),
                Step::Repair => prop_assert!(kept && lost && !repeated),
                Step::Retransmit => prop_assert!(kept && lost && repeated),
                Step::Pass => {
                    let spent = lost && repaired >= parameters.max_retransmissions;
                    prop_assert!(!kept || repeated || spent);
                }
            }
            match step {
                _ if !duplicate => repaired = 0,
                Step::Repair | Step::Retransmit => repaired += 1,
                _ => {}
            }
            prop_assert!(repaired <= parameters.max_retransmissions);
        }
    }
}

proptest! {
    /// For any input: at most one boost per gap, or five with many, at most RT^max repairs, and
    /// holding ends.
    #[test]
    fn every_gap_ends(
        many: bool,
        seen in proptest::collection::vec(
            (
                0u64..50, any::<bool>(), 0.0f64..=1.0, 0usize..9, any::<bool>(), any::<bool>(),
            ),
            1..300,
        ),
    ) {
        let boost = if many { Boost::Many } else { Boost::Once };
        let parameters = Parameters { boost, ..printed() };
        let most_boosts = if many { 5 } else { 1 };
        let mut visible = Visible::new(&parameters);
        let (mut now, mut boosts, mut repairs) = (0, 0, 0);
        for (wait, duplicate, free, flows, kept, boostable) in seen {
            now += wait;
            let seen = Situation { duplicate, free, flows, kept, boostable, ..situation(now) };
            let held_before = visible.held_for();
            match visible.acknowledgment(&parameters, &seen) {
                _ if !duplicate => (boosts, repairs) = (0, 0),
                Step::Boost => boosts += 1,
                Step::Retransmit => repairs += 1,
                Step::Hold => {
                    let most = visible.held_average() + 1.0;
                    prop_assert!(f64::from(visible.duplicates()) <= most);
                    prop_assert!(held_before < TRIP);
                }
                Step::Repair => prop_assert!(false, "without proof, the far end knows"),
                Step::Pass => {}
            }
            prop_assert!(boosts <= most_boosts && repairs <= parameters.max_retransmissions);
            prop_assert!(visible.held_average() >= 1.0);
        }
    }
}
