//! Reads TOML key by key, so that all problems of a file are found at once, each with its line.
//!
//! serde stops at the first unknown key. A [`Section`] instead hands out the keys that the caller
//! requests, and reports the remaining ones at the end.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::document::Document;

/// A value and its position.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    /// The position.
    pub span: Range<usize>,
    /// The value.
    pub value: T,
}

/// A table that hands out its keys one by one.
pub struct Section<'a, 'i> {
    table: &'a DeTable<'i>,
    /// Its name in messages: `[[link]]`.
    title: String,
    span: Range<usize>,
    known: BTreeSet<&'static str>,
}

impl<'a, 'i> Section<'a, 'i> {
    /// A section for a table with that name in messages.
    pub fn new(table: &'a Spanned<DeTable<'i>>, title: &str) -> Self {
        Self {
            table: table.get_ref(),
            title: title.to_owned(),
            span: table.span(),
            known: BTreeSet::new(),
        }
    }

    /// A section for a value, which must be a table.
    pub fn of(
        document: &mut Document<'_>,
        value: &'a Spanned<DeValue<'i>>,
        title: &str,
    ) -> Option<Self> {
        let Some(table) = value.get_ref().as_table() else {
            let found = value.get_ref().type_str();
            document.problem(
                &value.span(),
                format!("{title} must be a table, not a {found}"),
            );
            return None;
        };
        Some(Self {
            table,
            title: title.to_owned(),
            span: value.span(),
            known: BTreeSet::new(),
        })
    }

    /// Position of the table.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The value of a key, as it is in the file.
    pub fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'i>>> {
        self.known.insert(key);
        self.table.get(key)
    }

    /// Whether the key exists; marks it as known.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.value(key).is_some()
    }

    /// A text.
    pub fn text(&mut self, document: &mut Document<'_>, key: &'static str) -> Option<At<String>> {
        let value = self.value(key)?;
        text_of(document, value, key)
    }

    /// A text, parsed.
    pub fn parsed<T, E: Display>(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<At<T>> {
        let text = self.text(document, key)?;
        keep(document, &text.span, key, parse(&text.value)).map(|value| At {
            span: text.span,
            value,
        })
    }

    /// A whole number.
    pub fn integer(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
        range: Range<u64>,
    ) -> Option<At<u64>> {
        let value = self.value(key)?;
        let number = value
            .get_ref()
            .as_integer()
            .and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok())
            .filter(|number| range.contains(number));
        if number.is_none() {
            let (low, high) = (range.start, range.end - 1);
            document.problem(
                &value.span(),
                format!("{key} must be a whole number from {low} to {high}"),
            );
        }
        number.map(|number| At {
            span: value.span(),
            value: number,
        })
    }

    /// A number that may have a fraction.
    pub fn number(&mut self, document: &mut Document<'_>, key: &'static str) -> Option<At<f64>> {
        let value = self.value(key)?;
        let number = number_of(value);
        if number.is_none() {
            document.problem(&value.span(), format!("{key} must be a number"));
        }
        number.map(|number| At {
            span: value.span(),
            value: number,
        })
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, document: &mut Document<'_>, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let boolean = value.get_ref().as_bool();
        if boolean.is_none() {
            document.problem(&value.span(), format!("{key} must be true or false"));
        }
        boolean
    }

    /// A list of texts.
    pub fn texts(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
    ) -> Option<Vec<At<String>>> {
        let value = self.value(key)?;
        let Some(array) = value.get_ref().as_array() else {
            document.problem(&value.span(), format!("{key} must be a list of texts"));
            return None;
        };
        Some(
            array
                .iter()
                .filter_map(|item| text_of(document, item, key))
                .collect(),
        )
    }

    /// The blocks of an array of tables, `[[key]]`; empty if there are none.
    pub fn blocks(
        &mut self,
        document: &mut Document<'_>,
        key: &'static str,
    ) -> Vec<Section<'a, 'i>> {
        let Some(value) = self.value(key) else {
            return Vec::new();
        };
        let title = format!("[[{key}]]");
        let Some(array) = value.get_ref().as_array() else {
            document.problem(&value.span(), format!("write {title}, with two brackets"));
            return Vec::new();
        };
        array
            .iter()
            .filter_map(|item| Section::of(document, item, &title))
            .collect()
    }

    /// Reports a missing required key.
    pub fn missing(&self, document: &mut Document<'_>, key: &str, example: &str) {
        let title = &self.title;
        document.problem(&self.span, format!("{title} has no {key}: add {example}"));
    }

    /// Reports every key that was not requested.
    pub fn finish(self, document: &mut Document<'_>) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if !self.known.contains(name) {
                let known: Vec<_> = self.known.iter().copied().collect();
                document.problem(
                    &key.span(),
                    format!(
                        "{} has no key '{name}' (keys: {})",
                        self.title,
                        known.join(", ")
                    ),
                );
            }
        }
    }
}

/// The text in a value.
pub fn text_of(
    document: &mut Document<'_>,
    value: &Spanned<DeValue<'_>>,
    key: &str,
) -> Option<At<String>> {
    let text = value.get_ref().as_str();
    if text.is_none() {
        let found = value.get_ref().type_str();
        document.problem(
            &value.span(),
            format!("{key} must be a text in quotation marks, not a {found}"),
        );
    }
    text.map(|text| At {
        span: value.span(),
        value: text.to_owned(),
    })
}

/// The number in a value, whole or not.
pub(crate) fn number_of(value: &Spanned<DeValue<'_>>) -> Option<f64> {
    let value = value.get_ref();
    let text = match (value.as_float(), value.as_integer()) {
        (Some(float), _) => float.as_str(),
        (None, Some(integer)) if integer.radix() == 10 => integer.as_str(),
        _ => return None,
    };
    f64::from_str(text).ok().filter(|number| number.is_finite())
}

/// The value; an error is reported as a problem.
pub(crate) fn keep<T, E: Display>(
    document: &mut Document<'_>,
    span: &Range<usize>,
    key: &str,
    result: Result<T, E>,
) -> Option<T> {
    result
        .map_err(|error| document.problem(span, format!("{key}: {error}")))
        .ok()
}
