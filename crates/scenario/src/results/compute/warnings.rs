//! Warnings about inconsistent figures.

use super::super::Run;
use super::super::summary::Summary;
use super::SIMULTANEOUS;

/// Averages may exceed a bound by this share because of the noise between seeds.
const TOLERANCE: f64 = 0.05;

/// Warnings about inconsistent figures, and violations of eq. 5.3.
pub(super) fn warnings(summary: &Summary, runs: &[&Run]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |text: String| warnings.push(text);
    let of = &summary.environment;
    let differs = runs.iter().any(|run| {
        let other = &run.environment;
        other.kernel != of.kernel
            || other.processors != of.processors
            || other.sumlink != of.sumlink
            || other.congestion != of.congestion
            || other.socket_buffer_max_bytes != of.socket_buffer_max_bytes
    });
    if differs {
        warn(
            "runs of different kernels, versions, congestion controls or socket buffers are mixed \
             here: repeat them all in a new directory"
                .to_owned(),
        );
    }
    let megabits = |bps: f64| format!("{:.1} Mbit/s", bps / 1e6);
    if let (Some(at_once), Some(alone)) = (
        summary.bounds.sum_simultaneous_bps,
        summary.bounds.sum_alone_bps,
    ) && at_once > alone * (1.0 + TOLERANCE)
    {
        warn(format!(
            "all links at once delivered {}, more than the links alone together ({}): they were \
             not the same in both measurements",
            megabits(at_once),
            megabits(alone)
        ));
    }
    for system in &summary.systems {
        if let Some(ratio) = &system.aggregation_ratio
            && system.system != SIMULTANEOUS
            && ratio.median > 1.0 + TOLERANCE
        {
            warn(format!(
                "{} delivered {:.2} times the sum of the links alone: one of the two measurements \
                 is wrong",
                system.system, ratio.median
            ));
        }
    }
    if summary.alone.is_empty() && !runs.is_empty() {
        warn(
            "the links alone were not measured: there is nothing to compare the systems with (add \
             alone to systems)"
                .to_owned(),
        );
    }
    warnings
}
