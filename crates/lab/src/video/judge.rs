//! Evaluates the runs of a scenario: medians over the seeds, compared with the bars.

use serde::Serialize;

use crate::results::{Flow, Measurement, Outcome, Run, Spread, Video};
use crate::scenario::Scenario;

use super::ALONE;

/// Links are comparable if the slowest has at least this share of the fastest one's goodput.
pub(super) const COMPARABLE: f64 = 0.5;
/// Required share of the sum of comparable links.
pub(super) const OF_SUM: f64 = 0.95;
/// Required share of the best link, for links that are not comparable.
pub(super) const OF_BEST: f64 = 1.0;

/// Systems with a bar start with this; research schedulers are there for comparison.
const OURS: &str = "sumlink:fbdt";

/// A scenario with its runs.
pub(super) struct Judged<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) video: Vec<Run>,
    pub(super) bulk: Vec<Run>,
    pub(super) rows: Vec<Row>,
    /// Goodput of each link alone, in bit/s.
    pub(super) links: Vec<f64>,
}

/// A system, or a single link; medians over the seeds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) scenario: String,
    pub(super) system: String,
    /// The link, if it was measured alone.
    pub(super) link: Option<String>,
    pub(super) seeds: usize,
    /// Goodput of bulk traffic.
    pub(super) goodput_bps: Option<f64>,
    pub(super) of_sum: Option<f64>,
    pub(super) of_best: Option<f64>,
    /// Whether the bar is met; `None` for systems without a bar.
    pub(super) reached: Option<bool>,
    pub(super) video: Option<Figures>,
    /// Share of the processors that other programs used while the video ran, in the busiest run,
    /// 0..=1: without idle time the camera is late, and the delay is that of the machine.
    pub(super) others_share: Option<f64>,
    /// Why there are no figures.
    pub(super) missing: Option<String>,
}

/// Figures of a video; each is the median over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) bitrate_bps: f64,
    pub(super) frames: f64,
    pub(super) late: f64,
    pub(super) lost: f64,
    pub(super) stall_s: f64,
    pub(super) stalls: f64,
    pub(super) delay_p50_ms: f64,
    pub(super) delay_p99_ms: f64,
    pub(super) delay_max_ms: f64,
}

/// Evaluates the runs of a scenario, with the video and with bulk traffic.
pub(super) fn judge(scenario: &Scenario, video: Vec<Run>, bulk: Vec<Run>) -> Judged<'_> {
    let links: Vec<String> = scenario.links().map(|link| link.name.clone()).collect();
    let alone: Vec<f64> = links
        .iter()
        .filter_map(|link| goodput(&bulk, ALONE, Some(link)))
        .collect();
    let mut systems: Vec<&str> = Vec::new();
    for run in video.iter().chain(&bulk) {
        if !systems.contains(&run.system.as_str()) {
            systems.push(&run.system);
        }
    }
    let mut rows = Vec::new();
    for system in systems {
        let places: Vec<Option<&str>> = match system {
            ALONE => links.iter().map(|link| Some(link.as_str())).collect(),
            _ => vec![None],
        };
        for link in places {
            let goodput_bps = goodput(&bulk, system, link);
            // Sum and best link are known only if every link was measured.
            let known = alone.len() == links.len();
            let part = |of: f64| {
                goodput_bps
                    .filter(|_| known && of > 0.0)
                    .map(|bps| bps / of)
            };
            let (of_sum, of_best) = (part(alone.iter().sum()), part(best(&alone)));
            rows.push(Row {
                scenario: scenario.name.clone(),
                system: system.to_owned(),
                link: link.map(str::to_owned),
                seeds: video.iter().filter(|run| run.system == system).count(),
                goodput_bps,
                of_sum,
                of_best,
                reached: system
                    .starts_with(OURS)
                    .then(|| reached(&alone, of_sum, of_best))
                    .flatten(),
                video: figures(&video, system, link),
                others_share: others_share(&video, system),
                missing: missing(&video, system).or_else(|| missing(&bulk, system)),
            });
        }
    }
    Judged {
        scenario,
        video,
        bulk,
        rows,
        links: alone,
    }
}

