//! `sumlink setup`: makes key and configuration of a client or a server, checks them, and starts
//! the service.
//!
//! It asks all questions before it writes the first file: an interrupted question leaves nothing
//! behind. It never replaces a key, and a configuration only with `--force`.

mod ask;
mod client;
mod files;
mod init;
pub(crate) mod machine;
mod outcome;
mod server;
mod service;
mod template;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_transport::keys::KeyError;
use sumlink_transport::{PublicKey, SecretKey};

use crate::config::{self, ConfigError, File, client_server, server_address};
use crate::error::CliError;
use crate::signals::Stop;
use ask::Questions;
use client::ClientSetup;
use files::wrote;
pub(crate) use files::{Draft, Files};
use outcome::{Key, Outcome};
use server::ServerSetup;
use service::{Place, Role};
pub(crate) use template::ClientValues;

/// `sumlink setup`
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    #[command(subcommand)]
    side: Side,
    #[command(flatten)]
    common: CommonSetup,
}

#[derive(Debug, Subcommand)]
enum Side {
    /// Set up a client: make its key, and a configuration with the server's address and key
    Client(ClientSetup),
    /// Set up a server: make its key, and a configuration with its port and its clients
    Server(ServerSetup),
}

/// Options of both sides.
#[derive(Debug, Args)]
struct CommonSetup {
    /// Write the configuration to this file, and the secret key beside it, with the ending .key.
    /// Default: client.toml or server.toml, in /etc/sumlink for root if that folder exists, else in
    /// the current folder.
    #[arg(long, value_name = "FILE", global = true)]
    out: Option<PathBuf>,
    /// Replace an existing configuration. An existing key is never replaced.
    #[arg(long, global = true)]
    force: bool,
    /// Accept the defaults; ask only for values without one.
    #[arg(long, global = true)]
    yes: bool,
    /// Start the service now and at boot; without a service, the exit code is 1. Default: print the
    /// command.
    #[arg(long, global = true)]
    start: bool,
    /// Print one JSON object; ask nothing and skip the checks of `sumlink doctor`.
    #[arg(long, global = true)]
    json: bool,
}

impl SetupArgs {
    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        self.common.json
    }
}

impl Side {
    fn role(&self) -> Role {
        match self {
            Self::Client(_) => Role::Client,
            Self::Server(_) => Role::Server,
        }
    }
}

/// The file at the place of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Existing {
    /// There is none.
    Nothing,
    /// The unchanged example of the packages.
    Example,
    /// A configuration.
    Configuration,
}

impl Existing {
    fn at(path: &Path, example: &str) -> Self {
        match std::fs::read_to_string(path) {
            Ok(text) if text == example => Self::Example,
            Ok(_) => Self::Configuration,
            // A file that cannot be read, or a link to nowhere.
            Err(_) if path.symlink_metadata().is_ok() => Self::Configuration,
            Err(_) => Self::Nothing,
        }
    }
}

/// A configuration that is about to be written.
#[derive(Debug)]
struct New {
    text: String,
    next: Next,
    warnings: Vec<String>,
}

/// The next step at the other side.
#[derive(Debug)]
enum Next {
    /// The server must admit this client.
    Admit,
    /// Clients join with an invitation, or with the server's key and address.
    Join {
        /// Whether the server has a store of clients, which invitations need.
        invites: bool,
        addresses: Vec<String>,
    },
}

/// Runs the verb.
pub(crate) async fn run(args: SetupArgs) -> Result<(), CliError> {
    let SetupArgs { side, common } = args;
    let role = side.role();
    let out = common.out.unwrap_or_else(|| role.default_file());
    let files = Files::new(&out)?;
    files.must_be_replaceable()?;
    let place = Place::of(role, &files.config);
    let existing = Existing::at(&files.config, role.example());
    let keeps = existing == Existing::Configuration && !common.force;
    let asks = io::stdin().is_terminal() && !common.json;
    let mut questions = asks.then(Questions::of_terminal);

    let (key, text, next, warnings) = match keeps {
        true => {
            // The key is the one that the existing file names.
            let (key, next) = kept(role, &files.config).await?;
            let file = files.config.display();
            let warning = format!("{file} exists and was kept; --force replaces it");
            (key, None, next, vec![warning])
        }
        false => {
            let asked = questions.as_mut();
            let new = match side {
                Side::Client(args) => args.finish(&files, &place, asked, common.yes).await?,
                Side::Server(args) => args.finish(&files, &place, asked, common.yes).await?,
            };
            (Some(files.key), Some(new.text), new.next, new.warnings)
        }
    };
    let start = match (&mut questions, place.service()) {
        (Some(questions), Some(service)) if !common.start && !common.yes => {
            questions.agrees(&format!("Start {service} now and at boot"))?
        }
        _ => common.start,
    };

    // From here on, a signal cannot interrupt the writing.
    let _signals = Stop::new()?;
    let mut outcome = Outcome {
        role,
        config: files.config,
        config_written: text.is_some(),
        place,
        again: existing == Existing::Configuration && !keeps,
        key: None,
        warnings,
        problems: Vec::new(),
        exit: None,
        started: false,
        failure: None,
    };
    outcome.write(key, text.as_deref(), existing != Existing::Nothing)?;
    outcome.check()?;
    if !common.json {
        outcome.print_files()?;
        outcome.examine().await?;
    }
    if start {
        outcome.start();
    }
    outcome.print_end(&next, common.json)
}

