//! Messages of the TOML parser and of serde in plain words.

use std::ops::Range;

/// The unknown key of serde's message, and the known ones.
pub(super) fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    // serde: unknown field `scks`, expected one of `server`, `socks`, ...
    let rest = message.trim().strip_prefix("unknown field `")?;
    let mut words = rest.split('`').step_by(2);
    Some((words.next()?, words.collect()))
}

/// The key that a block lacks, in serde's message.
pub(super) fn missing_key(message: &str) -> Option<&str> {
    let rest = message.trim().strip_prefix("missing field `")?;
    rest.split('`').next()
}

/// The reason of a shape that does not fit, at the value of `key`.
pub(super) fn of_shape(key: Option<&str>, message: &str) -> String {
    if let Some(missing) = missing_key(message) {
        return format!("this block has no `{missing}`: add it");
    }
    let message = one_line(message);
    // serde: invalid type: integer `5`, expected a string
    let kinds = ["invalid type: ", "invalid value: "];
    let rest = kinds.iter().find_map(|kind| message.strip_prefix(kind));
    let reason = match rest.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("write {}, not {}", wanted(expected), given(found)),
        None => message,
    };
    match key {
        Some(key) => format!("`{key}`: {reason}"),
        None => reason,
    }
}

/// The reason of an error of the syntax at a position in the text.
pub(super) fn of_syntax(text: &str, span: &Range<usize>, message: &str) -> String {
    let message = one_line(message);
    let key = key_before(text, span.start);
    let begins = |starts: &[&str]| starts.iter().any(|start| message.starts_with(start));
    let reason = if begins(&["duplicate key"]) {
        let repeated = text.get(span.clone()).unwrap_or_default().trim();
        return format!("`{repeated}` occurs twice: remove one");
    } else if begins(&["string values must be quoted"]) {
        let value = line_at(text, span.start).and_then(|(_, line)| line.split_once('='));
        let value = value.map(|(_, value)| value.trim());
        match value.is_none_or(|value| value.is_empty() || value.starts_with('#')) {
            true => "the value is missing".to_owned(),
            false => "a text needs quotes".to_owned(),
        }
    } else if begins(&["invalid basic string", "invalid literal string"]) {
        "the text has no closing quote".to_owned()
    } else if begins(&["missing assignment", "key with no value"]) {
        "`=` and a value are missing behind the key".to_owned()
    } else if begins(&["invalid unquoted key", "missing key", "unquoted keys"]) {
        "this is not a key: letters, digits, `_` and `-` make one".to_owned()
    } else {
        // The rest lists characters that could follow.
        let known = message.split(", expected ").next().unwrap_or(&message);
        format!("this is not TOML: {known}")
    };
    match key {
        Some(key) => format!("`{key}`: {reason}"),
        None => reason,
    }
}

/// The key whose value is at this byte, if both are on one line.
pub(super) fn key_before(text: &str, at: usize) -> Option<&str> {
    let (begin, line) = line_at(text, at)?;
    let (key, _) = line.split_once('=')?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let name = key.trim();
    let is_plain = !name.is_empty() && name.chars().all(is_key);
    (is_plain && at >= begin + key.len()).then_some(name)
}

/// The line of a byte and the position of its begin.
fn line_at(text: &str, at: usize) -> Option<(usize, &str)> {
    let before = text.get(..at)?;
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    Some((begin, text[begin..].lines().next().unwrap_or_default()))
}

/// A message of several lines on one.
fn one_line(message: &str) -> String {
    message.trim().replace('\n', "; ")
}

/// What serde expects.
fn wanted(expected: &str) -> String {
    match expected {
        "a string" => "a text in quotes",
        "path string" => "a path in quotes",
        "a boolean" => "true or false",
        "f32" | "f64" => "a number",
        "a sequence" => "a list in brackets",
        "a map" => "a block of keys",
        _ if expected.starts_with("struct ") => "a block of keys",
        _ if is_integer(expected) => "a whole number",
        other => other,
    }
    .to_owned()
}

/// Whether the text is the name of an integer type.
fn is_integer(name: &str) -> bool {
    let bits = name.strip_prefix(['i', 'u']).unwrap_or_default();
    matches!(bits, "8" | "16" | "32" | "64" | "128" | "size")
}

/// What serde has found instead.
fn given(found: &str) -> String {
    let words = [
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
        ("string ", "the text "),
        ("sequence", "a list"),
        ("map", "a block of keys"),
    ];
    for (word, plain) in words {
        if let Some(rest) = found.strip_prefix(word) {
            // serde adds the type of a number that is too large: integer `2...` as i128
            let rest = rest.split("` as ").next().unwrap_or(rest);
            return format!("{plain}{}", rest.replace('`', ""));
        }
    }
    found.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_explained_without_names_of_types() {
        for (message, plain) in [
            (
                "invalid type: integer `5`, expected a string",
                "`x`: write a text in quotes, not the number 5",
            ),
            (
                "invalid type: string \"yes, expected\", expected a boolean",
                "`x`: write true or false, not the text \"yes, expected\"",
            ),
            (
                "invalid type: floating point `1.5`, expected i64",
                "`x`: write a whole number, not the number 1.5",
            ),
            (
                "invalid type: boolean `true`, expected path string",
                "`x`: write a path in quotes, not true",
            ),
            (
                "invalid type: sequence, expected struct Session",
                "`x`: write a block of keys, not a list",
            ),
            ("missing field `name`", "this block has no `name`: add it"),
            ("unclear\nthing", "`x`: unclear; thing"),
        ] {
            assert_eq!(of_shape(Some("x"), message), plain);
        }
    }

    #[test]
    fn errors_of_the_syntax_name_the_key_of_their_line() {
        for (text, at, message, plain) in [
            (
                "a = 1\nkey = # no\n",
                12,
                "string values must be quoted, expected literal string",
                "`key`: the value is missing",
            ),
            (
                "key = x y",
                6,
                "string values must be quoted, expected literal string",
                "`key`: a text needs quotes",
            ),
            (
                "key = \"x",
                8,
                "invalid basic string, expected `\"`",
                "`key`: the text has no closing quote",
            ),
            (
                "key",
                3,
                "key with no value, expected `=`",
                "`=` and a value are missing behind the key",
            ),
            (
                "key = [1",
                8,
                "unclosed array, expected `]`",
                "`key`: this is not TOML: unclosed array",
            ),
        ] {
            assert_eq!(of_syntax(text, &(at..at), message), plain, "{text}");
        }
        assert_eq!(
            of_syntax("a = 1\na = 2", &(6..7), "duplicate key"),
            "`a` occurs twice: remove one"
        );
    }
}
