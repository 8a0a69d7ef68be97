//! From a TCP connection to a carrier: TLS, then HELLO and its answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::{ClientConfig, Connection, ServerConfig};
pub(crate) use sumlink_bond::dial::HANDSHAKE_TIMEOUT;
use sumlink_engine::frame::{Frame, FrameError, Hello, MAX_TEXT, RefuseCode, VERSION};
use sumlink_engine::{PathId, PeerText};
use sumlink_util::plain;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::StartHandshake;
use tokio_rustls::{LazyConfigAcceptor, TlsConnector, client, server};

use crate::carrier::keys::PublicKey;
use crate::carrier::tag::{Tag, tag_of};
use crate::carrier::tls::{self, HandshakeError, JOIN_ALPN};
use crate::carrier::{Carrier, canonical};
use crate::local::proxy_header::ProxyHeaderError;

/// Limit on the length of a handshake frame; valid ones are far shorter.
const MAX: usize = 2 * 1024;

/// Why a connection did not become a carrier.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// TLS failed, or the peer has the wrong key.
    #[error(transparent)]
    Tls(#[from] HandshakeError),
    /// The peer was silent.
    #[error("the peer did not complete the handshake in time")]
    TimedOut,
    /// The peer speaks TLS and the right ALPN, but not this protocol.
    #[error("the peer broke the protocol during the handshake: {0}")]
    Protocol(&'static str),
    /// The server refused.
    #[error("the server refused: {}", refusal(*code, reason))]
    Refused {
        /// The kind of refusal.
        code: RefuseCode,
        /// The reason sent by the server.
        reason: PeerText,
    },
    /// At the client: a connection for the session has reached another server.
    #[error(
        "another server than that of the session answers: its load balancer must choose servers \
        by their names (SNI)"
    )]
    OtherServer,
    /// At the server: a connection of a load balancer does not begin as it must.
    #[error(transparent)]
    Balancer(#[from] ProxyHeaderError),
    /// At the server: a stranger has no open invitation, or tries too often.
    #[error("the peer has no open invitation, or tries too often")]
    NoInvitation,
    /// The connection broke.
    #[error("the connection broke during the handshake: {}", plain(.0))]
    Io(#[from] io::Error),
}

/// A connection after TLS at the client, before its HELLO.
#[derive(Debug)]
pub(crate) struct ClientCarrier {
    tls: client::TlsStream<TcpStream>,
    /// This client's own key, for clear errors.
    key: PublicKey,
}

/// A connection at the server after its HELLO.
#[derive(Debug)]
pub(crate) struct ServerCarrier {
    tls: server::TlsStream<TcpStream>,
    buffer: Vec<u8>,
    /// The client's key.
    pub(crate) client: PublicKey,
    /// Whether it creates a session (true) or joins one.
    pub(crate) new: bool,
    pub(crate) session: [u8; 16],
    pub(crate) path: PathId,
    link: String,
    from: SocketAddr,
}

/// A connection at the server after the first message of TLS.
pub(crate) struct Greeted {
    start: StartHandshake<TcpStream>,
    from: SocketAddr,
}

/// A stranger's attempt to join the server.
#[derive(Debug)]
pub(crate) struct JoinAttempt {
    pub(crate) from: SocketAddr,
    /// The tag of its invitation, if it has sent one.
    pub(crate) tag: Option<Tag>,
}

/// A connection at the server of a client with an invitation, after TLS.
#[derive(Debug)]
pub(crate) struct JoinCarrier {
    tls: server::TlsStream<TcpStream>,
    /// The key that the client has proved.
    pub(crate) key: PublicKey,
}

/// The fatal alert `access_denied` in place of a ServerHello (RFC 8446, sections 5.1 and 6).
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

impl ClientCarrier {
    /// Performs the TLS handshake with the server of this name (SNI).
    pub(crate) async fn connect(
        tcp: TcpStream,
        config: &Arc<ClientConfig>,
        name: ServerName<'static>,
        key: &PublicKey,
    ) -> Result<Self, CarrierError> {
        let connect = TlsConnector::from(Arc::clone(config)).connect(name, tcp);
        let stream = in_time(connect)
            .await?
            .map_err(|error| HandshakeError::at_client(&error, key))?;
        tls::peer(stream.get_ref().1)?;
        Ok(Self {
            tls: stream,
            key: *key,
        })
    }

    /// Requests to become a path of `session` and waits for the answer. Returns the name of the
    /// server as well, if it has one.
    pub(crate) async fn hello(
        mut self,
        session: [u8; 16],
        new: bool,
        path: PathId,
        link: String,
    ) -> Result<(Carrier, Option<ServerName<'static>>), CarrierError> {
        let out = encode_hello(session, new, path, &link);
        // A server that does not know this key has ended the connection by now; its alert is more
        // informative than the failed write.
        let written = self.tls.write_all(&out).await;
        // The answer and the server's name are one record, which one read returns.
        let mut buffer = Vec::with_capacity(MAX);
        match in_time(read_answer(&mut self.tls, &mut buffer)).await? {
            Ok(()) => {}
            Err(CarrierError::Io(error)) => {
                let error = HandshakeError::at_client(&error, &self.key);
                return Err(match (error, written) {
                    (HandshakeError::Closed | HandshakeError::Io(_), Err(error)) => error.into(),
                    (error, _) => error.into(),
                });
            }
            Err(error) => return Err(error),
        }
        let name = server_in(&buffer)?;
        let (tcp, tls) = self.tls.into_inner();
        let carrier = Carrier::new(path, link, tcp, Connection::Client(tls), buffer)?;
        Ok((carrier, name))
    }
}

impl Greeted {
    /// Reads the first message of TLS on a connection of this peer.
    pub(crate) async fn read(
        tcp: TcpStream,
        from: SocketAddr,
        patience: Duration,
    ) -> Result<Self, CarrierError> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), tcp);
        let start = within(patience, start).await?;
        let start = start.map_err(|error| HandshakeError::at_server(&error))?;
        Ok(Self { start, from })
    }

    /// The client's wish to join the server with an invitation, if that is what it wants.
    pub(crate) fn join(&self) -> Option<JoinAttempt> {
        let hello = self.start.client_hello();
        let names: Vec<&[u8]> = hello.alpn()?.collect();
        names.contains(&JOIN_ALPN).then(|| JoinAttempt {
            from: self.from,
            tag: tag_of(names.into_iter()),
        })
    }

    /// Ends the connection with an alert that means that an invitation is not accepted.
    pub(crate) async fn deny(self, patience: Duration) -> CarrierError {
        let mut tcp = self.start.io;
        let answer = async {
            tcp.write_all(&ACCESS_DENIED).await?;
            tcp.shutdown().await
        };
        let _ = within(patience, answer).await;
        CarrierError::NoInvitation
    }

    async fn handshake(
        self,
        config: &Arc<ServerConfig>,
        patience: Duration,
    ) -> Result<server::TlsStream<TcpStream>, CarrierError> {
        let accept = self.start.into_stream(Arc::clone(config));
        let accepted = within(patience, accept).await?;
        Ok(accepted.map_err(|error| HandshakeError::at_server(&error))?)
    }
}

