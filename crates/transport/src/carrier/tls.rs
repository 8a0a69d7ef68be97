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
#[cfg(test)]
mod tests;
mod verifier;

use std::collections::HashSet;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, CommonState, ServerConfig};

use crate::carrier::keys::{PublicKey, SecretKey};

pub use error::HandshakeError;
pub(crate) use error::alert;
use verifier::{Accepts, AuthorizedClients, PinnedServer};

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

/// Names of protocols as TLS has them.
pub(crate) fn protocols(names: &[String]) -> impl Iterator<Item = Vec<u8>> {
    names.iter().map(|name| name.clone().into_bytes())
}

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

/// A placeholder server name required by the TLS library: an address, which is never sent as SNI.
/// No name is checked.
pub fn server_name() -> ServerName<'static> {
    ServerName::from(Ipv4Addr::UNSPECIFIED)
}

/// The key of the peer of a connection whose handshake is complete.
///
/// [`HandshakeError::VersionMismatch`] if no protocol was chosen (TLS lets a peer leave the
/// extension out, and ensures that both sides know the chosen one), [`HandshakeError::NoKey`] if
/// the handshake is not complete.
pub fn peer(connection: &CommonState) -> Result<PublicKey, HandshakeError> {
    let key = peer_key(connection).ok_or(HandshakeError::NoKey)?;
    match connection.alpn_protocol() {
        Some(_) => Ok(key),
        None => Err(HandshakeError::VersionMismatch),
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
