//! `sumlink join`: makes this machine a client of the server that has invited it.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sumlink_store::InvitationLink;
use sumlink_transport::join::join;
use sumlink_transport::keys::KeyError;
use sumlink_transport::{PublicKey, SecretKey};

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
        "-" => io::stdin().lines().next().transpose()?.unwrap_or_default(),
        text => text.to_owned(),
    };
    let link: InvitationLink = text
        .parse()
        .map_err(|error| CliError::Usage(format!("{error}")))?;
    let files = Files::new(&args.out)?;
    if !args.force {
        files.must_be_absent()?;
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
    new.keep(&files)?;
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
        let config = config.to_owned();
        Ok(Self { config, key })
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

    /// Moves the files to their places.
    fn keep(self, files: &Files) -> Result<(), CliError> {
        let rename =
            |from: &Path, to: &Path| std::fs::rename(from, to).map_err(|reason| wrote(to, reason));
        rename(&self.0.key, &files.key)?;
        rename(&self.0.config, &files.config)
    }
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
