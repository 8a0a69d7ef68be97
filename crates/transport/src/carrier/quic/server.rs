//! The server's side: one UDP port for the datagram carriers of all clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{HandshakeData, QuicServerConfig};
use quinn::{Connection, Endpoint, Incoming, RecvStream, SendStream, ServerConfig};
use rustls::pki_types::CertificateDer;
use socket2::Socket;
use sumlink_engine::PathId;
use sumlink_engine::frame::RefuseCode;
use tokio::time::timeout;

use super::carrier::DatagramCarrier;
use super::config::{self, CLOSE, LARGEST_PACKET, Side};
use super::error::{Ended, QuicError};
use super::runtime::GatedRuntime;
use super::socket::{self, QuicSocket};
use crate::carrier::handshake::{
    Asked, CarrierError, Unusable, encode_welcome, read_hello, refuse, within,
};
use crate::carrier::keys::{PublicKey, SecretKey};
use crate::carrier::tls::{Authorized, DATAGRAM_ALPN, HandshakeError, Identity, Refusal};

/// The UDP port of a server.
#[derive(Debug)]
pub struct QuicListener {
    endpoint: Endpoint,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    identity: Identity,
    authorized: Authorized,
    /// Names of the protocol that are accepted (ALPN) besides the usual one.
    alpn: Vec<Vec<u8>>,
    /// The parameters of all connections; each one has its own TLS configuration.
    config: ServerConfig,
}

/// A connection attempt from a validated address.
#[derive(Debug)]
pub struct Attempt {
    incoming: Incoming,
    shared: Arc<Shared>,
}

/// A connection at the server after its HELLO.
#[derive(Debug)]
pub struct ServerDatagrams {
    connection: Connection,
    streams: (SendStream, RecvStream),
    local: Option<SocketAddr>,
    client: PublicKey,
    session: [u8; 16],
    path: PathId,
    link: String,
}

/// Connection attempts that wait for [`QuicListener::next`]. quinn ignores further ones, before any
/// cryptography.
const MAX_WAITING: usize = 1024;

/// Bytes of further packets of attempts that wait, for one and for all of them. A client's first
/// flight is one packet.
const WAITING_BYTES: (u64, u64) = (4 * 1024, 1024 * 1024);

/// How long the proof of an address is valid: the client returns it after one round trip.
const PROOF_LIFETIME: Duration = Duration::from_secs(15);

/// Time for a client to acknowledge its refusal.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

impl QuicListener {
    /// Listens on a UDP port: the number of the TCP port, by convention. `[::]` takes IPv4, too.
    /// Port 0 lets the kernel choose one.
    ///
    /// Proves `key`, and accepts the clients in `authorized` only.
    pub fn bind(
        address: SocketAddr,
        key: &SecretKey,
        authorized: &Authorized,
    ) -> Result<Self, QuicError> {
        Self::bind_as(address, key, authorized, Vec::new())
    }

    /// [`QuicListener::bind`] with further names of the protocol (ALPN).
    pub(crate) fn bind_as(
        address: SocketAddr,
        key: &SecretKey,
        authorized: &Authorized,
        alpn: Vec<Vec<u8>>,
    ) -> Result<Self, QuicError> {
        Self::with_socket(socket::listen(address)?, address, key, authorized, alpn)
    }

    /// [`QuicListener::bind`] with a socket that another program has bound.
    pub(crate) fn adopt(
        socket: std::net::UdpSocket,
        key: &SecretKey,
        authorized: &Authorized,
        alpn: Vec<Vec<u8>>,
    ) -> Result<Self, QuicError> {
        let system = |source| QuicError::System {
            action: "use the UDP socket that this program was started with",
            source,
        };
        let address = socket.local_addr().map_err(system)?;
        let socket = socket::adopt(socket).map_err(system)?;
        Self::with_socket(socket, address, key, authorized, alpn)
    }

