//! `sumlink doctor`: checks whether this machine, its links and the server let a client or a server
//! work, and names a remedy for each fault. It changes nothing.

mod client;
mod firewall;
mod server;
mod system;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::config::{self, ConfigError, Plan, Planned};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::{print, print_json};
use crate::signals::Stop;
use crate::speedtest::CLIENT_FILE;
use crate::table::{printable, wrap};

/// A port that is in use, while no control socket of a client or a server is known here.
const TAKEN: &str = "in use, by a program without a known control socket (--control or `control`), \
                     or by another program: `ss -ltnup` shows which";

/// The server's file of the packages.
const SERVER_FILE: &str = "/etc/sumlink/server.toml";

/// `sumlink doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check with this configuration file of a client or a server. Default: those of
    /// /etc/sumlink/client.toml and /etc/sumlink/server.toml that exist.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Measure the speed of each link alone and of all together, too, as `sumlink speedtest` does.
    #[arg(long)]
    pub(crate) speed: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// As it should be.
    Ok,
    /// It works, or may work, with a disadvantage.
    Warning,
    /// It does not work.
    Failed,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "FAILED",
        })
    }
}

/// A check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    /// The subject: `clock`, `link wlan0`.
    subject: String,
    verdict: Verdict,
    /// The finding, with a remedy for a warning or a failure.
    text: String,
}

/// The checks so far, printed as they are made.
#[derive(Debug)]
struct Findings {
    checks: Vec<Check>,
    json: bool,
    /// The exit code of the first failure.
    exit: Option<Exit>,
}

impl Findings {
    fn new(json: bool) -> Self {
        Self {
            checks: Vec::new(),
            json,
            exit: None,
        }
    }

    fn ok(&mut self, subject: &str, text: impl fmt::Display) -> Result<(), CliError> {
        self.add(subject, Verdict::Ok, text)
    }

    fn warn(&mut self, subject: &str, text: impl fmt::Display) -> Result<(), CliError> {
        self.add(subject, Verdict::Warning, text)
    }

    fn fail(&mut self, subject: &str, exit: Exit, text: impl fmt::Display) -> Result<(), CliError> {
        self.exit.get_or_insert(exit);
        self.add(subject, Verdict::Failed, text)
    }

    fn add(
        &mut self,
        subject: &str,
        verdict: Verdict,
        text: impl fmt::Display,
    ) -> Result<(), CliError> {
        let check = Check {
            subject: subject.to_owned(),
            verdict,
            text: printable(&text.to_string()),
        };
        if !self.json {
            print(&render(&check))?;
        }
        self.checks.push(check);
        Ok(())
    }

    /// Prints the end; the failure carries the exit code.
    fn finish(self) -> Result<(), CliError> {
        let count = |verdict| {
            let same = self.checks.iter().filter(|check| check.verdict == verdict);
            same.count()
        };
        let (failed, warnings) = (count(Verdict::Failed), count(Verdict::Warning));
        match self.json {
            true => print_json(&serde_json::json!({
                "ok": failed == 0, "failed": failed, "warnings": warnings, "checks": self.checks,
            }))?,
            false => print(&format!(
                "{} checks: {failed} failed, {warnings} with a warning\n",
                self.checks.len()
            ))?,
        }
        match self.exit {
            None => Ok(()),
            Some(exit) => Err(CliError::AlreadyReported(exit)),
        }
    }
}

/// Width of a line on the terminal.
const WIDTH: usize = 100;

/// A check as lines for people.
fn render(check: &Check) -> String {
    let head = format!("{:<8} {:<16} ", check.verdict, check.subject);
    let indent = head.chars().count();
    let lines = wrap(&check.text, WIDTH - indent.min(WIDTH / 2));
    let mut text = head;
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Runs the verb.
pub(crate) async fn run(args: &DoctorArgs) -> Result<(), CliError> {
    let files = match &args.file {
        Some(file) => vec![file.clone()],
        None => {
            let files = [CLIENT_FILE, SERVER_FILE].map(PathBuf::from);
            let existing: Vec<PathBuf> = files.into_iter().filter(|file| file.exists()).collect();
            if existing.is_empty() {
                let reason = format!(
                    "neither {CLIENT_FILE} nor {SERVER_FILE} exists: name the configuration file"
                );
                return Err(CliError::Usage(reason));
            }
            existing
        }
    };
    let mut stop = Stop::new()?;
    let mut found = Findings::new(args.json);
    let checking = async {
        system::check(&mut found)?;
        for file in &files {
            one(file, args.speed, &mut found).await?;
        }
        Ok(())
    };
    let checked: Result<(), CliError> = tokio::select! {
        checked = checking => checked,
        _ = stop.next() => return Err(CliError::AlreadyReported(Exit::Interrupted)),
    };
    checked?;
    found.finish()
}

/// Checks with one file.
async fn one(file: &Path, speed: bool, found: &mut Findings) -> Result<(), CliError> {
    const SUBJECT: &str = "configuration";
    let Planned { plan, warnings } = match config::check(file) {
        Ok(planned) => planned,
        Err(error) => return found.fail(SUBJECT, error.exit(), error),
    };
    for warning in &warnings {
        let place = format!("{}:{}", file.display(), warning.line);
        found.warn(SUBJECT, format!("{place}: {}", warning.text()))?;
    }
    let plan = match plan {
        Ok(plan) => plan,
        Err(CliError::Config(ConfigError::Wrong { file, problems })) => {
            let exit = ConfigError::Wrong {
                file: file.clone(),
                problems: problems.clone(),
            }
            .exit();
            for problem in &problems {
                let place = format!("{}:{}", file.display(), problem.line);
                found.fail(SUBJECT, exit, format!("{place}: {}", problem.text()))?;
            }
            return Ok(());
        }
        Err(error) => return found.fail(SUBJECT, error.exit(), error),
    };
    let role = plan.role();
    found.ok(SUBJECT, format!("{}: a {role}'s", file.display()))?;
    match plan {
        Plan::Client(plan) => client::check(*plan, speed, found).await,
        Plan::Server(plan) => server::check(&plan, found).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_the_exit_code() {
        let mut found = Findings::new(true);
        found.ok("clock", "correct").unwrap();
        found.warn("link wlan0", "slow").unwrap();
        assert_eq!(found.exit, None);
        found.fail("link wwan0", Exit::Network, "down").unwrap();
        found.fail("port", Exit::Config, "taken").unwrap();
        let ended = found.finish();
        assert!(matches!(
            ended,
            Err(CliError::AlreadyReported(Exit::Network))
        ));
    }

    #[test]
    fn long_texts_continue_below_their_beginning() {
        let check = Check {
            subject: "link wlan0".to_owned(),
            verdict: Verdict::Failed,
            text: "behind a captive portal: sign in at http://portal.example.org/login, and \
                   start this command again"
                .to_owned(),
        };
        insta::assert_snapshot!(render(&check));
    }
}
