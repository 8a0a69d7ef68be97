//! Sentences about the figures.

use crate::results::{
    ALONE, DatagramSummary, Environment, Quantiles, Run, SIMULTANEOUS, Spread, Summary,
    SystemSummary,
};
use sumlink_plot::{Shown, short};

/// Formats a rate.
pub(super) fn rate(bps: f64) -> String {
    match bps {
        _ if bps >= 999.5e6 => format!("{:.2} Gbit/s", bps / 1e9),
        _ if bps >= 99.95e6 => format!("{:.0} Mbit/s", bps / 1e6),
        _ if bps >= 1e6 => format!("{:.1} Mbit/s", bps / 1e6),
        _ if bps >= 1e3 => format!("{:.1} kbit/s", bps / 1e3),
        _ => format!("{bps:.0} bit/s"),
    }
}

/// Formats a time in seconds.
pub(super) fn time(seconds: f64) -> String {
    if seconds >= 1.0 {
        format!("{} s", short(seconds))
    } else {
        format!("{} ms", short(seconds * 1e3))
    }
}

/// Formats a number of bytes.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        _ if bytes >= 1e9 => format!("{} GB", short(bytes / 1e9)),
        _ if bytes >= 1e6 => format!("{} MB", short(bytes / 1e6)),
        _ if bytes >= 1e3 => format!("{} kB", short(bytes / 1e3)),
        _ => format!("{bytes:.0} B"),
    }
}

/// Formats a count, which may be the median of an even number of counts.
pub(super) fn number(of: f64) -> String {
    short(of)
}

/// Formats a share as a percentage.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    // Only values of at least 100 % are shown as such.
    if (99.95..100.0).contains(&percent) {
        return "99.9 %".to_owned();
    }
    format!("{percent:.1} %")
}

/// A range between two quantities; a common unit is written once.
pub(super) fn range(least: &str, most: &str) -> String {
    match (least.rsplit_once(' '), most.rsplit_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number} – {most}"),
        _ => format!("{least} – {most}"),
    }
}

/// A count with its noun: "5 seeds".
pub(crate) fn count(number: usize, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {one}{plural}")
}

/// The headline of a scenario, the best system first: how close each comes to the sum, and whether
/// it falls behind the best link.
pub(super) fn headline(summary: &Summary) -> Vec<String> {
    match summary.workload.as_str() {
        "files" => {
            let mut lines = by_tail(summary, "of the objects", |system| {
                system.completion_s.clone()
            });
            lines.extend(limits(summary));
            lines
        }
        "cbr" => by_tail(summary, "of the messages", delay_s),
        "requests" => by_tail(summary, "of the answers", delay_s),
        _ => by_goodput(summary),
    }
}

/// The systems that met the limit of the workload, if it has one.
fn limits(summary: &Summary) -> Option<String> {
    let limit = summary
        .limit_s
        .map_or_else(String::new, |s| format!(" of {}", time(s)));
    let (mut kept, mut broke) = (Vec::new(), Vec::new());
    for system in &summary.systems {
        match &system.over_limit {
            Some(over) if over.max == 0.0 => kept.push(system.system.as_str()),
            Some(_) => broke.push(system.system.as_str()),
            None => {}
        }
    }
    let mut sentences = Vec::new();
    if !kept.is_empty() {
        sentences.push(format!(
            "Within the limit{limit} in every run: {}.",
            kept.join(", ")
        ));
    }
    if !broke.is_empty() {
        sentences.push(format!(
            "Over the limit{limit} in some run: {}.",
            broke.join(", ")
        ));
    }
    (!sentences.is_empty()).then(|| sentences.join(" "))
}

/// The systems that aggregate.
pub(super) fn contenders(summary: &Summary) -> impl Iterator<Item = &SystemSummary> {
    summary
        .systems
        .iter()
        .filter(|system| system.system != ALONE && system.system != SIMULTANEOUS)
}

fn by_goodput(summary: &Summary) -> Vec<String> {
    let mut ranked: Vec<(&SystemSummary, &Spread)> = contenders(summary)
        .filter_map(|system| Some((system, system.goodput_bps.as_ref()?)))
        .collect();
    ranked.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
    if ranked.is_empty() {
        return vec!["No aggregating system has a figure here.".to_owned()];
    }
    let sentence = |(system, goodput): &(&SystemSummary, &Spread)| match &system.aggregation_ratio {
        Some(ratio) => {
            let below = if system.below_best > 0 {
                format!(
                    "but fell below the best link in {} of {}",
                    system.below_best,
                    count(ratio.count, "seed")
                )
            } else {
                "and was never below the best link".to_owned()
            };
            format!(
                "{} reached {} of the sum of the links ({}), {below}.",
                system.system,
                percent(ratio.median),
                rate(goodput.median)
            )
        }
        None => format!("{} delivered {}.", system.system, rate(goodput.median)),
    };
    ranked.iter().map(sentence).collect()
}

