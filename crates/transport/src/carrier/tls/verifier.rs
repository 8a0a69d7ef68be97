//! The check of a peer's raw public key.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::verify_tls13_signature_with_raw_key;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, PeerIncompatible,
    SignatureScheme,
};

use super::{Authorized, HandshakeError, Refusal, provider};
use crate::carrier::keys::PublicKey;

/// The client's check of the server's key: it must be the pinned key.
#[derive(Debug)]
pub(super) struct PinnedServer {
    pub(super) pinned: PublicKey,
    pub(super) refusal: Option<Refusal>,
}

impl ServerCertVerifier for PinnedServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let seen = presented_key(end_entity)?;
        if seen == self.pinned {
            Ok(ServerCertVerified::assertion())
        } else {
            let reason = HandshakeError::WrongServerKey {
                seen,
                pinned: self.pinned,
            };
            Err(refuse(reason, self.refusal.as_ref()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// The server's check of the client's key: it must be in the set, if there is one.
#[derive(Debug)]
pub(super) struct AuthorizedClients {
    pub(super) accepts: Accepts,
    pub(super) refusal: Option<Refusal>,
}

/// The client keys that a server accepts.
#[derive(Debug)]
pub(super) enum Accepts {
    These(Authorized),
    Any,
}

impl Accepts {
    fn contains(&self, key: &PublicKey) -> bool {
        match self {
            Self::These(authorized) => authorized.contains(key),
            Self::Any => true,
        }
    }
}

impl ClientCertVerifier for AuthorizedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let key = presented_key(end_entity)?;
        if self.accepts.contains(&key) {
            Ok(ClientCertVerified::assertion())
        } else {
            let reason = HandshakeError::UnknownClient { key };
            Err(refuse(reason, self.refusal.as_ref()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::SupportedVersionsExtensionRequired.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn presented_key(spki: &CertificateDer<'_>) -> Result<PublicKey, rustls::Error> {
    PublicKey::from_spki(spki).ok_or_else(|| CertificateError::BadEncoding.into())
}

/// A refusal that carries its reason to our own side. The peer gets the alert `certificate_unknown`
/// (RFC 8446, section 6.2), which no other failure of these handshakes causes.
fn refuse(reason: HandshakeError, refusal: Option<&Refusal>) -> rustls::Error {
    if let Some(refusal) = refusal {
        // Only the first peer key of a handshake is checked.
        let _ = refusal.0.set(reason.clone());
    }
    CertificateError::Other(OtherError(Arc::new(reason))).into()
}

fn verify_signature(
    message: &[u8],
    spki: &CertificateDer<'_>,
    dss: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    let spki = SubjectPublicKeyInfoDer::from(spki.as_ref());
    let algorithms = provider::default_provider().signature_verification_algorithms;
    verify_tls13_signature_with_raw_key(message, &spki, dss, &algorithms)
}
