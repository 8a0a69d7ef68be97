//! Text that the peer chose, made safe to display.

use std::fmt;

/// Text from a peer or another program, for a log, a status report or a terminal.
///
/// The text is sanitized when it is created, and the original bytes are not kept, so no caller can
/// forget to do it. Characters that would end a line, move a cursor, change the direction of
/// writing or stay invisible are escaped. The text has at most [`PeerText::MAX`] characters.
///
/// ```
/// use sumlink_engine::PeerText;
///
/// let reason = PeerText::new(b"bye\n2026-01-01 INFO all is well");
/// assert_eq!(reason.to_string(), r"bye\n2026-01-01 INFO all is well");
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct PeerText(String);

impl PeerText {
    /// Most characters in a text, including escapes; "…" marks omitted text.
    pub const MAX: usize = 256;

    /// Sanitizes the bytes. Invalid UTF-8 becomes U+FFFD.
    pub fn new(bytes: &[u8]) -> Self {
        // No character takes more than four bytes, so later bytes are omitted in any case.
        let (seen, rest) = bytes.split_at(bytes.len().min(4 * Self::MAX));
        let text = String::from_utf8_lossy(seen);
        let (mut safe, mut room) = (String::new(), Self::MAX);
        let mut is_cut = !rest.is_empty();
        for c in text.chars() {
            let length = escaped(c).count();
            if length >= room {
                is_cut = true;
                break;
            }
            room -= length;
            safe.extend(escaped(c));
        }
        if is_cut {
            safe.push('…');
        }
        Self(safe)
    }

    /// The safe text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a character is displayed unchanged: it is no control character, does not change the
/// direction of writing (as in CVE-2021-42574), does not separate lines and is not invisible.
pub fn is_plain(c: char) -> bool {
    !c.is_control()
        && !matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A character in its displayed form: unchanged if it is plain, else as `\n`, `\u{1b}` and the
/// like.
pub fn escaped(c: char) -> impl Iterator<Item = char> {
    let (plain, escape) = match is_plain(c) {
        true => (Some(c), None),
        false => (None, Some(c.escape_default())),
    };
    plain.into_iter().chain(escape.into_iter().flatten())
}

impl From<&str> for PeerText {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        for (text, safe) in [
            ("", ""),
            ("the key has gone — ключ", "the key has gone — ключ"),
            ("a\r\nb\tc", r"a\r\nb\tc"),
            ("\x1b[2J\x07\u{9b}", r"\u{1b}[2J\u{7}\u{9b}"),
            ("user\u{202e}txt.exe", r"user\u{202e}txt.exe"),
            ("a\u{2028}b\u{200b}", r"a\u{2028}b\u{200b}"),
        ] {
            assert_eq!(PeerText::from(text).as_str(), safe);
        }
        assert_eq!(PeerText::new(b"\xff\n").as_str(), "\u{fffd}\\n");
    }

    #[test]
    fn long_text_is_cut_between_characters_and_never_inside_an_escape() {
        let whole = "ä".repeat(PeerText::MAX - 1);
        assert_eq!(PeerText::from(whole.as_str()).as_str(), whole);
        let longer = PeerText::from(format!("{whole}äää").as_str());
        assert_eq!(longer.as_str(), format!("{whole}…"));
        let escapes = PeerText::from("\n".repeat(1000).as_str());
        let (escapes, rest) = escapes.as_str().split_at(2 * 127);
        assert_eq!((escapes, rest), (r"\n".repeat(127).as_str(), "…"));
    }

    proptest! {
        #[test]
        fn any_bytes_become_one_short_line_of_plain_characters(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            text in ".{0,300}",
        ) {
            for bytes in [&bytes[..], text.as_bytes()] {
                let safe = PeerText::new(bytes);
                prop_assert!(safe.as_str().chars().all(is_plain));
                prop_assert!(safe.as_str().chars().count() <= PeerText::MAX);
                // Sanitizing the text again changes nothing.
                let again = PeerText::from(safe.as_str());
                prop_assert_eq!(&again, &safe);
            }
        }

        #[test]
        fn any_character_is_escaped_to_plain_ones(c in any::<char>()) {
            prop_assert!(escaped(c).all(is_plain));
            prop_assert_eq!(is_plain(c), escaped(c).eq([c]));
        }
    }
}
