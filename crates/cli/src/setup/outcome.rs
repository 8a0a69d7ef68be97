//! The result of a setup: checks the files, starts the service and prints the next steps.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sumlink_transport::PublicKey;
use sumlink_util::plain;

use super::machine::host_name;
use super::service::{Place, Role};
use super::{Next, client, server};
use crate::config::{self, ConfigError, Planned, Problem};
use crate::doctor::{self, DoctorArgs};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::find_socket;
use crate::output::{note, print, print_json};

/// The result so far.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) role: Role,
    pub(super) config: PathBuf,
    pub(super) config_written: bool,
    pub(super) place: Place,
    /// Whether the service may run with another configuration.
    pub(super) again: bool,
    /// The key, unless an existing configuration names none.
    pub(super) key: Option<Key>,
    /// Warnings that are not printed yet.
    pub(super) warnings: Vec<String>,
    /// Problems of the configuration.
    pub(super) problems: Vec<String>,
    /// The exit code of the problems.
    pub(super) exit: Option<Exit>,
    pub(super) started: bool,
    /// Why the setup ended early. The files are written by then, so it is returned after the end.
    pub(super) failure: Option<CliError>,
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

    /// Prints the files and the problems of the configuration.
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

    /// Runs the doctor. Its failures are warnings here: the server may not know this client yet.
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
            Err(error @ CliError::AlreadyReported(Exit::Interrupted)) => {
                self.failure = Some(error);
                return print("\n");
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

    /// Starts the service, unless the configuration is wrong or the setup ended early.
    pub(super) fn start(&mut self) {
        if self.failure.is_some() {
            return;
        }
        if self.exit.is_some() {
            let reason = "not started: the configuration is wrong";
            self.warnings.push(reason.to_owned());
            return;
        }
        let result: Result<(), CliError> = match self.gateway_runs() {
            true => {
                let reason = "not started: a gateway runs here, which includes a client; restart \
                              sumlink-gateway instead";
                Err(Failure::new(Exit::Gateway, reason).into())
            }
            false => self.place.start(self.again),
        };
        self.started = result.is_ok();
        self.failure = result.err();
    }

    /// Whether a gateway runs in place of the service of a client.
    fn gateway_runs(&self) -> bool {
        self.role == Role::Client
            && self.place.service().is_some()
            && find_socket::socket(None, find_socket::GATEWAY).is_ok()
    }

    /// Prints the public key and the next steps.
    ///
    /// # Errors
    ///
    /// The setup ended early, or the configuration has problems; both are printed.
    pub(super) fn print_end(mut self, next: &Next, json: bool) -> Result<(), CliError> {
        if json {
            print_json(&self.json(next))?;
        } else {
            self.print_warnings();
            match &self.failure {
                None | Some(CliError::AlreadyReported(_)) => {}
                Some(error) => note(&format!("sumlink: {}\n", plain(error))),
            }
            print(&self.end(next))?;
        }
        let failed = self.failure.as_ref().map(CliError::exit);
        match failed.or(self.exit) {
            None => Ok(()),
            Some(exit) => Err(CliError::AlreadyReported(exit)),
        }
    }

    /// The last lines as text.
    fn end(&self, next: &Next) -> String {
        let role = self.role.name();
        let mut text = String::new();
        if let Some(key) = &self.key {
            text.push_str(&format!("this {role}'s public key: {}\n", key.public));
        }
        let file = self.config.display();
        text.push_str(&match self.start_command() {
            _ if self.started => format!("started: {}\n", self.place.service().unwrap_or(role)),
            Some(command) => format!("next, here: {command}\n"),
            None if self.exit.is_some() => {
                format!("next, here: correct {file}, then run `sumlink check {file}`\n")
            }
            None => "next, here: restart the gateway, which includes a client\n".to_owned(),
        });
        text.push_str(&self.steps(next));
        text
    }

    /// The command that starts this side; `None` if it would fail.
    fn start_command(&self) -> Option<String> {
        let can_start = self.exit.is_none() && !self.gateway_runs();
        can_start.then(|| self.place.command(self.again))
    }

    fn json(&self, next: &Next) -> Value {
        let key = self.key.as_ref();
        json!({
            "role": self.role.name(),
            "ok": self.exit.is_none() && self.failure.is_none(),
            "config": self.config,
            "config_written": self.config_written,
            "key": key.map(|key| &key.file),
            "key_made": key.is_some_and(|key| key.made),
            "public_key": key.map(|key| key.public),
            "problems": self.problems,
            "warnings": self.warnings,
            "error": self.failure.as_ref().map(|error| error.json()["error"].take()),
            "started": self.started,
            "start": self.start_command(),
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
            Next::Admit => client::steps(&key, &label(&host_name())),
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

/// The name of a client on a machine with this name.
fn label(host_name: &str) -> String {
    match host_name.split('.').next() {
        Some(label) if !label.is_empty() => label.to_owned(),
        _ => "client".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::init::Init;
    use super::*;

    const NEXT: Next = Next::Join {
        invites: true,
        addresses: Vec::new(),
    };

    /// A server's service with a new key, before its start.
    fn outcome(again: bool) -> Outcome {
        let config = PathBuf::from("/etc/sumlink/server.toml");
        Outcome {
            role: Role::Server,
            place: Place::new(Role::Server, &config, true, Some(Init::Systemd)),
            config,
            config_written: true,
            again,
            key: Some(Key {
                file: PathBuf::from("/etc/sumlink/server.key"),
                public: PublicKey::from_bytes([7; 32]).unwrap(),
                made: true,
            }),
            warnings: Vec::new(),
            problems: Vec::new(),
            exit: None,
            started: false,
            failure: None,
        }
    }

    /// The last lines as text. They must begin with the public key.
    #[track_caller]
    fn end(outcome: &Outcome) -> String {
        let end = outcome.end(&NEXT);
        let public = outcome.key.as_ref().unwrap().public;
        let line = format!("this server's public key: {public}\n");
        assert!(end.starts_with(&line), "{end}");
        end
    }

    #[test]
    fn a_service_that_may_run_already_is_restarted() {
        let once = end(&outcome(false));
        let next = "\nnext, here: systemctl enable --now sumlink-server.service\n";
        assert!(once.contains(next), "{once}");
        let again = end(&outcome(true));
        let next = " && systemctl restart sumlink-server.service\n";
        assert!(again.contains(next) && !again.contains("--now"), "{again}");
        let start = outcome(true).json(&NEXT)["start"].clone();
        assert!(start.as_str().unwrap().contains("restart"), "{start}");
    }

    #[test]
    fn a_configuration_with_problems_is_not_to_be_started() {
        let mut wrong = outcome(true);
        wrong.exit = Some(Exit::Config);
        wrong.start();
        assert!(!wrong.started && wrong.failure.is_none());
        assert_eq!(wrong.warnings, ["not started: the configuration is wrong"]);
        let text = end(&wrong);
        assert!(!text.contains("systemctl"), "{text}");
        let next = "\nnext, here: correct /etc/sumlink/server.toml, ";
        assert!(text.contains(next), "{text}");
        assert_eq!(wrong.json(&NEXT)["start"], Value::Null);
        assert_eq!(wrong.print_end(&NEXT, true).unwrap_err().code(), 3);
    }

    #[test]
    fn a_failed_start_does_not_hide_the_public_key() {
        let mut failed = outcome(false);
        failed.place = Place::new(Role::Server, Path::new("home.toml"), false, None);
        failed.start();
        assert!(!failed.started);
        let text = end(&failed);
        let next = "\nnext, here: sumlink server --config home.toml\n";
        assert!(text.contains(next), "{text}");
        let object = failed.json(&NEXT);
        assert_eq!(
            (&object["ok"], &object["started"]),
            (&false.into(), &false.into())
        );
        assert_eq!(object["error"]["exit_code"], 1, "{object}");
        let message = object["error"]["message"].as_str().unwrap();
        assert!(
            message.ends_with("no service of this machine reads home.toml"),
            "{message}"
        );
        assert_eq!(failed.print_end(&NEXT, true).unwrap_err().code(), 1);
    }

    #[test]
    fn an_interruption_ends_the_setup_without_a_start() {
        let mut ended = outcome(false);
        ended.failure = Some(CliError::AlreadyReported(Exit::Interrupted));
        ended.start();
        assert!(!ended.started);
        end(&ended);
        assert_eq!(ended.print_end(&NEXT, false).unwrap_err().code(), 130);
    }

    #[test]
    fn a_client_has_the_first_label_of_the_machine() {
        assert_eq!(label("laptop.corp.example"), "laptop");
        assert_eq!(label(""), "client");
    }
}
