//! The programs that start services: systemd, OpenRC and OpenWrt's procd.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use sumlink_util::plain;

use super::machine::path;
use crate::error::{CliError, Failure};
use crate::exit::Exit;

/// Folders of systemd's units, below the root (systemd.unit(5)).
const UNITS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// The program that starts the services of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Init {
    Systemd,
    OpenRc,
    Procd,
}

impl Init {
    /// The one of this machine, if it has the unit or the script of the service.
    pub(super) fn of_machine(service: &str) -> Option<Self> {
        Self::below(Path::new("/"), service, is_program)
    }

    /// The command that starts a service now and at boot; `again` if it may run.
    pub(super) fn command(self, service: &str, again: bool) -> String {
        let commands = self.commands(service, again);
        let lines: Vec<String> = commands.iter().map(|words| words.join(" ")).collect();
        lines.join(" && ")
    }

    /// Runs that command.
    pub(super) fn start(self, service: &str, again: bool) -> Result<(), CliError> {
        let mut commands = self.commands(service, again).into_iter();
        commands.try_for_each(|words| run(&words))
    }

    /// The one of the machine with this root.
    fn below(root: &Path, service: &str, is_program: impl Fn(&str) -> bool) -> Option<Self> {
        let has_unit = || {
            let unit = format!("{service}.service");
            UNITS
                .iter()
                .any(|folder| root.join(folder).join(&unit).is_file())
        };
        let has_script = root.join("etc/init.d").join(service).is_file();
        if root.join("run/systemd/system").is_dir() {
            return has_unit().then_some(Self::Systemd);
        }
        if is_program("rc-service") {
            return has_script.then_some(Self::OpenRc);
        }
        (is_program("procd") && has_script).then_some(Self::Procd)
    }

    /// The commands as words.
    fn commands(self, service: &str, again: bool) -> Vec<Vec<String>> {
        let start = if again { "restart" } else { "start" };
        let lines = match (self, again) {
            (Self::Systemd, false) => vec![format!("systemctl enable --now {service}.service")],
            (Self::Systemd, true) => vec![
                format!("systemctl enable {service}.service"),
                format!("systemctl restart {service}.service"),
            ],
            (Self::OpenRc, _) => vec![
                format!("rc-update add {service}"),
                format!("rc-service {service} {start}"),
            ],
            (Self::Procd, _) => vec![
                format!("/etc/init.d/{service} enable"),
                format!("/etc/init.d/{service} {start}"),
            ],
        };
        let words = |line: &String| line.split(' ').map(str::to_owned).collect();
        lines.iter().map(words).collect()
    }
}

fn is_program(name: &str) -> bool {
    std::env::split_paths(&path()).any(|folder| folder.join(name).is_file())
}

/// Runs a command; its failure is one line.
fn run(words: &[String]) -> Result<(), CliError> {
    let line = words.join(" ");
    let failed = |reason: String| {
        let reason = format!("not started: `{line}` failed: {reason}");
        CliError::from(Failure::new(Exit::Other, reason))
    };
    let Some((program, arguments)) = words.split_first() else {
        return Ok(());
    };
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", path())
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error: io::Error| failed(plain(error).to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.trim().lines().next().unwrap_or_default();
    Err(failed(match complaint {
        "" => output.status.to_string(),
        complaint => complaint.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_init_counts_only_with_the_unit_or_the_script_of_the_service() {
        let root = tempfile::tempdir().unwrap();
        let found = |programs: &[&str]| {
            Init::below(root.path(), "sumlink-client", |name| {
                programs.contains(&name)
            })
        };
        let add = |folder: &str, name: &str| {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
            std::fs::write(root.path().join(folder).join(name), "x").unwrap();
        };
        let all = ["rc-service", "procd"];
        assert_eq!(found(&all), None);
        add("etc/init.d", "sumlink-server");
        assert_eq!(found(&all), None, "the script of another service");
        add("etc/init.d", "sumlink-client");
        assert_eq!(found(&all), Some(Init::OpenRc));
        assert_eq!(found(&["procd"]), Some(Init::Procd));
        assert_eq!(found(&[]), None);
        std::fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
        assert_eq!(found(&all), None, "systemd runs, without the unit");
        add("usr/lib/systemd/system", "sumlink-client.service");
        assert_eq!(found(&all), Some(Init::Systemd));
    }

    #[test]
    fn a_command_that_fails_is_one_line() {
        let words = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
        assert!(run(&words("true")).is_ok());
        let error = run(&words("false")).unwrap_err().to_string();
        assert!(error.contains("`false` failed: "), "{error}");
        let error = run(&words("sumlink-no-such-program x")).unwrap_err();
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}
