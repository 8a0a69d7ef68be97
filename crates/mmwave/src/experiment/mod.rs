//! Experiments: one parameter varied over cells and access schemes, point by point, with tables and
//! pictures.
//!
//! Points are independent: a caller may compute them in any order, and in parallel
//! ([`Experiment::tasks`], [`Experiment::point`]).

mod table;

use std::collections::BTreeMap;

use crate::cell::{Access, CellConfig, Jpoc};
use crate::error::MmwaveError;
use crate::figures::access::{self, Seeds};
use crate::jpoc::control::Target;
use sumlink_plot::figures::{Labels, Series, lines};

pub use table::{Point, Value, csv, rounded};

/// One parameter varied over cells and access schemes.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// The varied parameter and its values.
    pub kind: Kind,
    /// Access schemes, of [`SCHEMES`](crate::cell::SCHEMES).
    pub schemes: Vec<&'static str>,
    /// Settings of schemes that differ from the defaults of their names.
    pub rules: BTreeMap<&'static str, Access>,
    /// The seeds.
    pub seeds: Seeds,
    /// The cell, except for the varied parameter.
    pub cell: CellConfig,
}

/// The varied parameter and its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Fairness of data time against these blockage probabilities (figure 3.7a).
    Jain(Vec<f64>),
    /// Number of mini-slots with which at most that share of attempts fails, against these numbers
    /// of stations (figure 3.7b).
    Overhead {
        /// Numbers of stations.
        stations: Vec<usize>,
        /// The share.
        failure: f64,
    },
    /// Fairness, failures and goodput for these numbers of stations.
    Stations(Vec<usize>),
    /// The same for clients that walk at these speeds in m/s; 0 stands.
    Mobility(Vec<f64>),
}

/// One scheme at one value of the varied parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// The scheme.
    pub scheme: &'static str,
    /// The value.
    pub value: f64,
}

impl Kind {
    /// Its name in files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Jain(_) => "jain",
            Self::Overhead { .. } => "overhead",
            Self::Stations(_) => "stations",
            Self::Mobility(_) => "mobility",
        }
    }

    /// All values of the varied parameter.
    fn values(&self) -> Vec<f64> {
        match self {
            Self::Jain(all) | Self::Mobility(all) => all.clone(),
            Self::Overhead { stations, .. } | Self::Stations(stations) => {
                stations.iter().map(|n| *n as f64).collect()
            }
        }
    }
}

