//! The client's side: makes datagram carriers over links.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, NoneTokenStore};
use rustls::pki_types::ServerName;
use sumlink_bond::datagram::quic::MIN_PAYLOAD;
use sumlink_engine::PathId;
use tokio::time::timeout;

use super::carrier::DatagramCarrier;
use super::config::{self, LARGEST_PACKET, Side, USUAL_PACKET};
use super::error::QuicError;
use super::runtime::GatedRuntime;
use super::socket::{self, Bound, QuicSocket};
use crate::carrier::handshake::{
    CarrierError, HANDSHAKE_TIMEOUT, encode_hello, read_answer, within,
};
use crate::carrier::keys::{PublicKey, SecretKey};
use crate::carrier::socket::{Binding, SocketError, Way, connect_error, unmapped};
use crate::carrier::tls::{self, DATAGRAM_ALPN, Identity, Refusal};

/// Makes QUIC connections to one server.
#[derive(Debug)]
pub struct QuicDialer {
    key: SecretKey,
    server: PublicKey,
    identity: Identity,
    /// Names of the protocol that are offered (ALPN); none is the usual one.
    alpn: Vec<Vec<u8>>,
    mark: Option<u32>,
}

/// A QUIC connection to the server that has not joined a session.
#[derive(Debug)]
pub struct Opened {
    connection: Connection,
    local: Option<SocketAddr>,
    binding: Binding,
    /// This client's own key, for clear errors.
    key: PublicKey,
    refusal: Refusal,
}

impl QuicDialer {
    /// For the server with the key `server`, as the client with the key `key`.
    pub fn new(key: SecretKey, server: &PublicKey) -> Self {
        Self {
            identity: Identity::new(&key),
            key,
            server: *server,
            alpn: Vec::new(),
            mark: None,
        }
    }

    /// Offers these names of the protocol.
    pub(crate) fn with_alpn(mut self, alpn: Vec<Vec<u8>>) -> Self {
        self.alpn = alpn;
        self
    }

    /// Gives the packets this firewall mark (`SO_MARK`, socket(7)), which needs CAP_NET_ADMIN.
    pub(crate) fn with_mark(mut self, mark: Option<u32>) -> Self {
        self.mark = mark;
        self
    }

    /// Makes a QUIC connection over `link`, or over the link chosen by the routing table for
    /// `None`, to the server's UDP port. Its IP packets have at most `packet_limit` bytes, and at
    /// most the link's MTU.
    ///
    /// Takes at most `patience`; [`HANDSHAKE_PATIENCE`](super::HANDSHAKE_PATIENCE) is enough for
    /// paths that pass UDP. The connection has its own socket.
    pub async fn connect(
        &self,
        link: Option<&str>,
        server: SocketAddr,
        packet_limit: Option<u16>,
        patience: Duration,
    ) -> Result<Opened, QuicError> {
        let name = tls::server_name();
        self.connect_as(&name, link, server, packet_limit, patience)
            .await
    }

    /// [`QuicDialer::connect`] to the server of this name (SNI).
    pub(crate) async fn connect_as(
        &self,
        name: &ServerName<'_>,
        link: Option<&str>,
        server: SocketAddr,
        packet_limit: Option<u16>,
        patience: Duration,
    ) -> Result<Opened, QuicError> {
        let server = unmapped(server);
        let mark = self.mark;
        let way = Way { link, mark };
        let Bound {
            socket,
            binding,
            mtu,
        } = socket::connect(way, server).await?;
        let limit = mtu
            .unwrap_or(USUAL_PACKET)
            .min(packet_limit.map_or(u32::MAX, u32::from))
            .min(LARGEST_PACKET);
        let largest = payload(limit, server)?;
        let (runtime, gate) = GatedRuntime::new();
        let system = |action| move |source| QuicError::System { action, source };
        let socket = QuicSocket::new(socket, largest, gate)
            .map_err(system("prepare a UDP socket for QUIC"))?;
        let local = quinn::AsyncUdpSocket::local_addr(&*socket).ok();
        let endpoint = Endpoint::new_with_abstract_socket(
            config::endpoint(&self.key, largest),
            None,
            Arc::clone(&socket) as Arc<dyn quinn::AsyncUdpSocket>,
            runtime,
        )
        .map_err(system("start QUIC"))?;
        let refusal = Refusal::default();
        let key = self.key.public();
        let config = self.config(&refusal, largest);
        // The endpoint lives as long as its connection.
        let connecting = endpoint
            .connect_with(config, server, &name.to_str())
            .map_err(|error| QuicError::System {
                action: "start a QUIC connection",
                source: std::io::Error::other(error),
            })?;
        let connection = tokio::select! {
            connected = timeout(patience, connecting) => match connected {
                Ok(connected) => {
                    connected.map_err(|error| QuicError::at_client(error, &refusal, &key))?
                }
                Err(_) => {
                    return Err(QuicError::TimedOut {
                        remote: server,
                        timeout: patience,
                        heard: socket.heard(),
                    });
                }
            },
            error = fatal(&socket, server) => return Err(error),
        };
        super::server::check_protocol(&connection)?;
        Ok(Opened {
            connection,
            local,
            binding,
            key,
            refusal,
        })
    }

