//! Makes carriers: TCP over a link, TLS, and the HELLO that creates or joins the session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use rustls::ClientConfig as TlsConfig;
use rustls::pki_types::ServerName;
use sumlink_bond::dial::{CONNECT_TIMEOUT, MAKING_PATIENCE, attempt_pause};
use sumlink_engine::PathId;
use sumlink_engine::frame::RefuseCode;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::api::config::ClientConfig;
use crate::api::error::ConnectError;
use crate::carrier::Carrier;
use crate::carrier::congestion;
use crate::carrier::handshake::{CarrierError, ClientCarrier};
use crate::carrier::keys::PublicKey;
use crate::carrier::quic::QuicDialer;
use crate::carrier::socket::{self, Binding, SocketError, Way};
use crate::carrier::tls;
use crate::links::names::Names;
use crate::links::portal;
use sumlink_exit::happy_eyeballs::Race;

/// Context shared by all dials.
#[derive(Debug)]
pub(super) struct Dialer {
    pub(super) config: Arc<ClientConfig>,
    tls: Arc<TlsConfig>,
    key: PublicKey,
    pub(super) names: Arc<Names>,
    pub(super) quic: QuicDialer,
    pub(super) session: [u8; 16],
    next_path: AtomicU32,
    /// Whether the session exists at the server.
    made: AtomicBool,
    /// Held by the carrier that is creating the session, so that the others wait and then join it.
    making: Mutex<()>,
}

/// Pause before a silent link is searched for a captive portal; doubles up to the second value.
const PORTAL_PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// A session that no client makes. The answer to a client that joins it shows whether the server
/// would accept a new one: [`RefuseCode::NoSuchSession`] if it would.
pub(crate) const NO_SESSION: [u8; 16] = [0; 16];

/// The [`rank`] of errors that another attempt does not fix.
const DEFINITE: u8 = 3;

impl Dialer {
    pub(super) fn new(config: Arc<ClientConfig>, session: [u8; 16]) -> Self {
        let names = Names::new(&config);
        Self::with_names(config, session, names)
    }

    /// With other names than those of the configuration.
    pub(super) fn with_names(config: Arc<ClientConfig>, session: [u8; 16], names: Names) -> Self {
        let mut tls = tls::client_config(&config.key, &config.server_key);
        if !config.alpn.is_empty() {
            Arc::make_mut(&mut tls).alpn_protocols = tls::protocols(&config.alpn).collect();
        }
        let key = config.key.public();
        let quic = QuicDialer::new(config.key.clone(), &config.server_key)
            .with_alpn(tls::protocols(&config.datagram_alpn).collect())
            .with_mark(config.mark);
        Self {
            config,
            quic,
            tls,
            key,
            names: Arc::new(names),
            session,
            next_path: AtomicU32::new(0),
            made: AtomicBool::new(false),
            making: Mutex::new(()),
        }
    }

    /// Makes a carrier over `link` to the first of the server's addresses that answers (RFC 8305),
    /// for IP packets of at most `packet_limit` bytes.
    ///
    /// The race includes TLS: a middlebox that accepts every connection, or a path that drops large
    /// packets, must not win it. Only the winner sends a HELLO, so that the server never sees two
    /// from one dial.
    pub(super) async fn dial(
        &self,
        link: &str,
        servers: &[SocketAddr],
        packet_limit: Option<u16>,
    ) -> Result<(Carrier, Binding), ConnectError> {
        let mut failure = None;
        let mut race = Race::new(servers.iter().copied(), |server| {
            self.open(link, server, packet_limit)
        });
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
        let Some(error) = failure else {
            let reason = format!("{link} reaches no address of the server");
            return Err(ConnectError::NoLink(reason));
        };
        Err(self.explain(link, servers, error).await)
    }