impl JoinCarrier {
    /// Performs the TLS handshake with a client that has an invitation.
    pub(crate) async fn accept(
        greeted: Greeted,
        config: &Arc<ServerConfig>,
        patience: Duration,
    ) -> Result<Self, CarrierError> {
        let tls = greeted.handshake(config, patience).await?;
        let key = tls::peer_key(tls.get_ref().1).ok_or(HandshakeError::NoKey)?;
        Ok(Self { tls, key })
    }

    /// Reads the secret.
    pub(crate) async fn secret(
        mut self,
        patience: Duration,
    ) -> Result<([u8; 16], Self), CarrierError> {
        let mut buffer = Vec::new();
        let len = within(patience, read_frame(&mut self.tls, &mut buffer)).await??;
        match Frame::decode(&buffer[..len]) {
            Ok(Some((Frame::Join { version, secret }, _))) if version == VERSION => {
                Ok((secret, self))
            }
            Ok(Some((Frame::Join { .. }, _))) => {
                let reason = format!("this server speaks version {VERSION}");
                self.refuse(RefuseCode::Version, &reason).await?;
                Err(CarrierError::Protocol("it speaks another version"))
            }
            _ => {
                self.refuse(RefuseCode::Protocol, "expected a JOIN frame")
                    .await?;
                Err(CarrierError::Protocol("its first frame is not a JOIN"))
            }
        }
    }

    /// Confirms that the client has joined, under this name.
    pub(crate) async fn joined(mut self, name: &str) -> Result<(), CarrierError> {
        let mut out = Vec::new();
        let name = name.as_bytes();
        Frame::Joined { name }.encode(&mut out);
        in_time(self.tls.write_all(&out)).await??;
        Ok(in_time(self.tls.shutdown()).await??)
    }

    /// Refuses the client; without a reason, because of its invitation.
    pub(crate) async fn refuse(
        mut self,
        code: RefuseCode,
        reason: &str,
    ) -> Result<(), CarrierError> {
        Ok(in_time(refuse(&mut self.tls, code, reason)).await??)
    }
}

