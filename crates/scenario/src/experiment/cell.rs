//! `[cell]` of an experiment.

use std::fs;
use std::sync::Arc;

use sumlink_mmwave::cell::{Blockage, CellConfig};
use sumlink_mmwave::channel::inh::Office;
use sumlink_mmwave::mobility::Walk;
use sumlink_mmwave::{MmwaveError, Pattern};

use crate::scenario::{At, Document, Problem, Section, text_of};

/// Larger than any valid count; the exact limits are checked when the cell is made.
const MAX_COUNT: u64 = 1 << 32;

/// Reads the cell; defaults are those of section 3.3.2.
pub(super) fn read(document: &mut Document<'_>, mut section: Section<'_, '_>) -> CellConfig {
    let mut cell = CellConfig::default();
    let mut count = |document: &mut Document<'_>, key, least, to: &mut usize| {
        if let Some(at) = section.integer(document, key, least..MAX_COUNT) {
            *to = at.value as usize;
        }
    };
    count(document, "stations", 0, &mut cell.stations);
    count(document, "chatty", 0, &mut cell.chatty);
    count(document, "panels", 0, &mut cell.panels);
    count(document, "intervals", 0, &mut cell.intervals);
    let mut number = |document: &mut Document<'_>, key, to: &mut f64| {
        if let Some(at) = section.number(document, key) {
            *to = at.value;
        }
    };
    number(document, "radius_m", &mut cell.radius);
    number(document, "ap_height_m", &mut cell.heights.0);
    number(document, "station_height_m", &mut cell.heights.1);
    number(document, "ap_power_dbm", &mut cell.power_dbm.0);
    number(document, "station_power_dbm", &mut cell.power_dbm.1);
    number(document, "facing_deg", &mut cell.facing_deg);
    let sectors = section.value("sectors").map(|value| value.span());
    if let (Some(sectors), Some(span)) = (numbers(document, &mut section, "sectors"), sectors) {
        if sectors.iter().any(|number| number.fract() != 0.0) {
            document.problem(&span, "sectors are whole numbers: 36 or 64");
        }
        cell.sectors = sectors.iter().map(|number| *number as usize).collect();
        if section.has("patterns") {
            document.problem(
                &span,
                "`sectors` and `patterns` contradict each other: remove one",
            );
        }
    }
    if let Some(at) = section.text(document, "patterns") {
        cell.pattern = read_pattern(document, &at).map(Arc::new);
    }
    if let Some(value) = section.value("office") {
        match text_of(document, value, "office")
            .as_ref()
            .map(|at| at.value.as_str())
        {
            Some("mixed") => cell.office = Office::Mixed,
            Some("open") => cell.office = Office::Open,
            Some(other) => {
                let reason = format!("`{other}` is not an office: write \"mixed\" or \"open\"");
                document.problem(&value.span(), reason);
            }
            None => {}
        }
    }
    let blockage = section.number(document, "blockage");
    let blockers = section.number(document, "blockers_m");
    match (blockage, blockers) {
        (Some(_), Some(blockers)) => {
            let reason = "`blockage` and `blockers_m` contradict each other: remove one";
            document.problem(&blockers.span, reason);
        }
        (Some(at), None) => cell.blockage = Blockage::Probability(at.value),
        (None, Some(at)) => cell.blockage = Blockage::ModelA { meters: at.value },
        (None, None) => {}
    }
    let speed = section.number(document, "speed_mps");
    let pause = section.number(document, "pause_s");
    let turning = section.number(document, "turning_deg_s");
    if speed.is_some() || pause.is_some() || turning.is_some() {
        cell.walk = Some(Walk {
            speed: speed.map_or(0.0, |at| at.value),
            pause: pause.map_or(0.0, |at| at.value),
            turning: turning.map_or(0.0, |at| at.value),
        });
    }
    if let Some(skip) = section.boolean(document, "skip_useless") {
        cell.skip_useless = skip;
    }
    section.finish(document);
    cell
}

/// Reads measured beams; problems of the file are reported with its lines.
fn read_pattern(document: &mut Document<'_>, at: &At<String>) -> Option<Pattern> {
    let file = document.path(&at.value);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            let reason = format!("patterns: cannot read {}: {error}", file.display());
            document.problem(&at.span, reason);
            return None;
        }
    };
    let read = text.parse::<Pattern>();
    let error = match read {
        Ok(pattern) => return Some(pattern),
        Err(error) => error,
    };
    document.problem_elsewhere(Problem {
        file,
        line: match &error {
            MmwaveError::PatternLine { line, .. } => *line,
            _ => 1,
        },
        reason: error.to_string(),
    });
    None
}

/// A non-empty list of numbers.
pub(super) fn numbers(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    key: &'static str,
) -> Option<Vec<f64>> {
    let value = section.value(key)?;
    let listed = value.get_ref().as_array();
    let read: Option<Vec<f64>> =
        listed.and_then(|all| all.iter().map(crate::scenario::number_of).collect());
    let read = read.filter(|all| !all.is_empty());
    if read.is_none() {
        document.problem(
            &value.span(),
            format!("{key} must be a list of numbers: {key} = [1, 2]"),
        );
    }
    read
}
