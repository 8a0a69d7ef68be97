//! Joining a server: a client with an invitation makes its key known.
//!
//! The client connects to the server's port with a separate protocol name (ALPN
//! [`JOIN_ALPN`]) and, as a second name, the invitation's [`tag`]. A server that does not know the
//! tag ends the handshake before it has calculated anything. Otherwise TLS proves both keys as
//! always, and only then does the client send the secret.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::AlertDescription;
use sumlink_engine::PeerText;
use sumlink_engine::frame::{Frame, VERSION};
use sumlink_util::plain;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::carrier::handshake::{CarrierError, HANDSHAKE_TIMEOUT, read_frame, within};
use crate::carrier::keys::{PublicKey, SecretKey};
pub use crate::carrier::tag::{Tag, tag, tag_protocol};
use crate::carrier::tls::{self, HandshakeError, Identity, JOIN_ALPN};
use crate::links::names::any_server;

/// The answer to an invitation's secret; the inner `None` is a secret that no open invitation has.
pub type Redeemed = Result<Option<String>, String>;

/// The open invitations of a server.
pub trait Invitations: Send + Sync + std::fmt::Debug {
    /// Whether an open invitation has this tag. Called for every stranger, so it must be fast.
    fn knows(&self, tag: &Tag) -> bool;

    /// Adds the holder of the secret, which has proved `key`, as a client; returns its name. The
    /// error is the reason if the server cannot do that now.
    fn redeem(
        &self,
        secret: [u8; 16],
        key: PublicKey,
    ) -> Pin<Box<dyn Future<Output = Redeemed> + Send + '_>>;
}

/// Why a client could not join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The network's or the user's fault: no address of the server answers.
    #[error("cannot reach the server at {address}: {}", plain(.reason))]
    Unreachable {
        /// The last address.
        address: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The server's key is another one, or the handshake failed.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The server is of an older version or has no store of clients.
    #[error(
        "the server accepts no invitations: it needs `[clients] store` in its file and a version \
        of sumlink with `sumlink invite`"
    )]
    NotOffered,
    /// The invitation is wrong, used or expired; the server does not say which.
    #[error(
        "the server does not accept this invitation: it is used, expired or wrong; make a new one \
        with `sumlink invite` at the server"
    )]
    NotAccepted,
    /// The server could not keep the new client.
    #[error("the server could not add this client: {0}")]
    Failed(PeerText),
    /// The connection broke after the secret was sent.
    #[error(
        "the connection broke before the server's answer ({0}): if `sumlink clients list` at the \
        server shows the new client, remove it there and make a new invitation"
    )]
    Unanswered(CarrierError),
}

/// Time for a TCP connection to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Joins the server at the first of these addresses (HOST:PORT) that answers; returns the address
/// and the name that this client has at the server.
///
/// # Errors
///
/// Why this client has not joined, except for [`JoinError::Unanswered`]: then it is unknown.
pub async fn join(
    addresses: &[String],
    server: &PublicKey,
    secret: &[u8; 16],
    key: &SecretKey,
) -> Result<(String, String), JoinError> {
    let mut last = None;
    for address in addresses {
        match join_at(address, server, secret, key).await {
            // The secret was not sent there: another machine may have that address here.
            Err(
                error @ (JoinError::Unreachable { .. }
                | JoinError::Carrier(_)
                | JoinError::NotOffered),
            ) => last = Some(error),
            Err(error) => return Err(error),
            Ok(name) => return Ok((address.clone(), name)),
        }
    }
    Err(last.unwrap_or(JoinError::NotOffered))
}

/// Joins the server at this address; returns the client's name.
async fn join_at(
    address: &str,
    server: &PublicKey,
    secret: &[u8; 16],
    key: &SecretKey,
) -> Result<String, JoinError> {
    let tcp = dial(address)
        .await
        .map_err(|reason| JoinError::Unreachable {
            address: address.to_owned(),
            reason,
        })?;
    let mut config = Identity::new(key).client_config(server, JOIN_ALPN, None);
    config.alpn_protocols.push(tag_protocol(&tag(secret)));
    let connecting = TlsConnector::from(Arc::new(config)).connect(any_server(None, address), tcp);
    let connected = within(HANDSHAKE_TIMEOUT, connecting).await?;
    let mut stream = connected.map_err(|error| explain(&error, &key.public()))?;
    if stream.get_ref().1.alpn_protocol() != Some(JOIN_ALPN) {
        return Err(JoinError::NotOffered);
    }
    let mut request = Vec::new();
    let version = VERSION;
    Frame::Join {
        version,
        secret: *secret,
    }
    .encode(&mut request);
    let exchange = async {
        stream.write_all(&request).await?;
        let mut answer = Vec::new();
        let len = read_frame(&mut stream, &mut answer).await?;
        answer.truncate(len);
        Ok::<_, CarrierError>(answer)
    };
    let exchanged = within(HANDSHAKE_TIMEOUT, exchange).await;
    let answer = exchanged
        .and_then(|exchanged| exchanged)
        .map_err(JoinError::Unanswered)?;
    match Frame::decode(&answer) {
        Ok(Some((Frame::Joined { name }, _))) => Ok(PeerText::new(name).to_string()),
        Ok(Some((Frame::Refuse { reason: [], .. }, _))) => Err(JoinError::NotAccepted),
        Ok(Some((Frame::Refuse { reason, .. }, _))) => {
            Err(JoinError::Failed(PeerText::new(reason)))
        }
        _ => {
            let error = CarrierError::Protocol("its answer is neither JOINED nor REFUSE");
            Err(JoinError::Unanswered(error))
        }
    }
}

async fn dial(address: &str) -> io::Result<TcpStream> {
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host(address).await?.collect();
    let connecting = async {
        let mut last = io::ErrorKind::NotFound.into();
        for address in resolved {
            match TcpStream::connect(address).await {
                Ok(tcp) => return Ok(tcp),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The meaning of an error of the TLS handshake.
fn explain(error: &io::Error, key: &PublicKey) -> JoinError {
    let alert = tls::alert(error);
    match (alert, HandshakeError::at_client(error, key)) {
        (Some(AlertDescription::AccessDenied), _) => JoinError::NotAccepted,
        (_, HandshakeError::VersionMismatch) => JoinError::NotOffered,
        (_, error) => JoinError::Carrier(error.into()),
    }
}
