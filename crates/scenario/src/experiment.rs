//! Files of experiments with 60 GHz Wi-Fi: what `sumlink-lab mmwave run` takes. docs/mmwave.md is
//! their manual.
//!
//! ```toml
//! name = "jain"
//! kind = "jain"
//! blockage = [0.0, 0.2, 0.4]
//!
//! [cell]
//! stations = 16
//! ```

mod cell;
mod rules;

use std::path::Path;

use sumlink_mmwave::cell::{CellConfig, SCHEMES};
use sumlink_mmwave::experiment::{Experiment, Kind};

use crate::error::LoadError;
use crate::scenario::{At, Document, Problem, Scenario, Section, load, parse};

/// The content of a file.
#[derive(Clone, Debug)]
pub enum File {
    /// An experiment with cells only.
    Cells(Box<Experiment>),
    /// An experiment with a bond that uses a link into a cell.
    Bond(Box<BondExperiment>),
}

/// Goodput and gaps of a bond, for each access scheme and number of competing stations.
#[derive(Clone, Debug)]
pub struct BondExperiment {
    /// Name of the experiment.
    pub name: String,
    /// Access schemes, from [`SCHEMES`].
    pub schemes: Vec<&'static str>,
    /// Numbers of stations that compete with the link's station.
    pub stations: Vec<usize>,
    /// Number of seeds, counted from 1.
    pub seeds: u64,
    /// The links, one of which has the profile `mmwave`, and the systems to compare.
    pub scenario: Scenario,
}

impl File {
    /// Reads a file, and the scenario that it names.
    ///
    /// # Errors
    ///
    /// The file does not exist, or it or its scenario is invalid; the error lists all problems.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        load(file, Self::parse)
    }

    /// Parses a text as the content of that file.
    ///
    /// # Errors
    ///
    /// All problems with their lines.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Vec<Problem>> {
        parse(file, text, "the experiment", read)
    }
}

/// Keys that only some kinds have.
const KEYS_OF_KINDS: [(&str, &[&str]); 7] = [
    ("blockage", &["jain"]),
    ("stations", &["overhead", "stations", "bond"]),
    ("failure", &["overhead"]),
    ("speeds", &["mobility"]),
    ("good_beams", &["good-beams"]),
    ("gamma_db", &["gamma"]),
    ("scenario", &["bond"]),
];
/// Keys that a kind varies, which its cell must not set.
const VARIED: [(&str, &[&str]); 4] = [
    ("jain", &["blockage", "blockers_m"]),
    ("overhead", &["stations"]),
    ("stations", &["stations"]),
    ("mobility", &["speed_mps"]),
];
/// The kinds, for messages.
const KINDS: &str = "\"jain\", \"overhead\", \"stations\", \"mobility\", \"good-beams\", \"gamma\" or \
                     \"bond\"";

