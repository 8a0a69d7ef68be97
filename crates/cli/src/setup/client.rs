//! `sumlink setup client`.

use std::net::SocketAddr;

use clap::Args;
use sumlink_transport::{PublicKey, links};

use super::ask::Questions;
use super::service::Place;
use super::template::ClientValues;
use super::{Files, New, Next, has_socket, missing, parse_key, parse_server};
use crate::config::{parse_entry, parse_link};
use crate::error::CliError;

/// `sumlink setup client`
#[derive(Debug, Default, Args)]
pub(super) struct ClientSetup {
    /// Connect to this server.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    server: Option<String>,
    /// Require this public key of the server; `sumlink setup server` prints it.
    #[arg(long, value_name = "PUBKEY")]
    server_key: Option<PublicKey>,
    /// Use this interface, a name or glob; repeatable. Default: every interface with a route to the
    /// server.
    #[arg(long, value_name = "NAME", value_parser = parse_link)]
    link: Vec<String>,
    /// Serve SOCKS5 on this address; PORT alone means 127.0.0.1. Default: 127.0.0.1:1080.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_entry)]
    socks: Option<SocketAddr>,
}

/// The SOCKS5 entry of the example.
const SOCKS: &str = "127.0.0.1:1080";

/// An answer that names no link.
const ALL: &str = "all";

impl ClientSetup {
    /// Makes the configuration. On a terminal, asks for missing values.
    pub(super) async fn finish(
        mut self,
        files: &Files,
        place: &Place,
        questions: Option<&mut Questions>,
        yes: bool,
    ) -> Result<New, CliError> {
        if let Some(questions) = questions {
            self.ask(questions, yes).await?;
        }
        let (Some(server), Some(server_key)) = (&self.server, &self.server_key) else {
            return Err(missing(&self.missing()));
        };
        let text = ClientValues {
            server,
            server_key,
            others: &[],
            key: &files.key,
            name: None,
            links: &self.link,
            socks: self.socks,
            has_socket: has_socket(place, files),
        }
        .text();
        Ok(New {
            text,
            next: Next::Admit,
            warnings: Vec::new(),
        })
    }

    /// The missing options without a default.
    fn missing(&self) -> Vec<&'static str> {
        let server = self.server.is_none().then_some("--server HOST:PORT");
        let key = self.server_key.is_none().then_some("--server-key PUBKEY");
        [server, key].into_iter().flatten().collect()
    }

    async fn ask(&mut self, questions: &mut Questions, yes: bool) -> Result<(), CliError> {
        if self.server.is_none() {
            self.server = Some(questions.ask("Server (HOST:PORT)", None, parse_server)?);
        }
        if self.server_key.is_none() {
            let question = "Public key of the server; `sumlink setup server` prints it";
            self.server_key = Some(questions.ask(question, None, parse_key)?);
        }
        if self.link.is_empty() && !yes {
            let question = format!("Links to use, of {}", usable_links().await.join(" "));
            self.link = questions.ask_all(&question, ALL, parse_link)?;
            self.link.retain(|name| name != ALL);
        }
        if self.socks.is_none() && !yes {
            let question = "Address and port of the SOCKS5 entry for programs";
            self.socks = Some(questions.ask(question, Some(SOCKS), parse_entry)?);
        }
        Ok(())
    }
}

/// Names of the interfaces that can be links.
async fn usable_links() -> Vec<String> {
    let links = links::list().await.unwrap_or_default();
    let usable = links
        .into_iter()
        .filter(|link| link.up && !link.loopback && !link.addresses.is_empty());
    usable.map(|link| link.name).collect()
}

/// The next step at the server: to admit this key.
pub(super) fn steps(key: &str, name: &str) -> String {
    format!(
        "next, at the server: add this block to its configuration, and reload it with \
         `systemctl reload sumlink-server`:\n\n[[client]]\nkey = \"{key}\"\nname = \"{name}\"\n"
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::service::Role;
    use super::*;

    async fn finish(setup: ClientSetup) -> Result<New, CliError> {
        let files = Files::new(Path::new("home.toml")).unwrap();
        let place = Place::of(Role::Client, &files.config);
        setup.finish(&files, &place, None, true).await
    }

    #[tokio::test]
    async fn all_missing_options_are_named_at_once() {
        let error = finish(ClientSetup::default()).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("--server HOST:PORT, --server-key PUBKEY"),
            "{text}"
        );
        assert_eq!(error.code(), 2);
        let server = ClientSetup {
            server: Some("h:1".to_owned()),
            ..ClientSetup::default()
        };
        let text = finish(server).await.unwrap_err().to_string();
        assert!(text.starts_with("missing: --server-key PUBKEY;"), "{text}");
    }

    #[tokio::test]
    async fn the_options_are_in_the_file() {
        let key = PublicKey::from_bytes([7; 32]).unwrap();
        let setup = ClientSetup {
            server: Some("h:1".to_owned()),
            server_key: Some(key),
            link: vec!["wlan0".to_owned()],
            socks: None,
        };
        let new = finish(setup).await.unwrap();
        let table: toml::Table = new.text.parse().unwrap();
        assert_eq!(table["key"].as_str(), Some("home.key"));
        assert_eq!(table["control"].as_str(), Some("home.sock"));
        assert_eq!(table["socks"].as_str(), Some(SOCKS));
        assert_eq!(table["link"][0]["name"].as_str(), Some("wlan0"));
    }

    #[test]
    fn the_server_gets_a_block_that_it_can_read() {
        let steps = steps("KEY", "laptop");
        let block = steps.split_once("\n\n").unwrap().1;
        let table: toml::Table = block.parse().unwrap();
        assert_eq!(table["client"][0]["key"].as_str(), Some("KEY"));
    }
}
