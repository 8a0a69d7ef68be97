//! The rate of a link: a constant, or a recording.

use std::fs::File;
use std::io::Read;

use sumlink_link::Trace;

use crate::config::{MAX_TRACE, Setting, check_rate};
use sumlink_settings::units::parse_rate;

use super::document::Document;
use super::each_way::each_way;
use super::section::{At, Section, text_of};
use crate::problem::Problem;

/// Keys for the rate; only one may be set, or both `down` and `up`.
pub(super) const RATE_KEYS: [&str; 4] = ["rate", "down", "up", "trace"];

/// Reads `rate`, or `down` and `up`, or `trace`; client to server first.
pub(super) fn read_rates(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    link: &str,
    gso: bool,
    traces: &mut Vec<String>,
) -> Option<[Setting; 2]> {
    let constant = |text: &str| rate_setting(link, text, gso);
    let both = section.parsed(document, "rate", constant);
    let down = section.parsed(document, "down", constant);
    let up = section.parsed(document, "up", constant);
    let trace = each_way(document, section, "trace", |document, value| {
        let path = text_of(document, value, "trace")?;
        let (trace, text) = load_trace(document, &path)?;
        traces.push(text);
        let setting = Setting::Trace(trace);
        match check_rate(link, &setting, gso) {
            Ok(()) => Some(setting),
            Err(error) => {
                document.problem(&path.span, error);
                None
            }
        }
    });
    match RATE_KEYS.map(|key| section.has(key)) {
        [true, false, false, false] => both.map(|at| [at.value.clone(), at.value]),
        [false, true, true, false] => Some([up?.value, down?.value]),
        [false, false, false, true] => match trace {
            [Some(up), Some(down)] => Some([up, down]),
            _ => None,
        },
        [false, false, false, false] => None,
        _ => {
            let reason = "[[link]]: set one of rate, down and up, or trace";
            document.problem(&section.span(), reason);
            None
        }
    }
}

/// Parses a rate and checks it against the emulator's capacity.
pub(crate) fn rate_setting(link: &str, text: &str, gso: bool) -> Result<Setting, String> {
    let rate = parse_rate(text).map_err(|error| error.to_string())?;
    let setting = Setting::Rate(rate);
    check_rate(link, &setting, gso).map_err(|error| error.to_string())?;
    Ok(setting)
}

/// Reads the trace that the scenario names; problems are reported with the trace's line.
fn load_trace(document: &mut Document<'_>, path: &At<String>) -> Option<(Trace, String)> {
    let file = document.path(&path.value);
    let mut text = String::new();
    let read = File::open(&file).and_then(|opened| {
        let limited = &mut opened.take(MAX_TRACE + 1);
        limited.read_to_string(&mut text)
    });
    match read {
        Err(error) => {
            document.problem(&path.span, format!("trace: {}: {error}", file.display()));
            return None;
        }
        Ok(len) if len as u64 > MAX_TRACE => {
            let reason = format!("trace: {} is larger than 256 MiB", file.display());
            document.problem(&path.span, reason);
            return None;
        }
        Ok(_) => {}
    }
    match text.parse::<Trace>() {
        Ok(trace) => Some((trace, text)),
        Err(error) => {
            let (line, reason) = split_line(&error.to_string());
            document.problem_elsewhere(Problem { file, line, reason });
            None
        }
    }
}

/// Splits the line number off a trace's error, which may start with `line 7: `.
fn split_line(message: &str) -> (usize, String) {
    message
        .strip_prefix("line ")
        .and_then(|rest| rest.split_once(": "))
        .and_then(|(line, reason)| Some((line.parse().ok()?, reason.to_owned())))
        .unwrap_or((1, message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_trace_is_found() {
        let error = "1\n2\n3\n4\n5\n6\nx\n".parse::<Trace>().unwrap_err();
        let (line, reason) = split_line(&error.to_string());
        assert_eq!(line, 7);
        assert!(reason.starts_with("\"x\" is not"), "{reason}");
        assert_eq!(split_line("no stamps"), (1, "no stamps".to_owned()));
    }
}
