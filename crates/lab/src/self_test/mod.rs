//! `lab self-test`: compares the emulator with its settings and with the kernel's shaper.
//!
//! Every figure is the median of several measurements. A measurement during which the emulator did
//! not keep up is repeated. If repetitions do not help, it is refused, not failed: it shows a limit
//! of the machine, not an error of the model.

use std::io::IsTerminal;

use crate::error::LabError;
use crate::laboratory::Lab;
use crate::prose::{note_raw, print, say};
use crate::signals;
use figure::{TOLERANCE, median};

mod checks;
mod figure;
mod kernel;
mod probe;
mod probes;

pub use figure::{Figure, Verdict};

/// Attempts for a measurement until the emulator keeps up.
const ATTEMPTS: u32 = 4;

/// The subjects; the last one is the comparison with the kernel's shaper.
const SUBJECTS: [&str; 14] = [
    "delay",
    "jitter",
    "order",
    "rate",
    "gso",
    "trace",
    "queue",
    "loss",
    "plan",
    "blackhole",
    "coupling",
    "interferer",
    "radio",
    SHAPER,
];
const SHAPER: &str = "tbf";

/// Options of `sumlink-lab self-test`.
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

/// Measures everything, prints a table or JSON, and fails if a figure is out of tolerance
/// ([`LabError::FellShort`]) or could not be measured ([`LabError::Refused`]).
///
/// Takes about 35 seconds for each repeat. The process must be allowed to create namespaces (see
/// [`become_able`](crate::become_able)).
pub fn run(options: &SelfTestOptions) -> Result<(), LabError> {
    if !options.json {
        say!("{}", figure::headings());
    }
    let mut figures = Vec::new();
    let mut add = |batch: Vec<Figure>| {
        for figure in &batch {
            if !options.json {
                say!("{figure}");
            }
        }
        figures.extend(batch);
    };
    let chosen =
        |subject: &str| options.only.is_empty() || options.only.iter().any(|only| only == subject);
    for check in checks::all().filter(|c| chosen(c.subject)) {
        // The random sequences continue from one repeat to the next.
        let lab = Lab::start((check.config)()?)?;
        add(repeated(options.repeats, || {
            healthy(&lab, || (check.measure)(&lab))
        })?);
    }
    for megabits in kernel::RATES.into_iter().filter(|_| chosen(SHAPER)) {
        let config = kernel::config(megabits)?;
        let shaped = shaped_goodput(megabits, &config.congestion)?;
        let lab = Lab::start(config)?;
        add(repeated(options.repeats, || {
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
        print(&format!("{text}\n"))?;
    }
    judge(&figures)
}

/// Measures several times and returns the median of each figure.
fn repeated(
    repeats: u64,
    measure: impl Fn() -> Result<Vec<Figure>, LabError>,
) -> Result<Vec<Figure>, LabError> {
    let mut rounds = Vec::new();
    for round in 1..=repeats {
        signals::check()?;
        if std::io::stderr().is_terminal() {
            note_raw(&format!("\r{round} of {repeats} \r"));
        }
        rounds.push(measure()?);
    }
    let count = rounds.first().map_or(0, Vec::len);
    let column = |i: usize| {
        let figures: Vec<_> = rounds.iter().filter_map(|r| r.get(i).cloned()).collect();
        Figure::median_of(&figures)
    };
    Ok((0..count).filter_map(column).collect())
}

/// Repeats a measurement until the emulator keeps up with it.
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

/// TCP goodput through the kernel's shaper, repeated until the shaper keeps up.
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
            "the emulator deviates by more than {:.0} % from its settings: {failed}",
            TOLERANCE * 100.0
        )));
    }
    if !refused.is_empty() {
        return Err(LabError::Refused(format!(
            "the emulator or the shaper did not keep up: reduce the load of the machine ({refused})"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_can_be_chosen() {
        for subject in SUBJECTS {
            let known = checks::all().any(|check| check.subject == subject);
            assert!(known || subject == SHAPER, "{subject}");
        }
        assert!(checks::all().all(|c| SUBJECTS.contains(&c.subject)));
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
