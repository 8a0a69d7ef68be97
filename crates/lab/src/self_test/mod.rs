//! `lab self-test`: the emulator against what was asked of it, and against the kernel's shaper.
//!
//! Every figure is measured several times and its median compared. A measurement during which the emulator
//! did not keep up is repeated, and refused rather than failed if that does not help: it says something
//! about the machine and nothing about the model.

use std::io::IsTerminal;

use serde::Serialize;

use crate::error::LabError;
use crate::laboratory::Lab;
use crate::signals;

mod checks;
mod kernel;
mod probe;

/// The most that a figure may differ from what was asked for, as a share of it.
const TOLERANCE: f64 = 0.02;
/// How often a measurement is tried until the emulator keeps up.
const ATTEMPTS: u32 = 4;

/// What can be measured; the last one is the comparison with the kernel's shaper.
const SUBJECTS: [&str; 9] = [
    "delay", "jitter", "order", "rate", "trace", "loss", "queue", "plan", SHAPER,
];
const SHAPER: &str = "tbf";

/// Options of `sumlink lab self-test`.
#[derive(Clone, Debug, clap::Args)]
pub struct SelfTestOptions {
    /// How often each figure is measured; the median counts
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=99))]
    pub repeats: u64,
    /// Measure only this; may be given several times
    #[arg(long, value_name = "SUBJECT", value_parser = SUBJECTS)]
    pub only: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Whether a figure is what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is, within the tolerance.
    Passed,
    /// It is not.
    Failed,
    /// The emulator, or the shaper that it is compared with, did not keep up, however often it was tried.
    Refused,
}

/// One property of the emulator, asked for and measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Which one.
    pub name: String,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// What was asked for, or what the kernel's shaper does.
    pub asked: f64,
    /// What was measured; the median over the repeats.
    pub measured: f64,
    /// `measured / asked - 1`; where 0 was asked, `measured`.
    pub deviation: f64,
    /// Whether the deviation is within the tolerance of 2 %.
    pub verdict: Verdict,
}

impl Figure {
    fn new(name: impl Into<String>, unit: &'static str, asked: f64, measured: f64) -> Self {
        let deviation = if asked == 0.0 {
            measured
        } else {
            measured / asked - 1.0
        };
        let verdict = if deviation.abs() <= TOLERANCE {
            Verdict::Passed
        } else {
            Verdict::Failed
        };
        Self {
            name: name.into(),
            unit,
            asked,
            measured,
            deviation,
            verdict,
        }
    }

    /// The median of repeated measurements of the same figure.
    fn median_of(figures: &[Self]) -> Option<Self> {
        let first = figures.first()?;
        let pick = |value: fn(&Self) -> f64| median(figures.iter().map(value).collect());
        let mut figure = Self::new(
            first.name.clone(),
            first.unit,
            pick(|f| f.asked),
            pick(|f| f.measured),
        );
        if figures.iter().any(|f| f.verdict == Verdict::Refused) {
            figure.verdict = Verdict::Refused;
        }
        Some(figure)
    }
}

/// Measures everything, prints a table or JSON, and fails if a figure is out of tolerance
/// ([`LabError::FellShort`]) or could not be measured ([`LabError::Refused`]).
///
/// Takes about a minute for each repeat. The process must be able to make namespaces
/// (see [`become_able`](crate::become_able)).
pub fn run(options: &SelfTestOptions) -> Result<(), LabError> {
    if !options.json {
        println!(
            "{:<44} {:>11} {:>11} {:<8} {:>9}  verdict",
            "FIGURE", "ASKED", "MEASURED", "UNIT", "DEVIATION"
        );
    }
    let mut figures = Vec::new();
    let mut add = |batch: Vec<Figure>| {
        for figure in &batch {
            if !options.json {
                print(figure);
            }
        }
        figures.extend(batch);
    };
    let chosen =
        |subject: &str| options.only.is_empty() || options.only.iter().any(|only| only == subject);
    for check in checks::CHECKS.iter().filter(|c| chosen(c.subject)) {
        add(repeated(options.repeats, |seed| {
            let config = checks::config(check, seed)?;
            let lab = Lab::start(config)?;
            healthy(&lab, || (check.measure)(&lab))
        })?);
    }
    for megabits in kernel::RATES.into_iter().filter(|_| chosen(SHAPER)) {
        add(repeated(options.repeats, |seed| {
            let config = kernel::config(megabits, seed)?;
            let shaped = shaped_goodput(megabits, &config.congestion)?;
            let lab = Lab::start(config)?;
            let mut figures = healthy(&lab, || {
                let emulated = kernel::emulated(&lab)?;
                Ok(vec![kernel::figure(megabits, shaped, emulated)])
            })?;
            if !kernel::shaper_kept_up(megabits, shaped) {
                refuse(&mut figures);
            }
            Ok(figures)
        })?);
    }
    if options.json {
        let text = serde_json::to_string_pretty(&figures)
            .map_err(|error| LabError::system("writing JSON", error))?;
        println!("{text}");
    }
    judge(&figures)
}

