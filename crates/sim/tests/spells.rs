//! Programs that send in spells.

use std::path::Path;

use sumlink_scenario::results::{Flow, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::run;

const LINKS: &str = "name = \"spells\"\nduration = \"12s\"\n\
    [[link]]\nname = \"always\"\nrate = \"10mbit\"\ndelay = \"5ms\"\n\
    [[link]]\nname = \"sometimes\"\nrate = \"10mbit\"\ndelay = \"5ms\"\n";

fn flows(spells: &str) -> Vec<Flow> {
    let text = format!("{LINKS}{spells}");
    let scenario = Scenario::parse(Path::new("s.toml"), &text).unwrap();
    match run(&scenario, "simultaneous", 1).unwrap().outcome {
        Outcome::Measured(figures) => figures.flows,
        other => panic!("{other:?}"),
    }
}

/// Mbit/s of a flow from one second to another.
fn rate(flow: &Flow, seconds: std::ops::Range<usize>) -> f64 {
    let each = flow.goodput.bps.len() / 12;
    let rates = &flow.goodput.bps[seconds.start * each..seconds.end * each];
    rates.iter().sum::<f64>() / rates.len() as f64 / 1e6
}

#[test]
fn a_link_is_used_in_its_spells_only_and_others_always() {
    let spell = |from: u32, until: u32| {
        format!("[[spell]]\nlink = \"sometimes\"\nfrom = \"{from}s\"\nuntil = \"{until}s\"\n")
    };
    // In any order.
    let flows = flows(&(spell(8, 10) + &spell(2, 5)));
    let [always, sometimes] = &flows[..] else {
        panic!("{} flows", flows.len());
    };
    assert!(rate(always, 1..12) > 9.0);
    for active in [3..5, 9..10] {
        assert!(rate(sometimes, active.clone()) > 8.0, "{active:?}");
    }
    for idle in [0..2, 6..8, 11..12] {
        assert_eq!(rate(sometimes, idle.clone()), 0.0, "{idle:?}");
    }
}

#[test]
fn without_spells_both_send_always() {
    assert!(flows("").iter().all(|flow| rate(flow, 1..12) > 9.0));
}
