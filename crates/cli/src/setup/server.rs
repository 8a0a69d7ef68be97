//! `sumlink setup server`.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use sumlink_store::Location;
use sumlink_transport::PublicKey;

use super::ask::Questions;
use super::service::Place;
use super::template::ServerValues;
use super::{Files, New, Next, has_room_for_socket, missing, parse_address, parse_key};
use crate::clients::addresses;
use crate::config::{ClientsSettings, parse_server_listen};
use crate::error::CliError;

/// `sumlink setup server`
#[derive(Debug, Default, Args)]
pub(super) struct ServerSetup {
    /// Listen for clients on this address; PORT alone and `*:PORT` mean all IPv4 and IPv6
    /// addresses. Default: [::]:7443.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_server_listen)]
    listen: Option<SocketAddr>,
    /// Authorize the client with this public key; takes several keys and is repeatable. Default:
    /// none, so that clients join with `sumlink invite`.
    #[arg(long, value_name = "PUBKEY", num_args = 1..)]
    authorize: Vec<PublicKey>,
    /// Put this address into invitations; clients reach the server there. Repeatable. Default: the
    /// addresses of this machine.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    address: Vec<String>,
    /// Store the clients that join in this file. Default: clients.db in /var/lib/sumlink-server for
    /// the service, else beside the configuration; none on OpenWrt.
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
}

/// The port of the example.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 7443);

/// An answer that names no file.
const NONE: &str = "none";

impl ServerSetup {
    /// Makes the configuration. On a terminal, asks for missing values.
    pub(super) async fn finish(
        mut self,
        files: &Files,
        place: &Place,
        questions: Option<&mut Questions>,
        yes: bool,
    ) -> Result<New, CliError> {
        if let Some(questions) = questions {
            self.ask(questions, place, yes).await?;
        }
        let listen = self.listen.unwrap_or(LISTEN);
        let mut warnings = Vec::new();
        let store = match &self.store {
            // A database has no path.
            Some(store) if store.to_str().is_some_and(Location::is_database) => {
                store.to_str().map(str::to_owned)
            }
            Some(store) => {
                // Paths in the file are relative to the file, those of options are not.
                let store = std::path::absolute(store)?;
                warnings.extend(place.warn_of_store(&store));
                let Some(text) = store.to_str() else {
                    let reason = "--store must be valid UTF-8: the configuration names it";
                    return Err(CliError::Usage(reason.to_owned()));
                };
                Some(text.to_owned())
            }
            None => place.default_store().map(str::to_owned),
        };
        if store.is_none() && self.authorize.is_empty() {
            return Err(missing(&["--authorize PUBKEY or --store FILE"]));
        }
        let text = ServerValues {
            listen,
            key: &files.key,
            authorize: &self.authorize,
            store: store.as_deref(),
            addresses: &self.address,
            has_socket: !place.is_of_service && has_room_for_socket(&files.key),
        }
        .text();
        Ok(New {
            text,
            next: Next::Join {
                invites: store.is_some(),
                addresses: shown(self.address, listen).await,
            },
            warnings,
        })
    }

    async fn ask(
        &mut self,
        questions: &mut Questions,
        place: &Place,
        yes: bool,
    ) -> Result<(), CliError> {
        if self.listen.is_none() && !yes {
            let question = "Address and port for clients, TCP and UDP";
            let default = LISTEN.to_string();
            self.listen = Some(questions.ask(question, Some(&default), parse_server_listen)?);
        }
        if self.address.is_empty() && !yes {
            let own = shown(Vec::new(), self.listen.unwrap_or(LISTEN)).await;
            let question = "Addresses (HOST:PORT) at which clients reach this server";
            self.address = questions.ask_all(question, &own.join(" "), parse_address)?;
        }
        if self.authorize.is_empty() && !yes {
            let question = "Public keys of clients; others join with `sumlink invite`";
            self.authorize = questions.ask_all(question, NONE, parse_key)?;
        }
        if self.store.is_none() && place.default_store().is_none() {
            let default = (!self.authorize.is_empty()).then_some(NONE);
            if default.is_some() && yes {
                return Ok(());
            }
            let question = "File for the clients that join; it is written often";
            self.store = questions.ask(question, default, parse_file)?;
        }
        Ok(())
    }
}

/// A file, or none.
fn parse_file(text: &str) -> Result<Option<PathBuf>, &'static str> {
    match text {
        "" => Err("name a file"),
        NONE => Ok(None),
        text => Ok(Some(PathBuf::from(text))),
    }
}

/// The addresses of the configuration, or those of this machine.
pub(super) async fn shown(configured: Vec<String>, listen: SocketAddr) -> Vec<String> {
    let settings = ClientsSettings {
        addresses: configured,
        ..ClientsSettings::default()
    };
    addresses(&settings, listen).await
}

/// The next steps: clients join with an invitation or with the server's key. `config` is the file
/// of a server that is not the service.
pub(super) fn steps(
    key: &str,
    invites: bool,
    addresses: &[String],
    config: Option<&Path>,
) -> String {
    let option = config.map_or_else(String::new, |file| format!(" --config {}", file.display()));
    let address = addresses.first().map_or("HOST:PORT", String::as_str);
    let by_key = format!("sumlink setup client --server {address} --server-key {key}\n");
    match invites {
        true => format!(
            "then, for each client: sumlink invite{option}\n\
             or with keys, at a client whose key this server has: {by_key}"
        ),
        false => format!("then, at each client: {by_key}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::service::Role;
    use super::*;

    async fn finish(setup: ServerSetup) -> toml::Table {
        let files = Files::new(Path::new("server.toml")).unwrap();
        let place = Place::of(Role::Server, &files.config);
        let new = setup.finish(&files, &place, None, true).await;
        new.unwrap().text.parse().unwrap()
    }

    #[tokio::test]
    async fn a_server_needs_no_option() {
        let table = finish(ServerSetup::default()).await;
        assert_eq!(table["listen"].as_str(), Some("[::]:7443"));
        assert_eq!(table["clients"]["store"].as_str(), Some("clients.db"));
        assert_eq!(table["control"].as_str(), Some("server.sock"));
        assert!(!table.contains_key("client"));
    }

    #[tokio::test]
    async fn the_options_are_in_the_file() {
        let setup = ServerSetup {
            listen: Some("192.0.2.1:443".parse().unwrap()),
            authorize: vec![PublicKey::from_bytes([7; 32]).unwrap()],
            address: vec!["vpn.example.org:443".to_owned()],
            store: Some(PathBuf::from("/srv/clients.db")),
        };
        let table = finish(setup).await;
        assert_eq!(table["listen"].as_str(), Some("192.0.2.1:443"));
        assert_eq!(table["clients"]["store"].as_str(), Some("/srv/clients.db"));
        let address = table["clients"]["address"][0].as_str();
        assert_eq!(address, Some("vpn.example.org:443"));
        assert_eq!(table["client"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn the_next_step_is_a_command() {
        let address = ["192.0.2.1:7443".to_owned()];
        let text = steps("KEY", true, &address, Some(Path::new("server.toml")));
        assert!(text.contains(": sumlink invite --config server.toml\n"));
        assert!(text.contains("--server 192.0.2.1:7443 --server-key KEY\n"));
        assert!(!steps("KEY", false, &address, None).contains("invite"));
        assert!(steps("KEY", true, &[], None).contains(": sumlink invite\n"));
    }
}
