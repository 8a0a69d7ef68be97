//! Problems and warnings found while a configuration is put together, and their sources.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sumlink_store::Location;
use sumlink_transport::SecretKey;

use super::super::settings::Lines;
use super::super::{ConfigError, Problem};
use super::Planned;
use crate::congestion::Controls;
use crate::control::LONGEST_PATH;
use crate::error::CliError;

/// The findings so far. A flag's problem belongs to the command line, every other to the file.
#[derive(Debug)]
pub struct Findings<'a> {
    pub(super) file: Option<&'a Path>,
    pub(super) lines: Lines,
    problems: Vec<Problem>,
    /// Problems of the command line.
    usage: Vec<String>,
    /// Missing options and their purposes, if there is no file.
    missing: Vec<String>,
    /// A failure that belongs neither to a line nor to an option.
    pub(super) failure: Option<CliError>,
    pub(super) warnings: Vec<Problem>,
}

impl<'a> Findings<'a> {
    /// Starts with the problems of the file's text.
    pub fn new(file: Option<&'a Path>, lines: Lines, problems: Vec<Problem>) -> Self {
        Self {
            file,
            lines,
            problems,
            usage: Vec::new(),
            missing: Vec::new(),
            failure: None,
            warnings: Vec::new(),
        }
    }

    /// Whether no problem was found so far.
    pub(super) fn is_sound(&self) -> bool {
        self.problems.is_empty()
            && self.usage.is_empty()
            && self.missing.is_empty()
            && self.failure.is_none()
    }

    /// Records a problem in a line of the file.
    pub fn problem(&mut self, line: usize, reason: impl Display) {
        self.problems.push(Problem::new(line, reason));
    }

    /// Records a problem in a line of the file, or with line 0 on the command line.
    pub(super) fn problem_or_usage(&mut self, line: usize, reason: String) {
        match line {
            0 => self.usage.push(reason),
            line => self.problem(line, reason),
        }
    }

    /// Records a warning about a line of the file, or with line 0 about the command line.
    pub(super) fn warn(&mut self, line: usize, reason: impl Display) {
        self.warnings.push(Problem::new(line, reason));
    }

    /// Records the error of a result about the command line.
    pub(super) fn usage_of<T>(&mut self, result: Result<T, CliError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(CliError::Usage(reason)) => {
                self.usage.push(reason);
                None
            }
            Err(error) => {
                self.failure.get_or_insert(error);
                None
            }
        }
    }

    /// Records the error of a result about the value of a key in a line of the file.
    pub(super) fn in_file<T>(
        &mut self,
        line: usize,
        key: &str,
        result: Result<T, impl Display>,
    ) -> Option<T> {
        let wrong = |reason| self.problem(line, format!("`{key}`: {reason}"));
        result.map_err(wrong).ok()
    }

    /// Records a missing value. An invalid value in the file is already recorded, so only an absent
    /// one counts.
    pub(super) fn need<T>(&mut self, value: Option<&T>, key: &str, form: &str, about: &str) {
        let flag = key.replace('_', "-");
        let name = key.replace('_', " ");
        match self.file {
            _ if value.is_some() => {}
            None => self.missing.push(format!("--{flag} {form} ({about})")),
            Some(_) if self.lines.keys.contains_key(key) => {}
            Some(_) => self.problem(
                1,
                format!("no {name}: add `{key} = \"{form}\"` or give --{flag}: {about}"),
            ),
        }
    }

    /// Warns of a password that other users of this machine can read.
    pub(super) fn warn_of_open_password(&mut self, file: &Path, store: Option<&Location>) {
        let Some(Location::Database(url)) = store else {
            return;
        };
        let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
        if url.has_password() && mode & 0o004 != 0 {
            let line = self.lines.keys.get("clients").copied().unwrap_or(1);
            self.warn(
                line,
                "every user of this machine can read the password in `store`: chmod o= the file, or \
                name a `password_file`",
            );
        }
    }

    /// Records that no client may connect.
    pub(super) fn need_clients<T>(&mut self, first: Option<&T>) {
        match self.file {
            _ if first.is_some() => {}
            None => self.missing.push(
                "--authorize PUBKEY (of a client, printed by sumlink pubkey there)".to_owned(),
            ),
            Some(_) if self.lines.keys.contains_key("client") => {}
            Some(_) => self.problem(
                1,
                "no client may connect: add a [[client]] block with a client's public key, or a \
                store for `sumlink invite` as `[clients] store`",
            ),
        }
    }

    /// The secret key of this side, from the file that the flag or the configuration names.
    pub(super) fn key(
        &mut self,
        flag: Option<PathBuf>,
        file: Option<PathBuf>,
    ) -> Option<SecretKey> {
        let about = "the secret key of this side, made by sumlink keygen";
        self.need(flag.as_ref().or(file.as_ref()), "key", "FILE", about);
        let by_flag = flag.is_some();
        match SecretKey::load(&flag.or(file)?) {
            Ok(key) => Some(key),
            Err(error) if by_flag => {
                self.failure.get_or_insert(error.into());
                None
            }
            Err(error) => {
                let reason = format!("`key`: {error}");
                let mut problem = Problem::new(self.lines.of("key"), reason);
                problem.about_key_file = true;
                problem.may_pass = error.may_pass();
                self.problems.push(problem);
                None
            }
        }
    }

    /// The congestion control of the flag, or else of the file, with the name that the kernel
    /// knows.
    pub(super) fn congestion(
        &mut self,
        flag: Option<String>,
        file: Option<String>,
        controls: &mut Controls,
    ) -> Option<String> {
        if let Some(name) = flag {
            let chosen = controls.choose(&name);
            let wrong = |error| CliError::Usage(format!("--congestion: {error}"));
            return self.usage_of(chosen.map_err(wrong)).flatten();
        }
        let key = match self.lines.keys.contains_key("congestion") {
            true => "congestion",
            false => "coupled",
        };
        let line = self.lines.of(key);
        let chosen = controls.choose(&file?);
        self.in_file(line, key, chosen).flatten()
    }

    /// The control socket. Checks the length of its path; the start finds other problems.
    pub fn control(&mut self, flag: Option<PathBuf>, file: Option<PathBuf>) -> Option<PathBuf> {
        if flag.is_some() {
            return flag;
        }
        let file = file?;
        if file.as_os_str().len() > LONGEST_PATH {
            let reason = format!(
                "`control`: the path of a control socket is limited to {LONGEST_PATH} bytes: {}",
                file.display()
            );
            self.problem(self.lines.of("control"), reason);
        }
        Some(file)
    }

    /// The configuration if there is no problem.
    pub fn finish<T>(mut self, plan: Option<T>) -> Planned<T> {
        self.warnings.sort_by_key(|warning| warning.line);
        let missing = match self.missing.as_slice() {
            [] => None,
            missing => Some(format!(
                "missing: {}; or give a configuration file with --config",
                missing.join(", ")
            )),
        };
        let usage: Vec<String> = self.usage.into_iter().chain(missing).collect();
        let plan = match (self.file, plan) {
            _ if !usage.is_empty() => Err(CliError::Usage(usage.join("; "))),
            (Some(file), _) if !self.problems.is_empty() => {
                Err(ConfigError::wrong(file, self.problems).into())
            }
            (_, plan) => match (self.failure, plan) {
                (Some(failure), _) => Err(failure),
                (None, Some(plan)) => Ok(plan),
                (None, None) => Err(CliError::Usage(
                    "the configuration is incomplete".to_owned(),
                )),
            },
        };
        Planned {
            plan,
            warnings: self.warnings,
        }
    }
}