impl Experiment {
    /// All points: all values of a scheme, then those of the next one.
    pub fn tasks(&self) -> Vec<Task> {
        let values = self.kind.values();
        let of = |scheme: &&'static str| {
            let scheme = *scheme;
            let task = move |value: &f64| Task {
                scheme,
                value: *value,
            };
            values.iter().map(task).collect::<Vec<_>>()
        };
        self.schemes.iter().flat_map(of).collect()
    }

    /// The settings of a scheme.
    fn access(&self, scheme: &str) -> Access {
        let own = self.rules.get(scheme).copied();
        let named = own.or_else(|| Access::named(scheme));
        named.unwrap_or(Access::Jpoc(Jpoc::THESIS))
    }

    /// Computes one point, over all seeds.
    ///
    /// # Errors
    ///
    /// An invalid cell or value.
    pub fn point(&self, task: &Task) -> Result<Point, MmwaveError> {
        let access = self.access(task.scheme);
        let mut point = Point::new();
        point.text("scheme", task.scheme);
        match &self.kind {
            Kind::Jain(_) => {
                let seeds = self.seeds.clone();
                let found = access::jain(&self.cell, &access, task.value, seeds)?;
                point.number("blockage", task.value);
                point.number("jain", found.jain.mean);
                point.number("jain_10", found.jain.low);
                point.number("jain_90", found.jain.high);
                point.number("failure", found.failure);
                point.number("goodput_mbps", found.goodput_mbps);
            }
            Kind::Overhead { failure, .. } => {
                let stations = task.value as usize;
                let (mini_slots, failed) = self.mini_slots(access, stations, *failure)?;
                point.count("stations", stations as u64);
                point.maybe("mini_slots", mini_slots);
                point.maybe("failure", failed);
            }
            Kind::Stations(_) => {
                let (seeds, stations) = (self.seeds.clone(), task.value as usize);
                let found = access::stations(&self.cell, &access, stations, seeds)?;
                point.count("stations", stations as u64);
                point.number("jain", found.jain.mean);
                point.number("failure", found.failure);
                point.number("mini_slots", found.mini_slots);
                point.number("first_s", found.first_s.median);
                point.number("first_90_s", found.first_s.high);
                point.number("gone", found.gone);
                point.number("goodput_mbps", found.goodput_mbps);
            }
            Kind::Mobility(_) => {
                let (seeds, speed) = (self.seeds.clone(), task.value);
                let found = access::mobility(&self.cell, &access, speed, seeds)?;
                point.number("speed_mps", speed);
                point.number("jain", found.jain.mean);
                point.number("attempts_per_minute", found.attempts_per_minute);
                point.number("failure", found.failure);
                point.number("gone", found.gone);
                point.number("longest_gap_s", found.longest_gap_s.median);
                point.number("longest_gap_90_s", found.longest_gap_s.high);
                point.number("mbps", found.mbps);
            }
        }
        Ok(point)
    }

    /// Number of mini-slots of a scheme with which at most that share of attempts fails, and the
    /// measured share; a slotted scheme may have none.
    fn mini_slots(
        &self,
        access: Access,
        stations: usize,
        failure: f64,
    ) -> Result<(Option<f64>, Option<f64>), MmwaveError> {
        let cell = CellConfig {
            stations,
            ..self.cell.clone()
        };
        let seeds = || self.seeds.clone();
        match access {
            Access::Slotted(rules) => {
                let Some(slots) = access::min_slots(&cell, rules, failure, seeds())? else {
                    return Ok((None, None));
                };
                let all =
                    access::outcomes(&cell, &Access::Slotted(rules.with_slots(slots)), seeds())?;
                let mini_slots = f64::from(slots * rules.frames_per_slot);
                Ok((Some(mini_slots), Some(access::failure(&all))))
            }
            Access::Jpoc(jpoc) => {
                let target = Target {
                    failure,
                    ..jpoc.target
                };
                let all = access::outcomes(&cell, &Access::Jpoc(Jpoc { target, ..jpoc }), seeds())?;
                let sum: f64 = all.iter().map(|one| one.mean_mini_slots()).sum();
                let mean = sum / all.len().max(1) as f64;
                Ok((Some(mean), Some(access::failure(&all))))
            }
        }
    }

    /// Curves of the schemes over the varied parameter, as SVG; each with the suffix of its file
    /// name.
    pub fn pictures(&self, points: &[Point]) -> Vec<(&'static str, String)> {
        let clients = self.cell.stations;
        match &self.kind {
            Kind::Jain(_) => {
                let title = format!("Fairness of data time among {clients} clients");
                let picture = Picture {
                    title: &title,
                    x: (
                        "blockage",
                        "blockage probability of a client in a beacon interval",
                    ),
                    y: ("jain", "Jain's index (1: all are equal)"),
                };
                let lowest = points.iter().filter_map(|point| point.find("jain"));
                let lowest = lowest.fold(0.5, f64::min);
                vec![("", picture.draw(points, |_| (lowest, 1.0)))]
            }
            Kind::Overhead { failure, .. } => {
                let title = overhead_title(points, *failure);
                let picture = Picture {
                    title: &title,
                    x: ("stations", "clients"),
                    y: ("mini_slots", "mini-slots of an A-BFT"),
                };
                let svg = picture.draw_named(
                    points,
                    |most| (0.0, most.max(36.0) * 1.05),
                    |scheme| match failed(points, scheme) {
                        Some(shares) => format!("{scheme}: {shares} % fail"),
                        None => scheme.to_owned(),
                    },
                );
                vec![("", svg)]
            }
            Kind::Stations(_) => {
                let x = ("stations", "clients");
                let of = |title, y| Picture { title, x, y };
                let jain = of(
                    "Fairness of data time by number of clients",
                    ("jain", "Jain's index (1: all are equal)"),
                );
                let failure = of(
                    "Failed attempts by number of clients",
                    ("failure", "share of attempts that failed"),
                );
                let first = of(
                    "Time until nine tenths of clients have a sector",
                    (
                        "first_90_s",
                        "seconds after the start; never: the whole run",
                    ),
                );
                vec![
                    ("", jain.draw(points, |_| (0.0, 1.0))),
                    ("-failure", failure.draw(points, |_| (0.0, 1.0))),
                    (
                        "-first",
                        first.draw(points, |most| (0.0, most * 1.05 + 0.01)),
                    ),
                ]
            }
            Kind::Mobility(_) => {
                let speed = ("speed_mps", "speed in meters per second");
                let rate = Picture {
                    title: &format!("Rate of each of {clients} walking clients"),
                    x: speed,
                    y: ("mbps", "Mbit/s of a client"),
                };
                let gone = Picture {
                    title: &format!("Time without data of {clients} walking clients"),
                    x: speed,
                    y: ("gone", "share of beacon intervals without data"),
                };
                let range = |most: f64| (0.0, most.max(0.01) * 1.05);
                vec![
                    ("", rate.draw(points, range)),
                    ("-gone", gone.draw(points, range)),
                ]
            }
        }
    }
}

/// A line chart: the names of two figures of points, and the labels of the axes.
struct Picture<'a> {
    title: &'a str,
    x: (&'static str, &'static str),
    y: (&'static str, &'static str),
}

