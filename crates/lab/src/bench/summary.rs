//! Summary for a front page: how many lines of the matrix pass, and how they were measured.

use std::fmt::Write;

use super::bar::Quantity;
use super::judge::program;
use super::line::{Judged, Verdict};
use super::{BenchOptions, Lines};
use crate::report::words;
use crate::results::{Environment, Run, figures};
use crate::run::OTHERS_NOTE;

/// Summarizes the lines and the runs that they are based on.
pub(super) fn summary<'a>(
    lines: &Lines,
    runs: impl Iterator<Item = &'a Run> + Clone,
    options: &BenchOptions,
) -> String {
    let all = || lines.iter().flatten().map(|(line, _)| line);
    let of = |verdict| all().filter(|line| line.verdict() == verdict).count();
    let (reached, missed) = (of(Verdict::Pass), of(Verdict::Short));
    let mut text = format!(
        "Of the {} lines of the matrix, {} have been measured with every seed: {reached} reach \
         every bar, {missed} do not.\n",
        all().count(),
        reached + missed,
    );
    text.push_str(&rival(lines));
    text.push_str(&origin(runs.clone()));
    let disturbed = runs.clone().filter(|run| is_disturbed(run)).count();
    if disturbed > 0 {
        let _ = writeln!(
            text,
            "In {disturbed} of {} runs other programs used more than a tenth of the machine.",
            runs.count()
        );
    }
    let seeds = || all().map(|line| line.seeds).filter(|seeds| *seeds > 0);
    let (Some(least), Some(most)) = (seeds().min(), seeds().max()) else {
        return text;
    };
    let own = match least == most {
        true => words::count(most, "seed"),
        false => format!("{least} to {most} seeds, as the line says (n)"),
    };
    let others = match options.quick {
        true => 1,
        false => options.alternative_seeds as usize,
    };
    let _ = writeln!(
        text,
        "Medians of {own}, for the alternatives of {}; down and up are directions, cubic and bbr \
         congestion controls.",
        words::count(others, "seed"),
    );
    text
}

/// The share that a competing connection gets; empty when it was not measured.
fn rival(lines: &Lines) -> String {
    let mut shares = Vec::new();
    for (line, _) in lines.iter().flatten() {
        let of_rival = |judged: &&Judged| judged.bar.quantity == Quantity::Rival;
        for judged in line.judged.iter().filter(of_rival) {
            if let Some(spread) = &judged.spread {
                shares.push(format!(
                    "{:.2} ({}, {})",
                    spread.median, line.row, line.variant
                ));
            }
        }
    }
    if shares.is_empty() {
        return shares.concat();
    }
    format!(
        "A competing CUBIC connection on a link of sumlink gets this multiple of an equal share: \
         {}.\n",
        shares.join(", ")
    )
}

/// Origin of the runs: that of the newest, and a list of everything that differs between runs.
fn origin<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> String {
    let Some(newest) = runs.clone().max_by_key(|run| run.started_unix_s) else {
        return String::new();
    };
    let of = &newest.environment;
    if of.is_simulated() {
        return format!(
            "Simulated, and not measured, with sumlink {}.\n",
            of.sumlink
        );
    }
    let mut text = format!(
        "Measured until {} with {} on {}; kernel {}, socket buffers up to {}.\n",
        words::day(newest.started_unix_s),
        program(newest),
        machine(of),
        of.kernel,
        words::buffer_limit(of)
    );
    let kernel = |run: &Run| run.environment.kernel.clone();
    text.push_str(&kinds("programs", runs.clone(), program));
    text.push_str(&kinds("machines", runs.clone(), |run| {
        machine(&run.environment)
    }));
    text.push_str(&kinds("kernels", runs, kernel));
    text
}