    /// Whether a server at any of these addresses would accept a session over `link`. It is asked
    /// with a HELLO for [`NO_SESSION`].
    pub(super) async fn is_answered(&self, link: &str, servers: &[SocketAddr]) -> bool {
        let mut race = Race::new(servers.iter().copied(), |server| {
            self.open(link, server, None)
        });
        while let Some(opened) = race.next().await {
            let opened = match opened {
                Ok(opened) => opened,
                Err(error) => {
                    tracing::debug!(link, %error, "a server does not answer");
                    continue;
                }
            };
            let hello = opened
                .carrier
                .hello(NO_SESSION, false, PathId(0), link.to_owned());
            match hello.await {
                Err(CarrierError::Refused {
                    code: RefuseCode::NoSuchSession,
                    ..
                }) => return true,
                Err(error) => {
                    let server = opened.server;
                    tracing::debug!(link, %server, %error, "a server accepts no session");
                }
                // No server has this session.
                Ok(_) => {}
            }
        }
        false
    }

    /// The portal that intercepts the link, if that is why a dial failed; otherwise the error.
    async fn explain(
        &self,
        link: &str,
        servers: &[SocketAddr],
        error: ConnectError,
    ) -> ConnectError {
        match may_be_portal(&error) {
            true => self.portal(link, servers).await.unwrap_or(error),
            false => error,
        }
    }

    /// The portal that intercepts the link, if there is one.
    async fn portal(&self, link: &str, servers: &[SocketAddr]) -> Option<ConnectError> {
        let name = &self.config.server;
        let host = name
            .rsplit_once(':')
            .map_or(name.as_str(), |(host, _)| host);
        // Many portals know only IPv4.
        let v4 = servers.iter().find(|server| server.is_ipv4());
        let v6 = servers.iter().find(|server| server.is_ipv6());
        for server in v4.into_iter().chain(v6) {
            if let Some(page) = portal::find(self.way(link), *server, host).await {
                let link = link.to_owned();
                return Some(ConnectError::Portal { link, page });
            }
        }
        None
    }

    /// The portal that intercepts a silent link, as soon as there is one.
    async fn portal_appears(&self, link: &str, servers: &[SocketAddr]) -> ConnectError {
        let (mut pause, longest) = PORTAL_PAUSE;
        loop {
            sleep(pause).await;
            if let Some(portal) = self.portal(link, servers).await {
                return portal;
            }
            pause = longest.min(2 * pause);
        }
    }

