//! `sumlink join`: makes this machine a client of the server that has invited it.

use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sumlink_store::InvitationLink;
use sumlink_transport::join::join;
use sumlink_transport::keys::KeyError;
use sumlink_transport::{PublicKey, SecretKey};
use sumlink_util::plain;

use crate::exit::{CliError, Exit, Failure};
use crate::output::{print, print_json};
use crate::signals::Stop;

/// `sumlink join`
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The line that `sumlink invite` printed, in quotes; `-` reads it from standard input, so that
    /// other users of this machine do not see it.
    #[arg(value_name = "sumlink://...|-")]
    invitation: String,
    /// Write the configuration to this file, and the secret key beside it, with the ending .key.
    #[arg(long, value_name = "FILE", default_value = "client.toml")]
    out: PathBuf,
    /// Replace both files if they exist.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The commented example, which becomes the client's file.
const TEMPLATE: &str = include_str!("../../../packaging/client.toml");

/// Runs the verb.
pub(crate) async fn run(args: JoinArgs) -> Result<(), CliError> {
    let text = match args.invitation.as_str() {
        "-" => first_line(io::stdin().lock())?,
        text => text.to_owned(),
    };
    let link: InvitationLink = text
        .parse()
        .map_err(|error| CliError::Usage(format!("{error}")))?;
    let files = Files::new(&args.out)?;
    match args.force {
        true => files.must_be_replaceable()?,
        false => files.must_be_absent()?,
    }
    let mut stop = Stop::new()?;
    let key = SecretKey::generate()?;
    // Failures of this machine come before any use of the network: an invitation serves once.
    let new = New::create(&files, &key)?;
    new.configure(&link.addresses[0], &link.server_key, &files, None)?;
    let joining = join(
        &link.addresses,
        &link.server_key,
        link.secret.as_bytes(),
        &key,
    );
    let (server, name) = tokio::select! {
        joined = joining => joined?,
        _ = stop.next() => return Err(CliError::AlreadyReported(Exit::Interrupted)),
    };
    new.configure(&server, &link.server_key, &files, Some(&name))?;
    new.keep(&files, args.force)?;
    let (config, key_file) = (files.config.display(), files.key.display());
    if args.json {
        return print_json(&json!({
            "name": name, "server": server, "server_key": link.server_key,
            "public_key": key.public(), "config": files.config, "key": files.key,
        }));
    }
    print(&format!(
        "joined {server} as {name}; secret key written to {key_file}, configuration to {config}\n\
        start the client with: sumlink client --config {config}\n"
    ))
}

/// The files that the verb makes.
struct Files {
    config: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(config: &Path) -> Result<Self, CliError> {
        let key = config.with_extension("key");
        if config.file_name().is_none() || key == config {
            let reason = "--out must name a file that does not end with .key";
            return Err(CliError::Usage(reason.to_owned()));
        }
        if key.file_name().and_then(|name| name.to_str()).is_none() {
            let reason = "--out must be valid UTF-8: the configuration names the key's file";
            return Err(CliError::Usage(reason.to_owned()));
        }
        let config = config.to_owned();
        Ok(Self { config, key })
    }

    /// Only files can be replaced.
    fn must_be_replaceable(&self) -> Result<(), CliError> {
        for path in [&self.key, &self.config] {
            if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
                return Err(wrote(path, io::ErrorKind::IsADirectory.into()));
            }
        }
        Ok(())
    }

    fn must_be_absent(&self) -> Result<(), CliError> {
        if self.key.symlink_metadata().is_ok() {
            let path = self.key.clone();
            return Err(KeyError::Exists { path }.into());
        }
        if self.config.symlink_metadata().is_ok() {
            let reason = format!(
                "{} already exists and was not changed: choose another --out, or replace it and \
                its key with --force",
                self.config.display()
            );
            return Err(Failure::new(Exit::Config, reason).into());
        }
        Ok(())
    }
}

/// The files beside their places, until the server has accepted the key. Removed when dropped.
struct New(Files);

