//! `sumlink diag`: one text file for a bug report, without secrets and identities.
//!
//! - `sections` and `configuration` collect the texts, which are redacted before they are shown.
//! - `redact` replaces secrets, keys, public addresses and names; `names` finds the names.

mod command;
mod configuration;
mod names;
mod redact;
mod section;
mod sections;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Local};
use clap::Args;

use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::output::{note, print};
use redact::Redactor;
use section::Section;

/// `sumlink diag`
#[derive(Debug, Args)]
pub(crate) struct DiagArgs {
    /// Include this configuration file. Default: client.toml and server.toml in /etc/sumlink and in
    /// the current folder.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask the running program at this control socket. Default: the sockets of the running services
    /// and of the configuration files.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Write to this new file, with mode 0600; `-` is standard output. Default:
    /// sumlink-diag-DATE-TIME.txt in the current folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The text before the list of replacements.
const HEAD: &str = "\
Review this text before you send it. The same thing has the same replacement everywhere.
Replacements:
";

/// The text after the list.
const UNCHANGED: &str = "\
Not replaced: private, link-local and documentation addresses; names of links, of files and of a
server's clients; the time zone; the rest of the log.
";

/// Runs the verb. Only a file that cannot be written is a failure.
pub(crate) async fn run(args: DiagArgs) -> Result<(), CliError> {
    let now = Local::now();
    let out = args.out.unwrap_or_else(|| default_file(now));
    let to_output = out == Path::new("-");
    if !to_output && out.symlink_metadata().is_ok() {
        return Err(wrote(&out, io::ErrorKind::AlreadyExists.into()));
    }
    let mut redactor = Redactor::default();
    names::of_machine(&mut redactor);
    let (config, control) = (args.config.as_deref(), args.control.as_deref());
    let sections = sections::collect(config, control, &mut redactor).await;
    let text = report(now, &sections, &mut redactor);
    if to_output {
        return print(&text);
    }
    let mut file = create(&out)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.flush());
    written.map_err(|reason| {
        // A part of a report is useless.
        let _ = std::fs::remove_file(&out);
        wrote(&out, reason)
    })?;
    note("review this file before you send it\n");
    print(&format!("{}\n", out.display()))
}

fn default_file(now: DateTime<Local>) -> PathBuf {
    PathBuf::from(format!("sumlink-diag-{}.txt", now.format("%Y%m%d-%H%M%S")))
}

/// Creates the file, which must not exist.
fn create(path: &Path) -> Result<std::fs::File, CliError> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|reason| wrote(path, reason))
}

fn wrote(path: &Path, reason: io::Error) -> CliError {
    if reason.kind() == io::ErrorKind::AlreadyExists {
        let reason = format!(
            "{} already exists and was not changed: choose another --out",
            path.display()
        );
        return Failure::new(Exit::Other, reason).into();
    }
    CliError::Write {
        path: path.to_owned(),
        reason,
    }
}

/// The whole text. Every section is redacted before the summary, which counts the replacements.
fn report(now: DateTime<Local>, sections: &[Section], redactor: &mut Redactor) -> String {
    // A host is known in all sections, before the first one is redacted.
    for section in sections {
        redactor.hosts_of_urls(&section.text);
    }
    let mut text = String::new();
    for Section { title, text: body } in sections {
        let head = redactor.redact(title);
        let body = redactor.redact(body);
        text.push_str(&format!("\n== {head} ==\n{}\n", body.trim_end()));
    }
    let (time, summary) = (now.format("%Y-%m-%d %H:%M:%S %:z"), redactor.summary());
    format!("Report of sumlink diag, {time}\n\n{HEAD}\n{summary}\n{UNCHANGED}\n{text}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_private_and_an_existing_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("diag.txt");
        drop(create(&path).unwrap());
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = create(&path).unwrap_err();
        assert_eq!(error.code(), 1);
        assert!(
            error.to_string().contains("choose another --out"),
            "{error}"
        );
        let error = create(&folder.path().join("none/diag.txt")).unwrap_err();
        assert_eq!(error.code(), 1);
    }

    #[test]
    fn every_section_is_redacted_and_counted() {
        let mut redactor = Redactor::default();
        redactor.host("vpn.example.org");
        let sections = [
            Section::new("file of vpn.example.org", "token = \"abc\"\n\n"),
            Section::new("routes", "default via 85.1.2.3"),
            Section::new("log", "login.hotel.example answers"),
            Section::new(
                "status",
                "sign in at http://login.hotel.example/?mac=aabbccddeeff",
            ),
        ];
        let text = report(Local::now(), &sections, &mut redactor);
        assert!(
            text.contains("\n== file of host-1 ==\ntoken = \"<redacted>\"\n"),
            "{text}"
        );
        assert!(
            text.contains("\n== routes ==\ndefault via addr-1\n"),
            "{text}"
        );
        assert!(text.contains("     1 public addresses"), "{text}");
        assert!(text.contains("host-2 answers\n"), "{text}");
        assert!(
            text.contains("sign in at http://host-2/?<redacted>\n"),
            "{text}"
        );
        assert!(!text.contains("sumlink://"));
    }
}
