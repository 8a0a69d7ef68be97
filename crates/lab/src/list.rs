//! `lab list` and `lab check`: inspect scenarios without running them.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::bench::{self, Group};
use crate::error::LabError;
use crate::prose::{cut, first_sentence, print};
use crate::scenario::Scenario;
use sumlink_settings::units::format_duration;

/// Maximum characters of a description: its first sentence, shortened if necessary.
const ABOUT: usize = 84;

/// Lists the scenarios of a directory, and groups of a matrix; invalid files are listed with their
/// first problem.
pub(crate) fn list(directory: &Path, as_json: bool) -> Result<(), LabError> {
    let entries = fs::read_dir(directory).map_err(LabError::scenario_file(directory))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    files.sort();
    if files.is_empty() && !as_json {
        return print(&format!("no scenarios in {}\n", directory.display()));
    }
    let mut text = String::new();
    for file in &files {
        if let Some(group) = bench::group(file) {
            let _ = match as_json {
                true => writeln!(text, "{}", group_json(file, &group)),
                false => writeln!(
                    text,
                    "{:<35} {:>3} rows of a matrix  {}",
                    group.name,
                    group.rows.len(),
                    cut(&first_sentence(&group.about), ABOUT)
                ),
            };
            continue;
        }
        let loaded = Scenario::load(file).map_err(LabError::from);
        if as_json {
            let _ = writeln!(text, "{}", entry_json(file, &loaded));
            continue;
        }
        let _ = match loaded {
            Ok(scenario) => writeln!(
                text,
                "{:<35} {:>5} {:<8} {:>2} links  {}",
                scenario.name,
                format_duration(scenario.duration),
                scenario.workload.kind(),
                scenario.links().count(),
                cut(&first_sentence(&scenario.about), ABOUT)
            ),
            Err(error) => {
                let message = error.to_string();
                writeln!(text, "{}", message.lines().next().unwrap_or_default())
            }
        };
    }
    print(&text)
}

/// Checks scenarios; the error lists the problems of all files.
pub(crate) fn check(files: &[PathBuf], as_json: bool) -> Result<(), LabError> {
    let mut problems = Vec::new();
    for file in files {
        let loaded = Scenario::load(file).map_err(LabError::from);
        if as_json {
            print(&format!("{}\n", entry_json(file, &loaded)))?;
        }
        match loaded {
            Ok(scenario) if !as_json => print(&format!(
                "{}: ok, {}: {} links, {} x {}, {}\n",
                file.display(),
                scenario.name,
                scenario.links().count(),
                scenario.seeds,
                format_duration(scenario.duration),
                scenario.systems.join(" ")
            ))?,
            Ok(_) => {}
            Err(LabError::Scenario(found)) => problems.extend(found),
            Err(error) => return Err(error),
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(LabError::Scenario(problems))
    }
}

fn group_json(file: &Path, group: &Group) -> serde_json::Value {
    json!({
        "file": file,
        "ok": true,
        "name": group.name,
        "about": group.about,
        "rows": group.rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
        "problems": [],
    })
}

fn entry_json(file: &Path, loaded: &Result<Scenario, LabError>) -> serde_json::Value {
    match loaded {
        Ok(scenario) => json!({
            "file": file,
            "ok": true,
            "name": scenario.name,
            "about": scenario.about,
            "duration_s": scenario.duration.as_secs_f64(),
            "warmup_s": scenario.warmup.as_secs_f64(),
            "direction": scenario.traffic.name(),
            "workload": scenario.workload.kind(),
            "seeds": scenario.seeds,
            "systems": scenario.systems,
            "links": scenario.links().map(|link| &link.name).collect::<Vec<_>>(),
            "problems": [],
        }),
        Err(LabError::Scenario(problems)) => {
            json!({ "file": file, "ok": false, "problems": problems })
        }
        Err(error) => {
            json!({ "file": file, "ok": false, "problems": [{ "reason": error.to_string() }] })
        }
    }
}
