//! Compares the measurements with the bars.

use crate::results::{ALONE, Outcome, Run, Spread, figures};

use super::bar::Bar;
use super::line::{Judged, Line, Verdict};
use super::matrix::Row;
use super::quantities::Measured;

/// Judges a variant by its runs, expected for `seeds` seeds; `others` are the systems compared with
/// it.
pub(super) fn judge(row: &Row, measured: Measured<'_>, seeds: usize, others: &[String]) -> Line {
    let scenario = measured.scenario;
    let mut judged = Vec::new();
    for bar in &row.bars {
        for size in measured.sizes(bar.quantity) {
            judged.push(judge_one(bar, size, measured, seeds, &row.judged, others));
        }
    }
    let goodput = |system: &str| {
        let runs = measured.of(system).filter_map(|run| figures(run).ok());
        Spread::of(runs.map(|figures| figures.goodput_bps)).map(|spread| spread.median)
    };
    let alone = scenario.links().filter_map(|link| {
        let runs = measured.of(ALONE).filter_map(|run| figures(run).ok());
        let values = runs.filter_map(|figures| crate::results::link_goodput(figures, &link.name));
        Some((link.name.clone(), Spread::of(values)?.median))
    });
    let own = || measured.of(&row.judged);
    let mut programs: Vec<String> = own().map(program).collect();
    programs.sort();
    programs.dedup();
    if programs.len() == 1 {
        programs.clear();
    }
    let busy = own().filter_map(|run| {
        let machine = figures(run).ok()?.machine.as_ref()?;
        Some(machine.runs_share + machine.others_share)
    });
    let busy = Spread::of(busy).map(|spread| spread.median);
    let variant = format!("{}, {}", scenario.traffic.name(), scenario.congestion);
    let mut line = Line {
        row: row.name.clone(),
        system: row.judged.clone(),
        judged,
        alone: alone.collect(),
        goodput_bps: goodput(&row.judged),
        seeds: own().filter(|run| figures(run).is_ok()).count(),
        programs,
        busy,
        cause: None,
        variant,
    };
    if line.verdict() == Verdict::Short {
        line.cause = row.causes.of(&line);
    }
    line
}

/// Name of the program build that measured a run.
pub(super) fn program(run: &Run) -> String {
    let of = &run.environment;
    let digest = of.program.get(..8).unwrap_or("unknown program");
    format!("sumlink {} {digest}", of.sumlink)
}

fn judge_one(
    bar: &Bar,
    size: Option<u64>,
    measured: Measured<'_>,
    seeds: usize,
    system: &str,
    others: &[String],
) -> Judged {
    let values = measured.values(bar.quantity, size, system);
    let comparable = measured.comparable(bar.quantity, system);
    let spread = Spread::of(values.iter().copied());
    let (verdict, reason) = match &spread {
        // A run without this figure (for example, an object that never arrived) counts as the worst
        // possible figure.
        Some(spread) if spread.count < comparable => {
            let missing = comparable - spread.count;
            (
                Verdict::Short,
                format!("no figure in {missing} of {comparable} runs"),
            )
        }
        Some(spread) => {
            let reached = bar.is_reached(spread.median);
            let verdict = if reached {
                Verdict::Pass
            } else {
                Verdict::Short
            };
            let mut worst = (verdict, String::new());
            let few = too_few(spread.count, measured, system, seeds);
            for (worse, reason) in without_figures(measured, system).into_iter().chain(few) {
                if worse > worst.0 || worst.1.is_empty() {
                    worst.1 = reason;
                }
                worst.0 = worst.0.max(worse);
            }
            worst
        }
        None if comparable > 0 => (Verdict::Short, "no figure in any run".to_owned()),
        None => without_figures(measured, system)
            .or_else(|| {
                let message = measured.stalled(bar.quantity, system)?;
                Some((Verdict::Refused, message))
            })
            .or_else(|| {
                let reference = bar.quantity.reference(system);
                without_figures(measured, reference.as_deref().unwrap_or(ALONE))
            })
            .unwrap_or((Verdict::NotRun, String::new())),
    };
    let common = measured.common_seeds(others);
    let median = |system: &str| {
        let is_common = |seed: u64| common.is_empty() || common.contains(&seed);
        let values = measured.values_where(bar.quantity, size, system, is_common);
        Spread::of(values).map(|spread| spread.median)
    };
    let others = others.iter().map(|other| (other.clone(), median(other)));
    Judged {
        bar: bar.clone(),
        size,
        spread,
        verdict,
        reason,
        others: others.collect(),
        beside_others: median(system),
    }
}

/// The verdict when some of the requested seeds are missing. A run that states why it has no
/// figures counts as present.
fn too_few(
    with_figure: usize,
    measured: Measured<'_>,
    system: &str,
    seeds: usize,
) -> Option<(Verdict, String)> {
    let without = measured.of(system).filter(|run| figures(run).is_err());
    let there = with_figure + without.count();
    (there < seeds).then(|| (Verdict::NotRun, format!("{there} of {seeds} seeds run")))
}