/// Measures with a seed for each repeat, and takes the median of each figure.
fn repeated(
    repeats: u64,
    measure: impl Fn(u64) -> Result<Vec<Figure>, LabError>,
) -> Result<Vec<Figure>, LabError> {
    let mut rounds = Vec::new();
    for seed in 1..=repeats {
        signals::check()?;
        if std::io::stderr().is_terminal() {
            eprint!("\r{seed} of {repeats} \r");
        }
        rounds.push(measure(seed)?);
    }
    let count = rounds.first().map_or(0, Vec::len);
    let column = |i: usize| {
        let figures: Vec<_> = rounds.iter().filter_map(|r| r.get(i).cloned()).collect();
        Figure::median_of(&figures)
    };
    Ok((0..count).filter_map(column).collect())
}

/// Measures until the emulator has kept up meanwhile.
fn healthy(
    lab: &Lab,
    measure: impl Fn() -> Result<Vec<Figure>, LabError>,
) -> Result<Vec<Figure>, LabError> {
    let mut attempt = 1;
    loop {
        lab.reset_health()?;
        let mut figures = measure()?;
        let Some(objection) = lab.health()?.objection() else {
            return Ok(figures);
        };
        tracing::info!("attempt {attempt}: {objection}");
        if attempt == ATTEMPTS {
            refuse(&mut figures);
            return Ok(figures);
        }
        attempt += 1;
    }
}

/// What TCP gets through the kernel's shaper, tried until that keeps up.
fn shaped_goodput(megabits: u64, congestion: &str) -> Result<f64, LabError> {
    let shaped = kernel::Shaped::start(megabits, congestion)?;
    let mut goodput = shaped.goodput()?;
    for _ in 1..ATTEMPTS {
        if kernel::shaper_kept_up(megabits, goodput) {
            break;
        }
        signals::check()?;
        goodput = shaped.goodput()?;
    }
    Ok(goodput)
}

fn refuse(figures: &mut [Figure]) {
    for figure in figures {
        figure.verdict = Verdict::Refused;
    }
}

fn print(figure: &Figure) {
    let verdict = match figure.verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "FAILED",
        Verdict::Refused => "refused: the machine was too busy",
    };
    println!(
        "{:<44} {:>11.3} {:>11.3} {:<8} {:>8.2}%  {verdict}",
        figure.name,
        figure.asked,
        figure.measured,
        figure.unit,
        figure.deviation * 100.0
    );
}

fn judge(figures: &[Figure]) -> Result<(), LabError> {
    let names = |verdict| {
        let names: Vec<_> = figures
            .iter()
            .filter(|f| f.verdict == verdict)
            .map(|f| f.name.as_str())
            .collect();
        names.join("; ")
    };
    let (failed, refused) = (names(Verdict::Failed), names(Verdict::Refused));
    if !failed.is_empty() {
        return Err(LabError::FellShort(format!(
            "the emulator is more than {:.0} % off what was asked for: {failed}",
            TOLERANCE * 100.0
        )));
    }
    if !refused.is_empty() {
        return Err(LabError::Refused(format!(
            "the emulator or the shaper did not keep up, leave them more of the machine: {refused}"
        )));
    }
    Ok(())
}

/// 0 without values.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_can_be_chosen() {
        for subject in SUBJECTS {
            let known = checks::CHECKS.iter().any(|check| check.subject == subject);
            assert!(known || subject == SHAPER, "{subject}");
        }
        assert!(checks::CHECKS.iter().all(|c| SUBJECTS.contains(&c.subject)));
    }

    #[test]
    fn two_per_cent_is_the_limit() {
        let verdict = |asked, measured| Figure::new("x", "ms", asked, measured).verdict;
        assert_eq!(verdict(100.0, 101.9), Verdict::Passed);
        assert_eq!(verdict(100.0, 97.9), Verdict::Failed);
        assert_eq!(verdict(0.0, 0.0), Verdict::Passed);
        assert_eq!(verdict(0.0, 1.0), Verdict::Failed);
        assert_eq!(verdict(100.0, f64::NAN), Verdict::Failed);
    }

    #[test]
    fn the_median_counts_and_a_refusal_stays() {
        let mut rounds: Vec<_> = [90.0, 100.0, 101.0]
            .map(|measured| Figure::new("x", "ms", 100.0, measured))
            .to_vec();
        assert_eq!(Figure::median_of(&rounds).unwrap().verdict, Verdict::Passed);
        rounds[0].verdict = Verdict::Refused;
        let median = Figure::median_of(&rounds).unwrap();
        assert_eq!((median.measured, median.verdict), (100.0, Verdict::Refused));
        assert!(matches!(
            judge(std::slice::from_ref(&median)),
            Err(LabError::Refused(_))
        ));
        let failed = Figure::new("y", "ms", 100.0, 90.0);
        assert!(matches!(
            judge(&[median, failed]),
            Err(LabError::FellShort(_))
        ));
    }
}
