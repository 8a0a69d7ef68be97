//! MPTCP with the selectors of sumlink, and receive buffers that a slow link fills.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::{run, run_traced};

/// A fast link, and one with a tenth of its rate and a queue of 400 ms.
fn two_links(receive_buffer: &str) -> Scenario {
    let text = format!(
        "name = \"two\"\nduration = \"20s\"\nwarmup = \"5s\"\ndirection = \"up\"\n\
         receive_buffer = \"{receive_buffer}\"\n\
         [[link]]\nname = \"first\"\nrate = \"14mbit\"\ndelay = \"10ms\"\nqueue = \"100ms\"\n\
         [[link]]\nname = \"second\"\nrate = \"1400kbit\"\ndelay = \"40ms\"\nqueue = \"400ms\"\n"
    );
    Scenario::parse(Path::new("two.toml"), &text).unwrap()
}

fn measured(scenario: &Scenario, system: &str) -> Measurement {
    match run(scenario, system, 1).unwrap().outcome {
        Outcome::Measured(figures) => *figures,
        other => panic!("{system}: {other:?}"),
    }
}

fn best_alone(scenario: &Scenario) -> f64 {
    let alone = measured(scenario, "alone");
    let links = alone.flows.iter().map(|flow| flow.goodput_bps);
    links.fold(0.0, f64::max)
}

#[test]
fn a_slow_link_harms_mptcp_only_where_the_receive_buffer_is_small() {
    for (buffer, harms) in [("128KiB", true), ("4MiB", false)] {
        let scenario = two_links(buffer);
        let share = measured(&scenario, "mptcp").goodput_bps / best_alone(&scenario);
        assert_eq!(share < 1.0, harms, "{buffer}: {share:.2}");
    }
}

#[test]
fn a_parked_link_of_mptcp_rests_and_a_link_that_is_alone_is_used() {
    let mut scenario = two_links("128KiB");
    let figures = measured(&scenario, "mptcp@global:alpha=0.9:probe=60s");
    assert!(figures.rested["second"] > 0.5, "{:?}", figures.rested);
    let share = figures.goodput_bps / best_alone(&scenario);
    assert!(share > 0.95, "{share:.2}");
    // The first link vanishes: the backup carries the rest.
    let text = scenario.text.replace(
        "[[link]]\nname = \"second\"",
        "[[event]]\nat = \"8s\"\nlink = \"first\"\nstate = \"blackhole\"\n[[link]]\nname = \"second\"",
    );
    scenario = Scenario::parse(Path::new("two.toml"), &text).unwrap();
    let figures = measured(&scenario, "mptcp@global:alpha=0.9:probe=60s");
    let late = &figures.goodput.bps[figures.goodput.bps.len() * 9 / 10..];
    assert!(late.iter().any(|bps| *bps > 0.5e6), "{late:?}");
}

#[test]
fn the_trace_has_thresholds_and_subflows() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let scenario = two_links("4MiB");
    for (system, events) in [
        ("mptcp@global", &["threshold", "subflow"][..]),
        ("sumlink:wrr@global", &["threshold"]),
    ] {
        let lines = Lines::default();
        run_traced(&scenario, system, 1, Box::new(lines.clone())).unwrap();
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        for event in events {
            let event = format!("\"event\":\"{event}\",\"side\":\"client\"");
            assert!(
                text.lines().filter(|line| line.contains(&event)).count() > 5,
                "{system}"
            );
        }
    }
}
