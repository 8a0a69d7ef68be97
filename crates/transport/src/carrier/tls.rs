//! TLS 1.3 between a client and a server that know each other's public keys.
//!
//! Both sides prove an ed25519 key that is sent as a raw public key (RFC 7250): there is no
//! certificate, no authority, no expiry date and hence no clock. The client pins one server key,
//! the server has a set of client keys. Sessions are never resumed: every carrier proves its key
//! anew, and a key removed from the set cannot return with a ticket.
//!
//! After the handshake, call [`peer`] to identify the other end; it also checks that both sides
//! speak the same version of the protocol.

mod error;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName,
    OtherError, PeerIncompatible, ServerConfig, SignatureScheme,
};

use crate::carrier::keys::{PublicKey, SecretKey};

pub use error::HandshakeError;
pub(crate) use error::alert;

/// The protocol and its version as negotiated by TLS (ALPN, RFC 7301).
pub const ALPN: &[u8] = b"sumlink/1";

/// The protocol of datagram carriers and its version, also negotiated by ALPN.
pub const DATAGRAM_ALPN: &[u8] = b"sumlink-datagrams/1";

/// The protocol of clients with an invitation, before the server knows their keys; also by ALPN.
pub const JOIN_ALPN: &[u8] = b"sumlink-join/1";

/// The set of client keys that a server accepts; clones share one set.
///
/// A change applies to every later handshake. It does not affect connections that were already
/// accepted: closing those is up to the server.
#[derive(Clone, Default)]
pub struct Authorized(Arc<RwLock<HashSet<PublicKey>>>);

/// What a side proves about itself, prepared once for any number of configurations.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    key: Arc<CertifiedKey>,
    crypto: Arc<CryptoProvider>,
}

/// Receives the reason for which a side refuses its peer's key.
///
/// A TLS stream returns that reason in its error. QUIC keeps only the alert and a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusal(Arc<OnceLock<HandshakeError>>);

/// The TLS configuration of a client with the key `key` for the server whose key is `server`.
pub fn client_config(key: &SecretKey, server: &PublicKey) -> Arc<ClientConfig> {
    Arc::new(Identity::new(key).client_config(server, ALPN, None))
}

/// The TLS configuration of a server that proves `key` and accepts only the clients in
/// `authorized`.
pub fn server_config(key: &SecretKey, authorized: &Authorized) -> Arc<ServerConfig> {
    Arc::new(Identity::new(key).server_config(authorized, ALPN, None))
}

/// The TLS configuration of a server for clients with an invitation: they prove a key, whichever
/// it is.
pub(crate) fn join_config(key: &SecretKey) -> Arc<ServerConfig> {
    let accepts = Accepts::Any;
    Arc::new(Identity::new(key).server_config_for(accepts, JOIN_ALPN, None))
}

/// A placeholder server name required by the TLS library; it is neither sent nor checked.
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from("sumlink.invalid").expect("a valid DNS name")
}

/// The key of the peer of a connection whose handshake is complete.
///
/// [`HandshakeError::VersionMismatch`] if the peer has not chosen [`ALPN`] (TLS lets a peer leave
/// the extension out), [`HandshakeError::NoKey`] if the handshake is not complete.
pub fn peer(connection: &CommonState) -> Result<PublicKey, HandshakeError> {
    let key = peer_key(connection).ok_or(HandshakeError::NoKey)?;
    match connection.alpn_protocol() {
        Some(ALPN) => Ok(key),
        _ => Err(HandshakeError::VersionMismatch),
    }
}

/// The key that the peer has proved, once the handshake is complete.
pub fn peer_key(connection: &CommonState) -> Option<PublicKey> {
    PublicKey::from_spki(connection.peer_certificates()?.first()?)
}

impl Identity {
    pub(crate) fn new(key: &SecretKey) -> Self {
        Self {
            key: certified(key),
            crypto: crypto(),
        }
    }

