//! Turns the text of a file into settings, or into the list of its problems.

mod ends;
mod gateway;
mod links;
mod monitor;
mod publish;
mod session;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use sumlink_engine::scheduler::OwnSchedulers;
use toml::Spanned;

use super::document::{Document, Mistake};
use super::raw::{self, Field};
use super::settings::{Lines, LinkLines};
use super::{ConfigError, File, Problem};

/// The text of a value that may also be written as a number, or as a list of both.
fn text_of_value(value: &toml::Value) -> Result<String, &'static str> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Array(values) => {
            let texts: Result<Vec<_>, _> = values.iter().map(text_of_value).collect();
            texts.map(|texts| texts.join(","))
        }
        _ => Err("write a number, a text in quotes, or a list of them"),
    }
}

/// The settings of a file as far as they could be read, and the problems of its text.
#[derive(Debug)]
pub struct Read<T> {
    /// Settings without the invalid ones; `None` if the role is unknown.
    pub file: Option<T>,
    /// Problems in the order of discovery.
    pub problems: Vec<Problem>,
}

/// Reads the file of a client or a server; its keys show which.
///
/// # Errors
///
/// [`ConfigError::Unreadable`], or the file of an edge node. Problems of the text are in
/// [`Read::problems`].
pub(super) fn read(file: &Path, own: &OwnSchedulers) -> Result<Read<File>, ConfigError> {
    read_with(file, |reader| reader.read(own))
}

/// Longest file in bytes; no configuration is nearly as long.
const MAX_LENGTH: u64 = 16 << 20;

/// The text of a file, or of a pipe that a process writes to.
fn text_of(file: &Path) -> io::Result<String> {
    // A pipe that no process writes to would block for ever; this way it is empty.
    let flags = OFlag::O_NONBLOCK.bits();
    let mut input = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(file)?;
    if input.metadata()?.file_type().is_fifo() {
        // From here on, wait for what the other process writes.
        fcntl(&input, FcntlArg::F_SETFL(OFlag::empty())).map_err(io::Error::from)?;
    }
    let mut text = String::new();
    let read = (&mut input)
        .take(MAX_LENGTH + 1)
        .read_to_string(&mut text)?;
    match read as u64 > MAX_LENGTH {
        true => Err(io::Error::other(format!(
            "it is longer than {} MiB",
            MAX_LENGTH >> 20
        ))),
        false => Ok(text),
    }
}

/// Reads a file with the function that knows its keys, unless the text is not TOML.
///
/// # Errors
///
/// [`ConfigError::Unreadable`], or the function's error. Problems of the text are in
/// [`Read::problems`].
pub fn read_with<T>(
    file: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Result<Option<T>, ConfigError>,
) -> Result<Read<T>, ConfigError> {
    let text = text_of(file).map_err(|reason| ConfigError::Unreadable {
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
    // Later problems mostly follow from the mistake in the syntax.
    let read = match mistakes.is_empty() {
        true => read(&mut reader)?,
        false => {
            reader.report(mistakes);
            None
        }
    };
    Ok(Read {
        file: read,
        problems: reader.problems,
    })
}

/// The text of a file while it is read, and the problems found so far.
#[derive(Debug)]
pub struct Reader<'a> {
    text: &'a str,
    file: &'a Path,
    document: Document<'a>,
    /// In the order of discovery.
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(&mut self, own: &OwnSchedulers) -> Result<Option<File>, ConfigError> {
        let has = |keys: &[&str]| keys.iter().any(|key| self.has(key));
        if has(&raw::EDGE_KEYS) && !has(&["server", "listen"]) {
            return Err(self.is_for("edge"));
        }
        Ok(match (has(&raw::CLIENT_KEYS), has(&raw::SERVER_KEYS)) {
            (true, false) => self
                .client(own)
                .map(|client| File::Client(Box::new(client))),
            (false, true) => self
                .server(own)
                .map(|server| File::Server(Box::new(server))),
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
                // A mistyped key may be the reason.
                let known = [&raw::CLIENT_KEYS[..], &raw::SERVER_KEYS, &raw::COMMON_KEYS];
                self.report(self.document.unknown_keys(&known.concat()));
                None
            }
        })
    }

    /// Whether the file has this key at its top, with a valid value or not.
    pub fn has(&self, key: &str) -> bool {
        self.document.has(key)
    }

    /// Whether no problem was found so far.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// The error for a file of role `is`, which another program or verb reads.
    pub fn is_for(&self, is: &'static str) -> ConfigError {
        let file = self.file.to_owned();
        ConfigError::OtherRole { file, is }
    }

    /// Deserializes the file into `T` and reports what does not fit.
    pub fn shape<T: serde::de::DeserializeOwned>(&mut self) -> Option<T> {
        let (shape, mistakes) = self.document.shape();
        self.report(mistakes);
        shape
    }

    fn report(&mut self, mistakes: Vec<Mistake>) {
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

    /// Parses a value; reports an error at its position, with its key.
    pub fn parse<T, U, E: Display>(
        &mut self,
        field: Field<T>,
        parse: impl FnOnce(&T) -> Result<U, E>,
    ) -> Option<U> {
        let field = field?;
        parse(field.get_ref())
            .map_err(|error| self.wrong_value(field.span(), error))
            .ok()
    }

    /// Parses the values of a list and leaves out the invalid ones.
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

    /// A number of at least 1.
    fn count(&mut self, field: Field<i64>) -> Option<u64> {
        self.parse(field, |n| {
            u64::try_from(*n)
                .ok()
                .filter(|n| (1..=1 << 20).contains(n))
                .ok_or("write a number from 1 to 1048576")
        })
    }

    /// A path, relative to the directory of the file.
    pub fn path(&mut self, field: Field<PathBuf>) -> Option<PathBuf> {
        let directory = self.directory();
        self.parse(field, |path| match path.as_os_str().as_encoded_bytes() {
            [] => Err("name a file"),
            name if name.contains(&0) => Err("a path contains no NUL"),
            _ => Ok(directory.join(path)),
        })
    }

    /// The directory of the file.
    fn directory(&self) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).to_owned()
    }

    /// The lines of the keys, blocks and elements, for problems that show only together with
    /// others.
    pub fn lines(&self, links: Vec<LinkLines>, forwards: Vec<usize>) -> Lines {
        let keys = self.document.keys().iter();
        Lines {
            keys: keys
                .map(|(key, span)| (key.clone(), self.line(span)))
                .collect(),
            links,
            forwards,
        }
    }

    /// The line of a value.
    fn line_of<T>(&self, field: &Field<T>) -> Option<usize> {
        field.as_ref().map(|field| self.line(&field.span()))
    }

    /// The line of a position, counted from 1.
    fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.matches('\n').count()
    }

    /// Whether the block at this position had a value of this key that did not fit and is reported
    /// already.
    fn has_dropped(&self, block: &Range<usize>, key: &str) -> bool {
        self.document.has_dropped(block, key)
    }

    /// Reports a problem of the value at a position in the text, with its key.
    fn wrong_value(&mut self, span: Range<usize>, reason: impl Display) {
        let Some(key) = self.document.key_at(&span) else {
            return self.problem(span, reason);
        };
        let reason = reason.to_string();
        match reason.strip_prefix(&format!("{key} ")) {
            // It begins with the key.
            Some(rest) => self.problem(span, format!("`{key}` {rest}")),
            None => self.problem(span, format!("`{key}`: {reason}")),
        }
    }

    /// Reports a problem at a position in the text, in bytes.
    pub fn problem(&mut self, span: Range<usize>, reason: impl Display) {
        self.problems.push(Problem::new(self.line(&span), reason));
    }
}
