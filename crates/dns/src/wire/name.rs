//! Domain names in wire form.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use super::Malformed;

/// Longest name in bytes, with the length bytes of its labels and the root's zero (RFC 1035,
/// section 2.3.4).
pub const MAX_NAME: usize = 255;

/// Longest label in bytes (RFC 1035, section 2.3.4).
const MAX_LABEL: usize = 63;

/// Most compression pointers in one name. A name has at most 127 labels, and a writer gains nothing
/// from a pointer without a label.
const MAX_POINTERS: usize = 127;

/// A domain name: labels with their length bytes and a zero at the end, in lower case. Two names
/// are equal if DNS treats them as equal (RFC 4343, section 3).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Box<[u8]>);

/// Why a text is not a domain name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing between two dots, or a label that is too long.
    #[error("each part of a domain name between two dots has 1 to {MAX_LABEL} characters")]
    Label,
    /// The whole is too long.
    #[error("a domain name has at most 253 characters")]
    TooLong,
    /// A space, a control character, or a letter outside ASCII.
    #[error(
        "a domain name has no spaces and only ASCII letters; write an international name in its \
         `xn--` form"
    )]
    Character,
}

impl Name {
    /// The root.
    pub fn root() -> Self {
        Self(Box::new([0]))
    }

    /// Reads the name at `at` of `message`, following compression pointers (RFC 1035, section
    /// 4.1.4). Returns the name and the offset behind its place in the record.
    ///
    /// # Errors
    ///
    /// The name is cut off or too long, has a reserved label type, or a pointer that does not point
    /// backwards. So no sequence of bytes is a loop.
    pub(crate) fn read(message: &[u8], at: usize) -> Result<(Self, usize), Malformed> {
        let mut name = Vec::with_capacity(32);
        let (mut at, mut lowest, mut end, mut pointers) = (at, at, None, 0);
        loop {
            let length = *message.get(at).ok_or(Malformed)?;
            match length >> 6 {
                0 => {
                    let label = message.get(at..at + 1 + usize::from(length));
                    name.extend(label.ok_or(Malformed)?.iter().map(u8::to_ascii_lowercase));
                    if name.len() > MAX_NAME {
                        return Err(Malformed);
                    }
                    at += 1 + usize::from(length);
                    if length == 0 {
                        return Ok((Self(name.into()), end.unwrap_or(at)));
                    }
                }
                3 => {
                    let low = *message.get(at + 1).ok_or(Malformed)?;
                    let target = usize::from(length & 0x3f) << 8 | usize::from(low);
                    end.get_or_insert(at + 2);
                    pointers += 1;
                    if target >= lowest || pointers > MAX_POINTERS {
                        return Err(Malformed);
                    }
                    (at, lowest) = (target, target);
                }
                _ => return Err(Malformed),
            }
        }
    }

    /// The offset behind the name at `at`, without following pointers.
    pub(super) fn skip(message: &[u8], mut at: usize) -> Result<usize, Malformed> {
        loop {
            let length = *message.get(at).ok_or(Malformed)?;
            match length >> 6 {
                0 if length == 0 => return Ok(at + 1),
                0 => at += 1 + usize::from(length),
                3 if at + 1 < message.len() => return Ok(at + 2),
                _ => return Err(Malformed),
            }
        }
    }

    /// The name's wire form, without compression.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The wire forms of the name, of its parent and so on up to the root.
    pub fn suffixes(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = Some(&self.0[..]);
        std::iter::from_fn(move || {
            let suffix = rest?;
            let length = usize::from(*suffix.first()?);
            rest = (length > 0).then(|| suffix.get(length + 1..)).flatten();
            Some(suffix)
        })
    }

    /// Whether the name is `suffix` or below it.
    pub fn is_within(&self, suffix: &Self) -> bool {
        self.suffixes().any(|own| own == &*suffix.0)
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;

    /// Reads `example.org`. A dot at the end is allowed, and `.` is the root.
    fn from_str(text: &str) -> Result<Self, NameError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let mut name = Vec::with_capacity(text.len() + 2);
        for label in text.split('.').filter(|_| !text.is_empty()) {
            if !label.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(NameError::Character);
            }
            if label.is_empty() || label.len() > MAX_LABEL {
                return Err(NameError::Label);
            }
            name.push(label.len() as u8);
            name.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        name.push(0);
        if name.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        Ok(Self(name.into()))
    }
}

