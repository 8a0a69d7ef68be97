//! `sumlink setup server`.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::Args;
use sumlink_store::Location;
use sumlink_transport::PublicKey;

use super::ask::Questions;
use super::service::{Place, Role};
use super::template::ServerValues;
use super::{Files, New, Next, has_socket, missing, parse_address, parse_key};
use crate::clients::addresses;
use crate::config::{ClientsSettings, SERVER_PORT, parse_server_listen};
use crate::error::CliError;

/// `sumlink setup server`
#[derive(Debug, Default, Args)]
pub(super) struct ServerSetup {
    /// Listen for clients on this address; PORT alone and `*:PORT` mean all IPv4 and IPv6
    /// addresses. Default: the port of the first --address; without one 443, or 7443 if that is
    /// taken. Where a service may not have ports below 1024, 7443 replaces them.
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

/// The port if [`SERVER_PORT`] cannot be had.
const OTHER_PORT: u16 = 7443;

/// Ports below need a permission (`net.ipv4.ip_unprivileged_port_start`, ip(7)).
const LOW_PORTS: u16 = 1024;

/// All IPv4 and IPv6 addresses with this port.
fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

/// Where a server listens that has these addresses for clients, and why on another port than the
/// first address or [`SERVER_PORT`].
fn proposed(
    addresses: &[String],
    try_port: impl FnOnce(u16) -> io::Result<()>,
) -> (SocketAddr, Option<String>) {
    let port = addresses.first().and_then(|first| first.rsplit_once(':'));
    let given = port.and_then(|(_, port)| port.parse().ok());
    let port = given.unwrap_or(SERVER_PORT);
    let reason = match try_port(port) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            "the server may not have it"
        }
        // A port of an address is one that clients use: perhaps the program that has it goes.
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && given.is_none() => {
            "another program has it"
        }
        // After other errors, a server on another port fails likewise, with the reason.
        _ => return (everywhere(port), None),
    };
    let consequence = match given {
        Some(_) => format!("forward port {port} of the address to it"),
        None => format!("more networks let {port} through"),
    };
    let note = format!("port {OTHER_PORT} instead of {port}: {reason}; {consequence}");
    (everywhere(OTHER_PORT), Some(note))
}

/// Whether the server could have the port on all addresses.
fn try_port(place: &Place, port: u16) -> io::Result<()> {
    if port < LOW_PORTS && !place.may_bind_low_ports() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    TcpListener::bind(everywhere(port)).map(drop)
}

/// Where the configuration in this file listens; `None` for the example of a package.
fn of_file(file: &Path) -> Option<SocketAddr> {
    let text = fs::read_to_string(file).ok()?;
    if text == Role::Server.example() {
        return None;
    }
    let table: toml::Table = text.parse().ok()?;
    parse_server_listen(table.get("listen")?.as_str()?).ok()
}

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
            self.ask(questions, files, place, yes).await?;
        }
        let mut warnings = Vec::new();
        let listen = self.listen.unwrap_or_else(|| {
            let (listen, note) = self.default_listen(files, place);
            warnings.extend(note);
            listen
        });
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
            has_socket: has_socket(place, files),
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

    /// Where the server listens without `--listen`, with a note if that is not as expected.
    fn default_listen(&self, files: &Files, place: &Place) -> (SocketAddr, Option<String>) {
        // A server that runs has its port.
        match self
            .address
            .is_empty()
            .then(|| of_file(&files.config))
            .flatten()
        {
            Some(before) => (before, None),
            None => proposed(&self.address, |port| try_port(place, port)),
        }
    }

    async fn ask(
        &mut self,
        questions: &mut Questions,
        files: &Files,
        place: &Place,
        yes: bool,
    ) -> Result<(), CliError> {
        if self.listen.is_none() && !yes {
            let question = "Address and port for clients, TCP and UDP";
            let default = self.default_listen(files, place).0.to_string();
            self.listen = Some(questions.ask(question, Some(&default), parse_server_listen)?);
        }
        if self.address.is_empty() && !yes {
            let listen = self
                .listen
                .unwrap_or_else(|| self.default_listen(files, place).0);
            let own = shown(Vec::new(), listen).await;
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
        let listen = table["listen"].as_str().unwrap();
        assert!(["[::]:443", "[::]:7443"].contains(&listen), "{listen}");
        assert_eq!(table["clients"]["store"].as_str(), Some("clients.db"));
        assert_eq!(table["control"].as_str(), Some("server.sock"));
        assert!(!table.contains_key("client"));
    }

    #[test]
    fn the_port_of_https_is_proposed_if_it_can_be_had() {
        let (listen, note) = proposed(&[], |_| Ok(()));
        assert_eq!((listen.to_string().as_str(), note), ("[::]:443", None));
        for kind in [io::ErrorKind::AddrInUse, io::ErrorKind::PermissionDenied] {
            let (listen, note) = proposed(&[], |_| Err(kind.into()));
            assert_eq!(listen.to_string(), "[::]:7443");
            assert!(note.unwrap().contains("instead of 443"), "{kind}");
        }
    }

    #[test]
    fn the_port_of_an_address_is_proposed_if_the_server_may_have_it() {
        for (address, expected) in [("h:8443", "[::]:8443"), ("[2001:db8::1]:7", "[::]:7")] {
            for taken in [false, true] {
                let try_port = |_| match taken {
                    true => Err(io::ErrorKind::AddrInUse.into()),
                    false => Ok(()),
                };
                let (listen, note) = proposed(&[address.to_owned()], try_port);
                assert_eq!((listen.to_string().as_str(), note), (expected, None));
            }
        }
        let denied = |_| Err(io::ErrorKind::PermissionDenied.into());
        let (listen, note) = proposed(&["h:443".to_owned()], denied);
        assert_eq!(listen.to_string(), "[::]:7443");
        assert!(
            note.unwrap()
                .ends_with("forward port 443 of the address to it")
        );
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