impl ServerCarrier {
    /// Performs the TLS handshake with a client and reads its HELLO, each within `patience`.
    pub(crate) async fn accept(
        greeted: Greeted,
        config: &Arc<ServerConfig>,
        patience: Duration,
    ) -> Result<Self, CarrierError> {
        let from = greeted.from;
        let mut stream = greeted.handshake(config, patience).await?;
        let client = tls::peer(stream.get_ref().1)?;
        let mut buffer = Vec::new();
        let asked = match within(patience, read_hello(&mut stream, &mut buffer)).await? {
            Ok(asked) => asked,
            Err(Unusable { error, refusal }) => {
                if let Some((code, reason)) = refusal {
                    let _ = within(patience, refuse(&mut stream, code, &reason)).await;
                }
                return Err(error);
            }
        };
        Ok(Self {
            tls: stream,
            buffer,
            client,
            new: asked.new,
            session: asked.session,
            path: asked.path,
            link: asked.link,
            from,
        })
    }

    /// Accepts the connection as a path of the server with this name.
    pub(crate) async fn welcome(mut self, name: Option<&str>) -> Result<Carrier, CarrierError> {
        let mut out = encode_welcome();
        let welcome = out.len();
        if let Some(name) = name {
            let name = name.as_bytes();
            Frame::Server { name }.encode(&mut out);
        }
        in_time(self.tls.write_all(&out)).await??;
        in_time(self.tls.flush()).await??;
        let (tcp, tls) = self.tls.into_inner();
        let (tls, early) = (Connection::Server(tls), self.buffer);
        let mut carrier = Carrier::new(self.path, self.link, tcp, tls, early)?;
        carrier.sent_before = (out.len() - welcome) as u64;
        let (from, tcp) = (canonical(self.from), carrier.remote);
        carrier.remote = from;
        carrier.end_to_end = (from != tcp).then(Default::default);
        Ok(carrier)
    }

    /// Refuses the connection with a reason, and ends it.
    pub(crate) async fn refuse(mut self, code: RefuseCode, reason: &str) {
        let _ = in_time(refuse(&mut self.tls, code, reason)).await;
    }
}

/// A HELLO frame; a name that is too long is cut.
pub(crate) fn encode_hello(session: [u8; 16], new: bool, path: PathId, link: &str) -> Vec<u8> {
    let name = link.as_bytes();
    let name = &name[..name.len().min(MAX_TEXT)];
    let mut out = Vec::new();
    Frame::Hello(Hello {
        version: VERSION,
        new,
        session,
        path: u64::from(path.0),
        link: name,
    })
    .encode(&mut out);
    out
}

/// A WELCOME frame.
pub(crate) fn encode_welcome() -> Vec<u8> {
    let mut out = Vec::new();
    Frame::Welcome { version: VERSION }.encode(&mut out);
    out
}

/// Reads the server's answer to a HELLO and removes it from `buffer`; later bytes stay there.
pub(crate) async fn read_answer<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
) -> Result<(), CarrierError> {
    let len = read_frame(stream, buffer).await?;
    let answer = match Frame::decode(&buffer[..len]) {
        Ok(Some((Frame::Welcome { version: VERSION }, _))) => Ok(()),
        Ok(Some((Frame::Refuse { code, reason }, _))) => Err(CarrierError::Refused {
            code: RefuseCode::from_code(code),
            reason: PeerText::new(reason),
        }),
        _ => Err(CarrierError::Protocol(
            "its first frame is neither WELCOME nor REFUSE",
        )),
    };
    buffer.drain(..len);
    answer
}

/// The server's name, if a SERVER frame follows WELCOME. The frame stays there: it counts as
/// received by the session.
fn server_in(buffer: &[u8]) -> Result<Option<ServerName<'static>>, CarrierError> {
    let Ok(Some((Frame::Server { name }, _))) = Frame::decode(buffer) else {
        return Ok(None);
    };
    let name = str::from_utf8(name).ok();
    match name.map(|name| ServerName::try_from(name.to_owned())) {
        Some(Ok(name @ ServerName::DnsName(_))) => Ok(Some(name)),
        _ => Err(CarrierError::Protocol("its name is no host name")),
    }
}

/// A client's request in its HELLO.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) new: bool,
    pub(crate) session: [u8; 16],
    pub(crate) path: PathId,
    pub(crate) link: String,
}

/// A connection without a valid HELLO, and the answer to its peer.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) error: CarrierError,
    pub(crate) refusal: Option<(RefuseCode, String)>,
}

