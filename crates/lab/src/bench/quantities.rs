//! The figures that bars are compared with, for each seed.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Direction;
use crate::results::{ALONE, Completion, Lag, Measurement, Run, Series, figures, quantile, sorted};
use crate::scenario::{Scenario, Workload};

use super::bar::Quantity;
use super::datagrams;

/// The measurements of one variant of a row.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) runs: &'a [Run],
}

/// A reference below this share of the judged system's goodput has stalled.
const STALLED: f64 = 0.1;

/// A run of a system, and the links alone with the same seed, if measured.
struct Seed<'a> {
    scenario: &'a Scenario,
    seed: u64,
    own: &'a Measurement,
    alone: Option<&'a Measurement>,
    /// CPU seconds per byte of the reference system, if it did not stall, or its goodput.
    reference: Option<f64>,
}

impl<'a> Measured<'a> {
    /// The runs of a system.
    pub(super) fn of(&self, system: &str) -> impl Iterator<Item = &'a Run> + use<'a> {
        let system = system.to_owned();
        self.runs.iter().filter(move |run| run.system == system)
    }

    /// The seeds with figures of the system, and of the links alone where the quantity needs them.
    fn seeds(&self, quantity: Quantity, system: &str) -> Vec<Seed<'a>> {
        let alone: BTreeMap<u64, &Measurement> = self
            .of(ALONE)
            .filter_map(|run| Some((run.seed, figures(run).ok()?)))
            .collect();
        self.of(system)
            .filter_map(|run| {
                let own = figures(run).ok()?;
                Some(Seed {
                    scenario: self.scenario,
                    seed: run.seed,
                    own,
                    alone: alone.get(&run.seed).copied(),
                    reference: self.reference(quantity, system, run.seed, own),
                })
            })
            .filter(|seed| seed.alone.is_some() || !quantity.needs_links())
            .filter(|seed| seed.reference.is_some() || quantity.reference(system).is_none())
            .collect()
    }

    /// The reference of a run. For its CPU time the cheapest of all seeds, since a stalling
    /// connection costs more per byte. A connection that reached less than [`STALLED`] of the run's
    /// goodput is no reference. For its goodput that of the run that was done beside it.
    fn reference(
        &self,
        quantity: Quantity,
        system: &str,
        seed: u64,
        own: &Measurement,
    ) -> Option<f64> {
        let mut runs = self.of(&quantity.reference(system)?);
        if quantity == Quantity::OfSocks {
            let beside = runs.find(|run| run.seed == seed)?;
            return figures(beside).ok().map(|figures| figures.goodput_bps);
        }
        let runs = runs.filter_map(|run| figures(run).ok());
        let runs = runs.filter(|figures| figures.goodput_bps >= own.goodput_bps * STALLED);
        runs.filter_map(cpu_per_byte).reduce(f64::min)
    }

    /// The reason why a quantity has no figure, if every run of its reference stalled.
    pub(super) fn stalled(&self, quantity: Quantity, system: &str) -> Option<String> {
        if quantity == Quantity::OfSocks {
            return None;
        }
        let reference = &*quantity.reference(system)?;
        let measured = |system: &str| self.of(system).filter_map(|run| figures(run).ok());
        let goodput = |system: &str| measured(system).map(|figures| figures.goodput_bps);
        let best = goodput(reference).reduce(f64::max)?;
        let all_stalled =
            measured(system).all(|own| self.reference(quantity, system, 0, own).is_none());
        let own = goodput(system).reduce(f64::min).filter(|_| all_stalled)?;
        Some(format!(
            "{reference} stalled: {:.1} Mbit/s at best, less than a tenth of the {:.0} Mbit/s of \
             {system}",
            best / 1e6,
            own / 1e6
        ))
    }

    /// The number of seeds for which the system should have the figure.
    pub(super) fn comparable(&self, quantity: Quantity, system: &str) -> usize {
        self.seeds(quantity, system).len()
    }

    /// The figures of a system over the seeds, for objects of that size where the quantity is about
    /// objects.
    pub(super) fn values(&self, quantity: Quantity, size: Option<u64>, system: &str) -> Vec<f64> {
        self.values_where(quantity, size, system, |_| true)
    }

    /// The same for selected seeds.
    pub(super) fn values_where(
        &self,
        quantity: Quantity,
        size: Option<u64>,
        system: &str,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Vec<f64> {
        let seeds = self.seeds(quantity, system);
        let wanted = seeds.iter().filter(|seed| is_wanted(seed.seed));
        let values = wanted.filter_map(|seed| seed.value(quantity, size));
        values.filter(|value| value.is_finite()).collect()
    }

    /// The seeds that all of these systems have, ignoring systems without any. Figures are compared
    /// over the same seeds only, since others may come from a different machine.
    pub(super) fn common_seeds(&self, systems: &[String]) -> BTreeSet<u64> {
        let seeds_of = |system: &String| -> BTreeSet<u64> {
            let with_figures = self.of(system).filter(|run| figures(run).is_ok());
            with_figures.map(|run| run.seed).collect()
        };
        let all = systems
            .iter()
            .map(seeds_of)
            .filter(|seeds| !seeds.is_empty());
        all.reduce(|common, seeds| &common & &seeds)
            .unwrap_or_default()
    }

    /// The object sizes that a quantity applies to; a single `None` where it is not about objects.
    pub(super) fn sizes(&self, quantity: Quantity) -> Vec<Option<u64>> {
        let mut all = match &self.scenario.workload {
            Workload::Files {
                sizes, count, cold, ..
            } => {
                // The first object starts at once, and objects that start during the warm-up have
                // no figure. With `cold` each object is the first of its own laboratory, and such
                // rows have no warm-up.
                let warms = !(*cold || *count > 1 || self.scenario.warmup.is_zero());
                sizes.iter().skip(usize::from(warms)).copied().collect()
            }
            _ => Vec::new(),
        };
        match quantity {
            Quantity::Completion { up_to } => all.retain(|size| *size <= up_to),
            Quantity::ObjectSum { above } => all.retain(|size| *size > above),
            _ => return vec![None],
        }
        all.sort_unstable();
        all.dedup();
        all.into_iter().map(Some).collect()
    }
}