fn read(document: &mut Document<'_>, root: &mut Section<'_, '_>) -> Option<File> {
    let name = root.parsed(document, "name", crate::scenario::parse_name);
    if !root.has("name") {
        root.missing(document, "name", "name = \"jain\"");
    }
    root.text(document, "about");
    let kind = root.text(document, "kind");
    if !root.has("kind") {
        let example = format!("kind = {KINDS}");
        root.missing(document, "kind", &example);
    }
    let schemes = read_schemes(document, root);
    let seeds = root.integer(document, "seeds", 1..10_001);
    let seeds = seeds.map(|at| at.value);
    // Known for every kind, and if the kind is missing.
    for (key, _) in KEYS_OF_KINDS {
        root.has(key);
    }
    root.has("cell");
    for scheme in SCHEMES {
        root.has(scheme);
    }
    let kind = kind?;
    for (key, kinds) in KEYS_OF_KINDS {
        if let Some(value) = root.value(key)
            && !kinds.contains(&kind.value.as_str())
        {
            let reason = format!(
                "`{key}` does not apply to an experiment of kind \"{}\"",
                kind.value
            );
            document.problem(&value.span(), reason);
        }
    }
    if kind.value == "bond" {
        if let Some(cell) = root.value("cell") {
            let reason = "[cell]: the cell of a bond is set at its link, in the scenario";
            document.problem(&cell.span(), reason);
        }
        for scheme in SCHEMES {
            if let Some(rules) = root.value(scheme) {
                let reason = format!("[{scheme}]: the schemes of a bond have no settings");
                document.problem(&rules.span(), reason);
            }
        }
        return read_bond(document, root, name?.value, schemes, seeds);
    }
    let cell = match root.value("cell") {
        None => CellConfig::default(),
        Some(value) => {
            let mut section = Section::of(document, value, "[cell]")?;
            let varied = VARIED.iter().filter(|(of, _)| *of == kind.value);
            for key in varied.flat_map(|(_, keys)| *keys) {
                if let Some(value) = section.value(key) {
                    let reason = format!(
                        "`{key}` is varied by an experiment of kind \"{}\": remove it from the \
                         cell",
                        kind.value
                    );
                    document.problem(&value.span(), reason);
                }
            }
            cell::read(document, section)
        }
    };
    let rules = rules::read(document, root, &kind.value);
    let kind = match kind.value.as_str() {
        "jain" => {
            let blockage = cell::numbers(document, root, "blockage");
            if !root.has("blockage") {
                root.missing(document, "blockage", "blockage = [0.1, 0.2]");
            }
            Kind::Jain(blockage?)
        }
        "overhead" => {
            let failure = root.number(document, "failure");
            Kind::Overhead {
                stations: read_stations(document, root)?,
                failure: failure.map_or(0.1, |at| at.value),
            }
        }
        "stations" => Kind::Stations(read_stations(document, root)?),
        "mobility" => {
            let speeds = cell::numbers(document, root, "speeds");
            if !root.has("speeds") {
                root.missing(document, "speeds", "speeds = [0, 1.4], in m/s");
            }
            Kind::Mobility(speeds?)
        }
        "good-beams" => {
            let beams = cell::numbers(document, root, "good_beams");
            if !root.has("good_beams") {
                root.missing(document, "good_beams", "good_beams = [1.5, 4], values of K");
            }
            Kind::GoodBeams(beams?)
        }
        "gamma" => {
            let gammas = cell::numbers(document, root, "gamma_db");
            if !root.has("gamma_db") {
                root.missing(document, "gamma_db", "gamma_db = [4, 10], in dB");
            }
            Kind::Gamma(gammas?)
        }
        other => {
            let reason = format!("`{other}` is not a kind of experiment: write {KINDS}");
            document.problem(&kind.span, reason);
            return None;
        }
    };
    Some(File::Cells(Box::new(Experiment {
        name: name?.value,
        kind,
        schemes,
        rules,
        seeds: 1..=seeds.unwrap_or(10),
        cell,
    })))
}

fn read_bond(
    document: &mut Document<'_>,
    root: &mut Section<'_, '_>,
    name: String,
    schemes: Vec<&'static str>,
    seeds: Option<u64>,
) -> Option<File> {
    let stations = read_stations(document, root);
    let path = root.text(document, "scenario");
    if !root.has("scenario") {
        root.missing(document, "scenario", "scenario = \"FILE\", with its links");
    }
    let path = path?;
    let scenario = match Scenario::load(&document.path(&path.value)) {
        Ok(scenario) => scenario,
        Err(LoadError::Problems(problems)) => {
            for problem in problems {
                document.problem_elsewhere(problem);
            }
            return None;
        }
        Err(error) => {
            document.problem(&path.span, format!("scenario: {error}"));
            return None;
        }
    };
    if scenario.wigig_links().count() != 1 {
        let reason = "scenario: exactly one of its links must have profile = \"mmwave\"";
        document.problem(&path.span, reason);
    }
    Some(File::Bond(Box::new(BondExperiment {
        name,
        schemes,
        stations: stations?,
        seeds: seeds.unwrap_or(scenario.seeds),
        scenario,
    })))
}