impl Picture<'_> {
    /// Draws the chart; `range` maps the largest value to the range of the vertical axis.
    fn draw(&self, points: &[Point], range: impl Fn(f64) -> (f64, f64)) -> String {
        self.draw_named(points, range, str::to_owned)
    }

    /// The same with other names for the schemes.
    fn draw_named(
        &self,
        points: &[Point],
        range: impl Fn(f64) -> (f64, f64),
        name: impl Fn(&str) -> String,
    ) -> String {
        let mut series = series(points, (self.x.0, self.y.0));
        for one in &mut series {
            one.name = name(&one.name);
        }
        let all = series.iter().flat_map(|one| &one.points);
        let most = all.map(|point| point.1).fold(0.0, f64::max);
        let labels = Labels {
            title: self.title,
            x: self.x.1,
            y: self.y.1,
        };
        lines(&labels, &series, range(most))
    }
}

/// Title of the chart of mini-slots: measured and targeted failures.
fn overhead_title(points: &[Point], target: f64) -> String {
    let target = target * 100.0;
    let measured = shares(points.iter()).map_or_else(
        || "no attempts were made".to_owned(),
        |shares| format!("{shares} % of attempts fail"),
    );
    format!("Mini-slots of an A-BFT: {measured} (target: at most {target:.0} %)")
}

/// Smallest and largest share of failed attempts of a scheme, in percent.
fn failed(points: &[Point], scheme: &str) -> Option<String> {
    shares(points.iter().filter(|point| point.scheme() == scheme))
}

fn shares<'a>(points: impl Iterator<Item = &'a Point>) -> Option<String> {
    let shares = points.filter_map(|point| point.find("failure"));
    let (least, most) = shares.fold(
        (f64::INFINITY, f64::NEG_INFINITY),
        |(least, most), share| (least.min(share * 100.0), most.max(share * 100.0)),
    );
    match (format!("{least:.1}"), format!("{most:.1}")) {
        _ if least > most => None,
        (least, most) if least == most => Some(least),
        (least, most) => Some(format!("{least} to {most}")),
    }
}

