//! From a file's text to settings, or to everything that is wrong with it.

mod edge;
mod ends;
mod links;
mod session;

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sumlink_transport::SecretKey;
use toml::Spanned;

use super::document::{Document, Mistake};
use super::raw::{self, Field};
use super::{ConfigError, File, Problem};

/// Whether key files that are named in a file are opened too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Only the text: a daemon loads the key itself, after the flags have been merged in.
    Text,
    /// Also what must be there for the file to work on its own, as `sumlink check` does.
    Complete,
}

/// Reads a client's, a server's or an edge node's file; its keys tell which it is.
pub(crate) fn read(file: &Path, depth: Depth) -> Result<File, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|reason| ConfigError::Unreadable {
        file: file.to_owned(),
        reason,
    })?;
    let (document, mistakes) = Document::parse(&text);
    let mut reader = Reader {
        text: &text,
        file,
        depth,
        document,
        problems: Vec::new(),
    };
    // What follows a mistake in the syntax is told wrong more often than not.
    let read = match mistakes.is_empty() {
        true => reader.read(),
        false => {
            reader.tell(mistakes);
            None
        }
    };
    match read {
        Some(read) if reader.problems.is_empty() => Ok(read),
        _ => {
            let mut problems = reader.problems;
            problems.sort_by_key(|problem| problem.line);
            Err(ConfigError::Wrong {
                file: file.to_owned(),
                problems,
            })
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    depth: Depth,
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
        for Mistake { span, reason, .. } in mistakes {
            self.problem(span, reason);
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

    fn key(&mut self, field: Field<PathBuf>) -> Option<PathBuf> {
        let field = field?;
        let path = self.beside(field.get_ref());
        if self.depth == Depth::Complete
            && let Err(error) = SecretKey::load(&path)
        {
            self.problem(field.span(), error);
            if let Some(problem) = self.problems.last_mut() {
                problem.about_key_file = true;
            }
        }
        Some(path)
    }

    /// A path in the file is relative to the file, wherever the program was started.
    fn beside(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Something wrong has been told of already, so only what is not there at all is missing.
    fn require(&mut self, key: &str, missing: &str) {
        if !self.document.has(key) {
            self.problem(0..0, missing);
        }
    }

    /// Counted from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    fn problem(&mut self, span: Range<usize>, reason: impl Display) {
        self.problems.push(Problem {
            line: self.line(&span),
            reason: reason.to_string(),
            about_key_file: false,
        });
    }
}

/// An address to listen on.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is no address and port: write it like 127.0.0.1:1080 or [::1]:1080")
    })
}