    fn with_socket(
        socket: Socket,
        address: SocketAddr,
        key: &SecretKey,
        authorized: &Authorized,
        alpn: Vec<Vec<u8>>,
    ) -> Result<Self, QuicError> {
        let headers = config::headers(address);
        let largest = u16::try_from(LARGEST_PACKET - headers).expect("below 64 KiB");
        let (runtime, gate) = GatedRuntime::new();
        let system = |action| move |source| QuicError::System { action, source };
        let socket = QuicSocket::new(socket, largest, gate)
            .map_err(system("prepare a UDP socket for QUIC"))?;
        let identity = Identity::new(key);
        let refusal = Refusal::default();
        let mut config =
            ServerConfig::with_crypto(Arc::new(crypto(&identity, authorized, refusal, &alpn)));
        config
            .transport_config(config::transport(Side::Server, largest))
            .migration(false)
            .retry_token_lifetime(PROOF_LIFETIME)
            .max_incoming(MAX_WAITING)
            .incoming_buffer_size(WAITING_BYTES.0)
            .incoming_buffer_size_total(WAITING_BYTES.1);
        let endpoint = Endpoint::new_with_abstract_socket(
            config::endpoint(key, largest),
            Some(config.clone()),
            socket,
            runtime,
        )
        .map_err(system("start QUIC"))?;
        Ok(Self {
            endpoint,
            shared: Arc::new(Shared {
                identity,
                authorized: authorized.clone(),
                alpn,
                config,
            }),
        })
    }

    /// The address, with the port chosen by the system if port 0 was configured.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Number of connections, established or not, including those that closed just now.
    pub fn connections(&self) -> usize {
        self.endpoint.open_connections()
    }

    /// Waits for the next connection attempt from a proven address; `None` once the listener is
    /// closed. Dropping the future loses nothing.
    ///
    /// An unproven address gets one Retry packet (RFC 9000, section 8.1.2), which is smaller than
    /// the packet it answers. Nothing is kept about it.
    pub async fn next(&self) -> Option<Attempt> {
        loop {
            let incoming = self.endpoint.accept().await?;
            if incoming.remote_address_validated() {
                return Some(Attempt {
                    incoming,
                    shared: Arc::clone(&self.shared),
                });
            }
            // Always permitted for an address that is not validated.
            let _ = incoming.retry();
            // A flood must not keep this task from its other work.
            tokio::task::consume_budget().await;
        }
    }

    /// Closes all connections and accepts no more; waits at most `patience` for packets that tell
    /// the peers.
    pub async fn close(&self, reason: &str, patience: Duration) {
        self.endpoint.close(CLOSE, reason.as_bytes());
        let _ = timeout(patience, self.endpoint.wait_idle()).await;
    }
}

impl Attempt {
    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        canonical(self.incoming.remote_address())
    }

    /// Performs the handshake with the client and reads its HELLO, each within `patience`.
    /// Dropping the future ends the connection.
    ///
    /// A HELLO that cannot be accepted is refused here.
    pub async fn prove(self, patience: Duration) -> Result<ServerDatagrams, QuicError> {
        let remote = self.remote();
        let local = self.incoming.local_ip().map(|ip| (ip.to_canonical(), 0));
        let refusal = Refusal::default();
        let explain = |error| QuicError::at_server(error, &refusal);
        let mut config = self.shared.config.clone();
        config.crypto = Arc::new(crypto(
            &self.shared.identity,
            &self.shared.authorized,
            refusal.clone(),
            &self.shared.alpn,
        ));
        let connecting = self
            .incoming
            .accept_with(Arc::new(config))
            .map_err(explain)?;
        let connection = match timeout(patience, connecting).await {
            Ok(connected) => connected.map_err(explain)?,
            Err(_) => {
                return Err(QuicError::TimedOut {
                    remote,
                    timeout: patience,
                    heard: true,
                });
            }
        };
        check_protocol(&connection)?;
        let client = peer_key(&connection).ok_or(HandshakeError::NoKey)?;
        let mut streams = within(patience, connection.accept_bi())
            .await?
            .map_err(explain)?;
        let asked = match within(patience, read_asked(&mut streams.1)).await? {
            Ok(asked) => asked,
            Err(Unusable { error, refusal }) => {
                let error = match (error, connection.close_reason()) {
                    (CarrierError::Io(_), Some(reason)) => explain(reason),
                    (error, _) => error.into(),
                };
                if let Some((code, reason)) = refusal {
                    turn_away(&connection, &mut streams.0, code, &reason).await;
                }
                return Err(error);
            }
        };
        Ok(ServerDatagrams {
            connection,
            streams,
            local: local.map(SocketAddr::from),
            client,
            session: asked.session,
            path: asked.path,
            link: asked.link,
        })
    }
}

