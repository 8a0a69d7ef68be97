//! Generates the figures of docs/mmwave.md: for each a table (CSV) and a picture (SVG).
//!
//! `cargo run --release -p sumlink-mmwave --example figures -- DIR [SEEDS [NAME...]]`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sumlink_mmwave::cell::{Access, Cell, CellConfig, Jpoc, Outcome, SCHEMES};
use sumlink_mmwave::experiment::{Experiment, Kind, Point, csv};
use sumlink_mmwave::figures::access;
use sumlink_mmwave::figures::office::{Office, brackets, good_beams_picture, heat_map_picture};
use sumlink_mmwave::figures::timeline::{self, Sweeping};
use sumlink_mmwave::jpoc::control::Target;
use sumlink_mmwave::mac::air::Hearing;
use sumlink_mmwave::mac::trigger::Behavior;
use sumlink_plot::figures::{Chart, Labels, Mark, Row, Series, frames, lines};

type Done = Result<(), Box<dyn Error>>;

/// Output folder, and the number of seeds.
struct Out {
    directory: PathBuf,
    seeds: u64,
}

type Figure = (&'static str, fn(&Out) -> Done);

/// All figures by their file names.
const FIGURES: [Figure; 10] = [
    ("sectors", Out::sectors),
    ("heat-maps", Out::heat_maps),
    ("good-beams", Out::good_beams),
    ("participation", Out::participation),
    ("timeline", Out::timeline),
    ("jain", Out::jain),
    ("first", Out::first),
    ("estimate", Out::estimate),
    ("target", Out::target),
    ("overhead", Out::overhead),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next();
    let seeds = arguments.next().map_or(Ok(10), |text| text.parse::<u64>());
    let names: Vec<String> = arguments.collect();
    let unknown = names
        .iter()
        .find(|name| FIGURES.iter().all(|figure| figure.0 != *name));
    let (Some(directory), Ok(seeds @ 1..), None) = (directory, seeds, unknown) else {
        let known: Vec<&str> = FIGURES.iter().map(|figure| figure.0).collect();
        eprintln!(
            "usage: figures DIR [SEEDS [NAME...]], SEEDS being 1 or more and NAME of {}",
            known.join(", ")
        );
        return ExitCode::from(2);
    };
    let out = Out {
        directory: PathBuf::from(directory),
        seeds,
    };
    match out.make(&names) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Out {
    /// Generates the figures of those names; all if there are none.
    fn make(&self, names: &[String]) -> Done {
        fs::create_dir_all(&self.directory)?;
        for (name, figure) in FIGURES {
            if names.is_empty() || names.iter().any(|one| one == name) {
                figure(self)?;
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, table: &str, picture: &str) -> Done {
        let path = |end: &str| Path::new(&self.directory).join(format!("{name}.{end}"));
        fs::write(path("csv"), table)?;
        fs::write(path("svg"), picture)?;
        println!("{name}\n{table}");
        Ok(())
    }

    fn lines(&self, name: &str, labels: &Labels<'_>, series: &[Series], y: (f64, f64)) -> Done {
        let mut table = String::from("series,x,y\n");
        for one in series {
            for (x, y) in &one.points {
                writeln!(table, "{},{x:.4},{y:.4}", one.name.replace(',', ""))?;
            }
        }
        self.write(name, &table, &lines(labels, series, y))
    }

    /// Figure 3.1(b).
    fn sectors(&self) -> Done {
        let of = |name: &str, cell, los| -> Result<Series, Box<dyn Error>> {
            let snr = Office::THESIS.snr(cell, 0, Some(los))?;
            let points = snr
                .iter()
                .enumerate()
                .map(|(sector, snr)| (sector as f64, *snr));
            Ok(Series::new(name, points.collect()))
        };
        let series = [
            of("near: 1 m, LoS", (1, 1), true)?,
            of("far: 5 m, no LoS", (3, 3), false)?,
        ];
        let labels = Labels {
            title: "SNR of each sector at the access point",
            x: "sector of the client",
            y: "SNR in dB",
        };
        self.lines("sectors", &labels, &series, (-10.0, 40.0))
    }

    /// Figures 3.1(c), 3.5(b), (c), 3.6.
    fn heat_maps(&self) -> Done {
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
                    writeln!(
                        table,
                        "{},{},{},{index:.4}",
                        name.replace(',', ""),
                        column + 1,
                        row + 1
                    )?;
                }
            }
            panels.push((name.to_owned(), map));
        }
        self.write("heat-maps", &table, &heat_map_picture(&panels))
    }

    /// Figure 3.5(a).
    fn good_beams(&self) -> Done {
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
            write!(table, "{name},{none:.3}")?;
            for share in shares {
                write!(table, ",{share:.3}")?;
            }
            table.push('\n');
            found.push((name.to_owned(), all));
        }
        self.write("good-beams", &table, &good_beams_picture(&found))
    }

    /// Figure 3.2(a).
    fn participation(&self) -> Done {
        let mut rows = Vec::new();
        let mut table = String::from("client,A-BFTs in ten minutes\n");
        for (name, behavior, poor) in [
            ("stationary, LoS", Behavior::Stationary, 0.0),
            ("stationary, nLoS", Behavior::Stationary, 0.003),
            ("moving, nLoS", Behavior::MobileNlos, 0.0),
            ("not connected", Behavior::Disconnected, 0.0),
        ] {
            let times = access::participation(behavior, poor, 1)?;
            writeln!(table, "{},{}", name.replace(',', ""), times.len())?;
            let spans = times.iter();
            let spans = spans.map(|time| (time.as_secs_f64(), 1.5, Mark::Event));
            rows.push(Row {
                name: name.to_owned(),
                spans: spans.collect(),
            });
        }
        let chart = Chart {
            x: "seconds".to_owned(),
            end: 600.0,
            panels: vec![("One client of each kind for ten minutes".to_owned(), rows)],
        };
        let picture = frames("When clients take part in the A-BFT", &[chart]);
        self.write("participation", &table, &picture)
    }

    /// Frames sent and heard in the first A-BFT.
    fn timeline(&self) -> Done {
        let config = CellConfig {
            stations: 8,
            intervals: 1,
            ..CellConfig::default()
        };
        let cell = Cell::draw(&config, 1)?;
        let mut all = Vec::new();
        let mut table = String::from("scheme,client,slot,mini-slot,sector,heard\n");
        for scheme in SCHEMES {
            let access = Access::named(scheme).ok_or("unknown scheme")?;
            let one = Sweeping::first(&cell, scheme, &access, 1)?;
            for frame in &one.interval.sent {
                writeln!(
                    table,
                    "{scheme},{},{},{},{},{}",
                    frame.contender, frame.slot, frame.mini_slot, frame.sector, frame.heard
                )?;
            }
            all.push(one);
        }
        self.write("timeline", &table, &timeline::picture(&cell, &all))
    }

    /// Figure 3.7(a).
    fn jain(&self) -> Done {
        let blockages = vec![0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
        self.experiment(Kind::Jain(blockages), &SCHEMES)
    }

    /// Figure 3.7(b).
    fn overhead(&self) -> Done {
        let kind = Kind::Overhead {
            stations: vec![2, 4, 8, 16, 24, 32],
            failure: Target::THESIS.failure,
        };
        self.experiment(kind, &["80211-thesis", "jpoc"])
    }

    /// The output of `sumlink-lab mmwave run` for a file, point by point.
    fn experiment(&self, kind: Kind, schemes: &[&'static str]) -> Done {
        let experiment = Experiment {
            name: kind.name().to_owned(),
            kind,
            schemes: schemes.to_vec(),
            rules: Default::default(),
            seeds: 1..=self.seeds,
            cell: CellConfig::default(),
        };
        let tasks = experiment.tasks();
        let points = tasks.iter().map(|task| experiment.point(task));
        let points: Vec<Point> = points.collect::<Result<_, _>>()?;
        let pictures = experiment.pictures(&points);
        let picture = pictures.first().map_or("", |one| one.1.as_str());
        self.write(&experiment.name, &csv(&points), picture)
    }

    fn scheme(&self, scheme: &str) -> Result<Vec<Outcome>, Box<dyn Error>> {
        let access = Access::named(scheme).ok_or("unknown scheme")?;
        Ok(access::outcomes(
            &CellConfig::default(),
            &access,
            1..=self.seeds,
        )?)
    }

    /// Time to the first association.
    fn first(&self) -> Done {
        let mut series = Vec::new();
        let mut table = String::from("scheme,median ms,95 % ms,last ms\n");
        for scheme in SCHEMES {
            let firsts = access::first_association(&self.scheme(scheme)?);
            let at = |part: f64| 100 * firsts[((firsts.len() - 1) as f64 * part) as usize];
            writeln!(table, "{scheme},{},{},{}", at(0.5), at(0.95), at(1.0))?;
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
        self.write("first", &table, &lines(&labels, &series, (0.0, 1.0)))
    }

    /// Error of the estimate of eq. 3.8.
    fn estimate(&self) -> Done {
        let mut all = Vec::new();
        for stations in [2, 4, 8, 16, 24, 32] {
            let config = CellConfig {
                stations,
                ..CellConfig::default()
            };
            all.extend(access::outcomes(
                &config,
                &Access::Jpoc(Jpoc::THESIS),
                1..=self.seeds,
            )?);
        }
        let errors = access::estimates(&all);
        let line = |of: fn(&sumlink_mmwave::figures::Spread) -> f64| {
            let point =
                |(number, spread): &(usize, _)| (*number as f64, *number as f64 + of(spread));
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
        self.lines("estimate", &labels, &series, (0.0, 80.0))
    }

    /// Failure rate against its target.
    fn target(&self) -> Done {
        let targets = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5];
        let mut series = Vec::new();
        for (stations, weak_is_silent) in
            [(8, false), (16, false), (32, false), (16, true), (32, true)]
        {
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
                    ..Target::THESIS
                };
                let jpoc = Jpoc {
                    target,
                    ..Jpoc::THESIS
                };
                let all = access::outcomes(&config, &Access::Jpoc(jpoc), 1..=self.seeds)?;
                points.push((failure, access::failure(&all)));
            }
            let silent = if weak_is_silent {
                ", weak frames silent"
            } else {
                ""
            };
            series.push(Series::new(format!("{stations} clients{silent}"), points));
        }
        series.push(Series::new(
            "as targeted",
            targets.iter().map(|p| (*p, *p)).collect(),
        ));
        let labels = Labels {
            title: "Failed attempts with JPOC, blockage 20 %",
            x: "targeted failure probability",
            y: "share of attempts that failed",
        };
        self.lines("target", &labels, &series, (0.0, 0.6))
    }
}