/// `example.org`, without a dot at the end; bytes that a text file could misread as `\DDD` (RFC
/// 1035, section 5.1). The root is `.`.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.len() == 1 {
            return f.write_str(".");
        }
        for (number, suffix) in self.suffixes().enumerate() {
            let Some((&length, rest)) = suffix.split_first() else {
                continue;
            };
            if number > 0 && length > 0 {
                f.write_str(".")?;
            }
            for &byte in rest.iter().take(usize::from(length)) {
                match byte {
                    b'.' | b'\\' => write!(f, "\\{}", char::from(byte))?,
                    0x21..=0x7e => write!(f, "{}", char::from(byte))?,
                    _ => write!(f, "\\{byte:03}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn texts_come_back_in_lower_case() {
        for (text, back) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("_dns.resolver.arpa", "_dns.resolver.arpa"),
            (".", "."),
        ] {
            assert_eq!(name(text).to_string(), back);
        }
        assert_eq!(name("a.b").as_bytes(), b"\x01a\x01b\0");
    }

    #[test]
    fn texts_that_are_no_names_say_why() {
        let error = |text: &str| text.parse::<Name>().unwrap_err();
        assert_eq!(error("a..b"), NameError::Label);
        assert_eq!(error(".a"), NameError::Label);
        assert_eq!(error(&"a".repeat(64)), NameError::Label);
        assert_eq!(error("a b"), NameError::Character);
        assert_eq!(error("bücher.example"), NameError::Character);
        assert_eq!(error(&["a"; 128].join(".")), NameError::TooLong);
        assert_eq!(name(&["a"; 127].join(".")).as_bytes().len(), MAX_NAME);
    }

    #[test]
    fn a_suffix_ends_at_a_dot() {
        assert!(name("www.corp.example").is_within(&name("corp.example")));
        assert!(name("corp.example").is_within(&name("corp.example")));
        assert!(!name("mycorp.example").is_within(&name("corp.example")));
        assert!(!name("example").is_within(&name("corp.example")));
        assert!(name("example").is_within(&Name::root()));
        assert_eq!(name("a.b").suffixes().count(), 3);
    }

    #[test]
    fn compression_is_followed_backwards_only() {
        // At 0 `b`, at 3 `a` and a pointer to it, at 7 a pointer to that.
        let message = b"\x01B\0\x01a\xc0\x00\xc0\x03";
        assert_eq!(Name::read(message, 3).unwrap(), (name("a.b"), 7));
        assert_eq!(Name::read(message, 7).unwrap(), (name("a.b"), 9));
        for (message, at) in [
            (&b"\xc0\x00"[..], 0),
            (b"\x01a\xc0\x00", 0),
            (b"\xc0\x02\xc0\x00", 0),
            (b"\xc0\x02\xc0\x00", 2),
            (b"\x01a\xc0", 0),
            (b"\x41a\0", 0),
            (b"\x05a\0", 0),
            (b"", 0),
        ] {
            assert!(Name::read(message, at).is_err(), "{message:?}");
        }
    }

    #[test]
    fn a_name_can_be_long_but_not_longer_with_pointers() {
        let mut message = Vec::new();
        for _ in 0..4 {
            message.push(63);
            message.extend([b'x'; 63]);
        }
        message.push(0);
        assert!(Name::read(&message, 0).is_err());
        assert!(Name::read(&message, 64).is_ok());
        message.extend(b"\x3f");
        message.extend([b'x'; 63]);
        message.extend(b"\xc0\x40");
        assert!(Name::read(&message, 257).is_err());
    }

    #[test]
    fn unusual_bytes_are_escaped() {
        let (read, _) = Name::read(b"\x04a.\\\x07\0", 0).unwrap();
        assert_eq!(read.to_string(), r"a\.\\\007");
    }
}
