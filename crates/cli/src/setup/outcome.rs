//! What a setup has done and found: the check of the files, the start, and the next steps.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sumlink_transport::PublicKey;
use sumlink_util::plain;

use super::service::{Place, Role};
use super::{Next, client, server};
use crate::config::{self, ConfigError, Planned, Problem};
use crate::doctor::{self, DoctorArgs};
use crate::exit::{CliError, Exit, Failure};
use crate::find_socket;
use crate::output::{note, print, print_json};

/// What was done, and what was found.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) role: Role,
    pub(super) config: PathBuf,
    pub(super) config_written: bool,
    pub(super) place: Place,
    /// The key, unless an existing configuration names none.
    pub(super) key: Option<Key>,
    /// Warnings that are not printed yet.
    pub(super) warnings: Vec<String>,
    /// Problems of the configuration.
    pub(super) problems: Vec<String>,
    /// The exit code of the problems.
    pub(super) exit: Option<Exit>,
    pub(super) started: bool,
}

/// The key of this side.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) file: PathBuf,
    pub(super) public: PublicKey,
    /// Whether it is new.
    pub(super) made: bool,
}

impl Outcome {
    /// Checks the configuration as `sumlink check` does.
    pub(super) fn check(&mut self) -> Result<(), CliError> {
        let Planned { plan, warnings } = config::check(&self.config)?;
        for found in &warnings {
            self.warnings.push(line(&self.config, found));
        }
        match plan {
            Ok(_) => {}
            Err(CliError::Config(ConfigError::Wrong { file, problems })) => {
                for found in &problems {
                    self.problems.push(line(&file, found));
                }
                self.exit = Some(ConfigError::Wrong { file, problems }.exit());
            }
            Err(error) => {
                self.problems.push(plain(&error).to_string());
                self.exit = Some(error.exit());
            }
        }
        Ok(())
    }

    /// Prints which files there are, and what is wrong with them.
    pub(super) fn print_files(&mut self) -> Result<(), CliError> {
        let word = |is_new| if is_new { "written to" } else { "kept:" };
        let mut text = String::new();
        if let Some(key) = &self.key {
            let file = key.file.display();
            text.push_str(&format!("secret key {} {file}\n", word(key.made)));
        }
        let file = self.config.display();
        let written = word(self.config_written);
        text.push_str(&format!("configuration {written} {file}\n"));
        print(&text)?;
        self.print_warnings();
        for problem in &self.problems {
            note(&format!("{problem}\n"));
        }
        Ok(())
    }

    /// Prints the warnings since the last call.
    fn print_warnings(&mut self) {
        for warning in self.warnings.drain(..) {
            note(&format!("warning: {warning}\n"));
        }
    }

    /// Runs the doctor. Its failures are warnings here: a server may not know this client yet.
    pub(super) async fn examine(&mut self) -> Result<(), CliError> {
        if self.exit.is_some() {
            return Ok(());
        }
        let args = DoctorArgs {
            file: Some(self.config.clone()),
            speed: false,
            json: false,
        };
        print("\n")?;
        let reason = match doctor::run(&args).await {
            Ok(()) => return print("\n"),
            Err(CliError::AlreadyReported(Exit::Interrupted)) => {
                return Err(CliError::AlreadyReported(Exit::Interrupted));
            }
            Err(CliError::AlreadyReported(_)) => "some of these checks failed".to_owned(),
            Err(error) => format!("the checks ended early: {}", plain(&error)),
        };
        let file = self.config.display();
        note(&format!(
            "warning: {reason}; the files stay, and `sumlink doctor {file}` checks again\n"
        ));
        print("\n")
    }

    /// Starts the service, unless the configuration is wrong; `again` if it may run with another
    /// one.
    pub(super) fn start(&mut self, again: bool) -> Result<(), CliError> {
        if self.exit.is_some() {
            let reason = "not started: the configuration is wrong";
            self.warnings.push(reason.to_owned());
            return Ok(());
        }
        let is_client = self.role == Role::Client && self.place.service().is_some();
        if is_client && find_socket::socket(None, find_socket::GATEWAY).is_ok() {
            let reason = "the files are written, but a gateway runs here, which includes a client: \
                          restart sumlink-gateway instead of starting sumlink-client";
            return Err(Failure::new(Exit::Gateway, reason).into());
        }
        self.started = self.place.start(again)?;
        if !self.started {
            let reason = "no service of this machine reads this file, so nothing was started";
            self.warnings.push(reason.to_owned());
        }
        Ok(())
    }

    /// Prints the public key and the next steps. The failure carries the exit code of the problems.
    pub(super) fn print_end(mut self, next: &Next, json: bool) -> Result<(), CliError> {
        if json {
            print_json(&self.json(next))?;
        } else {
            self.print_warnings();
            let role = self.role.name();
            let mut text = String::new();
            if let Some(key) = &self.key {
                text.push_str(&format!("this {role}'s public key: {}\n", key.public));
            }
            text.push_str(&match self.started {
                true => format!("started: {}\n", self.place.service().unwrap_or(role)),
                false => format!("next, here: {}\n", self.place.command()),
            });
            text.push_str(&self.steps(next));
            print(&text)?;
        }
        match self.exit {
            None => Ok(()),
            Some(exit) => Err(CliError::AlreadyReported(exit)),
        }
    }

    fn json(&self, next: &Next) -> Value {
        let key = self.key.as_ref();
        json!({
            "role": self.role.name(),
            "ok": self.exit.is_none(),
            "config": self.config,
            "config_written": self.config_written,
            "key": key.map(|key| &key.file),
            "key_made": key.is_some_and(|key| key.made),
            "public_key": key.map(|key| key.public),
            "problems": self.problems,
            "warnings": self.warnings,
            "started": self.started,
            "start": self.place.command(),
            "next": self.steps(next),
        })
    }

    /// The next steps at the other side, as lines.
    fn steps(&self, next: &Next) -> String {
        let Some(key) = &self.key else {
            return String::new();
        };
        let key = key.public.to_string();
        match next {
            Next::Admit => client::steps(&key, &machine()),
            Next::Join { invites, addresses } => {
                let file = (!self.place.is_of_service).then_some(self.config.as_path());
                server::steps(&key, *invites, addresses, file)
            }
        }
    }
}

/// A finding with its place, in a form that editors can jump to.
fn line(file: &Path, found: &Problem) -> String {
    format!("{}:{}: {}", file.display(), found.line, found.text())
}

/// The name of this machine.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim().split('.').next() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => "client".to_owned(),
    }
}
