//! Tables and values of a file with their positions, and every value that does not fit.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use sumlink_settings::unquoted;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::closest;

/// A parsed TOML file.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    /// Contents of the file without the mistakes.
    table: DeTable<'a>,
    /// Keys at the top of the file with their positions, whether their values are valid or not, and
    /// keys corrected from mistyped ones.
    keys: BTreeMap<String, Range<usize>>,
}

/// One mistake.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    /// Position in the file, in bytes.
    pub(super) span: Range<usize>,
    /// Column, if known.
    pub(super) column: Option<usize>,
    /// The problem, on one line.
    pub(super) reason: String,
    /// The key that was most likely meant.
    meant: Option<String>,
}

impl<'a> Document<'a> {
    /// Parses a file; the mistakes are those of the syntax, at most one per line.
    pub(super) fn parse(text: &'a str) -> (Self, Vec<Mistake>) {
        let (table, errors) = DeTable::parse_recoverable(text);
        let line = |span: &Range<usize>| text.get(..span.start).map(|t| t.matches('\n').count());
        let mut mistakes: Vec<Mistake> = Vec::new();
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let mistake = match unquoted::find(text, span.start) {
                Some(found) => Mistake {
                    column: Some(found.column),
                    reason: found.advice(),
                    meant: None,
                    span: found.span,
                },
                None => explain(span, error.message()),
            };
            if mistakes.last().map(|m| line(&m.span)) != Some(line(&mistake.span)) {
                mistakes.push(mistake);
            }
        }
        let mut document = Self {
            text,
            table: table.into_inner(),
            keys: BTreeMap::new(),
        };
        document.note_keys();
        (document, mistakes)
    }

    /// Whether the file has this key at its top, with a valid value or not.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// Keys at the top, with valid values or not, and their positions.
    pub(super) fn keys(&self) -> &BTreeMap<String, Range<usize>> {
        &self.keys
    }

    /// Deserializes the file into `T` as far as it fits, and returns the mistakes. serde stops at
    /// the first bad key or value, so that one is corrected or removed and the rest is tried again.
    pub(super) fn shape<T: DeserializeOwned>(&mut self) -> (Option<T>, Vec<Mistake>) {
        let mut mistakes = Vec::new();
        loop {
            let table = Spanned::new(0..self.text.len(), self.table.clone());
            let error = match T::deserialize(toml::Deserializer::from(table)) {
                Ok(shape) => return (Some(shape), mistakes),
                Err(error) => error,
            };
            let mistake = explain(error.span().unwrap_or(0..0), error.message());
            let mended = mend(&mut self.table, &mistake);
            mistakes.push(mistake);
            if !mended {
                return (None, mistakes);
            }
            self.note_keys();
        }
    }

    /// Mistakes for the keys at the top that are not in `known`.
    pub(super) fn unknown_keys(&self, known: &[&str]) -> Vec<Mistake> {
        let keys = self.table.keys();
        keys.filter(|key| !known.contains(&key.get_ref().as_ref()))
            .map(|key| unknown_key(key.span(), key.get_ref(), known))
            .collect()
    }

    fn note_keys(&mut self) {
        for key in self.table.keys() {
            let name = key.get_ref().to_string();
            self.keys.entry(name).or_insert_with(|| key.span());
        }
    }
}

/// Corrects the key of a mistake, or removes the key, value or block at its position, also in inner
/// tables; returns whether it was found.
fn mend<'a>(table: &mut DeTable<'a>, mistake: &Mistake) -> bool {
    // Inner values first: an array of blocks has the position of its first block.
    let inside = |(_, value): (_, &mut Spanned<DeValue<'a>>)| match value.get_mut() {
        DeValue::Table(table) => mend(table, mistake),
        DeValue::Array(array) => mend_in(array, mistake),
        _ => false,
    };
    if table.iter_mut().any(inside) {
        return true;
    }
    let mut found = false;
    let meant = mistake.meant.as_deref();
    let meant = meant.filter(|meant| table.keys().all(|key| key.get_ref() != meant));
    for (key, value) in std::mem::take(table) {
        if key.span() != mistake.span && value.span() != mistake.span {
            table.insert(key, value);
            continue;
        }
        found = true;
        if let Some(meant) = meant {
            table.insert(Spanned::new(key.span(), meant.to_owned().into()), value);
        }
    }
    found
}

/// [`mend`] for an array.
fn mend_in<'a>(array: &mut DeArray<'a>, mistake: &Mistake) -> bool {
    let inside = |element: &mut Spanned<DeValue<'a>>| match element.get_mut() {
        DeValue::Table(table) => mend(table, mistake),
        DeValue::Array(array) => mend_in(array, mistake),
        _ => false,
    };
    if array.iter_mut().any(inside) {
        return true;
    }
    let before = array.len();
    let elements = std::mem::replace(array, DeArray::new()).into_iter();
    elements
        .filter(|element| element.span() != mistake.span)
        .for_each(|element| array.push(element));
    array.len() < before
}

/// The message of toml or serde on one line, with a suggestion for a mistyped key.
fn explain(span: Range<usize>, message: &str) -> Mistake {
    let message = message.trim().replace('\n', "; ");
    // serde's message: unknown field `scks`, expected one of `server`, `socks`, ...
    let mut words = message
        .strip_prefix("unknown field `")
        .map(|rest| rest.split('`').step_by(2))
        .into_iter()
        .flatten();
    let Some(unknown) = words.next() else {
        return Mistake {
            column: None,
            reason: message.clone(),
            meant: None,
            span,
        };
    };
    unknown_key(span, unknown, &words.collect::<Vec<_>>())
}

/// The mistake of an unknown key.
fn unknown_key(span: Range<usize>, unknown: &str, known: &[&str]) -> Mistake {
    let meant = closest(unknown, known.iter().copied());
    let reason = match meant {
        Some(near) => format!("unknown key `{unknown}`: did you mean `{near}`?"),
        None => format!(
            "unknown key `{unknown}`: known keys are {}",
            known.join(", ")
        ),
    };
    let meant = meant.map(str::to_owned);
    Mistake {
        span,
        column: None,
        reason,
        meant,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_key_gets_a_suggestion_and_an_unknown_one_a_list() {
        for (unknown, reason, meant) in [
            (
                "scoks",
                "unknown key `scoks`: did you mean `socks`?",
                Some("socks"),
            ),
            (
                "bandwidth",
                "unknown key `bandwidth`: known keys are server, socks, http",
                None,
            ),
        ] {
            let message =
                format!("unknown field `{unknown}`, expected one of `server`, `socks`, `http`");
            let (reason, meant) = (reason.to_owned(), meant.map(str::to_owned));
            assert_eq!(
                explain(0..1, &message),
                Mistake {
                    span: 0..1,
                    column: None,
                    reason,
                    meant
                }
            );
        }
        assert_eq!(
            explain(0..1, "invalid type\nfoo").reason,
            "invalid type; foo"
        );
    }
}