    fn way<'a>(&self, link: &'a str) -> Way<'a> {
        Way {
            link: Some(link),
            mark: self.config.mark,
        }
    }

    /// Makes a carrier over a silent link: starts a connection every 0.25 s, less often later, and
    /// uses the first that gets through. A single connection would wait ever longer between its
    /// packets, and continue to wait after the link is back.
    ///
    /// Ends without a carrier only if the server has another key or refuses, or if a captive portal
    /// intercepts the link.
    pub(super) async fn dial_until_answered(
        &self,
        link: &str,
        servers: &[SocketAddr],
        packet_limit: Option<u16>,
    ) -> Result<(Carrier, Binding), ConnectError> {
        let begun = Instant::now();
        let mut next = begun;
        let mut opening = FuturesUnordered::new();
        let mut turns = servers.iter().cycle();
        let mut portal = std::pin::pin!(self.portal_appears(link, servers));
        loop {
            tokio::select! {
                // A completed connection must win over a new attempt.
                biased;
                Some(opened) = opening.next() => {
                    let joined = match opened {
                        Ok(opened) => self.join(link, opened).await,
                        Err(error) => Err(error),
                    };
                    match joined {
                        Err(error) if rank(&error) < DEFINITE => {
                            tracing::trace!(
                                link,
                                %error,
                                "connection attempt failed; trying again"
                            );
                        }
                        Err(error) => return Err(self.explain(link, servers, error).await),
                        Ok(joined) => return Ok(joined),
                    }
                }
                portal = &mut portal => return Err(portal),
                () = sleep_until(next) => {
                    let Some(server) = turns.next() else {
                        let reason = format!("{link} reaches no address of the server");
                        return Err(ConnectError::NoLink(reason));
                    };
                    opening.push(self.open(link, *server, packet_limit));
                    next = Instant::now() + attempt_pause(begun.elapsed());
                }
            }
        }
    }

    /// Opens TCP and TLS over `link` to one address of the server.
    async fn open(
        &self,
        link: &str,
        server: SocketAddr,
        packet_limit: Option<u16>,
    ) -> Result<Opened, ConnectError> {
        let congestion = self.congestion(link);
        let way = self.way(link);
        let connected =
            socket::connect_with_packets(way, server, congestion, packet_limit, CONNECT_TIMEOUT);
        let connected = connected.await.map_err(|error| ConnectError::Socket {
            link: link.to_owned(),
            error,
        })?;
        let name = self.names.current();
        let carrier = ClientCarrier::connect(connected.stream, &self.tls, name.clone(), &self.key)
            .await
            .map_err(|error| failed(link, error))?;
        Ok(Opened {
            server,
            name,
            carrier,
            binding: connected.binding,
            packet_limit,
        })
    }

    /// Makes an open connection a path of the session.
    async fn join(&self, link: &str, opened: Opened) -> Result<(Carrier, Binding), ConnectError> {
        let (server, packet_limit) = (opened.server, opened.packet_limit);
        let mut result = self.hello(link, opened).await;
        if result.as_ref().is_err_and(is_existing) {
            // The session was created although the answer was lost: it can be joined now.
            let again = self.open(link, server, packet_limit).await?;
            result = self.hello(link, again).await;
        }
        let (mut carrier, binding) = result?;
        carrier.packet_limit = packet_limit;
        if self.congestion(link) == Some(congestion::AUTO) {
            carrier.choose_congestion();
        }
        if let Some(groups) = &self.config.groups {
            carrier.join_group(groups.as_ref(), &self.session);
        }
        Ok((carrier, binding))
    }

    /// The congestion control configured for this link.
    fn congestion(&self, link: &str) -> Option<&str> {
        let own = self.config.link(link);
        own.and_then(|link| link.congestion.as_deref())
            .or(self.config.congestion.as_deref())
    }

    /// A new path number.
    pub(super) fn next_path(&self) -> PathId {
        PathId(self.next_path.fetch_add(1, Ordering::Relaxed))
    }

    async fn hello(
        &self,
        link: &str,
        mut opened: Opened,
    ) -> Result<(Carrier, Binding), ConnectError> {
        let path = self.next_path();
        // The first connection creates the session; the others wait for it and join, unless it
        // hangs.
        let making = match self.made.load(Ordering::Acquire) {
            true => None,
            false => timeout(MAKING_PATIENCE, self.making.lock()).await.ok(),
        };
        let new = !self.made.load(Ordering::Acquire);
        let making = making.filter(|_| new);
        if !new && opened.name != self.names.current() {
            // Begun before the server's name was known: it may have reached another one.
            opened = self.open(link, opened.server, opened.packet_limit).await?;
        }
        let binding = opened.binding;
        let result = opened
            .carrier
            .hello(self.session, new, path, link.to_owned())
            .await;
        let result = result.and_then(|(carrier, name)| match self.names.note(name) {
            true => Ok((carrier, binding)),
            false => Err(CarrierError::OtherServer),
        });
        let result = result.map_err(|error| failed(link, error));
        // The session may exist even if the answer was lost.
        if result.is_ok() || result.as_ref().is_err_and(is_existing) {
            self.made.store(true, Ordering::Release);
        }
        drop(making);
        result
    }
}

/// A connection after TLS that has not joined the session.
struct Opened {
    server: SocketAddr,
    /// The name that it has sent.
    name: ServerName<'static>,
    carrier: ClientCarrier,
    binding: Binding,
    packet_limit: Option<u16>,
}

fn failed(link: &str, error: CarrierError) -> ConnectError {
    ConnectError::Carrier {
        link: link.to_owned(),
        error,
    }
}

fn is_existing(error: &ConnectError) -> bool {
    let code = RefuseCode::SessionExists;
    matches!(error, ConnectError::Carrier {
        error: CarrierError::Refused { code: refused, .. }, ..
    } if *refused == code)
}

/// Whether a captive portal can be the cause of a failure: it drops or refuses connections, or
/// answers them in the server's place.
fn may_be_portal(error: &ConnectError) -> bool {
    match error {
        ConnectError::Socket { error, .. } => matches!(
            error,
            SocketError::Refused { .. }
                | SocketError::TimedOut { .. }
                | SocketError::Unreachable { .. }
        ),
        ConnectError::Carrier { error, .. } => !matches!(error, CarrierError::Refused { .. }),
        _ => false,
    }
}

