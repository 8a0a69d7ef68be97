//! The file of an experiment.

use std::path::Path;

use serde::Deserialize;
use sumlink_mmwave::cell::{Blockage, CellConfig, SCHEMES};
use sumlink_mmwave::channel::inh::Office;

use super::parse_scheme;
use crate::config::{ConfigError, Problem};

/// An experiment: one thing varied over cells and access schemes.
#[derive(Clone, Debug)]
pub(super) struct Experiment {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) schemes: Vec<&'static str>,
    pub(super) seeds: u64,
    pub(super) cell: CellConfig,
}

/// What is varied.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// Fairness of data time against these blockage probabilities.
    Jain(Vec<f64>),
    /// Mini-slots with which at most that share of attempts fails, against these numbers of stations.
    Overhead { stations: Vec<usize>, failure: f64 },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: String,
    kind: String,
    #[serde(default, rename = "about")]
    _about: String,
    schemes: Option<Vec<String>>,
    #[serde(default = "ten")]
    seeds: u64,
    blockage: Option<Vec<f64>>,
    stations: Option<Vec<usize>>,
    failure: Option<f64>,
    #[serde(default)]
    cell: RawCell,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCell {
    stations: Option<usize>,
    chatty: Option<usize>,
    radius_m: Option<f64>,
    ap_height_m: Option<f64>,
    station_height_m: Option<f64>,
    office: Option<String>,
    ap_power_dbm: Option<f64>,
    station_power_dbm: Option<f64>,
    sectors: Option<Vec<usize>>,
    panels: Option<usize>,
    facing_deg: Option<f64>,
    intervals: Option<usize>,
    blockage: Option<f64>,
    blockers_m: Option<f64>,
}

fn ten() -> u64 {
    10
}

/// Reads a file; its mistakes have their lines.
pub(super) fn read(file: &Path) -> Result<Experiment, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|reason| ConfigError::Unreadable {
        file: file.to_owned(),
        reason,
    })?;
    parse(&text).map_err(|problem| ConfigError::Wrong {
        file: file.to_owned(),
        problems: vec![problem],
    })
}

fn parse(text: &str) -> Result<Experiment, Problem> {
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let line = 1 + text.get(..start).unwrap_or(text).matches('\n').count();
        problem(line, error.message().trim().replace('\n', "; "))
    })?;
    // Where a value stands that was read and makes no sense.
    let line_of = |key: &str| {
        let is_it = |line: &str| line.trim_start().split(['=', ' ']).next() == Some(key);
        1 + text.lines().position(is_it).unwrap_or(0)
    };
    let seeds = match raw.seeds {
        1..=10_000 => raw.seeds,
        other => {
            return Err(problem(
                line_of("seeds"),
                format!("seeds must be from 1 to 10000, not {other}"),
            ));
        }
    };
    let names = raw
        .schemes
        .unwrap_or_else(|| SCHEMES.map(str::to_owned).to_vec());
    let schemes: Result<Vec<_>, _> = names.iter().map(|name| parse_scheme(name)).collect();
    let schemes = schemes.map_err(|error| problem(line_of("schemes"), error))?;
    if schemes.is_empty() {
        return Err(problem(
            line_of("schemes"),
            "name at least one scheme".to_owned(),
        ));
    }
    let strange = |key: &str| {
        let reason = format!(
            "`{key}` means nothing in an experiment of kind \"{}\"",
            raw.kind
        );
        Err(problem(line_of(key), reason))
    };
    let kind = match raw.kind.as_str() {
        "jain" => match (raw.blockage, raw.stations, raw.failure) {
            (Some(all), None, None) if !all.is_empty() => Kind::Jain(all),
            (_, Some(_), _) => return strange("stations"),
            (_, _, Some(_)) => return strange("failure"),
            _ => {
                return Err(problem(
                    line_of("kind"),
                    "say which: blockage = [0.1, 0.2]".to_owned(),
                ));
            }
        },
        "overhead" => match (raw.stations, raw.blockage) {
            (Some(stations), None) if !stations.is_empty() => Kind::Overhead {
                stations,
                failure: raw.failure.unwrap_or(0.1),
            },
            (_, Some(_)) => return strange("blockage"),
            _ => {
                return Err(problem(
                    line_of("kind"),
                    "say which: stations = [2, 4, 8]".to_owned(),
                ));
            }
        },
        other => {
            let reason =
                format!("`{other}` is no kind of experiment: write \"jain\" or \"overhead\"");
            return Err(problem(line_of("kind"), reason));
        }
    };
    let cell = cell(raw.cell).map_err(|(key, reason)| problem(line_of(key), reason))?;
    Ok(Experiment {
        name: raw.name,
        kind,
        schemes,
        seeds,
        cell,
    })
}

