//! Reads results from a directory; unreadable files are skipped and listed with the reason.

mod files;

use std::fs;
use std::path::{Path, PathBuf};

use super::{Run, ScenarioHeader, Summary};
use crate::error::LabError;

use files::{read_run, read_scenario_file};

/// The results of one scenario in a directory.
#[derive(Clone, Debug, Default)]
pub struct ScenarioResults {
    /// The scenario's directory.
    pub directory: PathBuf,
    /// Properties from the scenario's file.
    pub header: ScenarioHeader,
    /// The warm-up at the start of a run, in seconds; it is not measured.
    pub warmup_s: f64,
    /// Events of the links during a run.
    pub events: Vec<EventMark>,
    /// Name of the scenario that measured the same links without interference (`clean = "NAME"`).
    pub clean: Option<String>,
    /// The runs, all of the same scenario text.
    pub runs: Vec<Run>,
    /// Skipped files, with the reason.
    pub warnings: Vec<String>,
}

/// An event, as shown in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventMark {
    /// Time in seconds since the start of the run.
    pub at_s: f64,
    /// The affected link.
    pub link: String,
    /// Description of the change.
    pub what: String,
}

/// Reads the results in a directory: of one scenario, or of several in subdirectories. Scenarios
/// are in the order of their directories' names.
///
/// Files that are unreadable, truncated, of another schema or of another text of the scenario are
/// skipped and listed in [`ScenarioResults::warnings`]. Fails if there are no results at all, or if
/// the directory cannot be read.
pub fn load(directory: &Path) -> Result<Vec<ScenarioResults>, LabError> {
    let own = subdirectories(directory)?;
    let candidates = if own.iter().any(|path| is_seed(path)) {
        vec![directory.to_path_buf()]
    } else {
        own
    };
    let mut all = Vec::new();
    for candidate in candidates {
        let seeds = subdirectories(&candidate)?;
        let seeds: Vec<PathBuf> = seeds.into_iter().filter(|path| is_seed(path)).collect();
        if !seeds.is_empty() {
            all.push(scenario(&candidate, &seeds));
        }
    }
    if all.is_empty() {
        return Err(LabError::Usage(format!(
            "no results in {}: create them with sumlink-lab run FILE --out {}",
            directory.display(),
            directory.display()
        )));
    }
    connect_clean(&mut all);
    Ok(all)
}

fn scenario(directory: &Path, seeds: &[PathBuf]) -> ScenarioResults {
    let mut results = ScenarioResults {
        directory: directory.to_path_buf(),
        ..ScenarioResults::default()
    };
    for seed in seeds {
        for file in result_files(seed, &mut results.warnings) {
            match read_run(&file) {
                Ok(run) => results.runs.push(run),
                Err(reason) => results
                    .warnings
                    .push(format!("{} was skipped: {reason}", file.display())),
            }
        }
    }
    // The newest run decides which scenario text counts.
    let newest = results.runs.iter().max_by_key(|run| run.started_unix_s);
    let (hash, name) = newest.map_or_else(Default::default, |run| {
        (run.scenario_sha256.clone(), run.scenario.clone())
    });
    let before = results.runs.len();
    results
        .runs
        .retain(|run| run.scenario_sha256 == hash && run.scenario == name);
    let foreign = before - results.runs.len();
    if foreign > 0 {
        results.warnings.push(format!(
            "{foreign} runs in {} were skipped: they are of another scenario or an earlier text of \
             it; run it again",
            directory.display()
        ));
    }
    results.header.name = if name.is_empty() {
        directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    } else {
        name
    };
    read_scenario_file(&mut results);
    results
}

/// Subdirectories, sorted by name; numbers in names by value.
fn subdirectories(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = fs::read_dir(directory).map_err(LabError::file(directory))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(LabError::file(directory))?.path();
        if path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort_by_key(|path| (seed_number(path), path.clone()));
    Ok(paths)
}

