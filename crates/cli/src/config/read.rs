//! From a file's text to settings, or to everything that is wrong with it.

mod ends;
mod links;
mod session;

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::document::{Document, Mistake};
use super::raw::{self, Field};
use super::settings::Lines;
use super::{ConfigError, File, Problem};

/// What a file says, as far as it could be understood, and what is wrong with its text.
#[derive(Debug)]
pub struct Read<T> {
    /// The settings without what is wrong; `None` where not even the role is clear.
    pub file: Option<T>,
    /// Problems in the order of discovery.
    pub problems: Vec<Problem>,
}

/// Reads a client's or a server's file; its keys say which it is.
///
/// # Errors
///
/// [`ConfigError::Unreadable`], or an edge node's file: what is wrong in the text is in
/// [`Read::problems`].
pub(super) fn read(file: &Path) -> Result<Read<File>, ConfigError> {
    read_with(file, |reader| reader.read())
}

/// Reads a file by the function that knows its keys, unless the text is no TOML.
///
/// # Errors
///
/// [`ConfigError::Unreadable`], or what the function returns: what is wrong in the text is in
/// [`Read::problems`].
pub fn read_with<T>(
    file: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Result<Option<T>, ConfigError>,
) -> Result<Read<T>, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|reason| ConfigError::Unreadable {
        file: file.to_owned(),
        reason,
    })?;
    let (document, mistakes) = Document::parse(&text);
    let mut reader = Reader {
        text: &text,
        file,
        document,
        problems: Vec::new(),
    };
    // Complaints about what follows a mistake in the syntax are wrong more often than not.
    let read = match mistakes.is_empty() {
        true => read(&mut reader)?,
        false => {
            reader.tell(mistakes);
            None
        }
    };
    Ok(Read {
        file: read,
        problems: reader.problems,
    })
}

/// A file's text while it is read, and what was found to be wrong so far.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    document: Document<'a>,
    /// Found so far, in the order of discovery.
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<Option<File>, ConfigError> {
        let has = |keys: &[&str]| keys.iter().any(|key| self.has(key));
        if has(&raw::EDGE_KEYS) && !has(&["server", "listen"]) {
            return Err(self.is_for("edge"));
        }
        Ok(match (has(&raw::CLIENT_KEYS), has(&raw::SERVER_KEYS)) {
            (true, false) => self.client().map(|client| File::Client(Box::new(client))),
            (false, true) => self.server().map(|server| File::Server(Box::new(server))),
            (true, true) => {
                let key = |keys: &[&'static str]| {
                    keys.iter()
                        .copied()
                        .find(|key| self.document.has(key))
                        .unwrap_or_default()
                };
                let (client, server) = (key(&raw::CLIENT_KEYS), key(&raw::SERVER_KEYS));
                self.problem(0..0, format!(
                    "`{client}` is a client's key and `{server}` a server's: one file configures one role"
                ));
                None
            }
            (false, false) => {
                self.problem(
                    0..0,
                    "neither `server` (a client's file) nor `listen` (a server's)",
                );
                // A mistyped one may be the reason.
                let known = [&raw::CLIENT_KEYS[..], &raw::SERVER_KEYS, &raw::COMMON_KEYS];
                self.tell(self.document.unknown_keys(&known.concat()));
                None
            }
        })
    }

    /// Whether the file has this key at its top, with a right value or a wrong one.
    pub fn has(&self, key: &str) -> bool {
        self.document.has(key)
    }

    /// Whether nothing was found to be wrong so far.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// The file is one for this role, which is another than the reader's.
    pub fn is_for(&self, is: &'static str) -> ConfigError {
        let file = self.file.to_owned();
        ConfigError::OtherRole { file, is }
    }

    /// The file in the shape of `T`; what does not fit is told of.
    pub fn shape<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
        let (shape, mistakes) = self.document.shape();
        self.tell(mistakes);
        shape
    }

    fn tell(&mut self, mistakes: Vec<Mistake>) {
        for Mistake {
            span,
            column,
            reason,
            ..
        } in mistakes
        {
            self.problem(span, reason);
            if let Some(problem) = self.problems.last_mut() {
                problem.column = column;
            }
        }
    }

    /// A value by this function; what is wrong with it is told at its place.
    pub fn parse<T, U, E: Display>(
        &mut self,
        field: Field<T>,
        parse: impl FnOnce(&T) -> Result<U, E>,
    ) -> Option<U> {
        let field = field?;
        parse(field.get_ref())
            .map_err(|error| self.problem(field.span(), error))
            .ok()
    }

    /// The values of a list by this function, without those that are wrong.
    pub fn parse_all<T, U, E: Display>(
        &mut self,
        fields: Vec<Spanned<T>>,
        mut parse: impl FnMut(&T) -> Result<U, E>,
    ) -> Vec<U> {
        fields
            .into_iter()
            .filter_map(|field| self.parse(Some(field), &mut parse))
            .collect()
    }

    /// A number that makes sense only from 1 upwards.
    fn count(&mut self, field: Field<i64>) -> Option<u64> {
        self.parse(field, |n| {
            u64::try_from(*n)
                .ok()
                .filter(|n| (1..=1 << 20).contains(n))
                .ok_or("write a number from 1 to 1048576")
        })
    }

    /// A path in the file is relative to the file, wherever the program was started.
    pub fn beside(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Where the keys are, and the blocks and elements that may be wrong only together with others.
    pub fn lines(&self, links: Vec<usize>, forwards: Vec<usize>) -> Lines {
        let keys = self.document.keys().iter();
        Lines {
            keys: keys
                .map(|(key, span)| (key.clone(), self.line(span)))
                .collect(),
            links,
            forwards,
        }
    }

    /// Counted from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    /// Something is wrong at this place in the text, in bytes.
    pub fn problem(&mut self, span: Range<usize>, reason: impl Display) {
        self.problems.push(Problem::new(self.line(&span), reason));
    }
}