fn cell(raw: RawCell) -> Result<CellConfig, (&'static str, String)> {
    let default = CellConfig::default();
    let office = match raw.office.as_deref() {
        None | Some("mixed") => Office::Mixed,
        Some("open") => Office::Open,
        Some(other) => {
            return Err((
                "office",
                format!("`{other}` is no office: write \"mixed\" or \"open\""),
            ));
        }
    };
    let blockage = match (raw.blockage, raw.blockers_m) {
        (Some(_), Some(_)) => {
            return Err((
                "blockers_m",
                "`blockage` and `blockers_m` contradict each other: remove one".to_owned(),
            ));
        }
        (Some(probability), None) => Blockage::Probability(probability),
        (None, Some(metres)) => Blockage::ModelA { metres },
        (None, None) => default.blockage,
    };
    Ok(CellConfig {
        stations: raw.stations.unwrap_or(default.stations),
        chatty: raw.chatty.unwrap_or(default.chatty),
        radius: raw.radius_m.unwrap_or(default.radius),
        heights: (
            raw.ap_height_m.unwrap_or(default.heights.0),
            raw.station_height_m.unwrap_or(default.heights.1),
        ),
        office,
        power_dbm: (
            raw.ap_power_dbm.unwrap_or(default.power_dbm.0),
            raw.station_power_dbm.unwrap_or(default.power_dbm.1),
        ),
        sectors: raw.sectors.unwrap_or_else(|| default.sectors.clone()),
        panels: raw.panels.unwrap_or(default.panels),
        facing_deg: raw.facing_deg.unwrap_or(default.facing_deg),
        intervals: raw.intervals.unwrap_or(default.intervals),
        blockage,
        ..default
    })
}

fn problem(line: usize, reason: String) -> Problem {
    Problem {
        line,
        reason,
        about_key_file: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"j\"\nkind = \"jain\"\nblockage = [0.0, 0.2]\nseeds = 2\nschemes = [\"jpoc\"]\n\
                        [cell]\nstations = 4\nsectors = [36, 64]\n";

    #[test]
    fn what_is_said_counts_and_the_rest_is_the_thesis() {
        let read = parse(GOOD).unwrap();
        assert_eq!(read.kind, Kind::Jain(vec![0.0, 0.2]));
        assert_eq!((read.schemes.as_slice(), read.seeds), (&["jpoc"][..], 2));
        assert_eq!(read.cell.stations, 4);
        assert_eq!(read.cell.sectors, [36, 64]);
        assert_eq!(read.cell.radius, CellConfig::default().radius);
    }

    #[test]
    fn mistakes_have_their_lines() {
        for (from, to, line, hint) in [
            ("\"jain\"", "\"jane\"", 2, "write \"jain\" or \"overhead\""),
            (
                "blockage = [0.0, 0.2]",
                "stations = [2]",
                3,
                "means nothing",
            ),
            ("seeds = 2", "seeds = 0", 4, "from 1 to 10000"),
            ("\"jpoc\"", "\"jpok\"", 5, "there are 80211ad"),
            ("stations = 4", "station = 4", 7, "unknown field `station`"),
            (
                "stations = 4",
                "office = \"big\"",
                7,
                "\"mixed\" or \"open\"",
            ),
            (
                "stations = 4",
                "blockage = 0.1\nblockers_m = 1.0",
                8,
                "contradict",
            ),
        ] {
            let error = parse(&GOOD.replace(from, to)).unwrap_err();
            assert_eq!(error.line, line, "{error:?}");
            assert!(error.reason.contains(hint), "{error:?}");
        }
    }
}