    /// The configuration of a client for the server with the key `server`.
    pub(crate) fn client_config(
        &self,
        server: &PublicKey,
        alpn: &[u8],
        refusal: Option<Refusal>,
    ) -> ClientConfig {
        let verifier = PinnedServer {
            pinned: *server,
            refusal,
        };
        let resolver = AlwaysResolvesClientRawPublicKeys::new(Arc::clone(&self.key));
        let mut config =
            ClientConfig::builder_with_details(Arc::clone(&self.crypto), Arc::new(NoClock))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .expect("the provider has TLS 1.3 cipher suites")
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_client_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        config
    }

    /// The configuration of a server that accepts only the clients in `authorized`.
    pub(crate) fn server_config(
        &self,
        authorized: &Authorized,
        alpn: &[u8],
        refusal: Option<Refusal>,
    ) -> ServerConfig {
        let accepts = Accepts::These(authorized.clone());
        self.server_config_for(accepts, alpn, refusal)
    }

    fn server_config_for(
        &self,
        accepts: Accepts,
        alpn: &[u8],
        refusal: Option<Refusal>,
    ) -> ServerConfig {
        let verifier = AuthorizedClients { accepts, refusal };
        let resolver = AlwaysResolvesServerRawPublicKeys::new(Arc::clone(&self.key));
        let mut config =
            ServerConfig::builder_with_details(Arc::clone(&self.crypto), Arc::new(NoClock))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .expect("the provider has TLS 1.3 cipher suites")
                .with_client_cert_verifier(Arc::new(verifier))
                .with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![alpn.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        config
    }
}

impl Refusal {
    /// The reason, if this side has refused its peer.
    pub(crate) fn reason(&self) -> Option<HandshakeError> {
        self.0.get().cloned()
    }
}

impl Authorized {
    /// A set of these keys.
    pub fn new(keys: impl IntoIterator<Item = PublicKey>) -> Self {
        let authorized = Self::default();
        authorized.replace(keys);
        authorized
    }

    /// Replaces all keys of the set.
    pub fn replace(&self, keys: impl IntoIterator<Item = PublicKey>) {
        let keys = keys.into_iter().collect();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Whether a client with this key may connect.
    pub fn contains(&self, key: &PublicKey) -> bool {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(key)
    }
}

impl fmt::Debug for Authorized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(keys.iter()).finish()
    }
}

/// The cipher suites, ordered by their speed on this machine; the client's order decides.
fn crypto() -> Arc<CryptoProvider> {
    let aes = [
        provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
        provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
    ];
    let chacha = [provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256];
    let cipher_suites = if aes_in_hardware() {
        [&aes[..], &chacha].concat()
    } else {
        [&chacha[..], &aes].concat()
    };
    Arc::new(CryptoProvider {
        cipher_suites,
        ..provider::default_provider()
    })
}

fn aes_in_hardware() -> bool {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    let answer = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let answer = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
    let answer = false;
    answer
}

fn certified(key: &SecretKey) -> Arc<CertifiedKey> {
    let signer = provider::sign::any_eddsa_type(&key.pkcs8())
        .expect("a SecretKey is an ed25519 key that has been parsed before");
    let spki = CertificateDer::from(key.public().to_spki());
    Arc::new(CertifiedKey::new(vec![spki], signer))
}

/// Raw keys do not expire, so a machine with a wrong clock connects like any other.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(std::time::Duration::ZERO))
    }
}

/// The client's check of the server's key: it must be the pinned key.
#[derive(Debug)]
struct PinnedServer {
    pinned: PublicKey,
    refusal: Option<Refusal>,
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
struct AuthorizedClients {
    accepts: Accepts,
    refusal: Option<Refusal>,
}

/// The client keys that a server accepts.
#[derive(Debug)]
enum Accepts {
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

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;
    use rustls::client::ResolvesClientCert;
    use rustls::{ClientConnection, Connection, ServerConnection};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    fn key() -> SecretKey {
        SecretKey::generate().unwrap()
    }

