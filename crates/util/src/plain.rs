//! System errors in plain words.

use std::fmt::{self, Display, Write};

/// Displays an error without the numbers that the standard library appends to the system's message
/// (`No such file or directory (os error 2)`). All messages to users show system errors this way.
#[derive(Clone, Copy, Debug)]
pub struct Plain<E>(pub E);

/// An error as [`Plain`] text.
pub fn plain<E: Display>(error: E) -> Plain<E> {
    Plain(error)
}

/// Start of the text that the standard library appends.
const BEGIN: &str = " (os error ";

impl<E: Display> Display for Plain<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        let mut rest = text.as_str();
        while let Some((before, behind)) = rest.split_once(BEGIN) {
            f.write_str(before)?;
            let number = behind.trim_start_matches('-');
            let number = number.trim_start_matches(|c: char| c.is_ascii_digit());
            match number.strip_prefix(')') {
                Some(after) if number.len() < behind.len() => rest = after,
                _ => {
                    f.write_str(BEGIN)?;
                    rest = behind;
                }
            }
        }
        f.write_str(rest)
    }
}

impl<E: Display> Plain<E> {
    /// The text on one line.
    pub fn line(&self) -> String {
        let mut line = String::new();
        // Writing to memory cannot fail.
        let _ = write!(line, "{self}");
        line.trim().replace('\n', "; ")
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_system_error_is_shown_without_its_number() {
        let error = io::Error::from_raw_os_error(2);
        assert!(error.to_string().contains("(os error 2)"));
        assert_eq!(plain(&error).to_string(), "No such file or directory");
        let nested = format!("a: {error}; b: {}", io::Error::from_raw_os_error(13));
        let words = "a: No such file or directory; b: Permission denied";
        assert_eq!(plain(&nested).to_string(), words);
        assert_eq!(plain("a\nb (os error -1)\n").line(), "a; b");
    }

    #[test]
    fn other_texts_are_unchanged() {
        for text in [
            "",
            "x (os error",
            " (os error )",
            "(os error x)",
            "é (os error 1",
        ] {
            assert_eq!(plain(text).to_string(), text);
        }
    }
}