/// The name of a flow of datagrams.
pub(crate) fn flow(flow: &DatagramSummary) -> String {
    match &flow.link {
        Some(link) => format!("{link}, {}", flow.direction),
        None => flow.direction.clone(),
    }
}

/// The figures of a flow of datagrams: medians over the seeds.
pub(crate) fn datagrams(flow: &DatagramSummary) -> String {
    let value = |spread: &Option<Spread>| match spread {
        Some(spread) => format!("{:.1}", spread.median),
        None => "–".to_owned(),
    };
    let count = |spread: &Option<Spread>, what: &str| {
        let some = spread.as_ref().filter(|spread| spread.median > 0.0);
        some.map_or_else(String::new, |spread| {
            format!(", {:.0} {what}", spread.median)
        })
    };
    let loss = flow.loss.as_ref().map_or(0.0, |loss| loss.median * 100.0);
    let score = flow.mos.as_ref();
    format!(
        "lost {loss:.2} %, delay {} / {} / {} ms (50 %, 95 %, 99 %), jitter {} ms, longest gap {} \
         ms{}{}{}",
        value(&flow.delay_p50_ms),
        value(&flow.delay_p95_ms),
        value(&flow.delay_p99_ms),
        value(&flow.jitter_ms),
        value(&flow.gap_ms),
        count(&flow.reordered, "out of order"),
        count(&flow.duplicates, "surplus copies"),
        score.map_or_else(String::new, |score| format!(", MOS {:.2}", score.median)),
    )
}

/// How far a system was behind the links alone.
pub(crate) fn lag(system: &SystemSummary) -> Option<String> {
    let (greatest, above) = (system.lag_ms.as_ref()?, system.lag_above_s.as_ref()?);
    let of_seeds = if greatest.count > 1 {
        format!(", up to {} in one seed", time(greatest.max / 1e3))
    } else {
        String::new()
    };
    let wait = system.in_order_wait_p99_ms.as_ref();
    let wait = wait.map_or_else(String::new, |wait| {
        let wait = time(wait.median / 1e3);
        format!("; 99 % of the bytes waited at most {wait} for earlier ones")
    });
    Some(format!(
        "greatest lag behind a link alone {}{of_seeds}; above its limit for {}{wait}",
        time(greatest.median / 1e3),
        time(above.median)
    ))
}

fn delay_s(system: &SystemSummary) -> Option<Quantiles> {
    let ms = system.message_delay_ms.as_ref()?;
    Some(Quantiles {
        p50: ms.p50 / 1e3,
        p99: ms.p99 / 1e3,
        ..ms.clone()
    })
}

fn by_tail(
    summary: &Summary,
    what: &str,
    of: impl Fn(&SystemSummary) -> Option<Quantiles>,
) -> Vec<String> {
    let mut ranked: Vec<(&str, Quantiles)> = contenders(summary)
        .filter_map(|system| Some((system.system.as_str(), of(system)?)))
        .collect();
    ranked.sort_by(|a, b| a.1.p50.total_cmp(&b.1.p50));
    if ranked.is_empty() {
        return vec!["No aggregating system has a figure here.".to_owned()];
    }
    let sentence = |(system, tail): &(&str, Quantiles)| {
        format!(
            "{system}: half {what} took at most {}, 99 % at most {}.",
            time(tail.p50),
            time(tail.p99)
        )
    };
    let mut lines: Vec<String> = ranked.iter().map(sentence).collect();
    if let Some((link, alone)) = &summary.best_alone_completion_s {
        lines.push(format!(
            "The best link alone, {link}: {} and {}.",
            time(alone.p50),
            time(alone.p99)
        ));
    }
    lines
}

/// The environment of the measurements, on one line.
pub(super) fn environment(of: &Environment) -> String {
    if of.is_simulated() {
        return format!(
            "simulated: congestion control {}, socket buffers up to {}, sumlink {}",
            of.congestion,
            buffer_limit(of),
            of.sumlink
        );
    }
    let known = |text: &str| {
        if text.is_empty() {
            "unknown".to_owned()
        } else {
            text.to_owned()
        }
    };
    format!(
        "congestion control {}, socket buffers up to {}, kernel {}, {}, sumlink {}",
        known(&of.congestion),
        buffer_limit(of),
        known(&of.kernel),
        count(of.processors, "processor"),
        known(&of.sumlink)
    )
}

/// The limit of the socket buffers.
pub(crate) fn buffer_limit(of: &Environment) -> String {
    let mib = of.socket_buffer_max_bytes as f64 / f64::from(1 << 20);
    format!("{} MiB", short(mib))
}