impl Judged<'_> {
    pub(super) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.video.iter().chain(&self.bulk)
    }

    /// Systems that miss their bar, or lack the figures for it.
    pub(super) fn short(&self) -> impl Iterator<Item = String> {
        let short = |row: &&Row| {
            let is_ours = row.system.starts_with(OURS);
            is_ours && (row.reached != Some(true) || row.video.is_none_or(|video| video.lost > 0.0))
        };
        let rows = self.rows.iter().filter(short);
        rows.map(|row| format!("{} {}", row.scenario, row.system))
    }

    /// Whether the links are comparable.
    pub(super) fn comparable(&self) -> bool {
        comparable(&self.links)
    }
}

fn others_share(runs: &[Run], system: &str) -> Option<f64> {
    let of_system = runs.iter().filter(|run| run.system == system);
    let shares = of_system.filter_map(|run| match &run.outcome {
        Outcome::Measured(figures) => Some(figures.machine.as_ref()?.others_share),
        _ => None,
    });
    shares.max_by(f64::total_cmp)
}

fn best(links: &[f64]) -> f64 {
    links.iter().copied().fold(0.0, f64::max)
}

fn comparable(links: &[f64]) -> bool {
    let least = links.iter().copied().fold(f64::INFINITY, f64::min);
    least >= COMPARABLE * best(links)
}

fn reached(links: &[f64], of_sum: Option<f64>, of_best: Option<f64>) -> Option<bool> {
    match comparable(links) {
        true => of_sum.map(|part| part >= OF_SUM),
        false => of_best.map(|part| part >= OF_BEST),
    }
}

/// The measurements of a system.
fn measured<'a>(runs: &'a [Run], system: &str) -> impl Iterator<Item = &'a Measurement> {
    let of_system = runs.iter().filter(move |run| run.system == system);
    of_system.filter_map(|run| match &run.outcome {
        Outcome::Measured(figures) => Some(figures.as_ref()),
        _ => None,
    })
}

fn goodput(runs: &[Run], system: &str, link: Option<&str>) -> Option<f64> {
    let of_flow = |flow: &&Flow| link.is_none() || flow.link.as_deref() == link;
    let sums = measured(runs, system).map(|figures| {
        let flows = figures.flows.iter().filter(of_flow);
        flows.map(|flow| flow.goodput_bps).sum::<f64>()
    });
    Spread::of(sums).map(|spread| spread.median)
}

fn figures(runs: &[Run], system: &str, link: Option<&str>) -> Option<Figures> {
    let of_link = |video: &&Video| video.link.as_deref() == link;
    let videos: Vec<&Video> = measured(runs, system)
        .flat_map(|figures| figures.videos.iter().filter(of_link))
        .collect();
    let median = |pick: fn(&Video) -> f64| {
        let spread = Spread::of(videos.iter().map(|video| pick(video)));
        spread.map(|spread| spread.median)
    };
    Some(Figures {
        bitrate_bps: median(|video| video.bitrate_bps)?,
        frames: median(|video| video.frames as f64)?,
        late: median(|video| video.late as f64)?,
        lost: median(|video| video.lost as f64)?,
        stall_s: median(|video| video.stall_s)?,
        stalls: median(|video| video.stalls as f64)?,
        delay_p50_ms: median(|video| video.delay_p50_ms)?,
        delay_p99_ms: median(|video| video.delay_p99_ms)?,
        delay_max_ms: median(|video| video.delay_max_ms)?,
    })
}

fn missing(runs: &[Run], system: &str) -> Option<String> {
    let mut of_system = runs.iter().filter(|run| run.system == system);
    of_system.find_map(|run| match &run.outcome {
        Outcome::Measured(_) => None,
        Outcome::Skipped { reason } => Some(format!("skipped: {reason}")),
        Outcome::Refused { reason } => Some(format!("refused: {reason}")),
        Outcome::Failed { reason } => Some(format!(
            "failed: {}",
            reason.lines().next().unwrap_or_default()
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparable_links_require_the_sum_and_others_the_best_link() {
        assert_eq!(reached(&[4e6, 5e6], Some(0.94), Some(1.7)), Some(false));
        assert_eq!(reached(&[4e6, 5e6], Some(0.95), Some(1.7)), Some(true));
        assert_eq!(reached(&[1e6, 5e6], Some(0.84), Some(1.01)), Some(true));
        assert_eq!(reached(&[1e6, 5e6], Some(0.82), Some(0.99)), Some(false));
        assert_eq!(reached(&[1e6, 5e6], None, None), None);
    }
}