impl Seed<'_> {
    fn value(&self, quantity: Quantity, size: Option<u64>) -> Option<f64> {
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

/// CPU seconds per delivered byte of all programs, the traffic programs included.
pub(super) fn cpu_per_byte(of: &Measurement) -> Option<f64> {
    let system: f64 = of.processes.iter().map(|process| process.cpu_s).sum();
    let seconds = (system + of.traffic_cpu_s?) / of.bytes as f64;
    (seconds > 0.0 && seconds.is_finite()).then_some(seconds)
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
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::results::{Flow, Outcome, Process, Run};

    /// Two links of 80 and 20 Mbit/s with 10 ms and 25 ms one way, queues of 50 ms, 2 % loss on the second.
    pub(in crate::bench) fn scenario(more: &str) -> Scenario {
        let text = format!(
            "name = \"s\"\nduration = \"3s\"\nwarmup = \"1s\"\n{more}\n[[link]]\nname = \"a\"\n\
             rate = \"80mbit\"\n\
             delay = \"10ms\"\nqueue = \"50ms\"\n[[link]]\nname = \"b\"\nrate = \"20mbit\"\n\
             delay = \"25ms\"\n\
             queue = \"50ms\"\nloss = \"2%\"\n"
        );
        Scenario::parse(Path::new("s.toml"), &text).unwrap()
    }

    fn series(mbps: [f64; 3]) -> Series {
        Series {
            start_s: 0.0,
            interval_s: 0.5,
            bps: mbps
                .iter()
                .flat_map(|mbps| [mbps * 0.5e6, mbps * 1.5e6])
                .collect(),
        }
    }

    pub(in crate::bench) fn flow(link: &str, mbps: [f64; 3]) -> Flow {
        Flow {
            link: Some(link.to_owned()),
            direction: "down".to_owned(),
            goodput_bps: (mbps[1] + mbps[2]) * 0.5e6,
            goodput: series(mbps),
            arrivals: Vec::new(),
        }
    }

    pub(in crate::bench) fn run(system: &str, seed: u64, figures: Measurement) -> Run {
        Run::bare(system, seed, Outcome::Measured(Box::new(figures)))
    }

    fn object(link: Option<&str>, size_bytes: u64, duration_s: f64) -> Completion {
        Completion {
            size_bytes,
            start_s: 1.0,
            duration_s,
            link: link.map(str::to_owned),
        }
    }

    pub(in crate::bench) fn alone() -> Measurement {
        Measurement {
            flows: vec![flow("a", [80.0, 80.0, 80.0]), flow("b", [20.0, 20.0, 20.0])],
            completions: vec![
                object(Some("a"), 1000, 0.02),
                object(Some("b"), 1000, 0.05),
                object(Some("a"), 1_000_000, 0.1),
                object(Some("b"), 1_000_000, 0.4),
            ],
            link_delays_ms: [
                ("a".to_owned(), vec![21.0, 20.0, 22.0]),
                ("b".to_owned(), vec![50.0]),
            ]
            .into(),
            rival_bps: Some(20e6),
            ..Measurement::default()
        }
    }

    pub(in crate::bench) fn own(mbps: [f64; 3]) -> Measurement {
        Measurement {
            goodput_bps: (mbps[1] + mbps[2]) * 0.5e6,
            goodput: series(mbps),
            completions: vec![object(None, 1000, 0.025), object(None, 1_000_000, 0.1)],
            message_delays_ms: vec![21.5, 21.5, 90.0],
            duplicates_bytes: Some(750_000),
            reorder_peak_bytes: Some(1_250_000),
            rival_bps: Some(45e6),
            over_limit: Some(2),
            ..Measurement::default()
        }
    }

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
    fn an_object_in_the_warm_up_is_not_judged() {
        let above = Quantity::ObjectSum { above: 100_000 };
        let sizes = |more: &str| {
            let files =
                format!("workload = {{ kind = \"files\", sizes = [\"20MB\", \"1GB\"]{more} }}");
            let mut scenario = scenario(&files);
            let of = |scenario: &Scenario| {
                let measured = Measured {
                    scenario,
                    runs: &[],
                };
                measured.sizes(above)
            };
            let with = of(&scenario);
            scenario.warmup = std::time::Duration::ZERO;
            [with, of(&scenario)]
        };
        let (one, both) = (
            vec![Some(1_000_000_000)],
            vec![Some(20_000_000), Some(1_000_000_000)],
        );
        assert_eq!(sizes(""), [one, both.clone()]);
        // The size appears again for the warm session.
        assert_eq!(sizes(", count = 2"), [both.clone(), both.clone()]);
        assert_eq!(sizes(", cold = true"), [both.clone(), both]);
    }

    #[test]
    fn a_rival_has_an_equal_share_of_its_link() {
        // The link carried 80 alone, and 20 with the rival, whose equal share is half of 80 + 20:
        // 50.
        assert_eq!(value("rival = \"a\"", Quantity::Rival, None), 0.9);
    }

    /// A measurement of `bytes` delivered, with the CPU seconds of the system's programs and of the
    /// traffic programs.
    pub(in crate::bench) fn took(bytes: u64, system_s: &[f64], traffic_cpu_s: f64) -> Measurement {
        let of_process = |cpu_s: &f64| Process {
            cpu_s: *cpu_s,
            ..Process::default()
        };
        Measurement {
            bytes,
            processes: system_s.iter().map(of_process).collect(),
            traffic_cpu_s: Some(traffic_cpu_s),
            goodput_bps: bytes as f64 * 1e6,
            ..Measurement::default()
        }
    }

    #[test]
    fn cpu_time_is_that_of_all_programs_for_each_byte() {
        let scenario = scenario("");
        let runs = [
            run("x", 1, took(1000, &[1.0, 2.0], 3.0)),
            run("x", 2, took(1000, &[1.5], 1.5)),
            run("mptcp+tls", 1, took(2000, &[], 6.0)),
            // Stalled runs.
            run("mptcp+tls", 2, took(100, &[], 1.0)),
            run("mptcp+tls", 3, took(0, &[], 1.0)),
        ];
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        assert_eq!(measured.values(Quantity::Cpu, None, "x"), [2.0, 1.0]);
        assert_eq!(measured.stalled(Quantity::Cpu, "x"), None);
        let without = Measured {
            runs: &runs[..2],
            ..measured
        };
        assert!(without.values(Quantity::Cpu, None, "x").is_empty());
        assert_eq!(measured.values(Quantity::Goodput, None, "x"), [1e9, 1e9]);
    }

    #[test]
    fn a_capture_is_compared_with_the_run_beside_it() {
        let run = |system: &str, seed, goodput_bps: f64| {
            let figures = Measurement {
                goodput_bps,
                first_byte_s: Some(0.5),
                ..Measurement::default()
            };
            Run::bare(system, seed, Outcome::Measured(Box::new(figures)))
        };
        let (tun, socks) = ("sumlink:fbdt:capture=tun", "sumlink:fbdt:capture=socks");
        let runs = [
            run(tun, 1, 8.0),
            run(tun, 2, 9.0),
            run(tun, 3, 1.0),
            run(socks, 1, 10.0),
            run(socks, 2, 10.0),
        ];
        let scenario = scenario("");
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        assert_eq!(measured.values(Quantity::OfSocks, None, tun), [0.8, 0.9]);
        assert_eq!(measured.stalled(Quantity::OfSocks, tun), None);
        assert_eq!(measured.values(Quantity::FirstByte, None, tun), [0.5; 3]);
        assert!(measured.values(Quantity::Memory, None, tun).is_empty());
    }

    #[test]
    fn a_stalled_run_is_not_a_reference() {
        let scenario = scenario("");
        let runs = [
            run("x", 1, took(1000, &[], 3.0)),
            // Any system would pass in comparison with this cost per byte.
            run("mptcp+tls", 1, took(99, &[], 90.0)),
        ];
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        assert!(measured.values(Quantity::Cpu, None, "x").is_empty());
        let message = measured.stalled(Quantity::Cpu, "x").unwrap();
        let expected =
            "mptcp+tls stalled: 99.0 Mbit/s at best, less than a tenth of the 1000 Mbit/s of x";
        assert_eq!(message, expected);
        assert_eq!(measured.stalled(Quantity::Goodput, "x"), None);
    }

    #[test]
    fn figures_need_the_links_alone() {
        let scenario = scenario("");
        let runs = [run(ALONE, 2, alone()), run("x", 1, own([1.0, 1.0, 1.0]))];
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        assert!(measured.values(Quantity::Sum, None, "x").is_empty());
        assert_eq!(measured.comparable(Quantity::Sum, "x"), 0);
        // Figures that are not relative to the reference remain available.
        assert_eq!(measured.values(Quantity::OverLimit, None, "x"), [2.0]);
    }
}