/// Verdict and reason for a system without figures. A failure is attributed to the system; a
/// refusal by the emulator or a system that is not installed is not.
fn without_figures(measured: Measured<'_>, system: &str) -> Option<(Verdict, String)> {
    let of = |run: &Run| {
        let (kind, reason) = figures(run).err()?;
        let verdict = match (&run.outcome, kind) {
            (_, "refused") => Verdict::Refused,
            (Outcome::Skipped { .. }, _) => Verdict::NotRun,
            _ => Verdict::Short,
        };
        let reason = reason.lines().next().unwrap_or_default().to_owned();
        Some((verdict, reason))
    };
    let all: Vec<_> = measured.of(system).filter_map(of).collect();
    let total = measured.of(system).count();
    let (verdict, reason) = all.iter().max_by_key(|(verdict, _)| *verdict)?;
    let word = match verdict {
        Verdict::Refused => "refused",
        Verdict::NotRun => "skipped",
        _ => "failed",
    };
    let alike = all.iter().filter(|(other, _)| other == verdict).count();
    // Where most runs have figures, a refused run does not count against the system.
    let verdict = match verdict {
        Verdict::Refused if 2 * all.len() < total => Verdict::Pass,
        verdict => *verdict,
    };
    Some((
        verdict,
        format!("{alike} of {total} runs of {system} {word}: {reason}"),
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::matrix;
    use crate::bench::quantities::fixture::{alone, own, run, scenario, took};

    fn group(bars: &str) -> matrix::Group {
        let text = format!(
            "name = \"g\"\nbars = {bars}\n[[row]]\nname = \"r\"\nduration = \"3s\"\n\
             [[row.link]]\nname = \"a\"\nrate = \"1mbit\"\n"
        );
        matrix::read(Path::new("m.toml"), &text).unwrap()
    }

    fn line(bars: &str, runs: &[Run]) -> Line {
        let (group, scenario) = (group(bars), scenario(""));
        let measured = Measured {
            scenario: &scenario,
            runs,
        };
        let seeds = measured.of("sumlink:fbdt").count();
        judge(&group.rows[0], measured, seeds, &["mptcp".to_owned()])
    }

    fn fbdt(seed: u64, mbps: f64) -> Run {
        run("sumlink:fbdt", seed, own([mbps; 3]))
    }

    fn links(seed: u64) -> Run {
        run(ALONE, seed, alone())
    }

    fn with(outcome: Outcome) -> Run {
        Run {
            outcome,
            ..fbdt(9, 1.0)
        }
    }

    const SUM: &str = "[\"sum >= 0.97\"]";

    #[test]
    fn the_median_decides() {
        let runs = |mbps: [f64; 3]| -> Vec<Run> {
            (1..)
                .zip(mbps)
                .flat_map(|(seed, mbps)| [links(seed), fbdt(seed, mbps)])
                .collect()
        };
        let good = line(SUM, &runs([97.0, 99.0, 50.0]));
        assert_eq!(good.verdict(), Verdict::Pass);
        let spread = good.judged[0].spread.clone().unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (0.97, 0.5, 0.99));
        let bad = line(SUM, &runs([96.9, 99.0, 50.0]));
        assert_eq!(bad.verdict(), Verdict::Short);
        assert_eq!(bad.alone, [("a".to_owned(), 80e6), ("b".to_owned(), 20e6)]);
        assert_eq!(bad.goodput_bps, Some(96.9e6));
    }

    #[test]
    fn runs_of_several_programs_are_listed() {
        let of = |seed: u64, program: &str| {
            let mut run = fbdt(seed, 98.0);
            run.environment.sumlink = "0.1.0".to_owned();
            run.environment.program = program.to_owned();
            run
        };
        let (one, other) = ("0123456789abcdef", "fedcba9876543210");
        let programs = |runs: [Run; 2]| line(SUM, &runs).programs;
        assert!(programs([of(1, one), of(2, one)]).is_empty());
        let both = ["sumlink 0.1.0 01234567", "sumlink 0.1.0 fedcba98"];
        assert_eq!(programs([of(1, one), of(2, other)]), both);
        // Runs from before the program was recorded do not count as the current one.
        let both = ["sumlink 0.1.0 01234567", "sumlink 0.1.0 unknown program"];
        assert_eq!(programs([of(1, one), of(2, "")]), both);
        // Runs of the alternatives may be older.
        let mut mptcp = of(1, other);
        mptcp.system = "mptcp".to_owned();
        assert!(programs([of(1, one), mptcp]).is_empty());
    }

    #[test]
    fn every_bar_must_be_reached() {
        let runs = [links(1), fbdt(1, 98.0), run("mptcp", 1, own([50.0; 3]))];
        let both = line(
            "[\"sum >= 0.97\", \"seconds below best <= 0\", \"duplicates <= 2%\"]",
            &runs,
        );
        let verdicts: Vec<_> = both.judged.iter().map(|judged| judged.verdict).collect();
        assert_eq!(verdicts, [Verdict::Pass, Verdict::Pass, Verdict::Short]);
        assert_eq!(both.verdict(), Verdict::Short);
        assert_eq!(both.judged[0].others, [("mptcp".to_owned(), Some(0.5))]);
    }

    /// The remaining seeds may have run on a different machine.
    #[test]
    fn other_systems_are_compared_over_the_same_seeds() {
        let mut runs = vec![run("mptcp", 1, own([90.0; 3]))];
        for (seed, mbps) in [(1, 98.0), (2, 60.0), (3, 50.0)] {
            runs.extend([links(seed), fbdt(seed, mbps)]);
        }
        let line = line(SUM, &runs);
        let judged = &line.judged[0];
        assert_eq!(judged.spread.as_ref().unwrap().median, 0.6);
        assert_eq!(judged.others, [("mptcp".to_owned(), Some(0.9))]);
        assert_eq!(judged.beside_others, Some(0.98));
    }

    #[test]
    fn missing_figures_have_a_reason() {
        assert_eq!(line(SUM, &[]).verdict(), Verdict::NotRun);
        assert_eq!(line(SUM, &[links(1)]).verdict(), Verdict::NotRun);
        let judged = |outcome: Outcome| {
            let line = line(SUM, &[links(9), with(outcome)]);
            (line.verdict(), line.judged[0].reason.clone())
        };
        let reason = || "why\nlog".to_owned();
        let refused = judged(Outcome::Refused { reason: reason() });
        assert_eq!(refused.0, Verdict::Refused);
        assert_eq!(refused.1, "1 of 1 runs of sumlink:fbdt refused: why");
        assert_eq!(
            judged(Outcome::Skipped { reason: reason() }).0,
            Verdict::NotRun
        );
        assert_eq!(
            judged(Outcome::Failed { reason: reason() }).0,
            Verdict::Short
        );
        // A failed seed among successful ones misses the bar; a refused one does not.
        let failed = with(Outcome::Failed { reason: reason() });
        let among = [links(1), fbdt(1, 98.0), links(9), failed];
        assert_eq!(line(SUM, &among).verdict(), Verdict::Short);
        let refused = || with(Outcome::Refused { reason: reason() });
        let among = [links(1), fbdt(1, 98.0), links(9), refused()];
        assert_eq!(line(SUM, &among).verdict(), Verdict::Refused);
        let two = [links(1), fbdt(1, 98.0), links(2), fbdt(2, 98.0)];
        let among: Vec<Run> = two.into_iter().chain([links(9), refused()]).collect();
        assert_eq!(line(SUM, &among).verdict(), Verdict::Pass);
    }

    #[test]
    fn a_median_of_too_few_seeds_does_not_pass() {
        let (group, scenario) = (group(SUM), scenario(""));
        let judged = |mbps: f64, seeds| {
            let runs = [links(1), fbdt(1, mbps)];
            let measured = Measured {
                scenario: &scenario,
                runs: &runs,
            };
            judge(&group.rows[0], measured, seeds, &[])
        };
        assert_eq!(judged(98.0, 1).verdict(), Verdict::Pass);
        let few = judged(98.0, 5);
        assert_eq!(few.verdict(), Verdict::NotRun);
        assert_eq!(few.judged[0].reason, "1 of 5 seeds run");
        // The links alone lack the second seed, and one run was refused.
        let refused = with(Outcome::Refused {
            reason: "why".to_owned(),
        });
        let two = [links(1), fbdt(1, 98.0), fbdt(2, 98.0)];
        let three = [links(1), fbdt(1, 98.0), links(2), fbdt(2, 98.0), refused];
        for (runs, seeds) in [(&two[..], 2), (&three[..], 5)] {
            let measured = Measured {
                scenario: &scenario,
                runs,
            };
            let line = judge(&group.rows[0], measured, seeds, &[]);
            assert_eq!(line.verdict(), Verdict::NotRun, "{seeds}");
        }
        assert_eq!(judged(50.0, 5).verdict(), Verdict::Short);
    }

    #[test]
    fn a_stalled_reference_does_not_pass_a_bar() {
        let cpu = "[\"cpu <= 1.5 of mptcp+tls\"]";
        let own = run("sumlink:fbdt", 1, took(1000, &[], 3.0));
        let with = |bytes| {
            line(
                cpu,
                &[own.clone(), run("mptcp+tls", 1, took(bytes, &[], 90.0))],
            )
        };
        assert_eq!(with(100).verdict(), Verdict::Pass);
        let stalled = with(99);
        assert_eq!(stalled.verdict(), Verdict::Refused);
        assert!(
            stalled.judged[0]
                .reason
                .starts_with("mptcp+tls stalled: 99.0 Mbit/s")
        );
    }

    #[test]
    fn an_unknown_figure_meets_no_bar() {
        let mut silent = own([98.0; 3]);
        silent.duplicates_bytes = None;
        let runs = [links(1), run("sumlink:fbdt", 1, silent)];
        let line = line("[\"duplicates <= 2%\"]", &runs);
        assert_eq!(line.verdict(), Verdict::Short);
        assert_eq!(line.judged[0].reason, "no figure in any run");
    }
}
