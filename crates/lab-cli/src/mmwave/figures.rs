//! The figures of the thesis' chapter 3 that no experiment file describes, and of the estimate
//! behind them: for each a table (CSV) and a chart (SVG).

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sumlink_mmwave::MmwaveError;
use sumlink_mmwave::cell::{Access, Cell, CellConfig, Jpoc, Outcome, SCHEMES};
use sumlink_mmwave::figures::Spread;
use sumlink_mmwave::figures::access;
use sumlink_mmwave::figures::office::{Office, brackets, good_beams_picture, heat_map_picture};
use sumlink_mmwave::figures::participation::{CASES, times};
use sumlink_mmwave::figures::timeline::{self, Sweeping};
use sumlink_mmwave::jpoc::control::Target;
use sumlink_mmwave::mac::air::Hearing;
use sumlink_plot::figures::{Chart, Labels, Mark, Row, Series, frames, lines};

use super::keep;
use crate::error::of_mmwave;
use sumlink::error::CliError;
use sumlink::output::print;

/// A figure's table and chart.
type Made = Result<(String, String), MmwaveError>;

/// A figure's maker, from the number of seeds.
type Figure = (&'static str, fn(u64) -> Made);

/// All figures by their file names.
const FIGURES: [Figure; 9] = [
    ("sectors", |_| sectors(None)),
    ("sectors-gamma-4", |_| sectors(Some(4.0))),
    ("heat-maps", |_| heat_maps()),
    ("good-beams", |_| good_beams()),
    ("participation", participation),
    ("timeline", |_| timeline()),
    ("first", first),
    ("estimate", estimate),
    ("target", target),
];

/// `sumlink-lab mmwave figures`
#[derive(Debug, Args)]
pub(crate) struct FiguresArgs {
    /// Make only these figures. Default: all of them.
    #[arg(value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(FIGURES.map(|one| one.0)))]
    names: Vec<String>,
    /// Run this number of seeds.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Write NAME.csv and NAME.svg to this directory.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs the verb.
pub(super) fn run(args: &FiguresArgs) -> Result<(), CliError> {
    let all = args.names.is_empty();
    let chosen = FIGURES
        .iter()
        .filter(|(name, _)| all || args.names.iter().any(|one| one == name));
    for (name, figure) in chosen {
        let (table, picture) = figure(args.seeds).map_err(of_mmwave)?;
        print(&format!("{name}\n{table}"))?;
        let files = [("csv", table), ("svg", picture)];
        let files = files.map(|(end, text)| (format!("{name}.{end}"), text));
        keep(&args.out, files)?;
    }
    Ok(())
}

/// Width of a mark in the picture of participation, in seconds.
const MARK: f64 = 1.5;

/// Adds a line to a table.
macro_rules! row {
    ($table:expr, $($part:tt)*) => {
        writeln!($table, $($part)*).expect("a string takes every line")
    };
}

/// Lines as a chart and a table of their points.
fn chart(labels: &Labels<'_>, series: &[Series], y: (f64, f64)) -> (String, String) {
    let mut table = String::from("series,x,y\n");
    for one in series {
        for (x, y) in &one.points {
            row!(table, "{},{x:.4},{y:.4}", one.name.replace(',', ""));
        }
    }
    (table, lines(labels, series, y))
}

/// Figures 3.1(b) and, with power control, 3.3.
fn sectors(gamma_db: Option<f64>) -> Made {
    let office = Office {
        gamma_db,
        ..Office::THESIS
    };
    let names = ["near: 1 m, LoS", "far: 5 m, no LoS"];
    let each = names.iter().zip(office.two_clients()?);
    let mut series: Vec<Series> = each
        .map(|(name, snr)| {
            let points = (0u32..).zip(snr);
            let points = points.map(|(sector, snr)| (f64::from(sector), snr));
            Series::new(*name, points.collect())
        })
        .collect();
    let title = match gamma_db {
        None => "SNR of each sector at the access point".to_owned(),
        Some(gamma) => format!("SNR of each sector with power control, gamma {gamma} dB"),
    };
    if gamma_db.is_some() {
        // The gray box of figure 3.3 begins here.
        let limit = office.hearing.min_snr_db;
        let end = office.sectors.saturating_sub(1) as f64;
        let mut line = Series::new("decoded from here", vec![(0.0, limit), (end, limit)]);
        line.dots = false;
        series.push(line);
    }
    let labels = Labels {
        title: &title,
        x: "sector of the client",
        y: "SNR in dB",
    };
    let all = series.iter().flat_map(|one| &one.points);
    let (least, most) = all.fold((0.0f64, 0.0f64), |(least, most), point| {
        (least.min(point.1), most.max(point.1))
    });
    let range = (5.0 * (least / 5.0).floor(), 5.0 * (most / 5.0).ceil());
    Ok(chart(&labels, &series, range))
}

/// Figure 3.2(a).
fn participation(seeds: u64) -> Made {
    let mut charts = Vec::new();
    let mut table = String::from(
        "client,skips useless trainings,trainings in ten minutes,10 %,90 %,seconds between\n",
    );
    for (title, skip) in [
        ("As the thesis' devices", false),
        ("Skipping trainings that beacons show to be useless", true),
    ] {
        let mut rows = Vec::new();
        for case in &CASES {
            let all = (1..=seeds).map(|seed| times(case, skip, seed));
            let all: Vec<_> = all.collect::<Result<_, _>>()?;
            let counts = all.iter().map(|one| one.len() as f64);
            let counts = Spread::of(counts.collect());
            let between = 600.0 / counts.median.max(1.0);
            row!(
                table,
                "{},{skip},{},{},{},{between:.1}",
                case.name.replace(',', ""),
                counts.median,
                counts.low,
                counts.high
            );
            rows.push(Row {
                name: case.name.to_owned(),
                spans: marks(all.first().map_or(&[], |one| one)),
            });
        }
        charts.push(Chart {
            x: "seconds".to_owned(),
            end: 600.0,
            panels: vec![(title.to_owned(), rows)],
        });
    }
    let picture = frames("When clients take part in the A-BFT", &charts);
    Ok((table, picture))
}

/// One mark for each time, and one for times that are too close together to be seen apart.
fn marks(times: &[Duration]) -> Vec<(f64, f64, Mark)> {
    let mut marks: Vec<(f64, f64, Mark)> = Vec::new();
    for at in times.iter().map(Duration::as_secs_f64) {
        match marks.last_mut() {
            Some((start, length, _)) if at <= *start + *length => *length = at + MARK - *start,
            _ => marks.push((at, MARK, Mark::Event)),
        }
    }
    marks
}

/// Figures 3.1(c), 3.5(b), (c), 3.6.
fn heat_maps() -> Made {
    let mut panels = Vec::new();
    let mut table = String::from("map,column,row,index\n");
    for (name, sectors, gamma_db) in [
        ("36 sectors, no power control", 36, None),
        ("36 sectors, gamma 10 dB", 36, Some(10.0)),
        ("36 sectors, gamma 4 dB", 36, Some(4.0)),
        ("64 sectors, no power control", 64, None),
        ("64 sectors, gamma 4 dB", 64, Some(4.0)),
    ] {
        let office = Office {
            sectors,
            gamma_db,
            ..Office::THESIS
        };
        let map = office.heat_map()?;
        for (row, cells) in map.iter().enumerate() {
            for (column, index) in cells.iter().enumerate() {
                row!(
                    table,
                    "{},{},{},{index:.4}",
                    name.replace(',', ""),
                    column + 1,
                    row + 1
                );
            }
        }
        panels.push((name.to_owned(), map));
    }
    Ok((table, heat_map_picture(&panels)))
}

/// Figure 3.5(a).
fn good_beams() -> Made {
    let mut found = Vec::new();
    let mut table = String::from("power control,none,1-6,7-12,13-18,19-24,25-30,31-36\n");
    for (name, gamma_db) in [
        ("no power control", None),
        ("gamma 10 dB", Some(10.0)),
        ("gamma 4 dB", Some(4.0)),
    ] {
        let office = Office {
            gamma_db,
            ..Office::THESIS
        };
        let all = office.good_beams()?;
        let (none, shares) = brackets(&all, 36);
        let shares = shares.map(|share| format!("{share:.3}")).join(",");
        row!(table, "{name},{none:.3},{shares}");
        found.push((name.to_owned(), all));
    }
    Ok((table, good_beams_picture(&found)))
}

/// Frames sent and heard in the first A-BFT.
fn timeline() -> Made {
    let config = CellConfig {
        stations: 8,
        intervals: 1,
        ..CellConfig::default()
    };
    let cell = Cell::draw(&config, 1)?;
    let mut all = Vec::new();
    let mut table = String::from("scheme,client,slot,mini-slot,sector,heard\n");
    for scheme in SCHEMES {
        let access = named(scheme);
        let one = Sweeping::first(&cell, scheme, &access, 1)?;
        for frame in &one.interval.sent {
            row!(
                table,
                "{scheme},{},{},{},{},{}",
                frame.contender,
                frame.slot,
                frame.mini_slot,
                frame.sector,
                frame.heard
            );
        }
        all.push(one);
    }
    Ok((table, timeline::picture(&cell, &all)))
}

/// A scheme of [`SCHEMES`].
fn named(scheme: &str) -> Access {
    Access::named(scheme).expect("a scheme of the list")
}

/// Time to the first association.
fn first(seeds: u64) -> Made {
    let mut series = Vec::new();
    let mut table = String::from("scheme,median ms,95 % ms,last ms\n");
    for scheme in SCHEMES {
        let firsts =
            access::first_association(&outcomes(&CellConfig::default(), &named(scheme), seeds)?);
        let at = |part: f64| 100 * firsts[((firsts.len() - 1) as f64 * part) as usize];
        row!(table, "{scheme},{},{},{}", at(0.5), at(0.95), at(1.0));
        let values = firsts.iter().map(|n| (*n as f64 * 0.1).min(2.0)).collect();
        let mut line = Series::cumulative(scheme, values);
        line.points.insert(0, (0.0, 0.0));
        series.push(line);
    }
    let labels = Labels {
        title: "Time to the first trained sector, 16 clients at once",
        x: "seconds since the start (2 and more count as 2)",
        y: "share of clients",
    };
    Ok((table, lines(&labels, &series, (0.0, 1.0))))
}

fn outcomes(config: &CellConfig, access: &Access, seeds: u64) -> Result<Vec<Outcome>, MmwaveError> {
    access::outcomes(config, access, 1..=seeds)
}

/// Error of the estimate of eq. 3.8.
fn estimate(seeds: u64) -> Made {
    let mut all = Vec::new();
    for stations in [2, 4, 8, 16, 24, 32] {
        let config = CellConfig {
            stations,
            ..CellConfig::default()
        };
        all.extend(outcomes(&config, &Access::Jpoc(Jpoc::THESIS), seeds)?);
    }
    let errors = access::estimates(&all);
    let line = |of: fn(&Spread) -> f64| {
        let point = |(number, spread): &(usize, _)| (*number as f64, *number as f64 + of(spread));
        errors.iter().map(point).collect::<Vec<_>>()
    };
    let exact = errors
        .iter()
        .map(|(number, _)| (*number as f64, *number as f64))
        .collect();
    let series = [
        Series::new("half are below", line(|spread| spread.median)),
        Series::new("10 % are below", line(|spread| spread.low)),
        Series::new("90 % are below", line(|spread| spread.high)),
        Series::new("exact", exact),
    ];
    let labels = Labels {
        title: "Estimate of the contenders (eq. 3.8, K = 4)",
        x: "contenders in an A-BFT",
        y: "estimate",
    };
    Ok(chart(&labels, &series, (0.0, 80.0)))
}

/// Failure rate against its target, with a fixed and a learned K, and as the thesis assumes that
/// weak frames do not interfere (footnote 6).
fn target(seeds: u64) -> Made {
    let targets = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5];
    let mut series = Vec::new();
    for (name, stations, jpoc, weak_is_silent) in [
        ("16 clients, K = 4", 16, Jpoc::THESIS, false),
        ("32 clients, K = 4", 32, Jpoc::THESIS, false),
        (
            "16 clients, K = 4, weak frames silent",
            16,
            Jpoc::THESIS,
            true,
        ),
        ("16 clients, K learned", 16, Jpoc::LEARNED, false),
        ("32 clients, K learned", 32, Jpoc::LEARNED, false),
    ] {
        let config = CellConfig {
            stations,
            hearing: Hearing {
                weak_is_silent,
                ..Hearing::THESIS
            },
            ..CellConfig::default()
        };
        let mut points = Vec::new();
        for failure in targets {
            let target = Target {
                failure,
                ..jpoc.target
            };
            let all = outcomes(&config, &Access::Jpoc(Jpoc { target, ..jpoc }), seeds)?;
            points.push((failure, access::failure(&all)));
        }
        series.push(Series::new(name, points));
    }
    let aim = targets.iter().map(|share| (*share, *share));
    series.push(Series::new("as targeted", aim.collect()));
    let labels = Labels {
        title: "Failed attempts with JPOC, blockage 20 %",
        x: "targeted failure probability",
        y: "share of attempts that failed",
    };
    Ok(chart(&labels, &series, (0.0, 0.6)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_overlap_are_one() {
        let times = [1.0, 2.0, 3.0, 10.0].map(Duration::from_secs_f64);
        let spans = marks(&times).into_iter();
        let spans: Vec<_> = spans.map(|(start, length, _)| (start, length)).collect();
        assert_eq!(spans, [(1.0, 3.5), (10.0, 1.5)]);
    }
}
