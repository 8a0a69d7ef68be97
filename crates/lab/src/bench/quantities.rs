//! The figures that bars are compared with, for each seed.

#[cfg(test)]
pub(super) mod fixture;
mod seed;

use std::collections::{BTreeMap, BTreeSet};

use super::bar::Quantity;
use crate::results::{ALONE, Measurement, Run, figures};
use crate::scenario::{Scenario, Workload};
use seed::Seed;

/// The measurements of one variant of a row.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) runs: &'a [Run],
}

/// A reference below this share of the judged system's goodput has stalled.
const STALLED: f64 = 0.1;

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

/// CPU seconds per delivered byte of all programs, the traffic programs included.
pub(super) fn cpu_per_byte(of: &Measurement) -> Option<f64> {
    let system: f64 = of.processes.iter().map(|process| process.cpu_s).sum();
    let seconds = (system + of.traffic_cpu_s?) / of.bytes as f64;
    (seconds > 0.0 && seconds.is_finite()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::fixture::{alone, own, run, scenario, took};
    use super::*;
    use crate::results::Outcome;

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
