//! The figure of a run with one seed, relative to the links alone or to the reference.

use std::collections::BTreeMap;

use super::super::bar::Quantity;
use super::super::datagrams;
use super::cpu_per_byte;
use crate::config::Direction;
use crate::results::{Completion, Lag, Measurement, Series, quantile, sorted};
use crate::scenario::{Scenario, Workload};

/// A run of a system, and the links alone with the same seed, if measured.
pub(super) struct Seed<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) seed: u64,
    pub(super) own: &'a Measurement,
    pub(super) alone: Option<&'a Measurement>,
    /// CPU seconds per byte of the reference system, if it did not stall, or its goodput.
    pub(super) reference: Option<f64>,
}

impl Seed<'_> {
    pub(super) fn value(&self, quantity: Quantity, size: Option<u64>) -> Option<f64> {
        let goodput = self.own.goodput_bps;
        match quantity {
            Quantity::Goodput => Some(goodput),
            Quantity::Cpu => Some(cpu_per_byte(self.own)? / self.reference?),
            Quantity::OfSocks => Some(goodput / self.reference?),
            Quantity::Memory => {
                let all = self.own.processes.iter();
                let peaks = all.map(|process| process.peak_memory_bytes as f64);
                peaks.reduce(f64::max)
            }
            Quantity::Open => Some(self.own.connections?.open as f64),
            Quantity::Latency => median(self.own.message_delays_ms.iter().copied()),
            Quantity::FirstByte => self.own.first_byte_s,
            Quantity::Sum => Some(goodput / self.links_alone().values().sum::<f64>()),
            Quantity::Best => Some(goodput / self.best_alone()?),
            Quantity::Left => Some(goodput / self.over_ways(Scenario::left_bps)),
            Quantity::SecondsBelow => self.seconds_below(),
            Quantity::Lag => {
                let lag = Lag::of(self.own, self.alone?)?;
                Some(lag.greatest_s / lag.limit_s)
            }
            Quantity::OverLimit => self.own.over_limit.map(|objects| objects as f64),
            Quantity::Completion { .. } => {
                let best = self.alone_completions(size?).into_iter().reduce(f64::min)?;
                Some(completion(self.own, size?, None)? / best)
            }
            Quantity::ObjectSum { .. } => {
                let links = self.alone_completions(size?);
                let sum: f64 = links.iter().map(|seconds| seconds.recip()).sum();
                Some(completion(self.own, size?, None)?.recip() / sum)
            }
            Quantity::Added => {
                let links = self.alone?.link_delays_ms.values();
                let best = links.filter_map(|ms| median(ms.iter().copied()));
                Some(median(self.own.message_delays_ms.iter().copied())? - best.reduce(f64::min)?)
            }
            Quantity::Duplicates => {
                // Duplicates are counted from the start, warm-up included.
                let bytes = bytes_of(&self.own.goodput) + self.questions();
                Some(self.own.duplicates_bytes? as f64 / bytes)
            }
            Quantity::Reorder => {
                let rtt = self.scenario.largest_rtt(self.seed).as_secs_f64();
                let in_flight = self.over_ways(Scenario::rates_bps) / 8.0 * rtt;
                Some(self.own.reorder_peak_bytes? as f64 / in_flight)
            }
            Quantity::LostDatagrams
            | Quantity::Loss
            | Quantity::Gap
            | Quantity::Delay { .. }
            | Quantity::RoundTrip { .. } => {
                datagrams::value(quantity, self.own, self.alone, self.scenario, self.seed)
            }
            Quantity::Rival => {
                let link = self.scenario.rival.as_ref()?;
                let alone = self.links_alone().get(link.as_str()).copied()?;
                let whole = alone + self.alone?.rival_bps?;
                Some(self.own.rival_bps? / (whole / 2.0))
            }
        }
    }

    /// Bytes of questions: they are delivered like the answers, and duplicates are counted for
    /// both.
    fn questions(&self) -> f64 {
        match &self.scenario.workload {
            Workload::Requests {
                request, answer, ..
            } => {
                // The flow that asks questions precedes the one that loads the links.
                let answers = self
                    .own
                    .flows
                    .first()
                    .map_or(0.0, |flow| bytes_of(&flow.goodput));
                answers * *request as f64 / *answer as f64
            }
            _ => 0.0,
        }
    }

    /// Goodput of each link alone.
    fn links_alone(&self) -> BTreeMap<&str, f64> {
        let mut links = BTreeMap::new();
        for flow in self.alone.into_iter().flat_map(|alone| &alone.flows) {
            if let Some(link) = &flow.link {
                *links.entry(link.as_str()).or_default() += flow.goodput_bps;
            }
        }
        links
    }

    fn best_alone(&self) -> Option<f64> {
        self.links_alone().values().copied().reduce(f64::max)
    }

    /// Median completion times of an object on each link alone that delivered it.
    fn alone_completions(&self, size: u64) -> Vec<f64> {
        let Some(alone) = self.alone else {
            return Vec::new();
        };
        let links = self.scenario.links();
        links
            .filter_map(|link| completion(alone, size, Some(&link.name)))
            .collect()
    }

    /// Whole seconds after the warm-up that delivered less than the best link alone in the same
    /// second.
    fn seconds_below(&self) -> Option<f64> {
        let own = whole_seconds(&self.own.goodput);
        let links: Vec<Vec<f64>> = self
            .alone?
            .flows
            .iter()
            .filter(|flow| flow.link.is_some())
            .map(|flow| whole_seconds(&flow.goodput))
            .collect();
        if links.is_empty() {
            return None;
        }
        let first = self.scenario.warmup.as_secs_f64().ceil() as usize;
        let below = own.iter().enumerate().skip(first).filter(|(second, own)| {
            let alone = links.iter().filter_map(|link| link.get(*second));
            alone.copied().fold(0.0, f64::max) > **own
        });
        Some(below.count() as f64)
    }

    /// A property of the scenario's links, summed over the directions of the traffic.
    fn over_ways(&self, property: fn(&Scenario, Direction, u64) -> f64) -> f64 {
        let ways = self.scenario.traffic.directions().iter();
        ways.map(|way| property(self.scenario, *way, self.seed))
            .sum()
    }
}