/// The key file and the next step of an existing configuration. Its mistakes are reported later, by
/// the check.
async fn kept(role: Role, file: &Path) -> Result<(Option<PathBuf>, Next), CliError> {
    let settings = config::read_settings(file, &OwnSchedulers::default());
    Ok(match (role, settings) {
        (Role::Client, Ok(File::Client(settings))) => (settings.key, Next::Admit),
        (Role::Server, Ok(File::Server(settings))) => {
            let configured = settings.clients.addresses;
            let addresses = match settings.listen {
                Some(listen) => server::shown(configured, listen).await,
                None => configured,
            };
            let invites = settings.clients.store.is_some();
            (settings.key, Next::Join { invites, addresses })
        }
        (_, Ok(other)) => {
            let (file, is) = (file.to_owned(), other.role());
            return Err(ConfigError::OtherRole { file, is }.into());
        }
        (Role::Client, Err(_)) => (None, Next::Admit),
        (Role::Server, Err(_)) => {
            let (invites, addresses) = (true, Vec::new());
            (None, Next::Join { invites, addresses })
        }
    })
}

impl Outcome {
    /// Writes the files that are missing, and the configuration in place of the existing one.
    fn write(
        &mut self,
        key: Option<PathBuf>,
        text: Option<&str>,
        replaces: bool,
    ) -> Result<(), CliError> {
        let mut key_draft = None;
        if let Some(file) = key {
            let made = file.symlink_metadata().is_err();
            let secret = match made {
                true => SecretKey::generate()?,
                false => SecretKey::load(&file)?,
            };
            match made {
                true => key_draft = Some(of_key(&file, &secret)?),
                false => self.warnings.extend(self.place.warn_of_key(&file)),
            }
            let public = secret.public();
            self.key = Some(Key { file, public, made });
        }
        let mut config_draft = text.map(|_| Draft::beside(&self.config));
        if let (Some(draft), Some(text)) = (&config_draft, text) {
            draft.write(text)?;
        }
        if key_draft.is_some() || config_draft.is_some() {
            let given = self.place.give(key_draft.as_ref(), config_draft.as_ref());
            self.warnings.extend(given);
        }
        if let (Some(draft), Some(key)) = (&mut key_draft, &self.key) {
            let kept = draft.keep(false);
            kept.map_err(|reason| wrote(&key.file, reason))?;
        }
        if let Some(draft) = &mut config_draft {
            let kept = draft.keep(replaces);
            kept.map_err(|reason| wrote(&self.config, reason))?;
        }
        Ok(())
    }
}

/// A new key beside its place. A folder that cannot be written is the same failure for both files.
fn of_key(file: &Path, secret: &SecretKey) -> Result<Draft, CliError> {
    Draft::of_key(file, secret).map_err(|error| match error {
        CliError::Key(KeyError::Unwritable { source, .. }) => wrote(file, source),
        error => error,
    })
}

/// The failure without a terminal: all options that are missing.
fn missing(options: &[&str]) -> CliError {
    CliError::Usage(format!(
        "missing: {}; give these options, or run this on a terminal, where it asks",
        options.join(", ")
    ))
}

/// Parses the server of a client.
fn parse_server(text: &str) -> Result<String, String> {
    client_server(text).map_err(|error| error.to_string())
}

/// Parses HOST:PORT.
fn parse_address(text: &str) -> Result<String, String> {
    server_address(text).map_err(|error| error.to_string())
}

/// Parses a public key.
fn parse_key(text: &str) -> Result<PublicKey, String> {
    let parsed = text.parse::<PublicKey>();
    parsed.map_err(|error| error.to_string())
}

/// Whether a configuration names a control socket beside it: that of a service has a place, and a
/// path may be too long.
fn has_socket(place: &Place, files: &Files) -> bool {
    !place.is_of_service && has_room_for_socket(&files.key)
}

/// The same for a client's configuration.
pub(crate) fn client_has_socket(files: &Files) -> bool {
    has_socket(&Place::of(Role::Client, &files.config), files)
}

/// Whether the path of a control socket beside this file is short enough.
fn has_room_for_socket(key: &Path) -> bool {
    let socket = key.with_extension("sock");
    socket.as_os_str().len() <= crate::control::LONGEST_PATH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_unchanged_example_is_replaced_without_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("client.toml");
        let example = Role::Client.example();
        assert_eq!(Existing::at(&path, example), Existing::Nothing);
        std::fs::write(&path, example).unwrap();
        assert_eq!(Existing::at(&path, example), Existing::Example);
        std::fs::write(&path, format!("{example}#\n")).unwrap();
        assert_eq!(Existing::at(&path, example), Existing::Configuration);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere/x", &path).unwrap();
        assert_eq!(Existing::at(&path, example), Existing::Configuration);
    }

    #[test]
    fn addresses_and_keys_are_checked() {
        assert_eq!(parse_address("h:1"), Ok("h:1".to_owned()));
        assert_eq!(parse_address("h"), Ok("h:443".to_owned()));
        assert!(parse_address("h:").is_err());
        assert!(parse_key("x").is_err());
        assert!(has_room_for_socket(Path::new("/etc/sumlink/client.key")));
        assert!(!has_room_for_socket(Path::new(&"x/".repeat(60))));
    }

    #[tokio::test]
    async fn the_key_of_an_existing_configuration_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        std::fs::write(&path, "server = \"h:1\"\nkey = \"other.key\"\n").unwrap();
        let (key, next) = kept(Role::Client, &path).await.unwrap();
        assert_eq!(key, Some(folder.path().join("other.key")));
        assert!(matches!(next, Next::Admit));
        assert!(kept(Role::Server, &path).await.is_err());
        std::fs::write(&path, "server = ").unwrap();
        assert_eq!(kept(Role::Client, &path).await.unwrap().0, None);
    }
}
