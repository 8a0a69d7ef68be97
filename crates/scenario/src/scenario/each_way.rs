//! Values for each direction.

use toml::Spanned;
use toml::de::DeValue;

use super::document::Document;
use super::section::Section;
use crate::config::Direction;

/// Reads a value for both directions, or a table with `down` and `up`; client to server first.
pub(crate) fn each_way<T: Clone>(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    key: &'static str,
    mut parse: impl FnMut(&mut Document<'_>, &Spanned<DeValue<'_>>) -> Option<T>,
) -> [Option<T>; 2] {
    let Some(value) = section.value(key) else {
        return [None, None];
    };
    if !value.get_ref().is_table() {
        let both = parse(document, value);
        return [both.clone(), both];
    }
    let mut values = [None, None];
    if let Some(mut ways) = Section::of(document, value, key) {
        for (way, direction) in [("up", Direction::Up), ("down", Direction::Down)] {
            values[direction.index()] = ways.value(way).and_then(|value| parse(document, value));
        }
        if !ways.has("up") && !ways.has("down") {
            ways.missing(document, "direction", "down = …, up = …, or both");
        }
        ways.finish(document);
    }
    values
}