/// When the runs were measured, or that they were simulated: virtual time has no date.
pub(crate) fn made<'a>(runs: impl Iterator<Item = &'a Run>) -> String {
    let (mut days, mut simulated) = (Vec::new(), 0);
    for run in runs {
        match run.environment.is_simulated() {
            true => simulated += 1,
            false => days.push(run.started_unix_s),
        }
    }
    let measured = match (days.iter().min(), days.iter().max()) {
        (Some(first), Some(last)) if day(*first) == day(*last) => {
            format!("measured on {}", day(*first))
        }
        (Some(first), Some(last)) => format!("measured from {} to {}", day(*first), day(*last)),
        _ if simulated > 0 => return "simulated".to_owned(),
        _ => return String::new(),
    };
    match simulated {
        0 => measured,
        _ => format!("{} of them simulated, the others {measured}", simulated),
    }
}

/// How many of some runs were simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Simulated {
    None,
    Some,
    All,
}

/// Whether runs with these environments were simulated.
pub(crate) fn simulated<'a>(environments: impl Iterator<Item = &'a Environment>) -> Simulated {
    let (mut all, mut simulated) = (0, 0);
    for environment in environments {
        all += 1;
        simulated += usize::from(environment.is_simulated());
    }
    match simulated {
        0 => Simulated::None,
        _ if simulated == all => Simulated::All,
        _ => Simulated::Some,
    }
}

/// The note below a chart that does not show all systems.
pub(super) fn systems_shown(shown: &Shown<'_>) -> Option<String> {
    let systems = shown.names.len() + shown.left_out;
    let note = shown.note()?;
    Some(format!(
        "{} of {systems} systems, {note}",
        shown.names.len()
    ))
}

/// A date from seconds since 1970 (UTC). Calendar arithmetic after E. G. Richards, Explanatory
/// Supplement to the Astronomical Almanac (2013), section 15.11.
pub(crate) fn day(unix_s: u64) -> String {
    let julian = i128::from(unix_s / 86_400) + 2_440_588;
    let f = julian + 1401 + (4 * julian + 274_277) / 146_097 * 3 / 4 - 38;
    let e = 4 * f + 3;
    let h = 5 * (e % 1461 / 4) + 2;
    let day = h % 153 / 5 + 1;
    let month = (h / 153 + 2) % 12 + 1;
    let year = e / 1461 - 4716 + (14 - month) / 12;
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(951_782_400), "2000-02-29");
        assert_eq!(day(1_795_305_600), "2026-11-22");
        assert!(!day(u64::MAX).is_empty());
    }

    #[test]
    fn simulated_runs_have_no_date_and_no_processors() {
        let environment_of = |simulated| Environment {
            simulated,
            processors: 1,
            ..Environment::default()
        };
        let run = |simulated| Run {
            environment: environment_of(simulated),
            ..Run::bare(
                "s",
                90_000,
                crate::results::Outcome::Failed {
                    reason: String::new(),
                },
            )
        };
        let (real, virtual_) = (run(false), run(true));
        let kind = |runs: &[&Run]| simulated(runs.iter().map(|run| &run.environment));
        assert_eq!(kind(&[]), Simulated::None);
        assert_eq!(kind(&[&real]), Simulated::None);
        assert_eq!(kind(&[&real, &virtual_]), Simulated::Some);
        assert_eq!(kind(&[&virtual_, &virtual_]), Simulated::All);
        assert_eq!(made([&virtual_, &virtual_].into_iter()), "simulated");
        assert_eq!(made([&real].into_iter()), "measured on 1970-01-02");
        let both = made([&real, &virtual_].into_iter());
        assert_eq!(
            both,
            "1 of them simulated, the others measured on 1970-01-02"
        );
        assert_eq!(made([].into_iter()), "");
        let message = environment(&virtual_.environment);
        assert!(
            message.starts_with("simulated: ") && !message.contains("processor"),
            "{message}"
        );
        assert!(environment(&real.environment).contains("1 processor"));
    }

    #[test]
    fn a_hundred_percent_is_not_rounded_to() {
        assert_eq!(percent(0.999_9), "99.9 %");
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(percent(0.964), "96.4 %");
        assert_eq!(percent(0.331), "33.1 %");
    }

    #[test]
    fn quantities_have_units() {
        assert_eq!(rate(1.707e9), "1.71 Gbit/s");
        assert_eq!(rate(606.4e6), "606 Mbit/s");
        assert_eq!(rate(4.83e6), "4.8 Mbit/s");
        assert_eq!(time(0.0312), "31.2 ms");
        assert_eq!(bytes(25e6), "25 MB");
        assert_eq!(range("1.5 Mbit/s", "2 Mbit/s"), "1.5 – 2 Mbit/s");
        assert_eq!(range("900 kbit/s", "2 Mbit/s"), "900 kbit/s – 2 Mbit/s");
    }
}
