//! Downloads over HTTP/3 through the bond: the unequal links of the laboratory's matrix
//! (`scenarios/matrix/datagrams-quic.toml`), as a table. As in `golden.rs`, it states the present
//! results.

use std::fmt::Write;
use std::path::Path;

use sumlink_scenario::results::Outcome;
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::run;

const SEEDS: u64 = 2;

/// Rate in Mbit/s, delay in ms and loss in percent of two links.
type Links = [(u32, u32, u32); 2];

const NETWORKS: [(&str, Links); 6] = [
    ("near", [(40, 10, 0), (20, 30, 0)]),
    ("near-loss-a", [(40, 10, 1), (20, 30, 0)]),
    ("near-loss-b", [(40, 10, 0), (20, 30, 1)]),
    ("far", [(100, 5, 0), (10, 50, 0)]),
    ("far-loss-a", [(100, 5, 1), (10, 50, 0)]),
    ("far-loss-b", [(100, 5, 0), (10, 50, 1)]),
];

/// Mbit/s of every run: those of the links together for `alone`.
fn goodputs(name: &str, links: Links, direction: &str, system: &str) -> Vec<f64> {
    let mut text = format!(
        "name = \"{name}\"\nduration = \"16s\"\nwarmup = \"5s\"\ndirection = \"{direction}\"\n\
         [workload]\nkind = \"http3\"\n"
    );
    for ((rate, delay, loss), link) in links.into_iter().zip(["a", "b"]) {
        let _ = write!(
            text,
            "[[link]]\nname = \"{link}\"\nrate = \"{rate}mbit\"\ndelay = \"{delay}ms\"\n\
             loss = \"{loss}%\"\n"
        );
    }
    let scenario = Scenario::parse(Path::new("http3.toml"), &text).unwrap();
    let goodput = |seed| match run(&scenario, system, seed).unwrap().outcome {
        Outcome::Measured(figures) => figures.goodput_bps / 1e6,
        other => panic!("{system} on {name}, seed {seed}: {other:?}"),
    };
    (1..=SEEDS).map(goodput).collect()
}

#[test]
fn a_download_gets_the_sum_of_unequal_links() {
    let mut table = "network      alone  bond (each seed)\n".to_owned();
    for (name, links) in NETWORKS {
        let alone = goodputs(name, links, "down", "alone");
        let bond = goodputs(name, links, "down", "sumlink:fbdt");
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        let _ = write!(table, "{name:<11} {:6.1}", mean(&alone));
        for one in &bond {
            let _ = write!(table, " {one:6.1}");
        }
        table.push('\n');
        let share = mean(&bond) / mean(&alone);
        assert!(share >= 0.88, "{share} on {name}: {bond:?} of {alone:?}");
    }
    insta::assert_snapshot!("http3", table);
}

#[test]
fn an_upload_is_like_a_download() {
    let (name, links) = NETWORKS[0];
    let up = goodputs(name, links, "up", "sumlink:fbdt");
    assert!(up.iter().all(|mbit| *mbit >= 50.0), "{up:?}");
}