    /// Carries bytes both ways until neither side has data to send; returns the first error of each
    /// side, as the I/O error that a TLS stream would return.
    fn shake(
        client: ClientConfig,
        server: Arc<ServerConfig>,
    ) -> (Result<PublicKey, io::Error>, Result<PublicKey, io::Error>) {
        let client = ClientConnection::new(Arc::new(client), server_name()).unwrap();
        let mut client = Connection::from(client);
        let mut server = Connection::from(ServerConnection::new(server).unwrap());
        let (mut client_error, mut server_error) = (None, None);
        while client.wants_write() || server.wants_write() {
            carry(&mut client, &mut server, &mut server_error);
            carry(&mut server, &mut client, &mut client_error);
        }
        let result = |connection: &Connection, error: Option<io::Error>| match error {
            Some(error) => Err(error),
            None => peer(connection).map_err(io::Error::other),
        };
        (result(&client, client_error), result(&server, server_error))
    }

    /// Both sides' errors of a handshake that fails on both; `own` is the client's key.
    fn faults(
        client: ClientConfig,
        server: Arc<ServerConfig>,
        own: PublicKey,
    ) -> (HandshakeError, HandshakeError) {
        let (at_client, at_server) = shake(client, server);
        (
            HandshakeError::at_client(&at_client.unwrap_err(), &own),
            HandshakeError::at_server(&at_server.unwrap_err()),
        )
    }

    fn carry(from: &mut Connection, to: &mut Connection, error: &mut Option<io::Error>) {
        let mut wire = Vec::new();
        while from.wants_write() {
            from.write_tls(&mut wire).unwrap();
        }
        if error.is_none() {
            *error = feed(to, &wire).err();
        }
    }

    fn feed(to: &mut Connection, mut wire: &[u8]) -> io::Result<()> {
        while !wire.is_empty() {
            to.read_tls(&mut wire)?;
            to.process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        Ok(())
    }

    fn config(key: &SecretKey, server: &SecretKey) -> ClientConfig {
        ClientConfig::clone(&client_config(key, &server.public()))
    }

    #[test]
    fn each_side_learns_the_others_key() {
        let (client, server) = (key(), key());
        let authorized = Authorized::new([key().public(), client.public()]);
        let (at_client, at_server) = shake(
            config(&client, &server),
            server_config(&server, &authorized),
        );
        assert_eq!(at_client.unwrap(), server.public());
        assert_eq!(at_server.unwrap(), client.public());
    }

    #[test]
    fn a_server_with_another_key_is_rejected_by_name() {
        let (client, server, pinned) = (key(), key(), key());
        let authorized = Authorized::new([client.public()]);
        let (error, at_server) = faults(
            config(&client, &pinned),
            server_config(&server, &authorized),
            client.public(),
        );
        let (seen, pinned) = (server.public(), pinned.public());
        assert_eq!(error, HandshakeError::WrongServerKey { seen, pinned });
        assert!(
            error
                .to_string()
                .contains(&format!("{seen}, not the pinned {pinned}"))
        );
        assert_eq!(at_server, HandshakeError::PinnedElsewhere);
    }

    #[test]
    fn an_unknown_client_is_refused_until_authorized_and_again_after_revocation() {
        let (client, server) = (key(), key());
        let authorized = Authorized::new([key().public()]);
        let config = config(&client, &server);
        let server = server_config(&server, &authorized);
        let refused = || {
            let key = client.public();
            let (at_client, at_server) = faults(config.clone(), server.clone(), key);
            assert_eq!(at_client, HandshakeError::NotAuthorized { key });
            assert_eq!(at_server, HandshakeError::UnknownClient { key });
        };
        refused();
        authorized.replace([client.public()]);
        let (at_client, at_server) = shake(config.clone(), server.clone());
        assert!(at_client.is_ok() && at_server.is_ok());
        authorized.replace([]);
        // The same configuration, which would hold a ticket if tickets existed.
        refused();
    }

    /// Claims a key without having its secret key.
    #[test]
    fn a_stolen_public_key_is_not_enough() {
        let (client, server, victim) = (key(), key(), key());
        let forged = CertifiedKey::new(
            vec![CertificateDer::from(victim.public().to_spki())],
            provider::sign::any_eddsa_type(&client.pkcs8()).unwrap(),
        );
        let mut config = config(&client, &server);
        config.client_auth_cert_resolver =
            Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::new(forged)));
        let authorized = Authorized::new([victim.public()]);
        let (_, at_server) = shake(config, server_config(&server, &authorized));
        let error = HandshakeError::at_server(&at_server.unwrap_err());
        assert!(matches!(error, HandshakeError::Tls(_)), "{error}");
    }

