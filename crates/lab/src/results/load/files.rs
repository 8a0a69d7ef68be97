//! The files of one scenario: its runs, and the scenario text that was run.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use sumlink_util::plain;
use toml::{Table, Value};

use super::super::{Run, SCHEMA};
use super::{EventMark, ScenarioResults};
use sumlink_settings::units::parse_duration;

/// Larger files are not results: an hour with a thousand intervals of 64 links takes a tenth of
/// this.
const LARGEST_FILE: u64 = 256 << 20;

/// Reads a run; the error gives the reason.
pub(super) fn read_run(path: &Path) -> Result<Run, String> {
    #[derive(Deserialize)]
    struct Versioned {
        schema: u32,
    }
    let cannot = |error: std::io::Error| format!("cannot read it: {}", plain(error));
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
            "it is truncated: run that seed again".to_owned()
        } else {
            format!("not a result: {error}")
        }
    };
    let versioned: Versioned = serde_json::from_slice(&text).map_err(broken)?;
    if versioned.schema != SCHEMA {
        return Err(format!(
            "its schema is {}, and this version reads {SCHEMA}: use the version that wrote it for \
             the report",
            versioned.schema
        ));
    }
    serde_json::from_slice(&text).map_err(broken)
}

/// Reads the parts of the scenario file that the report shows. Another version may have checked the
/// file when it was run: unknown keys are ignored.
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
                "cannot read {} ({error}): links and systems are in the order of the results",
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