/// Median completion time of objects of a size, optionally only of flows bound to `link`.
fn completion(of: &Measurement, size: u64, link: Option<&str>) -> Option<f64> {
    let wanted = |object: &&Completion| {
        object.size_bytes == size && link.is_none_or(|link| object.link.as_deref() == Some(link))
    };
    median(
        of.completions
            .iter()
            .filter(wanted)
            .map(|object| object.duration_s),
    )
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    quantile(&sorted(values), 0.5)
}

/// All delivered bytes, warm-up included.
fn bytes_of(series: &Series) -> f64 {
    series.bps.iter().sum::<f64>() * series.interval_s / 8.0
}

/// Means over the seconds that a series covers completely.
fn whole_seconds(series: &Series) -> Vec<f64> {
    let in_a_second = (1.0 / series.interval_s).round();
    if !(1.0..=1e6).contains(&in_a_second) {
        return Vec::new();
    }
    let seconds = series.bps.chunks_exact(in_a_second as usize);
    seconds
        .map(|second| second.iter().sum::<f64>() / in_a_second)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Measured;
    use super::super::fixture::{alone, flow, own, run, scenario};
    use super::*;
    use crate::results::ALONE;

    fn value(more: &str, quantity: Quantity, size: Option<u64>) -> f64 {
        let scenario = scenario(more);
        let runs = [
            run(ALONE, 1, alone()),
            run("x", 1, own([100.0, 95.0, 70.0])),
        ];
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        let values = measured.values(quantity, size, "x");
        assert_eq!(values.len(), 1, "{quantity:?}");
        (values[0] * 1e6).round() / 1e6
    }

    #[test]
    fn figures_are_relative_to_the_links() {
        assert_eq!(value("", Quantity::Sum, None), 0.825);
        assert_eq!(value("", Quantity::Best, None), 1.031_25);
        // 80 + 20 x 0.98.
        assert_eq!(value("", Quantity::Left, None), 0.828_313);
        // The second second delivered 95, the third 70, less than the best link's 80.
        assert_eq!(value("", Quantity::SecondsBelow, None), 1.0);
        assert_eq!(value("", Quantity::OverLimit, None), 2.0);
        assert_eq!(value("", Quantity::Added, None), 0.5);
        // 265 Mbit in three seconds are 33.125 MB.
        assert_eq!(value("", Quantity::Duplicates, None), 0.022_642);
        // 100 Mbit/s in 2 x 25 + 50 ms are 1.25 MB.
        assert_eq!(value("", Quantity::Reorder, None), 1.0);
    }

    #[test]
    fn questions_count_as_delivered_bytes() {
        let scenario = scenario("workload = { kind = \"requests\" }");
        let answers = own([10.0; 3]);
        let asked = Measurement {
            flows: vec![flow("a", [10.0; 3])],
            ..answers
        };
        let runs = [run("x", 1, asked)];
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        // 30 Mbit of answers, and a tenth of that in questions.
        let values = measured.values(Quantity::Duplicates, None, "x");
        assert_eq!(values, [750_000.0 / (3_750_000.0 + 375_000.0)]);
    }

    #[test]
    fn objects_are_compared_by_size() {
        let up_to = Quantity::Completion { up_to: 100_000 };
        assert_eq!(value("", up_to, Some(1000)), 1.25);
        // 10 objects per second; the links alone deliver 10 and 2.5.
        let above = Quantity::ObjectSum { above: 100_000 };
        assert_eq!(value("", above, Some(1_000_000)), 0.8);
        let files = "workload = { kind = \"files\", sizes = [\"2MB\", \"1MB\", \"1kB\"] }";
        let scenario = scenario(files);
        let measured = Measured {
            scenario: &scenario,
            runs: &[],
        };
        assert_eq!(measured.sizes(up_to), [Some(1000)]);
        assert_eq!(measured.sizes(above), [Some(1_000_000)]);
        assert_eq!(measured.sizes(Quantity::Sum), [None]);
    }

    #[test]
    fn a_rival_has_an_equal_share_of_its_link() {
        // The link carried 80 alone, and 20 with the rival, whose equal share is half of 80 + 20:
        // 50.
        assert_eq!(value("rival = \"a\"", Quantity::Rival, None), 0.9);
    }
}