    fn config(&self, refusal: &Refusal, largest: u16) -> ClientConfig {
        let mut tls =
            self.identity
                .client_config(&self.server, DATAGRAM_ALPN, Some(refusal.clone()));
        if !self.alpn.is_empty() {
            tls.alpn_protocols.clone_from(&self.alpn);
        }
        let tls = QuicClientConfig::try_from(tls)
            .expect("the provider has TLS13_AES_128_GCM_SHA256 (RFC 9001, section 5.2)");
        let mut config = ClientConfig::new(Arc::new(tls));
        config
            .transport_config(config::transport(Side::Client, largest))
            .token_store(Arc::new(NoneTokenStore));
        config
    }
}

impl Opened {
    /// How the connection's packets are made to leave by their link.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// Requests to become a datagram path of `session`, which exists already, and waits for the
    /// answer.
    ///
    /// A server that does not know the client's key ends the connection only now: TLS 1.3 lets the
    /// client finish first.
    pub async fn hello(
        self,
        session: [u8; 16],
        path: PathId,
        link: String,
    ) -> Result<DatagramCarrier, QuicError> {
        let frame = encode_hello(session, false, path, &link);
        self.ask(&frame, path, link).await
    }

    /// Sends `frame` as the request to join, and waits for the answer.
    pub(super) async fn ask(
        self,
        frame: &[u8],
        path: PathId,
        link: String,
    ) -> Result<DatagramCarrier, QuicError> {
        let join = async {
            let (mut send, mut receive) = self.connection.open_bi().await?;
            // If the server has ended the connection, its answer is more informative than the
            // failed write.
            let _ = send.write_all(frame).await;
            let mut buffer = Vec::new();
            let answer = read_answer(&mut receive, &mut buffer).await;
            Ok((answer, buffer.is_empty(), (send, receive)))
        };
        let explain = |error| QuicError::at_client(error, &self.refusal, &self.key);
        let (answer, is_all, streams) = within(HANDSHAKE_TIMEOUT, join).await?.map_err(explain)?;
        match (answer, self.connection.close_reason()) {
            (Err(CarrierError::Io(_)), Some(reason)) => return Err(explain(reason)),
            (answer, _) => answer?,
        }
        if !is_all {
            return Err(CarrierError::Protocol("it sent more than an answer").into());
        }
        if self.connection.max_datagram_size().is_none() {
            return Err(CarrierError::Protocol("it takes no datagrams").into());
        }
        let connection = self.connection;
        Ok(DatagramCarrier::new(
            path, link, self.local, connection, streams,
        ))
    }
}

/// The largest UDP payload in IP packets of at most `limit` bytes.
fn payload(limit: u32, remote: SocketAddr) -> Result<u16, QuicError> {
    let headers = config::headers(remote);
    let needed = u32::from(MIN_PAYLOAD) + headers;
    match u16::try_from(limit.saturating_sub(headers)) {
        Ok(payload) if payload >= MIN_PAYLOAD => Ok(payload),
        _ => Err(QuicError::SmallPackets { limit, needed }),
    }
}

/// Waits for an error of the system that ends the attempt.
async fn fatal(socket: &QuicSocket, remote: SocketAddr) -> QuicError {
    loop {
        let error = socket.failure().await;
        match connect_error(error, remote, Duration::ZERO) {
            SocketError::Refused { remote } => return QuicError::Refused { remote },
            error @ (SocketError::Unreachable { .. } | SocketError::NotPermitted { .. }) => {
                return error.into();
            }
            error => tracing::trace!(%error, "a UDP packet was lost in this machine"),
        }
    }
}