    #[derive(Debug)]
    struct NoIdentity;

    impl ResolvesClientCert for NoIdentity {
        fn resolve(
            &self,
            _root_hint_subjects: &[&[u8]],
            _sigschemes: &[SignatureScheme],
        ) -> Option<Arc<CertifiedKey>> {
            None
        }

        fn only_raw_public_keys(&self) -> bool {
            true
        }

        fn has_certs(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_client_without_a_key_is_refused() {
        let (client, server) = (key(), key());
        let mut config = config(&client, &server);
        config.client_auth_cert_resolver = Arc::new(NoIdentity);
        let authorized = Authorized::new([client.public()]);
        let server = server_config(&server, &authorized);
        let (at_client, at_server) = faults(config, server, client.public());
        assert_eq!(at_client, HandshakeError::NoKey);
        assert_eq!(at_server, HandshakeError::NoKey);
    }

    #[test]
    fn an_ordinary_tls_client_is_refused() {
        let server = key();
        let config = ClientConfig::builder_with_provider(crypto())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let server = server_config(&server, &Authorized::default());
        let (at_client, at_server) = faults(config, server, key().public());
        assert_eq!(at_client, HandshakeError::NotSumlink);
        assert_eq!(at_server, HandshakeError::NotSumlink);
    }

    #[test]
    fn another_version_of_the_protocol_is_a_version_mismatch() {
        let (client, server) = (key(), key());
        let mut config = config(&client, &server);
        config.alpn_protocols = vec![b"sumlink/0".to_vec()];
        let server = server_config(&server, &Authorized::new([client.public()]));
        let mismatch = HandshakeError::VersionMismatch;
        let (at_client, at_server) = faults(config.clone(), server.clone(), client.public());
        assert_eq!((&at_client, &at_server), (&mismatch, &mismatch));
        assert!(mismatch.to_string().contains("sumlink/1"), "{mismatch}");

        // A peer that offers no protocol at all passes the handshake, but not `peer`.
        config.alpn_protocols.clear();
        let (_, at_server) = shake(config, server);
        assert_eq!(at_server.unwrap_err().to_string(), mismatch.to_string());
    }

    /// A ClientHello of TLS 1.2 (RFC 5246, section 7.4.1.2): one cipher suite, no extensions but
    /// the signature algorithms.
    fn tls12_hello() -> Vec<u8> {
        let mut hello = vec![3, 3];
        hello.extend([7; 32]); // random
        hello.extend([0]); // no session id
        hello.extend([0, 2, 0xc0, 0x2f]); // TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        hello.extend([1, 0]); // no compression
        let extensions = [0x00, 0x0d, 0, 4, 0, 2, 0x08, 0x07]; // signature_algorithms: ed25519
        hello.extend([0, extensions.len() as u8]);
        hello.extend(extensions);
        let mut record = vec![
            22,
            3,
            1,
            0,
            hello.len() as u8 + 4,
            1,
            0,
            0,
            hello.len() as u8,
        ];
        record.extend(hello);
        record
    }

    fn server_hears(wire: &[u8]) -> HandshakeError {
        let config = server_config(&key(), &Authorized::default());
        let mut server = Connection::from(ServerConnection::new(config).unwrap());
        HandshakeError::at_server(&feed(&mut server, wire).unwrap_err())
    }

    #[test]
    fn tls_1_2_is_refused() {
        assert_eq!(server_hears(&tls12_hello()), HandshakeError::NotSumlink);
    }

    #[test]
    fn both_sides_report_data_that_is_not_tls() {
        for garbage in [
            &b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"[..],
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"\x05\x01\x00\x00\x00\x00\x00",
            &[0; 64],
            &[0xff; 64],
        ] {
            assert_eq!(server_hears(garbage), HandshakeError::NotTls, "{garbage:?}");
            let config = client_config(&key(), &key().public());
            let client = ClientConnection::new(config, server_name()).unwrap();
            let error = feed(&mut Connection::from(client), garbage).unwrap_err();
            let error = HandshakeError::at_client(&error, &key().public());
            assert_eq!(error, HandshakeError::NotTls, "{garbage:?}");
        }
    }

    #[test]
    fn a_broken_connection_is_not_a_tls_error() {
        let at_server = |kind: io::ErrorKind| HandshakeError::at_server(&kind.into());
        assert_eq!(
            at_server(io::ErrorKind::UnexpectedEof),
            HandshakeError::Closed
        );
        assert_eq!(
            at_server(io::ErrorKind::ConnectionReset),
            HandshakeError::Closed
        );
        let timed_out = io::ErrorKind::TimedOut;
        assert_eq!(at_server(timed_out), HandshakeError::Io(timed_out));
    }

    /// A client's first flight.
    fn client_hello() -> Vec<u8> {
        let config = client_config(&key(), &key().public());
        let mut client = ClientConnection::new(config, server_name()).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        hello
    }

    proptest! {
        #[test]
        fn a_damaged_hello_never_panics(
            damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut hello = client_hello();
            for (at, byte) in damage {
                let at = at.index(hello.len());
                hello[at] = byte;
            }
            let keep = keep.index(hello.len() + 1);
            let config = server_config(&key(), &Authorized::default());
            let mut server = Connection::from(ServerConnection::new(config).unwrap());
            if let Err(error) = feed(&mut server, &hello[..keep]) {
                let line = HandshakeError::at_server(&error).to_string();
                prop_assert!(!line.contains('\n'), "{line}");
            }
            prop_assert!(server.is_handshaking());
        }
    }

    #[tokio::test]
    async fn over_tcp_a_refused_client_reads_the_reason_after_it_has_sent_its_first_bytes() {
        let (client, server) = (key(), key());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(server_config(&server, &Authorized::default()));
        let at_server = async {
            let (tcp, _) = listener.accept().await.unwrap();
            HandshakeError::at_server(&acceptor.accept(tcp).await.unwrap_err())
        };
        let at_client = async {
            let tcp = TcpStream::connect(address).await.unwrap();
            let connector = TlsConnector::from(client_config(&client, &server.public()));
            let mut tls = connector.connect(server_name(), tcp).await.unwrap();
            assert_eq!(peer(tls.get_ref().1), Ok(server.public()));
            // The server may have closed by now; only its answer counts.
            let _ = tls.write_all(&[0; 1000]).await;
            HandshakeError::at_client(&tls.read(&mut [0]).await.unwrap_err(), &client.public())
        };
        let (at_server, at_client) = tokio::join!(at_server, at_client);
        let key = client.public();
        assert_eq!(at_server, HandshakeError::UnknownClient { key });
        assert_eq!(at_client, HandshakeError::NotAuthorized { key });
    }

    #[tokio::test]
    async fn over_tcp_both_sides_report_a_peer_that_hangs_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connector = TlsConnector::from(client_config(&key(), &key().public()));
        let connecting = tokio::spawn(async move {
            let tcp = TcpStream::connect(address).await.unwrap();
            HandshakeError::at_client(
                &connector.connect(server_name(), tcp).await.unwrap_err(),
                &key().public(),
            )
        });
        drop(listener.accept().await.unwrap());
        assert_eq!(connecting.await.unwrap(), HandshakeError::Closed);

        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(&client_hello()[..100]).await.unwrap();
        drop(tcp);
        let acceptor = TlsAcceptor::from(server_config(&key(), &Authorized::default()));
        let (tcp, _) = listener.accept().await.unwrap();
        let error = acceptor.accept(tcp).await.unwrap_err();
        assert_eq!(HandshakeError::at_server(&error), HandshakeError::Closed);
    }
}
