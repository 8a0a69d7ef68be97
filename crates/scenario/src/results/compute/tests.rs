//! Compares ratios, benefits and bounds with those of the papers.

use super::*;
use crate::results::Flow;

fn run(system: &str, seed: u64, flows: &[(Option<&str>, f64)]) -> Run {
    let flows: Vec<Flow> = flows
        .iter()
        .map(|(link, mbps)| Flow {
            link: link.map(str::to_owned),
            direction: "down".to_owned(),
            goodput_bps: mbps * 1e6,
            ..Flow::default()
        })
        .collect();
    let figures = Measurement {
        duration_s: 10.0,
        goodput_bps: flows.iter().map(|flow| flow.goodput_bps).sum(),
        flows,
        ..Measurement::default()
    };
    Run::bare(system, seed, Outcome::Measured(Box::new(figures)))
}

fn header(clean_mptcp_bps: Option<f64>) -> ScenarioHeader {
    ScenarioHeader {
        links: vec!["wh1".to_owned(), "wh2".to_owned()],
        seeds: 1,
        clean_mptcp_bps,
        ..ScenarioHeader::default()
    }
}

/// The dissertation's table 4.1: (20-80), with the ratios and benefits that its text computes from
/// it.
#[test]
fn ratio_and_benefit_are_those_of_the_dissertation() {
    let of = |mptcp: f64| {
        let runs = [
            run(ALONE, 1, &[(Some("wh1"), 61.9), (Some("wh2"), 256.0)]),
            run(MPTCP, 1, &[(None, mptcp)]),
        ];
        let summary = Summary::from_runs(&header(None), &runs);
        let system = summary.system(MPTCP).unwrap().clone();
        let rounded = |spread: Option<Spread>| (spread.unwrap().median * 100.0).round();
        (
            rounded(system.aggregation_ratio),
            rounded(system.aggregation_benefit),
            system.below_best,
        )
    };
    // The dissertation prints 0.59 for the benefit of its clean channel; its figures give 37.0 /
    // 61.9.
    assert_eq!(of(58.6 + 234.4), (92.0, 60.0, 0));
    assert_eq!(of(58.1 + 182.1), (76.0, -6.0, 1));
}

/// The dissertation's table 5.1: (80-80).
#[test]
fn bounds_are_the_lesser_of_the_links_and_clean_mptcp() {
    let runs = [
        run(ALONE, 1, &[(Some("wh1"), 215.0), (Some("wh2"), 112.0)]),
        run(
            SIMULTANEOUS,
            1,
            &[(Some("wh1"), 164.0), (Some("wh2"), 101.0)],
        ),
    ];
    let bounds = |clean| Summary::from_runs(&header(clean), &runs).bounds;
    let without = bounds(None);
    assert_eq!(without.hard_bps, Some(327e6));
    assert_eq!(without.soft_bps, Some(265e6));
    let with = bounds(Some(300e6));
    assert_eq!((with.hard_bps, with.soft_bps), (Some(300e6), Some(265e6)));
    assert_eq!(with.sum_alone_bps, Some(327e6));
    assert_eq!(with.best_alone_bps, Some(215e6));
}

#[test]
fn seeds_are_compared_with_their_own_links() {
    let links = |a, b| [(Some("wh1"), a), (Some("wh2"), b)];
    let runs = [
        run(ALONE, 1, &links(100.0, 100.0)),
        run(ALONE, 2, &links(10.0, 10.0)),
        run("x", 1, &[(None, 90.0)]),
        run("x", 2, &[(None, 19.0)]),
        run("x", 3, &[(None, 1000.0)]),
    ];
    let summary = Summary::from_runs(&header(None), &runs);
    let system = summary.system("x").unwrap();
    let ratio = system.aggregation_ratio.clone().unwrap();
    assert_eq!((ratio.min, ratio.max, ratio.count), (0.45, 0.95, 2));
    assert_eq!((system.runs, system.below_best), (3, 1));
}

#[test]
fn one_link_has_no_benefit() {
    let runs = [
        run(ALONE, 1, &[(Some("wh1"), 100.0)]),
        run("x", 1, &[(None, 100.0)]),
    ];
    let summary = Summary::from_runs(&header(None), &runs);
    assert_eq!(summary.system("x").unwrap().aggregation_benefit, None);
    assert_eq!(summary.system("x").unwrap().below_best, 0);
}

#[test]
fn a_summary_is_read_as_it_was_written() {
    let runs = [
        run(ALONE, 1, &[(Some("wh1"), 100.0), (Some("wh2"), 300.0)]),
        run(MPTCP, 1, &[(None, 200.0)]),
    ];
    let header = ScenarioHeader {
        seeds: 2,
        ..header(Some(250e6))
    };
    let summary = Summary::from_runs(&header, &runs);
    let text = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
}

#[test]
fn jains_index_is_that_of_the_report() {
    let index = |flows: &[f64]| {
        let flows: Vec<_> = flows.iter().map(|bps| (None, *bps)).collect();
        let summary = Summary::from_runs(&header(None), &[run("x", 1, &flows)]);
        summary.systems[0].fairness.as_ref().map(|f| f.median)
    };
    assert_eq!(index(&[5.0, 5.0, 5.0]), Some(1.0));
    assert_eq!(index(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
    assert_eq!(index(&[5.0]), None);
    assert_eq!(index(&[0.0, 0.0]), None);
}

#[test]
fn runs_without_figures_are_counted_by_reason() {
    let mut late = run("x", 1, &[(None, 1.0)]);
    let Outcome::Measured(figures) = &mut late.outcome else {
        unreachable!()
    };
    figures.emulator.cpu_share = 1.0;
    let skipped = |seed| Run {
        outcome: Outcome::Skipped {
            reason: "not installed".to_owned(),
        },
        ..run("x", seed, &[])
    };
    let broken = run("x", 4, &[(None, f64::NAN)]);
    let header = ScenarioHeader {
        seeds: 6,
        ..header(None)
    };
    let runs = [late, skipped(2), skipped(3), broken];
    let summary = Summary::from_runs(&header, &runs);
    let system = &summary.systems[0];
    let missing: Vec<_> = system
        .missing
        .iter()
        .map(|m| (m.kind.as_str(), m.runs))
        .collect();
    assert_eq!(system.runs, 0);
    assert_eq!(
        missing,
        [
            ("refused", 1),
            ("skipped", 2),
            ("failed", 1),
            ("not run", 2)
        ]
    );
}

#[test]
fn inconsistent_figures_cause_warnings() {
    let links = |a, b| [(Some("wh1"), a), (Some("wh2"), b)];
    let mut other = run("x", 1, &[(None, 250.0)]);
    other.environment.kernel = "6.1".to_owned();
    let runs = [
        run(ALONE, 1, &links(100.0, 100.0)),
        run(SIMULTANEOUS, 1, &links(150.0, 150.0)),
        other,
    ];
    let warnings = Summary::from_runs(&header(None), &runs).warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}