/// A curve for each scheme: one figure of the points over another; points without it are left out.
pub fn series(points: &[Point], (x, y): (&str, &str)) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for point in points {
        let (Some(x), Some(y)) = (point.find(x), point.find(y)) else {
            continue;
        };
        let scheme = point.scheme();
        match all.iter_mut().find(|one| one.name == scheme) {
            Some(line) => line.points.push((x, y)),
            None => all.push(Series::new(scheme, vec![(x, y)])),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::SCHEMES;

    fn experiment(kind: Kind) -> Experiment {
        Experiment {
            name: "e".to_owned(),
            kind,
            schemes: vec!["80211-thesis", "jpoc"],
            rules: BTreeMap::new(),
            seeds: 1..=2,
            cell: CellConfig {
                stations: 6,
                intervals: 20,
                ..CellConfig::default()
            },
        }
    }

    fn points(experiment: &Experiment) -> Vec<Point> {
        let tasks = experiment.tasks();
        let each = tasks.iter().map(|task| experiment.point(task));
        each.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn every_scheme_has_every_value_and_a_line() {
        let jain = experiment(Kind::Jain(vec![0.1, 0.5]));
        let points = points(&jain);
        let found: Vec<_> = points
            .iter()
            .map(|p| (p.scheme(), p.find("blockage")))
            .collect();
        let expected = ["80211-thesis", "jpoc"].map(|s| [0.1, 0.5].map(|b| (s, Some(b))));
        assert_eq!(found, expected.concat());
        assert!(
            points
                .iter()
                .all(|p| p.find("jain").is_some_and(|j| j > 1.0 / 6.0))
        );
        let [(_, picture)] = &jain.pictures(&points)[..] else {
            panic!("one picture");
        };
        assert_eq!(picture.matches("<polyline").count(), 2 * 2, "{picture}");
        assert!(picture.contains(">jpoc</text>") && picture.ends_with("</svg>\n"));
        let table = csv(&points);
        assert!(table.starts_with("scheme,blockage,jain,"), "{table}");
        assert_eq!(table.lines().count(), 5);
    }

    #[test]
    fn single_seeds_average_to_the_mean() {
        let of = |seeds| Experiment {
            seeds,
            ..experiment(Kind::Jain(vec![0.4]))
        };
        let jain = |seeds| points(&of(seeds))[0].find("jain").unwrap();
        let mean = (jain(1..=1) + jain(2..=2)) / 2.0;
        assert!((jain(1..=2) - mean).abs() < 1e-12);
    }

    #[test]
    fn the_thesis_baseline_needs_more_mini_slots_than_jpoc() {
        let overhead = experiment(Kind::Overhead {
            stations: vec![12],
            failure: 0.1,
        });
        let points = points(&overhead);
        let mini_slots = |index: usize| points[index].find("mini_slots").unwrap();
        assert!(
            mini_slots(0) > mini_slots(1) && mini_slots(1) >= 36.0,
            "{points:?}"
        );
        assert!(points[0].find("failure").unwrap() <= 0.1);
        // JPOC aims at a tenth and may miss it: the title shows the measured value.
        let missed = [("80211-thesis", 0.098), ("jpoc", 0.116), ("jpoc", 0.342)];
        let missed = missed.map(|(scheme, failure)| {
            let mut point = Point::new();
            point.text("scheme", scheme);
            point.count("stations", 12);
            point.number("mini_slots", 40.0);
            point.number("failure", failure);
            point
        });
        let picture = &overhead.pictures(&missed)[0].1;
        let title = picture
            .split("<title>")
            .nth(1)
            .and_then(|rest| rest.split("</title>").next());
        let title = title.unwrap();
        let measured = "9.8 to 34.2 % of attempts fail (target: at most 10 %)";
        assert!(title.ends_with(measured), "{title}");
        assert!(picture.contains(">jpoc: 11.6 to 34.2 % fail<"), "{picture}");
    }

    #[test]
    fn every_number_of_stations_is_listed_and_drawn() {
        let stations = experiment(Kind::Stations(vec![1, 5]));
        let points = points(&stations);
        let counts: Vec<_> = points.iter().map(|p| p.find("stations")).collect();
        assert_eq!(counts, [Some(1.0), Some(5.0), Some(1.0), Some(5.0)]);
        for point in &points {
            let figure = |name: &str| point.find(name).unwrap();
            assert!(figure("first_90_s") >= figure("first_s") && figure("first_s") >= 0.1 - 1e-9);
            assert!((0.0..1.0).contains(&figure("gone")), "{point:?}");
        }
        let pictures = stations.pictures(&points);
        assert_eq!(pictures.len(), 3);
        assert!(pictures.iter().all(|one| one.1.contains(">clients</text>")));
    }

    #[test]
    fn settings_of_a_scheme_take_effect() {
        let mut stations = experiment(Kind::Stations(vec![6]));
        let mini_slots = |points: &[Point]| points[0].find("mini_slots").unwrap();
        assert_eq!(mini_slots(&points(&stations)), 288.0);
        let few = crate::mac::slotted::Slotted::THESIS.with_slots(2);
        stations.rules.insert("80211-thesis", Access::Slotted(few));
        assert_eq!(mini_slots(&points(&stations)), 72.0);
        // As many good-beams as mini-slots cannot be resolved.
        let mut jpoc = Jpoc::THESIS;
        jpoc.target.good_beams = 36.0;
        stations.rules.insert("jpoc", Access::Jpoc(jpoc));
        let error = stations.point(&stations.tasks()[1]).unwrap_err();
        assert!(
            matches!(error, MmwaveError::TooFewMiniSlots { .. }),
            "{error}"
        );
    }

    #[test]
    fn walking_clients_train_more_often() {
        let mut mobility = experiment(Kind::Mobility(vec![0.0, 1.4]));
        mobility.cell.intervals = 300;
        mobility.cell.blockage = crate::cell::Blockage::Probability(0.0);
        mobility.schemes = vec!["jpoc"];
        let points = points(&mobility);
        let of = |name: &str| [0, 1].map(|index: usize| points[index].find(name).unwrap());
        let [stands, walks] = of("attempts_per_minute");
        // Once a minute against every 15 to 20 s.
        assert!(walks > 1.5 * stands, "{stands} {walks}");
        let [stands, walks] = of("mbps");
        assert!(walks < stands, "{stands} {walks}");
        let pictures = mobility.pictures(&points);
        assert!(pictures.len() == 2 && pictures.iter().all(|one| one.1.contains("walking")));
    }

    #[test]
    fn an_unreachable_target_has_no_mini_slots() {
        // More slots do not help clients that are never heard.
        let mut deaf = experiment(Kind::Overhead {
            stations: vec![2],
            failure: 0.1,
        });
        deaf.cell.power_dbm.1 = -100.0;
        deaf.cell.reachable = false;
        deaf.cell.intervals = 2;
        let thesis = deaf.point(&deaf.tasks()[0]).unwrap();
        assert_eq!(thesis.find("mini_slots"), None);
        assert_eq!(
            csv(&[thesis]),
            "scheme,stations,mini_slots,failure\n80211-thesis,2,,\n"
        );
    }

    #[test]
    fn invalid_values_are_rejected() {
        let wrong = Experiment {
            schemes: SCHEMES.to_vec(),
            ..experiment(Kind::Jain(vec![1.5]))
        };
        assert!(wrong.tasks().iter().all(|task| wrong.point(task).is_err()));
    }
}
