//! Formats and prints texts for the terminal.

use std::fmt;
use std::io::{self, ErrorKind, Write};

use crate::error::LabError;

/// Prints a text. A reader that closes the pipe early, such as `head`, is not an error.
pub fn print(text: &str) -> Result<(), LabError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(LabError::system("printing", error))
        }
        _ => Ok(()),
    }
}

/// Prints a line to standard output, formatted as by `println!`. A long measurement continues when
/// the write fails, where `println!` would panic.
macro_rules! say {
    ($($words:tt)*) => { $crate::prose::say_line(format_args!($($words)*)) };
}
pub(crate) use say;

/// As [`say`], for standard error.
macro_rules! note {
    ($($words:tt)*) => { $crate::prose::note_line(format_args!($($words)*)) };
}
pub(crate) use note;

pub(crate) fn say_line(words: fmt::Arguments<'_>) {
    say_raw(&format!("{words}\n"));
}

pub(crate) fn note_line(words: fmt::Arguments<'_>) {
    note_raw(&format!("{words}\n"));
}

/// Writes text to standard output without a line break, such as a line that the next one
/// overwrites. Errors are ignored.
pub(crate) fn say_raw(text: &str) {
    let _ = print(text);
}

/// As [`say_raw`], for standard error.
pub(crate) fn note_raw(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// The first sentence of a text, with line breaks replaced by spaces.
pub(crate) fn first_sentence(text: &str) -> String {
    let mut sentence = String::new();
    for word in text.split_whitespace() {
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        if word.ends_with(['.', '!', '?']) {
            break;
        }
    }
    sentence
}

/// Shortens a text to `most` characters, at the end of a word, with "…" in place of the rest.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let room: String = text.chars().take(most.saturating_sub(1)).collect();
    // A word longer than the line may be cut anywhere.
    let ends_with_word = text[room.len()..].starts_with(' ');
    let end = match room.rfind(' ') {
        Some(space) if !ends_with_word => space,
        _ => room.len(),
    };
    format!("{}…", room[..end].trim_end_matches([' ', ',', ';', ':']))
}

/// Wraps a text at `width` characters where possible; all lines but the first are indented.
pub(crate) fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let characters = word.chars().count();
        if length > 0 && length + 1 + characters > width {
            lines.push('\n');
            lines.push_str(&" ".repeat(indent));
            length = indent;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += characters;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_ends_with_a_word_that_ends_with_a_stop() {
        let about =
            "\nThesis, figure 4.1(b), normal: two routers,\na laptop. At the paper's rates.";
        let sentence = "Thesis, figure 4.1(b), normal: two routers, a laptop.";
        assert_eq!(first_sentence(about), sentence);
        assert_eq!(first_sentence("no stop"), "no stop");
        assert_eq!(first_sentence(""), "");
    }

    #[test]
    fn texts_are_cut_at_the_end_of_words() {
        assert_eq!(cut("one two, three", 14), "one two, three");
        assert_eq!(cut("one two, three", 13), "one two…");
        assert_eq!(cut("one two three", 8), "one two…");
        assert_eq!(cut("one two three", 7), "one…");
        assert_eq!(cut("äöüäöü", 4), "äöü…");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        assert_eq!(wrapped("aa bb cc dd", 5, 0), "aa bb\ncc dd");
        assert_eq!(wrapped("aa bb cc dd", 5, 2), "aa bb\n  cc\n  dd");
        assert_eq!(wrapped("aaaaaaaa bb", 5, 1), "aaaaaaaa\n bb");
        assert_eq!(wrapped("", 5, 1), "");
    }
}
