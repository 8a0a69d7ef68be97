//! The runs that the tables are based on, without their time series: small enough to be committed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::quantities::cpu_per_byte;
use super::sources::Part;
use super::vary::Variant;
use crate::results::{Datagrams, Measurement, Outcome, Quantiles, Run, Series};

/// The runs of the lines, each once, and where they are used.
#[derive(Default)]
pub(super) struct Records {
    /// In the order of the lines.
    all: Vec<Record>,
    /// Index into `all` by scenario, seed and system.
    places: BTreeMap<(String, u64, String), usize>,
}

struct Record {
    run: Run,
    /// Scenarios of the lines that use the run; with the link for runs of a single link.
    used_for: Vec<String>,
}

impl Records {
    /// Adds the parts of a run of that variant.
    pub(super) fn extend(&mut self, variant: &Variant, parts: Vec<(Part<'_>, Run)>) {
        for (part, run) in parts {
            let own = &variant.scenario.name;
            let used_for = match part.link {
                Some(link) => format!("{own}/{link}"),
                None => own.clone(),
            };
            let key = (run.scenario.clone(), run.seed, run.system.clone());
            let place = *self.places.entry(key).or_insert(self.all.len());
            match self.all.get_mut(place) {
                Some(record) => record.used_for.push(used_for),
                None => self.all.push(Record {
                    run: without_series(run),
                    used_for: vec![used_for],
                }),
            }
        }
    }

    /// The runs, without their time series.
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> + Clone {
        self.all.iter().map(|record| &record.run)
    }

    /// One JSON line for each run.
    pub(super) fn lines(&self) -> String {
        let lines = self.all.iter().map(|Record { run, used_for }| {
            let mut value = record(run);
            if used_for.iter().any(|used| *used != run.scenario) {
                value["used_for"] = json!(used_for);
            }
            format!("{value}\n")
        });
        lines.collect()
    }
}

/// The run without its time series.
fn without_series(mut run: Run) -> Run {
    if let Outcome::Measured(figures) = &mut run.outcome {
        figures.goodput = Series::default();
        for flow in &mut figures.flows {
            flow.goodput = Series::default();
            flow.arrivals = Vec::new();
        }
        for link in &mut figures.links {
            link.rate = Series::default();
        }
    }
    run
}

/// The JSON line of a run; lists of values are reduced to medians.
fn record(run: &Run) -> Value {
    let mut fields = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    put("scenario", json!(run.scenario));
    put("seed", json!(run.seed));
    put("system", json!(run.system));
    put("started_unix_s", json!(run.started_unix_s));
    match &run.outcome {
        Outcome::Measured(figures) => measured(figures, &mut put),
        Outcome::Skipped { reason } => put("skipped", json!(reason)),
        Outcome::Refused { reason } => put("refused", json!(reason)),
        Outcome::Failed { reason } => put("failed", json!(reason.lines().next())),
    }
    Value::Object(fields)
}

/// The figures of a flow of datagrams.
fn datagrams(flow: &Datagrams) -> Value {
    let delay = |part: fn(&Quantiles) -> f64| flow.delay_ms.as_ref().map(|all| rounded(part(all)));
    json!({
        "link": flow.link,
        "direction": flow.direction,
        "sent": flow.sent,
        "lost": flow.lost,
        "surplus": flow.duplicates,
        "reordered": flow.reordered,
        "delay_p50_ms": delay(|all| all.p50),
        "delay_p95_ms": delay(|all| all.p95),
        "delay_p99_ms": delay(|all| all.p99),
        "jitter_ms": rounded(flow.jitter_ms),
        "gap_ms": rounded(flow.gap_ms),
        "mos": flow.call.map(|call| rounded(call.mos)),
    })
}

fn measured(figures: &Measurement, put: &mut dyn FnMut(&str, Value)) {
    put("goodput_bps", json!(figures.goodput_bps.round()));
    let mut links: BTreeMap<&str, f64> = BTreeMap::new();
    for flow in &figures.flows {
        if let Some(link) = &flow.link {
            *links.entry(link).or_default() += flow.goodput_bps.round();
        }
    }
    if !links.is_empty() {
        put("links_bps", json!(links));
    }
    let mut objects: BTreeMap<(u64, Option<&str>), Vec<f64>> = BTreeMap::new();
    for object in &figures.completions {
        let kind = (object.size_bytes, object.link.as_deref());
        objects.entry(kind).or_default().push(object.duration_s);
    }
    let objects: Vec<Value> = objects
        .into_iter()
        .filter_map(|((size, link), seconds)| {
            let seconds = Quantiles::of(seconds)?;
            let median = rounded(seconds.p50);
            Some(json!({ "bytes": size, "link": link, "median_s": median, "count": seconds.count }))
        })
        .collect();
    if !objects.is_empty() {
        put("objects", json!(objects));
    }
    if let Some(delays) = Quantiles::of(figures.message_delays_ms.iter().copied()) {
        put("delay_p50_ms", json!(rounded(delays.p50)));
        put("delay_p99_ms", json!(rounded(delays.p99)));
    }
    for (link, delays) in &figures.link_delays_ms {
        if let Some(delays) = Quantiles::of(delays.iter().copied()) {
            put(&format!("delay_p50_ms_{link}"), json!(rounded(delays.p50)));
        }
    }
    let flows: Vec<Value> = figures.datagrams.iter().map(datagrams).collect();
    if !flows.is_empty() {
        put("datagrams", json!(flows));
    }
    put("over_limit", json!(figures.over_limit));
    put("retransmissions", json!(figures.retransmissions));
    put("duplicates_bytes", json!(figures.duplicates_bytes));
    put("reorder_peak_bytes", json!(figures.reorder_peak_bytes));
    put(
        "in_order_wait_p99_s",
        json!(figures.in_order_wait_p99_s.map(rounded)),
    );
    put("rival_bps", json!(figures.rival_bps.map(f64::round)));
    if !figures.processes.is_empty() {
        let cpu: f64 = figures.processes.iter().map(|process| process.cpu_s).sum();
        put("cpu_s", json!(rounded(cpu)));
        let memory = figures.processes.iter().map(|p| p.peak_memory_bytes).max();
        put("peak_memory_bytes", json!(memory));
    }
    if let Some(seconds) = cpu_per_byte(figures) {
        put("cpu_s_per_gb_both_ends", json!(rounded(seconds * 1e9)));
    }
    put("emulator_cpu", json!(rounded(figures.emulator.cpu_share)));
    put(
        "late_p99_us",
        json!(figures.emulator.lateness_p99_us.round()),
    );
    if let Some(machine) = figures.machine {
        // A single run is the default and is not recorded.
        let company = (machine.runs_at_once > 1).then_some(machine.runs_at_once);
        put("runs_at_once", json!(company));
        put("runs_share", json!(rounded(machine.runs_share)));
        put("others_share", json!(rounded(machine.others_share)));
    }
    if !figures.note.is_empty() {
        put("note", json!(figures.note));
    }
}

/// Rounds to five significant digits: more are noise.
fn rounded(value: f64) -> f64 {
    let text = format!("{value:.4e}");
    text.parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::quantities::fixture::{alone, own, run};

    #[test]
    fn a_record_is_short_and_contains_the_figures_of_the_bars() {
        let record = record(&without_series(run("x", 3, own([98.0; 3]))));
        assert_eq!(record["goodput_bps"], 98e6);
        assert_eq!(record["duplicates_bytes"], 750_000);
        assert_eq!(record["reorder_peak_bytes"], 1_250_000);
        assert_eq!(record["delay_p50_ms"], 21.5);
        assert_eq!(record["objects"][0]["bytes"], 1000);
        assert!(record.to_string().len() < 700, "{record}");
        let links = super::record(&without_series(run("alone", 3, alone())));
        assert_eq!(links["links_bps"]["b"], 20e6);
        assert_eq!(links["delay_p50_ms_a"], 21.0);
    }

    #[test]
    fn numbers_are_rounded() {
        assert_eq!(rounded(1.234_567_8), 1.2346);
        assert_eq!(rounded(0.0), 0.0);
        assert!(rounded(f64::NAN).is_nan());
    }
}