impl ServerDatagrams {
    /// The client's key.
    pub fn client(&self) -> &PublicKey {
        &self.client
    }

    /// The session that the client asks to join.
    pub fn session(&self) -> &[u8; 16] {
        &self.session
    }

    /// The path's identifier in the session, chosen by the client.
    pub fn path(&self) -> PathId {
        self.path
    }

    /// The link's name at the client.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// The client's address.
    pub fn remote(&self) -> SocketAddr {
        canonical(self.connection.remote_address())
    }

    /// Accepts the connection as a datagram path of the session.
    pub async fn welcome(mut self) -> Result<DatagramCarrier, QuicError> {
        if self.connection.max_datagram_size().is_none() {
            return Err(CarrierError::Protocol("it takes no datagrams").into());
        }
        let welcome = encode_welcome();
        if let Err(error) = self.streams.0.write_all(&welcome).await {
            return Err(match self.connection.close_reason() {
                Some(reason) => Ended::from(reason).into(),
                None => CarrierError::Io(error.into()).into(),
            });
        }
        Ok(DatagramCarrier::new(
            self.path,
            self.link,
            self.local,
            self.connection,
            self.streams,
        ))
    }

    /// Refuses the connection with a reason, and ends it once the client has the answer.
    pub async fn refuse(mut self, code: RefuseCode, reason: &str) {
        turn_away(&self.connection, &mut self.streams.0, code, reason).await;
    }
}

/// Checks that TLS chose a protocol, which is one of those that both sides know. RFC 9001, section
/// 8.1, makes the choice mandatory.
pub(super) fn check_protocol(connection: &Connection) -> Result<(), QuicError> {
    let data = connection.handshake_data();
    let data = data.and_then(|data| data.downcast::<HandshakeData>().ok());
    match data.and_then(|data| data.protocol) {
        Some(_) => Ok(()),
        None => Err(QuicError::VersionMismatch),
    }
}

fn peer_key(connection: &Connection) -> Option<PublicKey> {
    let identity = connection.peer_identity()?;
    let keys = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    PublicKey::from_spki(keys.first()?)
}

fn crypto(
    identity: &Identity,
    authorized: &Authorized,
    refusal: Refusal,
    alpn: &[Vec<u8>],
) -> QuicServerConfig {
    let mut tls = identity.server_config(authorized, DATAGRAM_ALPN, Some(refusal));
    tls.alpn_protocols.extend_from_slice(alpn);
    QuicServerConfig::try_from(tls)
        .expect("the provider has TLS13_AES_128_GCM_SHA256 (RFC 9001, section 5.2)")
}

/// Reads a HELLO that asks to join a session.
async fn read_asked(stream: &mut RecvStream) -> Result<Asked, Unusable> {
    let mut buffer = Vec::new();
    let asked = read_hello(stream, &mut buffer).await?;
    let refusal = if asked.new {
        (
            "it wants to create a session by datagrams",
            "datagrams join a session over TCP",
        )
    } else if !buffer.is_empty() {
        (
            "it sent more than a HELLO",
            "expected nothing but a HELLO frame",
        )
    } else {
        return Ok(asked);
    };
    Err(Unusable {
        error: CarrierError::Protocol(refusal.0),
        refusal: Some((RefuseCode::Protocol, refusal.1.to_owned())),
    })
}

/// Sends a refusal and closes the connection after the client has received it.
async fn turn_away(
    connection: &Connection,
    stream: &mut SendStream,
    code: RefuseCode,
    reason: &str,
) {
    let refusal = async {
        refuse(stream, code, reason).await?;
        // The client may close first, which means the same.
        let _ = stream.stopped().await;
        Ok::<(), io::Error>(())
    };
    let _ = timeout(REFUSAL_PATIENCE, refusal).await;
    connection.close(CLOSE, b"refused");
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
