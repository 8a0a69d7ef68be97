//! Where the clients of a server are: at its control socket, or, if it does not run, in its store.

use std::path::Path;

use serde_json::Value;
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_store::Now;
use sumlink_transport::{SecretKey, links};

use super::desk::Desk;
use crate::config::{self, ClientsSettings, ConfigError, File, ServerSettings};
use crate::control::{self, ClientsRequest, ControlError, InviteRequest};
use crate::error::CliError;
use crate::find_socket;

/// The server, or the settings of one that does not run.
pub(super) enum Place {
    Socket(std::path::PathBuf),
    Settings(Box<ServerSettings>),
}

/// The socket of the service.
const SOCKETS: &[&str] = &["sumlink-server/control.sock"];

impl Place {
    /// The server at the named socket, of the file, or that runs as a service.
    pub(super) fn find(control: Option<&Path>, file: Option<&Path>) -> Result<Self, CliError> {
        let Some(file) = file else {
            let found = find_socket::socket(control, SOCKETS)?;
            return Ok(Self::Socket(found.path));
        };
        match config::read_settings(file, &OwnSchedulers::default())? {
            File::Server(settings) => Ok(Self::Settings(settings)),
            other => Err(ConfigError::OtherRole {
                file: file.to_owned(),
                is: other.role(),
            }
            .into()),
        }
    }

    /// Asks the server, or answers in its place.
    pub(super) async fn ask(self, asked: ClientsRequest) -> Result<Value, CliError> {
        let settings = match self {
            Self::Socket(path) => return Ok(control::clients(&path, asked)?),
            Self::Settings(settings) => *settings,
        };
        if let Some(path) = &settings.control {
            match control::clients(path, asked.clone()) {
                Err(ControlError::Nobody { .. }) => {}
                answer => return Ok(answer?),
            }
        }
        answer(settings, asked).await
    }
}

/// Answers from the store of a server that does not run. A file is locked meanwhile.
async fn answer(settings: ServerSettings, asked: ClientsRequest) -> Result<Value, CliError> {
    let clients = settings.clients;
    let location = clients.store.clone().ok_or_else(|| {
        let reason = "the server's file has no `[clients] store`, so it has no clients to manage";
        CliError::Usage(reason.to_owned())
    })?;
    let key = settings.key.as_deref().ok_or_else(|| {
        CliError::Usage("the server's file has no `key`, which invitations contain".to_owned())
    })?;
    let server_key = SecretKey::load(key)?.public();
    let asked = match (asked, settings.listen) {
        (ClientsRequest::Invite(asked), Some(listen)) if asked.addresses.is_empty() => {
            let addresses = addresses(&clients, listen).await;
            ClientsRequest::Invite(InviteRequest { addresses, ..asked })
        }
        (asked, _) => asked,
    };
    let work = move || -> Result<Value, CliError> {
        let store = location.open()?;
        let mut desk = Desk::new(store, &clients, server_key, settings.authorized)?;
        let answered = desk.answer(asked, Now::read());
        answered.map_err(|refusal| ControlError::Refused(refusal).into())
    };
    // A store waits for its disk or its database.
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(std::io::Error::other)?
}

/// The addresses of a server for invitations: those of its configuration, the one that it listens
/// on, or those of its machine; public ones only if there are any.
pub(crate) async fn addresses(
    settings: &ClientsSettings,
    listen: std::net::SocketAddr,
) -> Vec<String> {
    if !settings.addresses.is_empty() {
        return settings.addresses.clone();
    }
    let of = |ip| std::net::SocketAddr::new(ip, listen.port()).to_string();
    if !listen.ip().is_unspecified() {
        return vec![of(listen.ip())];
    }
    let links = links::list().await.unwrap_or_default();
    let usable = links.iter().filter(|link| link.up && !link.loopback);
    let all: Vec<_> = usable.flat_map(|link| link.addresses.clone()).collect();
    let all = all
        .into_iter()
        .filter(|ip| ip.is_ipv4() || listen.is_ipv6());
    let (public, private): (Vec<_>, Vec<_>) = all.partition(|ip| {
        sumlink_transport::egress::EgressPolicy::default()
            .check(*ip, 443)
            .is_ok()
    });
    let chosen = if public.is_empty() { private } else { public };
    chosen.into_iter().take(MAX_ADDRESSES).map(of).collect()
}

/// Most addresses of the machine in an invitation: a QR code must stay readable.
const MAX_ADDRESSES: usize = 3;