fn seed_number(path: &Path) -> Option<u64> {
    path.file_name()?
        .to_str()?
        .strip_prefix("seed-")?
        .parse()
        .ok()
}

fn is_seed(path: &Path) -> bool {
    seed_number(path).is_some()
}

fn result_files(directory: &Path, warnings: &mut Vec<String>) -> Vec<PathBuf> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => {
            warnings.push(format!("cannot read {}: {error}", directory.display()));
            return Vec::new();
        }
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    files
}

/// Adds MPTCP's goodput on clean links to scenarios that name another scenario in this directory.
fn connect_clean(all: &mut [ScenarioResults]) {
    for index in 0..all.len() {
        let Some(clean) = all[index].clean.clone() else {
            continue;
        };
        let other = all.iter().find(|other| other.header.name == clean);
        let median = other.and_then(|other| {
            let summary = Summary::from_runs(&other.header, &other.runs);
            Some(summary.system(super::MPTCP)?.goodput_bps.as_ref()?.median)
        });
        if median.is_none() {
            let warning =
                format!("bounds without MPTCP on clean links: '{clean}' has no figure for it here");
            all[index].warnings.push(warning);
        }
        all[index].header.clean_mptcp_bps = median;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn unreadable_files_are_skipped_and_named() {
        let base = tempfile::tempdir().unwrap();
        sample::write(base.path());
        let seed = base.path().join("los/seed-1");
        let good = fs::read_to_string(seed.join("mptcp.json")).unwrap();
        fs::write(seed.join("cut.json"), &good[..good.len() / 2]).unwrap();
        fs::write(
            seed.join("new.json"),
            good.replacen("\"schema\":1", "\"schema\":2", 1),
        )
        .unwrap();
        fs::write(seed.join("text.json"), "hello").unwrap();
        fs::write(seed.join("empty.json"), "").unwrap();
        fs::write(seed.join("bytes.json"), [0xff, 0xfe, 0]).unwrap();
        fs::write(
            seed.join("null.json"),
            good.replacen("\"seed\":1", "\"seed\":null", 1),
        )
        .unwrap();
        let foreign = good.replacen("\"scenario_sha256\":\"", "\"scenario_sha256\":\"other", 1);
        fs::write(seed.join("foreign.json"), foreign).unwrap();
        let before = load(base.path()).unwrap();
        let los = before
            .iter()
            .find(|results| results.header.name == "los")
            .unwrap();
        let warnings = los.warnings.join("\n");
        for (file, reason) in [
            ("cut", "truncated"),
            ("new", "schema is 2"),
            ("text", "not a result"),
            ("empty", "truncated"),
            ("bytes", "not a result"),
            ("null", "not a result"),
        ] {
            let named =
                |line: &str| line.contains(&format!("{file}.json")) && line.contains(reason);
            assert!(warnings.lines().any(named), "{file}: {warnings}");
        }
        assert!(warnings.contains("1 runs"), "{warnings}");
        assert_eq!(los.warnings.len(), 7);
    }

    #[test]
    fn one_scenario_or_several_or_none() {
        let base = tempfile::tempdir().unwrap();
        let error = load(base.path()).unwrap_err().to_string();
        assert!(error.contains("no results"), "{error}");
        assert!(load(&base.path().join("missing")).is_err());
        sample::write(base.path());
        let all = load(base.path()).unwrap();
        let names: Vec<_> = all
            .iter()
            .map(|results| results.header.name.as_str())
            .collect();
        assert_eq!(names, ["files", "los", "loss", "voice"]);
        let one = load(&base.path().join("loss")).unwrap();
        assert_eq!(one.len(), 1);
        // A scenario read alone lacks the results of its clean counterpart.
        assert!(one[0].header.clean_mptcp_bps.is_none());
        assert!(all[2].header.clean_mptcp_bps.is_some());
        assert_eq!(all[2].events.len(), 1);
    }
}