impl New {
    fn create(files: &Files, key: &SecretKey) -> Result<Self, CliError> {
        let beside = |path: &Path| {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".new-{}", std::process::id()));
            PathBuf::from(name)
        };
        let new = Self(Files {
            config: beside(&files.config),
            key: beside(&files.key),
        });
        key.save(&new.0.key)?;
        Ok(new)
    }

    /// Writes the configuration.
    fn configure(
        &self,
        server: &str,
        server_key: &PublicKey,
        files: &Files,
        name: Option<&str>,
    ) -> Result<(), CliError> {
        let text = configuration(server, server_key, &files.key, name);
        let write = || {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .open(&self.0.config)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|reason| wrote(&files.config, reason))
    }

    /// Moves the files to their places, where other files may have appeared meanwhile. If that
    /// fails they stay beside them, because the server knows the key now.
    fn keep(self, files: &Files, replaces: bool) -> Result<(), CliError> {
        let place = |from: &Path, to: &Path| match replaces {
            true => std::fs::rename(from, to),
            false => rename_to_new(from, to),
        };
        let placed = place(&self.0.key, &files.key);
        let placed = placed.and_then(|()| place(&self.0.config, &files.config));
        placed.map_err(|reason| {
            let (key, config) = (self.0.key.clone(), self.0.config.clone());
            // Not deleted.
            std::mem::forget(self);
            let new: Vec<String> = [key, config]
                .iter()
                .filter(|path| path.exists())
                .map(|path| path.display().to_string())
                .collect();
            let reason = format!(
                "joined, but the files cannot be moved to their places ({}): they are {}",
                plain(&reason),
                new.join(" and ")
            );
            Failure::new(Exit::Other, reason).into()
        })
    }
}

/// Renames a file, and fails if the new name exists.
fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match std::fs::hard_link(from, to) {
        Ok(()) => std::fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // A file system without links.
        Err(_) if to.symlink_metadata().is_ok() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => std::fs::rename(from, to),
    }
}

/// The first line of the input; longer lines than an invitation can be are cut.
fn first_line(input: impl BufRead) -> io::Result<String> {
    const MAX_LINE: u64 = 16 * 1024;
    let mut line = Vec::new();
    input.take(MAX_LINE).read_until(b'\n', &mut line)?;
    let line = String::from_utf8_lossy(&line);
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

impl Drop for New {
    fn drop(&mut self) {
        for path in [&self.0.key, &self.0.config] {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn wrote(path: &Path, reason: io::Error) -> CliError {
    CliError::Write {
        path: path.to_owned(),
        reason,
    }
}

/// The text of the client's file.
fn configuration(server: &str, server_key: &PublicKey, key: &Path, name: Option<&str>) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let key = key.file_name().unwrap_or_default().to_string_lossy();
    let name = name.map_or_else(String::new, |name| {
        format!("# The server knows this client as {name}.\n")
    });
    let values = [
        (
            "server = \"SERVER-HOST:7443\"\n",
            format!("server = {}\n", quoted(server)),
        ),
        (
            "server_key = \"SERVER-PUBLIC-KEY\"\n",
            format!("server_key = \"{server_key}\"\n"),
        ),
        (
            "# This client's own key: sumlink keygen --out client.key\nkey = \"client.key\"\n",
            format!("# This client's own key.\n{name}key = {}\n", quoted(&key)),
        ),
    ];
    let text = TEMPLATE.to_owned();
    values.iter().fold(text, |text, (placeholder, value)| {
        text.replacen(placeholder, value, 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_line_is_read_and_no_more_than_an_invitation_has() {
        assert_eq!(
            first_line(&b"sumlink://x\r\nmore"[..]).unwrap(),
            "sumlink://x"
        );
        assert_eq!(first_line(&b"\xff\n"[..]).unwrap(), "\u{fffd}");
        assert_eq!(
            first_line(io::BufReader::new(io::repeat(0))).unwrap().len(),
            16 * 1024
        );
    }

    #[test]
    fn files_that_appear_during_the_exchange_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let files = Files::new(&place.path().join("home.toml")).unwrap();
        let new = New::create(&files, &SecretKey::generate().unwrap()).unwrap();
        let beside = new.0.key.clone();
        std::fs::write(&files.key, "another's").unwrap();
        let error = new.keep(&files, false).unwrap_err().to_string();
        assert!(
            error.contains("joined, but") && error.contains(".new-"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&files.key).unwrap(), "another's");
        assert!(beside.exists(), "the server knows this key");
    }

    #[test]
    fn the_file_has_the_servers_values_and_all_comments() {
        let server_key = PublicKey::from_bytes([7; 32]).unwrap();
        let text = configuration(
            "[2001:db8::7]:443",
            &server_key,
            Path::new("/etc/sumlink/home.key"),
            Some("laptop"),
        );
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["server"].as_str(), Some("[2001:db8::7]:443"));
        assert_eq!(table["server_key"].as_str(), Some(&*server_key.to_string()));
        assert_eq!(table["key"].as_str(), Some("home.key"));
        assert!(text.contains("as laptop.\n"));
        assert!(!text.contains("SERVER-"), "a placeholder is left");
        assert!(text.lines().count() >= TEMPLATE.lines().count());
    }
}
