//! Makes carriers: TCP over a link, TLS, and the session's first or a further HELLO.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustls::ClientConfig as TlsConfig;
use sumlink_engine::PathId;
use sumlink_engine::frame::RefuseCode;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::ConnectError;
use crate::carrier::Carrier;
use crate::config::ClientConfig;
use crate::handshake::{CarrierError, ClientCarrier};
use crate::keys::PublicKey;
use crate::links;
use crate::socket::{self, Binding};
use crate::tls;

/// What dialing needs; shared by the dials.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: Arc<ClientConfig>,
    tls: Arc<TlsConfig>,
    key: PublicKey,
    session: [u8; 16],
    next_path: AtomicU32,
    /// Whether the server has the session: only one carrier at a time may try to make it.
    made: Mutex<bool>,
}

/// How long a TCP connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Dialer {
    pub(super) fn new(config: Arc<ClientConfig>, session: [u8; 16]) -> Self {
        let tls = tls::client_config(&config.key, &config.server_key);
        let key = config.key.public();
        Self {
            config,
            tls,
            key,
            session,
            next_path: AtomicU32::new(0),
            made: Mutex::new(false),
        }
    }

    /// Makes a carrier over `link` to the first of the addresses that answers.
    pub(super) async fn dial(
        &self,
        link: &str,
        servers: &[SocketAddr],
    ) -> Result<(Carrier, Binding), ConnectError> {
        let mut failure = None;
        for &server in servers {
            let mut result = self.dial_one(link, server).await;
            if result.as_ref().is_err_and(session_exists) {
                // An answer that was lost has made the session: now it can be joined.
                result = self.dial_one(link, server).await;
            }
            match result {
                Ok(carrier) => return Ok(carrier),
                Err(error) => {
                    if failure
                        .as_ref()
                        .is_none_or(|known| rank(&error) > rank(known))
                    {
                        failure = Some(error);
                    }
                }
            }
        }
        Err(failure.unwrap_or_else(|| {
            ConnectError::NoLink(format!("{link} reaches no address of the server"))
        }))
    }

    async fn dial_one(
        &self,
        link: &str,
        server: SocketAddr,
    ) -> Result<(Carrier, Binding), ConnectError> {
        let own = self
            .config
            .links
            .iter()
            .find(|l| links::name_matches(&l.name, link));
        let congestion = own
            .and_then(|l| l.congestion.as_deref())
            .or(self.config.congestion.as_deref());
        let connected =
            socket::connect_on_link(Some(link), server, congestion, CONNECT_TIMEOUT).await;
        let connected = connected.map_err(|error| ConnectError::Socket {
            link: link.to_owned(),
            error,
        })?;
        let carrier = self.make_carrier(link, connected.stream).await;
        let carrier = carrier.map_err(|error| ConnectError::Carrier {
            link: link.to_owned(),
            error,
        })?;
        Ok((carrier, connected.binding))
    }

    async fn make_carrier(&self, link: &str, tcp: TcpStream) -> Result<Carrier, CarrierError> {
        let carrier = ClientCarrier::connect(tcp, &self.tls, &self.key).await?;
        let path = PathId(self.next_path.fetch_add(1, Ordering::Relaxed));
        let mut made = self.made.lock().await;
        if *made {
            drop(made);
            return carrier
                .hello(self.session, false, path, link.to_owned())
                .await;
        }
        // The first one to get here makes the session; the others wait for it and join. An answer that was lost may
        // still have made it.
        let result = carrier
            .hello(self.session, true, path, link.to_owned())
            .await;
        *made |= result.is_ok() || result.as_ref().is_err_and(is_existing);
        result
    }
}

/// The server's addresses, those of one family in turn with the other's.
pub(super) async fn resolve(server: &str) -> Result<Vec<SocketAddr>, ConnectError> {
    if server
        .rsplit_once(':')
        .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
    {
        return Err(ConnectError::ServerAddress(server.to_owned()));
    }
    let found = tokio::net::lookup_host(server)
        .await
        .map_err(|error| ConnectError::Resolve {
            name: server.to_owned(),
            reason: error.to_string(),
        })?;
    let (v6, v4): (Vec<_>, Vec<_>) = found.partition(SocketAddr::is_ipv6);
    let mut addresses = Vec::new();
    for index in 0..v6.len().max(v4.len()) {
        addresses.extend(v6.get(index));
        addresses.extend(v4.get(index));
    }
    addresses.dedup();
    Ok(addresses)
}

fn session_exists(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Carrier { error, .. } if is_existing(error))
}

fn is_existing(error: &CarrierError) -> bool {
    let code = RefuseCode::SessionExists;
    matches!(error, CarrierError::Refused { code: refused, .. } if *refused == code)
}

/// Which of several failures says most about what is wrong.
pub(super) fn rank(error: &ConnectError) -> u8 {
    match error {
        ConnectError::Carrier {
            error: CarrierError::Tls(_) | CarrierError::Refused { .. },
            ..
        } => 3,
        ConnectError::Carrier { .. } => 2,
        ConnectError::Socket { .. } => 1,
        _ => 0,
    }
}
