//! The charts of an experiment.

use super::{Experiment, Kind, Point};
use sumlink_plot::figures::{Labels, Series, lines};

impl Experiment {
    /// Curves of the schemes over the varied parameter, as SVG; each with the suffix of its file
    /// name. A parameter with one value has no curve, and no picture.
    pub fn pictures(&self, points: &[Point]) -> Vec<(&'static str, String)> {
        let of_first = |point: &&Point| point.scheme() == points[0].scheme();
        if points.iter().filter(of_first).count() < 2 {
            return Vec::new();
        }
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
            Kind::Overhead { failure, .. } => overhead(points, *failure),
            Kind::GoodBeams(_) => {
                let x = ("good_beams", "good-beams that JPOC assumes (K)");
                jpoc_sweep(points, x, self.cell.stations)
            }
            Kind::Gamma(_) => {
                let x = (
                    "gamma_db",
                    "SNR of the best sector by power control (gamma), in dB",
                );
                jpoc_sweep(points, x, self.cell.stations)
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

/// Charts of figure 3.7(b): mini-slots with which the target is met, and their ratio to JPOC's.
/// Points that miss the target are left out, and the legend names them.
fn overhead(points: &[Point], target: f64) -> Vec<(&'static str, String)> {
    let meets = |point: &Point| point.find("failure").is_some_and(|share| share <= target);
    let met: Vec<Point> = points
        .iter()
        .filter(|point| meets(point))
        .cloned()
        .collect();
    let missing = |scheme: &str| {
        let missing = points
            .iter()
            .filter(|point| point.scheme() == scheme && !meets(point));
        let counts = missing.filter_map(|point| point.find("stations"));
        let counts: Vec<String> = counts.map(|count| format!("{count:.0}")).collect();
        match counts.is_empty() {
            true => scheme.to_owned(),
            false => format!("{scheme} (not with {})", counts.join(", ")),
        }
    };
    let share = format!("at most {:.0} % of attempts fail", target * 100.0);
    let x = ("stations", "clients");
    let mini_slots = Picture {
        title: &format!("Mini-slots of an A-BFT with which {share}"),
        x,
        y: ("mini_slots", "mini-slots of an A-BFT"),
    };
    let range = |most: f64| (0.0, most.max(36.0) * 1.05);
    let mut pictures = vec![("", mini_slots.draw_named(&met, range, missing))];
    let (jpoc, others): (Vec<Series>, Vec<Series>) = series(&met, (x.0, "mini_slots"))
        .into_iter()
        .partition(|one| one.name == "jpoc");
    if let [jpoc] = &jpoc[..] {
        let ratios = others.iter().map(|other| ratio(other, jpoc));
        let ratios: Vec<Series> = ratios.filter(|one| !one.points.is_empty()).collect();
        let all = ratios.iter().flat_map(|one| &one.points);
        let most = all.map(|point| point.1).fold(1.0, f64::max);
        let labels = Labels {
            title: &format!("Mini-slots over those of jpoc where {share}"),
            x: x.1,
            y: "ratio of mini-slots",
        };
        pictures.push(("-ratio", lines(&labels, &ratios, (0.0, most * 1.05))));
    }
    pictures
}

/// The values of one line over those of another at the same places.
fn ratio(one: &Series, other: &Series) -> Series {
    let at = |(x, y): &(f64, f64)| {
        let same = other.points.iter().find(|point| point.0 == *x)?;
        Some((*x, y / same.1))
    };
    Series::new(
        one.name.as_str(),
        one.points.iter().filter_map(at).collect(),
    )
}

/// Charts of failures and mini-slots over a parameter of JPOC.
fn jpoc_sweep(
    points: &[Point],
    x: (&'static str, &'static str),
    clients: usize,
) -> Vec<(&'static str, String)> {
    let failure = Picture {
        title: &format!("Failed attempts of {clients} clients"),
        x,
        y: ("failure", "share of attempts that failed"),
    };
    let mini_slots = Picture {
        title: &format!("Mini-slots of an A-BFT of {clients} clients"),
        x,
        y: ("mini_slots", "mini-slots of an A-BFT"),
    };
    let range = |most: f64| (0.0, most * 1.05 + 0.01);
    vec![
        ("", failure.draw(points, range)),
        ("-mini-slots", mini_slots.draw(points, range)),
    ]
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