/// The named schemes, or all if none is named.
fn read_schemes(document: &mut Document<'_>, root: &mut Section<'_, '_>) -> Vec<&'static str> {
    let Some(listed) = root.texts(document, "schemes") else {
        return SCHEMES.to_vec();
    };
    let mut found: Vec<&'static str> = Vec::new();
    for At { span, value } in &listed {
        match SCHEMES.into_iter().find(|known| known == value) {
            Some(scheme) if found.contains(&scheme) => {
                document.problem(span, format!("schemes: `{value}` appears twice"));
            }
            Some(scheme) => found.push(scheme),
            None => {
                let known = SCHEMES.join(", ");
                let reason = format!("`{value}` is not an access scheme: there are {known}");
                document.problem(span, reason);
            }
        }
    }
    if listed.is_empty() {
        document.problem(&root.span(), "schemes: name at least one");
    }
    found
}

/// Whole numbers of stations, at least one.
fn read_stations(document: &mut Document<'_>, root: &mut Section<'_, '_>) -> Option<Vec<usize>> {
    let Some(value) = root.value("stations") else {
        root.missing(document, "stations", "stations = [2, 4, 8]");
        return None;
    };
    let span = value.span();
    let all = cell::numbers(document, root, "stations")?;
    let whole = |number: &f64| number.fract() == 0.0 && (0.0..=1023.0).contains(number);
    if !all.iter().all(whole) {
        document.problem(&span, "stations are whole numbers from 0 to 1023");
        return None;
    }
    Some(all.iter().map(|number| *number as usize).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const GOOD: &str = "name = \"j\"\nkind = \"jain\"\nblockage = [0.0, 0.2]\nseeds = 2\n\
                        schemes = [\"jpoc\"]\n\
                        [cell]\nstations = 4\nsectors = [36, 64]\n";

    fn parse(text: &str) -> Result<File, Vec<Problem>> {
        File::parse(Path::new("e.toml"), text)
    }

    #[test]
    fn missing_settings_are_those_of_the_thesis() {
        let File::Cells(read) = parse(GOOD).unwrap() else {
            panic!("no cells");
        };
        assert_eq!(read.kind, Kind::Jain(vec![0.0, 0.2]));
        assert_eq!(
            (read.schemes.as_slice(), read.seeds),
            (&["jpoc"][..], 1..=2)
        );
        assert_eq!(read.cell.stations, 4);
        assert_eq!(read.cell.sectors, [36, 64]);
        assert_eq!(read.cell.radius, CellConfig::default().radius);
    }

    #[test]
    fn mistakes_have_their_lines() {
        for (from, to, line, hint) in [
            ("\"jain\"", "\"jane\"", 2, "write \"jain\", \"overhead\","),
            (
                "blockage = [0.0, 0.2]",
                "stations = [2]",
                3,
                "does not apply",
            ),
            ("[0.0, 0.2]", "[]", 3, "list of numbers"),
            ("seeds = 2", "seeds = 0", 4, "from 1 to 10000"),
            ("\"jpoc\"", "\"jpok\"", 5, "there are 80211ad"),
            ("\"jpoc\"", "\"jpoc\", \"jpoc\"", 5, "appears twice"),
            ("stations = 4", "station = 4", 7, "no key 'station'"),
            (
                "stations = 4",
                "office = \"big\"",
                7,
                "\"mixed\" or \"open\"",
            ),
            (
                "stations = 4",
                "blockage = 0.1",
                7,
                "is varied by an experiment",
            ),
            (
                "stations = 4",
                "blockers_m = -1",
                7,
                "is varied by an experiment",
            ),
            ("[36, 64]", "[36.5]", 8, "whole numbers"),
            ("stations = 4", "patterns = \"none\"", 7, "cannot read none"),
        ] {
            let problems = parse(&GOOD.replace(from, to)).unwrap_err();
            let is_it = |p: &&Problem| p.line == line && p.reason.contains(hint);
            assert!(problems.iter().any(|p| is_it(&p)), "{to}: {problems:?}");
        }
        let walks = "name = \"w\"\nkind = \"mobility\"\nspeeds = [1]\n[cell]\n";
        for (cell, line, hint) in [
            ("blockage = 0.1\nblockers_m = 1.0\n", 6, "contradict"),
            ("speed_mps = 1\n", 5, "is varied by an experiment"),
        ] {
            let problems = parse(&format!("{walks}{cell}")).unwrap_err();
            let is_it = |p: &Problem| p.line == line && p.reason.contains(hint);
            assert!(problems.iter().any(is_it), "{cell}: {problems:?}");
        }
        let overhead = "name = \"o\"\nkind = \"overhead\"\nstations = [2, 2.5]\n";
        let problems = parse(overhead).unwrap_err();
        assert!(problems[0].reason.contains("whole numbers"), "{problems:?}");
    }

    #[test]
    fn every_experiment_of_the_project_is_right() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/mmwave");
        let files = fs::read_dir(directory).unwrap();
        let files = files.map(|entry| entry.unwrap().path());
        // The directory also contains a scenario with the links of an experiment.
        let files = files.filter(|file| !file.ends_with("wigig.toml"));
        let read: Vec<_> = files.map(|file| File::load(&file).unwrap()).collect();
        assert!(read.len() >= 6, "{}", read.len());
    }

    #[test]
    fn measured_beams_are_read_and_gaps_in_them_reported() {
        let directory = tempfile::tempdir().unwrap();
        let text =
            "name = \"s\"\nkind = \"stations\"\nstations = [1]\n[cell]\npatterns = \"p.csv\"\n";
        let parse = |text: &str, pattern: &str| {
            fs::write(directory.path().join("p.csv"), pattern).unwrap();
            File::parse(&directory.path().join("s.toml"), text)
        };
        let good = "a,-10,0,3\na,10,0,7\n";
        let File::Cells(read) = parse(text, good).unwrap() else {
            panic!("no cells");
        };
        assert_eq!(read.kind, Kind::Stations(vec![1]));
        assert_eq!(read.cell.pattern.unwrap().beams(), 1);
        for (pattern, line, hint) in [
            (
                "a,-10,0,3\na,10,0,7\nb,10,0,1\n",
                1,
                "has no gain at azimuth -10",
            ),
            ("a,-10,0,3\na,10,0\n", 2, "the gain is missing"),
        ] {
            let problems = parse(text, pattern).unwrap_err();
            let message = &problems[0];
            assert!(
                message.file.ends_with("p.csv") && message.line == line,
                "{message:?}"
            );
            assert!(message.reason.contains(hint), "{message:?}");
        }
        let problems = parse(&format!("{text}sectors = [64]\n"), good).unwrap_err();
        assert!(problems[0].reason.contains("contradict"), "{problems:?}");
    }

    #[test]
    fn a_bond_has_a_scenario_with_a_wigig_link() {
        let directory = tempfile::tempdir().unwrap();
        let links =
            "name = \"l\"\nduration = \"2s\"\nseeds = 3\n[[link]]\nname = \"wigig\"\nscale = 0.1\n";
        let wigig = "profile = \"mmwave\"\naccess = \"jpoc\"\nstations = 1\n";
        let text = "name = \"b\"\nkind = \"bond\"\nscenario = \"l.toml\"\nstations = [1, 8]\n";
        let file = directory.path().join("b.toml");
        let parse = |links: &str| {
            fs::write(directory.path().join("l.toml"), links).unwrap();
            File::parse(&file, text)
        };
        let File::Bond(bond) = parse(&format!("{links}{wigig}")).unwrap() else {
            panic!("no bond");
        };
        assert_eq!((bond.seeds, bond.stations.as_slice()), (3, &[1, 8][..]));
        assert_eq!(bond.schemes, SCHEMES);
        let problems = parse(&format!("{links}profile = \"lte\"\n")).unwrap_err();
        assert!(
            problems[0]
                .reason
                .contains("exactly one of its links must have"),
            "{problems:?}"
        );
        assert_eq!(problems[0].line, 3);
        let problems = parse(&format!("{links}{wigig}color = \"red\"\n")).unwrap_err();
        assert!(problems[0].file.ends_with("l.toml"), "{problems:?}");
    }
}
