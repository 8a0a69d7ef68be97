//! A file during parsing, with all problems found in it and their lines.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::problem::Problem;

/// A file during parsing: its text, for line numbers, and the problems found so far.
pub struct Document<'a> {
    file: &'a Path,
    text: &'a str,
    problems: Vec<Problem>,
}

impl<'a> Document<'a> {
    /// A document without problems.
    pub fn new(file: &'a Path, text: &'a str) -> Self {
        Self {
            file,
            text,
            problems: Vec::new(),
        }
    }

    /// The same document for a second pass, which does not report its problems again.
    pub fn silent(&self) -> Self {
        Self::new(self.file, self.text)
    }

    /// Line of a byte of the text, counted from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        1 + before.bytes().filter(|byte| *byte == b'\n').count()
    }

    /// Adds a problem at a position in the file.
    pub fn problem(&mut self, span: &Range<usize>, reason: impl Display) {
        let line = self.line(span);
        self.problems.push(Problem {
            file: self.file.to_path_buf(),
            line,
            // Parser messages may have several lines; a problem has one.
            reason: reason.to_string().trim().replace('\n', "; "),
        });
    }

    /// Adds a problem of another file.
    pub fn problem_elsewhere(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Resolves a path in the file, relative to it.
    pub fn path(&self, text: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(text)
    }

    /// Whether no problem has been found so far.
    pub fn is_right(&self) -> bool {
        self.problems.is_empty()
    }

    /// All problems, sorted by line.
    pub fn into_problems(mut self) -> Vec<Problem> {
        self.problems.sort();
        self.problems.dedup();
        self.problems
    }
}
