//! Reads a file from its first key to its last, for any kind of file.

use std::path::Path;

use toml::de::DeTable;

use super::document::Document;
use super::section::Section;
use crate::error::LoadError;
use crate::problem::Problem;
use sumlink_settings::unquoted;

/// Reads a file and parses its text with `parse`.
///
/// # Errors
///
/// The file does not exist, or the problems that `parse` finds.
pub fn load<T>(
    file: &Path,
    parse: impl FnOnce(&Path, &str) -> Result<T, Vec<Problem>>,
) -> Result<T, LoadError> {
    let text = std::fs::read_to_string(file).map_err(|source| LoadError::File {
        path: file.to_path_buf(),
        source,
    })?;
    parse(file, &text).map_err(LoadError::Problems)
}

/// Parses a text as the content of that file with `read`, which gets its root table; `title` names
/// the table in messages. Keys that `read` does not request are problems.
///
/// # Errors
///
/// All problems with their lines.
pub fn parse<T>(
    file: &Path,
    text: &str,
    title: &str,
    read: impl FnOnce(&mut Document<'_>, &mut Section<'_, '_>) -> Option<T>,
) -> Result<T, Vec<Problem>> {
    let mut document = Document::new(file, text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let span = error.span().unwrap_or(0..0);
        match unquoted::find(text, span.start) {
            Some(found) => {
                let reason = format!("column {}: {}", found.column, found.advice());
                document.problem(&found.span, reason);
            }
            None => document.problem(&span, error.message()),
        }
    }
    // After a syntax error the rest may be misinterpreted.
    if !errors.is_empty() {
        return Err(document.into_problems());
    }
    let mut root = Section::new(&table, title);
    let read = read(&mut document, &mut root);
    root.finish(&mut document);
    match read {
        Some(read) if document.is_right() => Ok(read),
        _ => Err(document.into_problems()),
    }
}
