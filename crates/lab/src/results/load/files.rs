//! The files of one scenario: its runs, and its text as it was run.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use sumlink_util::plain;
use toml::{Table, Value};

use super::super::{Run, SCHEMA};
use super::{EventMark, ScenarioResults};
use sumlink_settings::units::parse_duration;

/// A result larger than this is not one of ours: an hour of a thousand intervals of 64 links is a tenth of it.
const LARGEST_FILE: u64 = 256 << 20;

/// A run, or why there is none.
pub(super) fn read_run(path: &Path) -> Result<Run, String> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u32,
    }
    let cannot = |error: std::io::Error| format!("it cannot be read: {}", plain(error));
    let mut text = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(LARGEST_FILE + 1)
        .read_to_end(&mut text)
        .map_err(cannot)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(format!("it is larger than {} MiB", LARGEST_FILE >> 20));
    }
    let broken = |error: serde_json::Error| {
        if error.is_eof() {
            "it is cut off: run that seed again".to_owned()
        } else {
            format!("it is not a result: {error}")
        }
    };
    let versioned: Versioned = serde_json::from_slice(&text).map_err(broken)?;
    if versioned.schema != SCHEMA {
        return Err(format!(
            "it has schema {}, this program reads {SCHEMA}: report it with the version that wrote it",
            versioned.schema
        ));
    }
    serde_json::from_slice(&text).map_err(broken)
}

/// Takes from the scenario's file what a reader wants to know. The file was checked when it was run, perhaps by
/// another version: what is unknown here is passed over.
pub(super) fn read_scenario_file(results: &mut ScenarioResults) {
    let path = results.directory.join("scenario.toml");
    let table = match fs::read_to_string(&path) {
        Ok(text) => text
            .parse::<Table>()
            .map_err(|error| error.message().to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let table = match table {
        Ok(table) => table,
        Err(error) => {
            let warning = format!(
                "{} cannot be read ({error}): the order of links and systems is that of the results",
                path.display()
            );
            results.warnings.push(warning);
            return;
        }
    };
    let text = |table: &Table, key: &str| table.get(key)?.as_str().map(str::to_owned);
    let blocks = |key: &str| -> Vec<Table> {
        let list = table.get(key).and_then(Value::as_array);
        list.into_iter()
            .flatten()
            .filter_map(|block| block.as_table().cloned())
            .collect()
    };
    let seconds = |table: &Table, key: &str| {
        let text = table.get(key)?.as_str()?;
        Some(parse_duration(text).ok()?.as_secs_f64())
    };
    let header = &mut results.header;
    header.about = text(&table, "about").unwrap_or_default();
    header.direction = text(&table, "direction").unwrap_or_else(|| "down".to_owned());
    header.workload = table
        .get("workload")
        .and_then(|workload| text(workload.as_table()?, "kind"))
        .unwrap_or_else(|| "bulk".to_owned());
    header.limit_s = table
        .get("workload")
        .and_then(|workload| seconds(workload.as_table()?, "limit"));
    header.seeds = table
        .get("seeds")
        .and_then(Value::as_integer)
        .and_then(|seeds| usize::try_from(seeds).ok())
        .unwrap_or(0);
    header.links = blocks("link")
        .iter()
        .filter_map(|link| text(link, "name"))
        .collect();
    let systems = table.get("systems").and_then(Value::as_array);
    header.systems = systems
        .into_iter()
        .flatten()
        .filter_map(|system| system.as_str().map(str::to_owned))
        .collect();
    results.warmup_s = seconds(&table, "warmup").unwrap_or(0.0);
    results.clean = text(&table, "clean");
    results.events = blocks("event")
        .iter()
        .filter_map(|event| {
            let changes = event
                .iter()
                .filter(|(key, _)| *key != "at" && *key != "link");
            let words = changes.map(|(key, value)| match value.as_str() {
                Some(text) => format!("{key} {text}"),
                None => format!("{key} {value}"),
            });
            Some(EventMark {
                at_s: seconds(event, "at")?,
                link: text(event, "link")?,
                what: words.collect::<Vec<_>>().join(", "),
            })
        })
        .collect();
}
