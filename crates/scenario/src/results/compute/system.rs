//! Summarizes one system over all seeds.

use std::collections::{BTreeMap, HashMap};

use super::super::summary::{LinkPart, Missing, Quantiles, Spread, SystemSummary};
use super::super::{DatagramSummary, Lag, Measurement, Run};
use super::{ALONE, figures, link_goodput};

/// The capacities C_i of one seed.
pub(super) struct Capacity<'a> {
    sum: f64,
    max: f64,
    alone: &'a Measurement,
}

/// Goodput of the links alone, for each seed.
pub(super) fn capacities<'a>(runs: &[&'a Run]) -> HashMap<u64, Capacity<'a>> {
    let alone = runs.iter().filter(|run| run.system == ALONE);
    alone
        .filter_map(|run| {
            let alone = figures(run).ok()?;
            let mut links: BTreeMap<&str, f64> = BTreeMap::new();
            for flow in &alone.flows {
                *links.entry(flow.link.as_deref()?).or_default() += flow.goodput_bps;
            }
            let sum: f64 = links.values().sum();
            let max = links.values().copied().fold(0.0, f64::max);
            (sum.is_finite() && sum > 0.0).then_some((run.seed, Capacity { sum, max, alone }))
        })
        .collect()
}

/// The figures of a system, and the reasons for missing ones.
pub(super) fn of_system(
    system: &str,
    runs: &[&Run],
    links: &[&str],
    capacities: &HashMap<u64, Capacity<'_>>,
    seeds: usize,
) -> SystemSummary {
    let mut missing: Vec<Missing> = Vec::new();
    let mut note = |kind: &str, reason: String, runs: usize| match missing
        .iter_mut()
        .find(|m| m.kind == kind && m.reason == reason)
    {
        Some(known) => known.runs += runs,
        None => missing.push(Missing {
            kind: kind.to_owned(),
            reason,
            runs,
        }),
    };
    let mut measured: Vec<(u64, &Measurement)> = Vec::new();
    for run in runs {
        match figures(run) {
            Ok(figures) => measured.push((run.seed, figures)),
            Err((kind, reason)) => note(kind, reason, 1),
        }
    }
    if seeds > runs.len() {
        note("not run", "not run yet".to_owned(), seeds - runs.len());
    }
    let all = || measured.iter().map(|(_, figures)| *figures);
    // The links alone are not compared with themselves.
    let compared: Vec<(f64, &Capacity<'_>)> = measured
        .iter()
        .filter(|_| system != ALONE)
        .filter_map(|(seed, figures)| Some((figures.goodput_bps, capacities.get(seed)?)))
        .collect();
    let lags: Vec<Lag> = measured
        .iter()
        .filter(|(_, figures)| figures.flows.iter().all(|flow| flow.link.is_none()))
        .filter_map(|(seed, figures)| Lag::of(figures, capacities.get(seed)?.alone))
        .collect();
    SystemSummary {
        system: system.to_owned(),
        runs: measured.len(),
        goodput_bps: Spread::of(all().map(|run| run.goodput_bps)),
        completion_s: Quantiles::of(
            all().flat_map(|run| run.completions.iter().map(|object| object.duration_s)),
        ),
        over_limit: Spread::of(all().filter_map(|run| run.over_limit.map(|n| n as f64))),
        message_delay_ms: Quantiles::of(
            all().flat_map(|run| run.message_delays_ms.iter().copied()),
        ),
        datagrams: DatagramSummary::of_all(all()),
        aggregation_ratio: Spread::of(compared.iter().map(|(x, c)| x / c.sum)),
        aggregation_benefit: Spread::of(compared.iter().filter_map(|(x, c)| benefit(*x, c))),
        below_best: compared.iter().filter(|(x, c)| *x < c.max).count(),
        lag_ms: Spread::of(lags.iter().map(|lag| lag.greatest_s * 1e3)),
        lag_above_s: Spread::of(lags.iter().map(|lag| lag.above_s)),
        in_order_wait_p99_ms: Spread::of(
            all().filter_map(|run| Some(run.in_order_wait_p99_s? * 1e3)),
        ),
        // For links measured one at a time, different goodputs are not a sign of unfairness.
        fairness: Spread::of(all().filter(|_| system != ALONE).filter_map(jain)),
        links: links
            .iter()
            .filter_map(|link| {
                Some(LinkPart {
                    link: (*link).to_owned(),
                    goodput_bps: Spread::of(all().filter_map(|run| link_goodput(run, link)))?,
                })
            })
            .collect(),
        retransmissions: Spread::of(all().filter_map(|run| run.retransmissions.map(|n| n as f64))),
        duplicates_bytes: Spread::of(
            all().filter_map(|run| run.duplicates_bytes.map(|n| n as f64)),
        ),
        cpu_share: Spread::of(all().filter_map(|run| {
            let cpu: f64 = run.processes.iter().map(|process| process.cpu_s).sum();
            (!run.processes.is_empty() && run.duration_s > 0.0).then(|| cpu / run.duration_s)
        })),
        peak_memory_bytes: Spread::of(all().filter_map(|run| {
            let peaks = run
                .processes
                .iter()
                .map(|process| process.peak_memory_bytes);
            peaks.max().map(|bytes| bytes as f64)
        })),
        missing,
    }
}

/// WhiteHaul dissertation, eq. 3.2; `None` for a single link, where no gain is possible.
fn benefit(x: f64, capacity: &Capacity<'_>) -> Option<f64> {
    let Capacity { sum, max, .. } = *capacity;
    let value = if x >= max {
        (x - max) / (sum - max)
    } else {
        (x - max) / max
    };
    value.is_finite().then_some(value)
}

/// Jain's index (DEC-TR-301): (sum x)^2 / (n sum x^2).
fn jain(figures: &Measurement) -> Option<f64> {
    let (count, sum, squares) = figures
        .flows
        .iter()
        .map(|flow| flow.goodput_bps)
        .fold((0.0, 0.0, 0.0), |(n, sum, squares), x| {
            (n + 1.0, sum + x, squares + x * x)
        });
    (count > 1.0 && squares > 0.0).then(|| sum * sum / (count * squares))
}
