//! Why a datagram carrier was not made, and why it ended.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quinn::ConnectionError;
use rustls::AlertDescription;
use sumlink_engine::PeerText;
use sumlink_util::plain;

use crate::carrier::handshake::CarrierError;
use crate::carrier::keys::PublicKey;
use crate::carrier::socket::SocketError;
use crate::carrier::tls::{DATAGRAM_ALPN, HandshakeError, Refusal};

/// Why a QUIC connection did not become a datagram carrier.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuicError {
    /// This machine or its link: no socket, no route, no permission.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// This machine: the link reaches none of the server's addresses.
    #[error("the link reaches no address of the server")]
    NoAddress,
    /// This machine: QUIC cannot run on its socket.
    #[error("cannot {action}: {source}", source = plain(.source))]
    System {
        /// The attempted action.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The link: its packets are smaller than QUIC requires (RFC 9000, section 14).
    #[error("IP packets of {limit} bytes are too small for QUIC, which needs {needed}")]
    SmallPackets {
        /// Largest IP packet of the link in bytes.
        limit: u32,
        /// Smallest sufficient size in bytes.
        needed: u32,
    },
    /// The server or a firewall: an ICMP message says that nothing receives on the UDP port.
    #[error("{remote} refused UDP: the server has no datagram port, or a firewall blocks it")]
    Refused {
        /// The server's address.
        remote: SocketAddr,
    },
    /// The path: UDP gets no answer, or answers stop.
    #[error(
        "{remote} did not complete a QUIC handshake within {} s: {}",
        timeout.as_secs_f32(),
        if *heard { "large UDP packets are lost" } else { "UDP is blocked on the way" }
    )]
    TimedOut {
        /// The server's address.
        remote: SocketAddr,
        /// The timeout.
        timeout: Duration,
        /// Whether any packet of the server arrived.
        heard: bool,
    },
    /// One of the sides: a key is missing or wrong.
    #[error(transparent)]
    Keys(#[from] HandshakeError),
    /// The peer: it shares no version of this protocol.
    #[error(
        "the peer does not speak {}: run the same version of sumlink on both sides, with the same \
        `alpn` if it is set",
        DATAGRAM_ALPN.escape_ascii()
    )]
    VersionMismatch,
    /// The peer: it refused the HELLO, or broke the protocol of the handshake.
    #[error(transparent)]
    Join(#[from] CarrierError),
    /// The peer or the path: the connection ended during the handshake.
    #[error("the QUIC connection ended during the handshake: {0}")]
    Ended(#[from] Ended),
}

/// Why a datagram carrier ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// This side closed it.
    #[error("closed by this side")]
    Here,
    /// The peer closed it.
    #[error("closed by the peer{}", reason_in_brackets(reason))]
    Peer {
        /// The peer's reason; may be empty.
        reason: PeerText,
    },
    /// Nothing arrived for the idle timeout: the path is gone, or the peer.
    #[error("nothing arrived for too long")]
    Silent,
    /// The peer lost its state: it was restarted (RFC 9000, section 10.3).
    #[error("the peer does not know the connection any more: it was restarted")]
    Restarted,
    /// The peer violated QUIC, or says that this side did.
    #[error("QUIC failed: {0}")]
    Failed(PeerText),
}

impl QuicError {
    /// Whether datagrams may work over TCP where this attempt failed: the path, not the peer, is at
    /// fault. Another attempt is worth its packets only after a pause.
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::Refused { .. } | Self::TimedOut { .. } | Self::SmallPackets { .. } => true,
            Self::Socket(error) => matches!(
                error,
                SocketError::Unreachable { .. } | SocketError::NotPermitted { .. }
            ),
            _ => false,
        }
    }

    /// The meaning, at the client with `key`, of an error of the connection.
    pub(super) fn at_client(error: ConnectionError, refusal: &Refusal, key: &PublicKey) -> Self {
        Self::from_alert(error, refusal, |alert| {
            HandshakeError::at_client(alert, key)
        })
    }

    /// The meaning of an error of the connection at the server.
    pub(super) fn at_server(error: ConnectionError, refusal: &Refusal) -> Self {
        Self::from_alert(error, refusal, HandshakeError::at_server)
    }

    /// Explains TLS alerts, which QUIC carries as error codes (RFC 9001, section 4.8).
    fn from_alert(
        error: ConnectionError,
        refusal: &Refusal,
        explain: impl FnOnce(&io::Error) -> HandshakeError,
    ) -> Self {
        if let Some(reason) = refusal.reason() {
            return reason.into();
        }
        let (code, own) = match &error {
            ConnectionError::TransportError(error) => (u64::from(error.code), true),
            ConnectionError::ConnectionClosed(close) => (u64::from(close.error_code), false),
            _ => return Ended::from(error).into(),
        };
        let Some(alert) = alert(code) else {
            return Ended::from(error).into();
        };
        // Only our own verifiers cause this alert, and they leave their reason.
        if own && alert == AlertDescription::CertificateUnknown {
            return Ended::from(error).into();
        }
        let alert = io::Error::other(rustls::Error::AlertReceived(alert));
        match explain(&alert) {
            HandshakeError::VersionMismatch => Self::VersionMismatch,
            HandshakeError::Tls(_) => Ended::from(error).into(),
            reason => reason.into(),
        }
    }
}

impl From<ConnectionError> for Ended {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::LocallyClosed => Self::Here,
            ConnectionError::ApplicationClosed(close) => Self::Peer {
                reason: PeerText::new(&close.reason),
            },
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::Reset => Self::Restarted,
            // Its text may quote the peer.
            other => Self::Failed(PeerText::new(other.to_string().as_bytes())),
        }
    }
}

/// The TLS alert in an error code of QUIC (RFC 9000, section 20.1: CRYPTO_ERROR).
fn alert(code: u64) -> Option<AlertDescription> {
    let alert = code.checked_sub(0x100)?;
    u8::try_from(alert).ok().map(AlertDescription::from)
}

fn reason_in_brackets(reason: &PeerText) -> String {
    match reason.as_str() {
        "" => String::new(),
        reason => format!(" ({reason})"),
    }
}
