//! Explains the most frequent mistake in TOML files: a text without quotes, for which parsers
//! report an invalid number.

use std::ops::Range;

/// A value in a TOML file that lacks its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unquoted {
    /// Its position in the file, in bytes.
    pub span: Range<usize>,
    /// Its column in its line, in characters, counted from 1.
    pub column: usize,
    /// The key and its value with quotes; in a list only the value.
    pub written: String,
}

impl Unquoted {
    /// The remedy, on one line.
    pub fn advice(&self) -> String {
        format!("a text needs quotes: write {}", self.written)
    }
}

/// Searches for a text without quotes in the line of a syntax error, which is at byte `at`.
pub fn find(text: &str, at: usize) -> Option<Unquoted> {
    let before = text.get(..at)?;
    let begin = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text[begin..].lines().next()?;
    let (key, rest) = line.split_once('=')?;
    let is_key = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let key = key.trim();
    if key.is_empty() || !key.chars().all(is_key) {
        return None;
    }
    // A comment starts with # after a blank; within an unquoted text it can be nothing else.
    let rest = rest.split_once(" #").map_or(rest, |(value, _)| value);
    let value = rest.trim();
    let inside = value.strip_prefix('[');
    let list = inside.and_then(|value| value.strip_suffix(']'));
    let found = match list {
        _ if value.is_empty() || value.starts_with(['"', '\'', '{']) || is_value(value) => None,
        // The list continues on other lines.
        None if inside.is_some_and(|rest| !rest.contains(']')) => None,
        None => Some((value, format!("{key} = \"{value}\""))),
        Some(list) => {
            let mut elements = list.split(',').map(str::trim);
            let bare = elements.find(|element| !element.is_empty() && !is_value(element))?;
            let is_text = !bare.contains(['"', '\'', '{', '[']);
            is_text.then(|| (bare, format!("\"{bare}\"")))
        }
    };
    let (bare, written) = found.filter(|(bare, _)| !bare.contains(['"', '\\']))?;
    // A subslice of the line, so its address gives its offset.
    let offset = bare.as_ptr() as usize - line.as_ptr() as usize;
    let start = begin + offset;
    Some(Unquoted {
        span: start..start + bare.len(),
        column: 1 + line[..offset].chars().count(),
        written,
    })
}

/// Whether the text is a valid value without quotes.
fn is_value(text: &str) -> bool {
    toml::from_str::<toml::Table>(&format!("x = {text}")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_quotes_is_located() {
        for (line, column, written) in [
            ("socks = 127.0.0.1:1080", 9, "socks = \"127.0.0.1:1080\""),
            ("listen = [::]:7443", 10, "listen = \"[::]:7443\""),
            (
                "server=bond.example.org:7443 # ours",
                8,
                "server = \"bond.example.org:7443\"",
            ),
            ("a.b = 64MiB", 7, "a.b = \"64MiB\""),
            ("links = auto", 9, "links = \"auto\""),
            (
                "key = /etc/sumlink/äöü.key",
                7,
                "key = \"/etc/sumlink/äöü.key\"",
            ),
            ("forward = [\"1=a:1\", 2222=b:2]", 21, "\"2222=b:2\""),
        ] {
            let text = format!("# ä\nfirst = 1\n{line}\nlast = 1\n");
            let at = text.find(line).unwrap() + line.len() - 1;
            let found = find(&text, at).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                (found.column, found.written.as_str()),
                (column, written),
                "{line}"
            );
            assert!(written.contains(&text[found.span]), "{line}");
        }
    }

    #[test]
    fn other_errors_are_not_attributed_to_quotes() {
        for line in [
            "a = ",
            "a = \"x",
            "a = 1",
            "a = [1, 2]",
            "a = [",
            "a = { b = c }",
            "= x",
            "[a = b",
            "a b = c",
            "x",
            "",
        ] {
            assert_eq!(find(line, 0), None, "{line}");
        }
        assert_eq!(find("a = b", 100), None);
    }
}