/// Reads a client's HELLO and removes it from `buffer`; later bytes stay there.
pub(crate) async fn read_hello<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
) -> Result<Asked, Unusable> {
    let no_hello = |error| Unusable {
        error,
        refusal: Some((RefuseCode::Protocol, "expected a HELLO frame".to_owned())),
    };
    let len = match read_frame(stream, buffer).await {
        Ok(len) => len,
        Err(error @ CarrierError::Protocol(_)) => return Err(no_hello(error)),
        Err(error) => {
            return Err(Unusable {
                error,
                refusal: None,
            });
        }
    };
    let hello = match Frame::decode(&buffer[..len]) {
        Ok(Some((Frame::Hello(hello), _))) => Some(hello),
        _ => None,
    };
    if let Some(version) = hello.as_ref().map(|hello| hello.version)
        && version != VERSION
    {
        let reason = format!("this server speaks version {VERSION}, not {version}");
        return Err(Unusable {
            error: CarrierError::Protocol("it speaks another version"),
            refusal: Some((RefuseCode::Version, reason)),
        });
    }
    let asked = hello.and_then(|hello| {
        Some(Asked {
            new: hello.new,
            session: hello.session,
            path: u32::try_from(hello.path).ok().map(PathId)?,
            link: PeerText::new(hello.link).to_string(),
        })
    });
    buffer.drain(..len);
    asked.ok_or_else(|| no_hello(CarrierError::Protocol("its first frame is not a HELLO")))
}

/// Reads until `buffer` begins with a whole frame, and returns its length.
pub(crate) async fn read_frame<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Vec<u8>,
) -> Result<usize, CarrierError> {
    loop {
        match Frame::decode(buffer) {
            Ok(Some((_, len))) => return Ok(len),
            Ok(None) if buffer.len() < MAX => {}
            Ok(None) => return Err(CarrierError::Protocol("its first frame is too long")),
            Err(FrameError::UnknownType(_)) => {
                return Err(CarrierError::Protocol(
                    "its first frame is of an unknown type",
                ));
            }
            Err(_) => return Err(CarrierError::Protocol("its first frame is malformed")),
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
}

/// Sends a refusal and ends the sending direction.
pub(crate) async fn refuse<S: AsyncWrite + Unpin>(
    stream: &mut S,
    code: RefuseCode,
    reason: &str,
) -> io::Result<()> {
    let mut out = Vec::new();
    Frame::Refuse {
        code: code.code(),
        reason: reason.as_bytes(),
    }
    .encode(&mut out);
    stream.write_all(&out).await?;
    stream.shutdown().await
}

async fn in_time<T>(future: impl Future<Output = T>) -> Result<T, CarrierError> {
    within(HANDSHAKE_TIMEOUT, future).await
}

/// The result of a step of the handshake, or a timeout.
pub(crate) async fn within<T>(
    patience: Duration,
    future: impl Future<Output = T>,
) -> Result<T, CarrierError> {
    tokio::time::timeout(patience, future)
        .await
        .map_err(|_| CarrierError::TimedOut)
}

fn refusal(code: RefuseCode, reason: &PeerText) -> String {
    let meaning = match code {
        RefuseCode::Version => "run the same version of sumlink on both sides",
        RefuseCode::NoSuchSession => "the session is gone",
        RefuseCode::SessionExists => "a session with this identifier already exists",
        RefuseCode::Limit => "a limit of this client is reached",
        RefuseCode::Protocol => "it did not understand this client",
        RefuseCode::Stopping => "it is stopping",
        _ => "for a reason this version does not know",
    };
    if reason.as_str().is_empty() {
        meaning.to_owned()
    } else {
        format!("{meaning} ({reason})")
    }
}

/// The parsers of handshake data from peers, for the fuzz targets.
#[cfg(feature = "fuzz")]
pub mod fuzz {
    use std::net::SocketAddr;

    use super::{AsyncRead, CarrierError, RefuseCode};
    use crate::local::proxy_header::{self, Origin, ProxyHeaderError};

    /// Reads the header of a load balancer; returns the address of its peer, if it has one.
    pub async fn proxy_header<S: AsyncRead + Unpin>(
        stream: &mut S,
    ) -> Result<Option<SocketAddr>, ProxyHeaderError> {
        Ok(match proxy_header::read(stream).await? {
            Origin::Balancer => None,
            Origin::Peer(peer) => Some(peer),
        })
    }

    /// The header that this program writes.
    pub fn written_header(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
        proxy_header::header(peer, local)
    }

    /// Handles a server's answer as a client does.
    pub async fn answer<S: AsyncRead + Unpin>(
        stream: &mut S,
        buffer: &mut Vec<u8>,
    ) -> Result<(), CarrierError> {
        super::read_answer(stream, buffer).await?;
        super::server_in(buffer).map(drop)
    }

    /// Handles a client's HELLO as a server does; returns the link's name, or the answer if there
    /// is one.
    pub async fn hello<S: AsyncRead + Unpin>(
        stream: &mut S,
        buffer: &mut Vec<u8>,
    ) -> Result<String, Option<(RefuseCode, String)>> {
        let asked = super::read_hello(stream, buffer).await;
        asked
            .map(|asked| asked.link)
            .map_err(|unusable| unusable.refusal)
    }
}
