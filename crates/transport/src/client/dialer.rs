//! Makes carriers: TCP over a link, TLS, and the session's first or a further HELLO.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustls::ClientConfig as TlsConfig;
use sumlink_engine::PathId;
use sumlink_engine::frame::RefuseCode;
use tokio::sync::Mutex;

use super::ConnectError;
use crate::carrier::Carrier;
use crate::config::ClientConfig;
use crate::handshake::{CarrierError, ClientCarrier};
use crate::happy_eyeballs::Race;
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

    /// Makes a carrier over `link` to the first of the server's addresses that answers (RFC 8305).
    ///
    /// The race goes up to the end of TLS: a middlebox that accepts every connection, or a path that swallows large
    /// packets, must not win it. Only the winner sends a HELLO, so that the server never sees two of one dial.
    pub(super) async fn dial(
        &self,
        link: &str,
        servers: &[SocketAddr],
    ) -> Result<(Carrier, Binding), ConnectError> {
        let mut failure = None;
        let mut race = Race::new(servers.iter().copied(), |server| self.open(link, server));
        while let Some(opened) = race.next().await {
            let result = match opened {
                Ok(opened) => self.join(link, opened).await,
                Err(error) => Err(error),
            };
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

    /// TCP and TLS over `link` with one address of the server.
    async fn open(&self, link: &str, server: SocketAddr) -> Result<Opened, ConnectError> {
        let own = self
            .config
            .links
            .iter()
            .find(|l| links::name_matches(&l.name, link));
        let congestion = own
            .and_then(|l| l.congestion.as_deref())
            .or(self.config.congestion.as_deref());
        let connected = socket::connect_on_link(Some(link), server, congestion, CONNECT_TIMEOUT)
            .await
            .map_err(|error| ConnectError::Socket {
                link: link.to_owned(),
                error,
            })?;
        let carrier = ClientCarrier::connect(connected.stream, &self.tls, &self.key)
            .await
            .map_err(|error| failed(link, error))?;
        Ok(Opened {
            server,
            carrier,
            binding: connected.binding,
        })
    }

    /// Makes an open connection a path of the session.
    async fn join(&self, link: &str, opened: Opened) -> Result<(Carrier, Binding), ConnectError> {
        let (server, mut binding) = (opened.server, opened.binding);
        let mut result = self.hello(link, opened.carrier).await;
        if result.as_ref().is_err_and(is_existing) {
            // An answer that was lost has made the session: now it can be joined.
            let again = self.open(link, server).await?;
            binding = again.binding;
            result = self.hello(link, again.carrier).await;
        }
        Ok((result.map_err(|error| failed(link, error))?, binding))
    }

    async fn hello(&self, link: &str, carrier: ClientCarrier) -> Result<Carrier, CarrierError> {
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

/// A connection past TLS that has not joined the session.
struct Opened {
    server: SocketAddr,
    carrier: ClientCarrier,
    binding: Binding,
}

/// The server's addresses, in the order that the resolver prefers.
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
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.dedup();
    Ok(addresses)
}

fn failed(link: &str, error: CarrierError) -> ConnectError {
    ConnectError::Carrier {
        link: link.to_owned(),
        error,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Silent, client_config, serve, server_config};
    use crate::keys::SecretKey;

    fn keys() -> (SecretKey, SecretKey) {
        (
            SecretKey::generate().unwrap(),
            SecretKey::generate().unwrap(),
        )
    }

    fn dialer(server: &SecretKey, client: &SecretKey) -> Dialer {
        let config = client_config(server, client, "unused:1");
        Dialer::new(Arc::new(config), [7; 16])
    }

    #[tokio::test]
    async fn a_silent_address_of_the_server_does_not_cost_a_timeout() {
        let (server, client) = keys();
        let live = serve(server_config(&server, &client)).await;
        let silent = Silent::new().await;
        // Accepts, and then never says a word of TLS.
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [silent.address, mute.local_addr().unwrap(), live];
        let dialer = dialer(&server, &client);
        let dial = dialer.dial("lo", &addresses);
        let (carrier, _) = tokio::time::timeout(CONNECT_TIMEOUT, dial)
            .await
            .expect("the attempts are raced")
            .unwrap();
        assert_eq!(carrier.remote, live);
    }

    #[tokio::test]
    async fn the_failure_that_says_most_is_told() {
        let (server, client) = keys();
        let stranger = serve(server_config(&client, &client)).await;
        let dialer = dialer(&server, &client);
        for order in [
            [stranger, crate::fixture::closed_port().await],
            [crate::fixture::closed_port().await, stranger],
        ] {
            let error = dialer.dial("lo", &order).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("the server's key is"), "{text}");
        }
    }
}
