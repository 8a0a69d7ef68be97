//! Tables and values of a file with their positions, and every value that does not fit.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use sumlink_settings::unquoted;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::{closest, messages};

/// A parsed TOML file.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    /// Contents of the file without the mistakes.
    table: DeTable<'a>,
    /// Keys at the top of the file with their positions, whether their values are valid or not, and
    /// keys corrected from mistyped ones.
    keys: BTreeMap<String, Range<usize>>,
    /// Values that did not fit: the positions of their blocks, and their keys.
    dropped: Vec<(Range<usize>, String)>,
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
                    reason: match messages::key_before(text, found.span.start) {
                        // The advice for a list repeats only the element.
                        Some(key) if !found.written.starts_with(key) => {
                            format!("`{key}`: {}", found.advice())
                        }
                        _ => found.advice(),
                    },
                    meant: None,
                    span: found.span,
                },
                None => Mistake {
                    column: None,
                    reason: messages::of_syntax(text, &span, error.message()),
                    meant: None,
                    span,
                },
            };
            if mistakes.last().map(|m| line(&m.span)) != Some(line(&mistake.span)) {
                mistakes.push(mistake);
            }
        }
        let mut document = Self {
            text,
            table: table.into_inner(),
            keys: BTreeMap::new(),
            dropped: Vec::new(),
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
            let span = error.span().unwrap_or(0..0);
            let key = key_at(&self.table, &span);
            let missing = messages::missing_key(error.message());
            let mistake = explain(span.clone(), key.as_deref(), error.message());
            let whole = 0..self.text.len();
            let mended = mend(&mut self.table, &whole, &mistake, &mut self.dropped);
            // A required value that does not fit is reported as such, not as a missing one.
            if !missing.is_some_and(|key| self.has_dropped(&span, key)) {
                mistakes.push(mistake);
            }
            if !mended {
                return (None, mistakes);
            }
            self.note_keys();
        }
    }

    /// Whether the block at this position had a value of this key that did not fit.
    pub(super) fn has_dropped(&self, block: &Range<usize>, key: &str) -> bool {
        let mut dropped = self.dropped.iter();
        dropped.any(|(span, dropped)| span == block && dropped == key)
    }

    /// The key that has its value, or an element of its list, at this position.
    pub(super) fn key_at(&self, span: &Range<usize>) -> Option<String> {
        key_at(&self.table, span)
    }

    /// The positions of the elements of the list at this position; empty if none is there.
    pub(super) fn elements(&self, span: &Range<usize>) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        visit(&self.table, &mut |_, value| {
            if let DeValue::Array(array) = value.get_ref()
                && value.span() == *span
            {
                found = array.iter().map(Spanned::span).collect();
            }
        });
        found
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

/// Shows every value with its key, and the elements of a list with the key of the list; inner ones
/// first.
fn visit<'d, 'a>(table: &'d DeTable<'a>, see: &mut dyn FnMut(&'d str, &'d Spanned<DeValue<'a>>)) {
    for (key, value) in table.iter() {
        visit_value(key.get_ref(), value, see);
    }
}

/// [`visit`] for one value.
fn visit_value<'d, 'a>(
    key: &'d str,
    value: &'d Spanned<DeValue<'a>>,
    see: &mut dyn FnMut(&'d str, &'d Spanned<DeValue<'a>>),
) {
    match value.get_ref() {
        DeValue::Table(inner) => visit(inner, see),
        DeValue::Array(array) => array.iter().for_each(|value| visit_value(key, value, see)),
        _ => {}
    }
    see(key, value);
}

/// The innermost key that has its value, or an element of its list, at this position.
fn key_at(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let mut found = None;
    visit(table, &mut |key, value| {
        if found.is_none() && value.span() == *span {
            found = Some(key.to_owned());
        }
    });
    found
}

/// Corrects the key of a mistake, or removes the key, value or block at its position, also in inner
/// tables; returns whether it was found. Notes the removed keys with the position of their table,
/// which is `place`.
fn mend<'a>(
    table: &mut DeTable<'a>,
    place: &Range<usize>,
    mistake: &Mistake,
    dropped: &mut Vec<(Range<usize>, String)>,
) -> bool {
    // Inner values first: an array of blocks has the position of its first block.
    let inside = |(_, value): (_, &mut Spanned<DeValue<'a>>)| mend_value(value, mistake, dropped);
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
        } else {
            dropped.push((place.clone(), key.get_ref().to_string()));
        }
    }
    found
}

/// [`mend`] for the inside of a value.
fn mend_value<'a>(
    value: &mut Spanned<DeValue<'a>>,
    mistake: &Mistake,
    dropped: &mut Vec<(Range<usize>, String)>,
) -> bool {
    let place = value.span();
    match value.get_mut() {
        DeValue::Table(table) => mend(table, &place, mistake, dropped),
        DeValue::Array(array) => mend_in(array, mistake, dropped),
        _ => false,
    }
}

/// [`mend`] for an array.
fn mend_in<'a>(
    array: &mut DeArray<'a>,
    mistake: &Mistake,
    dropped: &mut Vec<(Range<usize>, String)>,
) -> bool {
    let inside = |element: &mut Spanned<DeValue<'a>>| mend_value(element, mistake, dropped);
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

/// The mistake of a shape that does not fit, at the value of `key`, with a suggestion for a
/// mistyped key.
fn explain(span: Range<usize>, key: Option<&str>, message: &str) -> Mistake {
    if let Some((unknown, known)) = messages::unknown_key(message) {
        return unknown_key(span, unknown, &known);
    }
    Mistake {
        column: None,
        reason: messages::of_shape(key, message),
        meant: None,
        span,
    }
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
                explain(0..1, None, &message),
                Mistake {
                    span: 0..1,
                    column: None,
                    reason,
                    meant
                }
            );
        }
    }

    #[test]
    fn a_position_has_the_innermost_key() {
        let text = "a = 1\n[[link]]\nname = \"x\"\nlist = [7,\n8]\n[s]\nt = { u = 2 }\n";
        let (document, mistakes) = Document::parse(text);
        assert_eq!(mistakes, []);
        let at = |value: &str| {
            let start = text.find(value).unwrap();
            start..start + value.len()
        };
        let key = |value: &str| document.key_at(&at(value));
        for (value, name) in [("1", "a"), ("\"x\"", "name"), ("8", "list"), ("2", "u")] {
            assert_eq!(key(value).as_deref(), Some(name), "{value}");
        }
        assert_eq!(key("x"), None);
        assert_eq!(document.elements(&at("[7,\n8]")), [at("7"), at("8")]);
    }
}
