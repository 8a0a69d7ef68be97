//! A file that is being read, and what is found wrong in it: every problem at once, each with its line.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// One thing that is wrong in a scenario, or in a file that it names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong and what to do.
    pub reason: String,
}

impl Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.reason)
    }
}

/// A file that is being read: its text, for line numbers, and what was found wrong so far.
pub struct Document<'a> {
    file: &'a Path,
    text: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Document<'a> {
    /// Nothing is wrong with it so far.
    pub fn new(file: &'a Path, text: &'a str) -> Self {
        Self {
            file,
            text,
            problems: Vec::new(),
        }
    }

    /// The same document for a second look, whose problems are known already.
    pub fn silent(&self) -> Self {
        Self::new(self.file, self.text)
    }

    /// Line of a byte of the text, counted from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.bytes().filter(|byte| *byte == b'\n').count()
    }

    /// Notes a problem at a place of the file.
    pub fn problem(&mut self, span: &Range<usize>, reason: impl Display) {
        let line = self.line(span);
        self.problems.push(Problem {
            file: self.file.to_path_buf(),
            line,
            // Parsers' messages may have several lines, a problem has one.
            reason: reason.to_string().trim().replace('\n', "; "),
        });
    }

    /// Notes a problem of another file.
    pub fn problem_elsewhere(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// A path in the file is relative to it.
    pub fn path(&self, text: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(text)
    }

    /// Whether nothing wrong was found so far.
    pub fn is_right(&self) -> bool {
        self.problems.is_empty()
    }

    /// Everything that was found, by ascending line.
    pub fn into_problems(mut self) -> Vec<Problem> {
        self.problems.sort();
        self.problems.dedup();
        self.problems
    }
}