/// Ranks failures by how much they say about the cause.
pub(super) fn rank(error: &ConnectError) -> u8 {
    match error {
        ConnectError::Carrier {
            error: CarrierError::Tls(_) | CarrierError::Refused { .. },
            ..
        } => 3,
        ConnectError::Carrier { .. } | ConnectError::Portal { .. } => 2,
        ConnectError::Socket { .. } => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    use crate::carrier::handshake::{Greeted, HANDSHAKE_TIMEOUT, ServerCarrier};
    use crate::carrier::keys::SecretKey;
    use crate::fixture::{Silent, client_config, closed_port, serve, server_config};

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
        // Accepts connections but never sends TLS.
        let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addresses = [silent.address, mute.local_addr().unwrap(), live];
        let dialer = dialer(&server, &client);
        let dial = dialer.dial("lo", &addresses, None);
        let (carrier, _) = timeout(CONNECT_TIMEOUT, dial)
            .await
            .expect("the attempts are raced")
            .unwrap();
        assert_eq!(carrier.remote, live);
    }

    #[tokio::test]
    async fn a_hanging_hello_does_not_block_the_other_links() {
        let (server, client) = keys();
        let live = serve(server_config(&server, &client)).await;
        // Receives a HELLO and never answers it, like a path that has just failed.
        let authorized = tls::Authorized::default();
        authorized.replace([client.public()]);
        let tls = tls::server_config(&server, &authorized);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hanging = listener.local_addr().unwrap();
        let mute_server = tokio::spawn(async move {
            let (tcp, from) = listener.accept().await.unwrap();
            let greeted = Greeted::read(tcp, from, HANDSHAKE_TIMEOUT).await.unwrap();
            ServerCarrier::accept(greeted, &tls, HANDSHAKE_TIMEOUT)
                .await
                .unwrap()
        });
        let dialer = Arc::new(dialer(&server, &client));
        let first = Arc::clone(&dialer);
        let first = tokio::spawn(async move { first.dial("lo", &[hanging], None).await.map(drop) });
        let unanswered = mute_server.await.unwrap();
        assert!(unanswered.new);
        // Two more links: one creates the session, the other joins it.
        let live = [live];
        let others = async {
            tokio::join!(
                dialer.dial("lo", &live, None),
                dialer.dial("lo", &live, None)
            )
        };
        let (second, third) = timeout(HANDSHAKE_TIMEOUT / 2, others)
            .await
            .expect("the hanging HELLO blocks no other link");
        assert_ne!(second.unwrap().0.id, third.unwrap().0.id);
        assert!(!first.is_finished());
        first.abort();
    }

    /// What load balancers and firewalls read.
    #[tokio::test]
    async fn the_first_message_has_the_configured_names() {
        let (server, client) = keys();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = client_config(&server, &client, "bond.example:1");
        let other = (config.clone().sni("www.example".to_owned()))
            .alpn(vec!["h2".to_owned(), "http/1.1".to_owned()]);
        for (config, name, protocols) in [
            (config.clone(), Some("bond.example"), &["sumlink/1"][..]),
            (other, Some("www.example"), &["h2", "http/1.1"]),
            (config.sni(String::new()), None, &["sumlink/1"]),
        ] {
            let dialer = Dialer::new(Arc::new(config), [7; 16]);
            let dial =
                tokio::spawn(async move { dialer.dial("lo", &[address], None).await.map(drop) });
            let (tcp, _) = listener.accept().await.unwrap();
            let start = tokio_rustls::LazyConfigAcceptor::new(Default::default(), tcp);
            let start = start.await.unwrap();
            let hello = start.client_hello();
            assert_eq!(hello.server_name(), name);
            let offered: Vec<&[u8]> = hello.alpn().unwrap().collect();
            let expected = protocols.iter().map(|name| name.as_bytes());
            assert_eq!(offered, expected.collect::<Vec<_>>());
            dial.abort();
        }
    }

    #[tokio::test]
    async fn the_most_informative_failure_is_reported() {
        let (server, client) = keys();
        let stranger = serve(server_config(&client, &client)).await;
        let dialer = dialer(&server, &client);
        for order in [
            [stranger, closed_port().await],
            [closed_port().await, stranger],
        ] {
            let error = dialer.dial("lo", &order, None).await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains("the server's key is"), "{text}");
        }
    }
}
