//! Explains failed handshakes to the person who has to fix them.

use std::io;

use rustls::{AlertDescription, CertificateError, InvalidMessage, OtherError, PeerIncompatible};
use sumlink_util::plain;

use super::ALPN;
use crate::carrier::keys::PublicKey;

/// Why a TLS handshake did not lead to an acceptable peer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// At the client: the server proved another key than the pinned one.
    #[error(
        "the server's key is {seen}, not the pinned {pinned}: if the server has a new key, pin \
        that; otherwise another host answers at this address"
    )]
    WrongServerKey {
        /// The key that the server presented.
        seen: PublicKey,
        /// The key that this client has pinned.
        pinned: PublicKey,
    },
    /// At the client: the server does not know this client's key.
    #[error(
        "the server does not authorize this client's key {key}: add it there with --authorize, \
         enable the client there, or join with an invitation"
    )]
    NotAuthorized {
        /// This client's own key.
        key: PublicKey,
    },
    /// At the server: the client's key is not in the authorized set. The client has not yet proved
    /// possession of the key.
    #[error("refused a client with the key {key}: it is not authorized")]
    UnknownClient {
        /// The key that the client presented.
        key: PublicKey,
    },
    /// At the server: the client has pinned a different server key.
    #[error("the client expects another server key: it must pin the key of this server")]
    PinnedElsewhere,
    /// The peer presented no key where one is mandatory.
    #[error("the peer presented no key: it is not a sumlink peer")]
    NoKey,
    /// The two sides share no version of the protocol.
    #[error(
        "the peer does not speak {}: run the same version of sumlink on both sides, with the same \
        `alpn` if it is set",
        ALPN.escape_ascii()
    )]
    VersionMismatch,
    /// The peer speaks TLS, but not TLS 1.3 with raw public keys.
    #[error("the peer speaks TLS, but is not a sumlink peer: check the address and port")]
    NotSumlink,
    /// The peer sent something that is not TLS.
    #[error("the peer does not speak TLS: check the address and port")]
    NotTls,
    /// The peer closed the connection in the middle of the handshake.
    #[error("the peer closed the connection before the handshake was complete")]
    Closed,
    /// The connection broke.
    #[error("the connection broke during the handshake: {}", plain(.0))]
    Io(io::ErrorKind),
    /// Any other violation of TLS.
    #[error("the TLS handshake failed: {0}")]
    Tls(rustls::Error),
}

impl HandshakeError {
    /// The meaning, at the client with `key`, of an error of the handshake or of the first read
    /// after it.
    ///
    /// TLS 1.3 lets a client finish before the server has checked the client's key, so that
    /// [`HandshakeError::NotAuthorized`] may come from the first read (RFC 8446, section 4.4.4).
    pub fn at_client(error: &io::Error, key: &PublicKey) -> Self {
        match tls_error(error) {
            Some(rustls::Error::AlertReceived(
                AlertDescription::CertificateUnknown | AlertDescription::AccessDenied,
            )) => Self::NotAuthorized { key: *key },
            _ => Self::at_either(error),
        }
    }

    /// The meaning of a handshake error at the server.
    pub fn at_server(error: &io::Error) -> Self {
        match tls_error(error) {
            Some(rustls::Error::AlertReceived(AlertDescription::CertificateUnknown)) => {
                Self::PinnedElsewhere
            }
            _ => Self::at_either(error),
        }
    }

    fn at_either(error: &io::Error) -> Self {
        use AlertDescription as Alert;
        use rustls::Error;
        let Some(tls) = tls_error(error) else {
            return match error.kind() {
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe => Self::Closed,
                kind => Self::Io(kind),
            };
        };
        match tls {
            Error::InvalidCertificate(CertificateError::Other(OtherError(refusal))) => {
                match refusal.downcast_ref::<Self>() {
                    Some(refusal) => refusal.clone(),
                    None => Self::Tls(tls.clone()),
                }
            }
            Error::NoCertificatesPresented | Error::AlertReceived(Alert::CertificateRequired) => {
                Self::NoKey
            }
            Error::NoApplicationProtocol | Error::AlertReceived(Alert::NoApplicationProtocol) => {
                Self::VersionMismatch
            }
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType
                | InvalidMessage::UnknownProtocolVersion
                | InvalidMessage::MessageTooLarge
                | InvalidMessage::InvalidEmptyPayload,
            )
            | Error::PeerSentOversizedRecord => Self::NotTls,
            // A raw key that is not ed25519, an ordinary certificate, an older TLS, no shared
            // algorithms: typical of other programs on this port.
            Error::InvalidCertificate(CertificateError::BadEncoding)
            | Error::PeerIncompatible(
                PeerIncompatible::IncorrectCertificateTypeExtension
                | PeerIncompatible::UnsolicitedCertificateTypeExtension
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled
                | PeerIncompatible::NoSignatureSchemesInCommon
                | PeerIncompatible::NoCipherSuitesInCommon
                | PeerIncompatible::NoKxGroupsInCommon,
            )
            | Error::AlertReceived(
                Alert::HandshakeFailure
                | Alert::ProtocolVersion
                | Alert::UnsupportedCertificate
                | Alert::BadCertificate
                | Alert::UnrecognisedName
                | Alert::MissingExtension,
            ) => Self::NotSumlink,
            other => Self::Tls(other.clone()),
        }
    }
}

/// The alert with which the peer has ended the handshake.
pub(crate) fn alert(error: &io::Error) -> Option<AlertDescription> {
    match tls_error(error)? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

/// The TLS error inside an I/O error of the TLS stream, if it contains one.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
