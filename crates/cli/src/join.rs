//! `sumlink join`: makes this machine a client of the server that has invited it.

use std::io::{self, BufRead};
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sumlink_store::InvitationLink;
use sumlink_transport::join::{JoinError, join};
use sumlink_transport::{PublicKey, SecretKey};
use sumlink_util::plain;

use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::output::{print, print_json};
use crate::setup::{ClientValues, Draft, Files, client_has_socket};
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
    new.configure(&all_servers(&link, None), &files, None)?;
    let (at, name) = tokio::select! {
        joined = join_any(&link, &key) => joined?,
        _ = stop.next() => return Err(CliError::AlreadyReported(Exit::Interrupted)),
    };
    let servers = all_servers(&link, Some(at));
    new.configure(&servers, &files, Some(&name))?;
    new.keep(args.force)?;
    let (server, server_key) = &servers[0];
    let addresses: Vec<&String> = servers.iter().map(|(address, _)| address).collect();
    let (config, key_file) = (files.config.display(), files.key.display());
    if args.json {
        return print_json(&json!({
            "name": name, "server": server, "server_key": server_key, "servers": addresses,
            "public_key": key.public(), "config": files.config, "key": files.key,
        }));
    }
    print(&format!(
        "joined {server} as {name}; secret key written to {key_file}, configuration to {config}\n\
        start the client with: sumlink client --config {config}\n"
    ))
}

/// Joins the server that made the invitation, or else another one with the same clients; returns
/// its address and key, and the name of this client.
async fn join_any(
    link: &InvitationLink,
    key: &SecretKey,
) -> Result<((String, PublicKey), String), JoinError> {
    let own = (link.addresses.clone(), link.server_key);
    let others = link.others.iter();
    let others = others.map(|(address, key)| (vec![address.clone()], *key));
    let mut first = None;
    for (addresses, server_key) in std::iter::once(own).chain(others) {
        match join(&addresses, &server_key, link.secret.as_bytes(), key).await {
            Ok((server, name)) => return Ok(((server, server_key), name)),
            // The secret was not sent.
            Err(
                error @ (JoinError::Unreachable { .. }
                | JoinError::Carrier(_)
                | JoinError::NotOffered),
            ) => {
                first.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(first.unwrap_or(JoinError::NotOffered))
}

/// The servers of an invitation, each at one address: first the one that was joined.
fn all_servers(
    link: &InvitationLink,
    joined: Option<(String, PublicKey)>,
) -> Vec<(String, PublicKey)> {
    let inviting = (link.addresses[0].clone(), link.server_key);
    let is_inviting = |(address, key): &(String, PublicKey)| {
        *key == link.server_key && link.addresses.contains(address)
    };
    let mut servers = vec![joined.unwrap_or_else(|| inviting.clone())];
    if !is_inviting(&servers[0]) {
        servers.push(inviting);
    }
    for other in &link.others {
        if !servers.contains(other) {
            servers.push(other.clone());
        }
    }
    servers
}

/// The files beside their places, until the server has accepted the key. Removed when dropped.
struct New {
    key: Draft,
    config: Draft,
}

impl New {
    fn create(files: &Files, key: &SecretKey) -> Result<Self, CliError> {
        Ok(Self {
            key: Draft::of_key(&files.key, key)?,
            config: Draft::beside(&files.config),
        })
    }

    /// Writes the configuration.
    fn configure(
        &self,
        servers: &[(String, PublicKey)],
        files: &Files,
        name: Option<&str>,
    ) -> Result<(), CliError> {
        let ((server, server_key), others) = (&servers[0], &servers[1..]);
        let values = ClientValues {
            server,
            server_key,
            others,
            key: &files.key,
            name,
            links: &[],
            socks: None,
            has_socket: client_has_socket(files),
        };
        self.config.write(&values.text())
    }

    /// Moves the files to their places, where other files may have appeared meanwhile. If that
    /// fails they stay beside them, because the server knows the key now.
    fn keep(mut self, replaces: bool) -> Result<(), CliError> {
        let placed = self.key.keep(replaces);
        let placed = placed.and_then(|()| self.config.keep(replaces));
        placed.map_err(|reason| {
            let left = [self.key.leave(), self.config.leave()];
            let new: Vec<String> = left
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

/// The first line of the input; longer lines than an invitation can be are cut.
fn first_line(input: impl BufRead) -> io::Result<String> {
    const MAX_LINE: u64 = 16 * 1024;
    let mut line = Vec::new();
    input.take(MAX_LINE).read_until(b'\n', &mut line)?;
    let line = String::from_utf8_lossy(&line);
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
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
    fn the_joined_server_is_the_first_of_all() {
        let key = |number| PublicKey::from_bytes([number; 32]).unwrap();
        let server = |address: &str, number| (address.to_owned(), key(number));
        let link = InvitationLink {
            addresses: vec!["a:1".to_owned(), "192.0.2.1:1".to_owned()],
            server_key: key(1),
            secret: sumlink_store::Secret::from_bytes([7; 16]),
            others: vec![server("b:2", 2), server("c:3", 3)],
        };
        let (a, b, c) = (server("a:1", 1), server("b:2", 2), server("c:3", 3));
        let all = |joined| all_servers(&link, joined);
        assert_eq!(all(None), [a.clone(), b.clone(), c.clone()]);
        let by_address = server("192.0.2.1:1", 1);
        assert_eq!(
            all(Some(by_address.clone())),
            [by_address, b.clone(), c.clone()]
        );
        assert_eq!(all(Some(b.clone())), [b, a, c]);
    }

    #[test]
    fn files_that_appear_during_the_exchange_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let files = Files::new(&place.path().join("home.toml")).unwrap();
        let new = New::create(&files, &SecretKey::generate().unwrap()).unwrap();
        let mut beside = files.key.clone().into_os_string();
        beside.push(format!(".new-{}", std::process::id()));
        std::fs::write(&files.key, "another's").unwrap();
        let error = new.keep(false).unwrap_err().to_string();
        assert!(
            error.contains("joined, but") && error.contains(".new-"),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&files.key).unwrap(), "another's");
        assert!(PathBuf::from(beside).exists(), "the server knows this key");
    }
}
