//! From a file's text to settings, or to everything that is wrong with it.

mod edge;
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
pub(crate) struct Read {
    /// The settings without what is wrong; `None` where not even the role is clear.
    pub(crate) file: Option<File>,
    /// Problems in the order of discovery.
    pub(crate) problems: Vec<Problem>,
}

/// Reads a client's, a server's or an edge node's file; its keys tell which it is.
///
/// # Errors
///
/// [`ConfigError::Unreadable`] only: what is wrong in the text is in [`Read::problems`].
pub(crate) fn read(file: &Path) -> Result<Read, ConfigError> {
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
        true => reader.read(),
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

struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    document: Document<'a>,
    /// Found so far, in the order of discovery.
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(&mut self) -> Option<File> {
        let has = |keys: &[&str]| keys.iter().any(|key| self.document.has(key));
        if has(&raw::EDGE_KEYS) && !has(&["server", "listen"]) {
            return Some(File::Edge(Box::new(self.edge()?)));
        }
        match (has(&raw::CLIENT_KEYS), has(&raw::SERVER_KEYS)) {
            (true, false) => Some(File::Client(Box::new(self.client()?))),
            (false, true) => Some(File::Server(Box::new(self.server()?))),
            (true, true) => {
                let key = |keys: &[&'static str]| {
                    keys.iter()
                        .copied()
                        .find(|key| self.document.has(key))
                        .unwrap_or_default()
                };
                let (client, server) = (key(&raw::CLIENT_KEYS), key(&raw::SERVER_KEYS));
                self.problem(0..0, format!(
                    "`{client}` belongs to a client and `{server}` to a server: one file holds one role"
                ));
                None
            }
            (false, false) => {
                self.problem(
                    0..0,
                    "neither `server` (a client's file) nor `listen` (a server's) nor `role` (an edge node's)",
                );
                // A mistyped one may be the reason.
                let known = [
                    &raw::CLIENT_KEYS[..],
                    &raw::SERVER_KEYS,
                    &raw::COMMON_KEYS,
                    &raw::EDGE_KEYS,
                ];
                self.tell(self.document.unknown_keys(&known.concat()));
                None
            }
        }
    }

    /// The file in the shape of `T`; what does not fit is told of.
    fn shape<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
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

    fn parse<T, U, E: Display>(
        &mut self,
        field: Field<T>,
        parse: impl FnOnce(&T) -> Result<U, E>,
    ) -> Option<U> {
        let field = field?;
        parse(field.get_ref())
            .map_err(|error| self.problem(field.span(), error))
            .ok()
    }

    fn parse_all<T, U, E: Display>(
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
    fn beside(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Where the keys are, and the blocks and elements that may be wrong only together with others.
    fn lines(&self, links: Vec<usize>, forwards: Vec<usize>) -> Lines {
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

    fn problem(&mut self, span: Range<usize>, reason: impl Display) {
        self.problems.push(Problem::new(self.line(&span), reason));
    }
}