/// The number of runs of each kind; empty when all runs are of one kind.
fn kinds<'a>(
    what: &str,
    runs: impl Iterator<Item = &'a Run>,
    kind: impl Fn(&Run) -> String,
) -> String {
    // In order of appearance.
    let mut found: Vec<(String, usize, Option<u64>)> = Vec::new();
    let started = |run: &Run| (!run.environment.is_simulated()).then_some(run.started_unix_s);
    for run in runs {
        let kind = kind(run);
        match found.iter_mut().find(|(known, _, _)| *known == kind) {
            Some((_, count, until)) => {
                *count += 1;
                *until = (*until).max(started(run));
            }
            None => found.push((kind, 1, started(run))),
        }
    }
    if found.len() < 2 {
        return String::new();
    }
    let count = found.len();
    let kinds = found.into_iter().map(|(kind, count, until)| {
        // Virtual time has no date.
        let until = until.map_or_else(
            || ", simulated".to_owned(),
            |until| format!(" until {}", words::day(until)),
        );
        format!("{kind} ({}{until})", words::count(count, "run"))
    });
    let kinds: Vec<_> = kinds.collect();
    format!("The runs are of {count} {what}: {}.\n", kinds.join(", "))
}

/// The processors, with their name if the run recorded it.
fn machine(of: &Environment) -> String {
    let processors = words::count(of.processors, "processor");
    match of.processor.is_empty() {
        true => processors,
        false => format!("{processors} ({})", of.processor),
    }
}

/// Whether the run recorded that other programs used too much of the machine.
fn is_disturbed(run: &Run) -> bool {
    figures(run).is_ok_and(|figures| figures.note.contains(OTHERS_NOTE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::quantities::fixture::{own, run};

    fn of(seed: u64, environment: Environment) -> Run {
        Run {
            environment,
            ..run("x", seed, own([1.0; 3]))
        }
    }

    #[test]
    fn differences_between_runs_are_listed() {
        let environment = Environment {
            kernel: "6.18.0".to_owned(),
            processors: 2,
            processor: "Some Chip".to_owned(),
            sumlink: "0.1.0".to_owned(),
            program: "0123456789abcdef".to_owned(),
            ..Environment::default()
        };
        let message = |other: Environment| {
            let runs = [
                of(1, environment.clone()),
                of(2, environment.clone()),
                of(90_000, other),
            ];
            origin(runs.iter())
        };
        let same = message(environment.clone());
        assert_eq!(
            same,
            "Measured until 1970-01-02 with sumlink 0.1.0 01234567 on 2 processors (Some Chip); \
             kernel 6.18.0, socket buffers up to 0 MiB.\n"
        );
        let program = message(Environment {
            program: "fedcba9876543210".to_owned(),
            ..environment.clone()
        });
        let expected = "The runs are of 2 programs: sumlink 0.1.0 01234567 (2 runs until \
                        1970-01-01), sumlink 0.1.0 fedcba98 (1 run until 1970-01-02).\n";
        assert!(program.ends_with(expected), "{program}");
        let machine = message(Environment {
            processors: 4,
            kernel: "6.19.0".to_owned(),
            ..environment.clone()
        });
        for expected in [
            "2 machines: 2 processors (Some Chip) (2 runs until 1970-01-01), 4 processors (Some \
             Chip) (1 run",
            "2 kernels: 6.18.0 (2 runs until 1970-01-01), 6.19.0 (1 run",
        ] {
            assert!(machine.contains(expected), "{machine}");
        }
        assert_eq!(origin([].iter()), "");
        let simulated = Environment {
            simulated: true,
            kernel: "none".to_owned(),
            ..environment.clone()
        };
        let runs = [of(90_000, environment.clone()), of(1, simulated.clone())];
        let message = origin(runs.iter());
        assert!(
            message.contains("none (1 run, simulated)") && !message.contains("1970-01-01"),
            "{message}"
        );
        let message = origin([of(1, simulated)].iter());
        assert!(
            message.starts_with("Simulated, ") && !message.contains("1970"),
            "{message}"
        );
    }
}
