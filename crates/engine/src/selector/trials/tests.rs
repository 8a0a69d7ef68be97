//! Tests of trials over simulated paths.

use std::time::Duration;

use crate::selector::fixture::Fixture;
use crate::selector::{Decision, Selection};

const MS: Duration = Duration::from_millis(1);

fn count(decisions: &[Decision], selection: Selection) -> usize {
    let of = decisions.iter().filter(|d| d.selection == selection);
    of.count()
}

#[test]
fn comparable_paths_are_never_left_out() {
    let mut fixture = Fixture::new("trials", &[(20.0, 20), (12.0, 30)]);
    assert_eq!(fixture.run(120.0), []);
}

#[test]
fn a_slow_path_that_does_no_harm_stays_and_its_trials_cost_a_hundredth() {
    let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
    let decisions = fixture.run(600.0);
    assert!(count(&decisions, Selection::Trial) >= 2, "{decisions:#?}");
    assert_eq!(count(&decisions, Selection::Parked), 0, "{decisions:#?}");
    let goodput = fixture.world.delivered() * 8.0 / 600.0 / 22e6;
    assert!((0.985..1.0).contains(&goodput), "{goodput}");
}

#[test]
fn a_path_that_costs_goodput_is_parked_after_two_trials_with_a_reason() {
    let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
    fixture.world.costs[1].0 = 0.4;
    let decisions = fixture.run(60.0);
    let parked = decisions
        .iter()
        .position(|d| d.selection == Selection::Parked);
    let parked = parked.expect("it is parked");
    assert_eq!(count(&decisions[..parked], Selection::Trial), 2);
    assert_eq!(
        decisions[parked].reason,
        "-6.8 Mbit/s with it: 13 Mbit/s against 20 Mbit/s"
    );
    assert_eq!(decisions[parked].path.0, 1);
}

#[test]
fn a_path_that_delays_live_traffic_is_parked_until_it_does_not() {
    let mut fixture = Fixture::new("trials", &[(20.0, 20), (8.0, 200)]);
    fixture.world.offered = Some(4e6);
    fixture.world.costs[1].1 = 140 * MS;
    let decisions = fixture.run(60.0);
    let parked = decisions.iter().find(|d| d.selection == Selection::Parked);
    let parked = parked.expect("it is parked");
    assert_eq!(parked.reason, "+140 ms delivery delay for +0.000 Mbit/s");
    // When more is sent than the others carry, the path returns at once, whatever its delay.
    fixture.world.offered = Some(24e6);
    fixture.run(1.0);
    assert_eq!(fixture.selection(1), Selection::Active);
    fixture.world.offered = Some(4e6);
    let decisions = fixture.run(60.0);
    assert!(count(&decisions, Selection::Parked) >= 1, "{decisions:#?}");
    fixture.world.costs[1].1 = Duration::ZERO;
    fixture.links[1].1 = 20;
    fixture.run(30.0);
    assert_eq!(fixture.selection(1), Selection::Active);
}

#[test]
fn a_path_with_a_net_benefit_is_kept_at_any_delay() {
    let mut fixture = Fixture::new("trials", &[(3.0, 20), (8.0, 200)]);
    fixture.world.offered = Some(6e6);
    fixture.world.costs[1].1 = 140 * MS;
    let decisions = fixture.run(120.0);
    assert_eq!(count(&decisions, Selection::Parked), 0);
    // The first link alone could not carry the load, so it is not left out.
    assert!(decisions.iter().all(|d| d.path.0 == 0), "{decisions:#?}");
}

#[test]
fn a_trial_that_delays_bytes_is_aborted_at_once() {
    let mut fixture = Fixture::new("trials", &[(20.0, 20), (8.0, 200)]);
    fixture.world.offered = Some(4e6);
    fixture.run(4.0);
    for _ in 0..1000 {
        fixture.run(0.05);
        if fixture.selection(1) == Selection::Trial {
            break;
        }
    }
    assert_eq!(fixture.selection(1), Selection::Trial);
    fixture.links[0].0 = 3.0;
    let decisions = fixture.run(0.4);
    assert_eq!(decisions.len(), 1, "{decisions:#?}");
    assert_eq!(fixture.selection(1), Selection::Active);
    assert_eq!(
        decisions[0].reason,
        "needed: bytes began to wait without it"
    );
}

#[test]
fn a_parked_path_is_tried_less_and_less_often() {
    let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
    fixture.world.costs[1].0 = 0.4;
    fixture.run(60.0);
    let early = count(&fixture.run(300.0), Selection::Probing);
    let late = count(&fixture.run(300.0), Selection::Probing);
    assert!(
        (1..=6).contains(&early) && (1..=early).contains(&late),
        "{early} {late}"
    );
}

#[test]
fn a_trial_is_aborted_when_the_others_fail() {
    let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
    fixture.world.costs[1].0 = 0.4;
    for _ in 0..1000 {
        fixture.run(0.1);
        if fixture.selection(1) == Selection::Trial {
            break;
        }
    }
    assert_eq!(fixture.selection(1), Selection::Trial);
    fixture.works[0] = false;
    fixture.run(0.1);
    assert_eq!(fixture.selection(1), Selection::Active);
}
