//! Connections to resolvers, with and without TLS.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use sumlink_exit::target::Target;
use sumlink_proxy::Opener;
use tokio_rustls::TlsConnector;

use super::{CLASS, Connect, ExchangeError, Io};

/// Protocol names of TLS (RFC 7301): DNS over TLS, and HTTP/2.
pub(super) const DOT: &[u8] = b"dot";
pub(super) const H2: &[u8] = b"h2";

/// The authorities that are trusted for certificates of resolvers. Clones share the loaded list.
#[derive(Clone, Debug)]
pub struct Roots(Arc<Source>);

#[derive(Debug)]
enum Source {
    System(OnceLock<Result<Arc<RootCertStore>, RootsError>>),
    Fixed(Arc<RootCertStore>),
}

/// Why there are no authorities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RootsError {
    /// The system has no list of them.
    #[error(
        "this machine has no list of certificate authorities, which resolvers with TLS need; \
         install the package ca-certificates ({0})"
    )]
    None(String),
    /// A given certificate is not valid.
    #[error("the certificate of the authority cannot be used: {0}")]
    Unusable(String),
}

impl Roots {
    /// Those of this machine. They are read when they are first needed.
    pub fn system() -> Self {
        Self(Arc::new(Source::System(OnceLock::new())))
    }

    /// These only.
    ///
    /// # Errors
    ///
    /// [`RootsError::Unusable`].
    pub fn only<'a>(
        certificates: impl IntoIterator<Item = CertificateDer<'a>>,
    ) -> Result<Self, RootsError> {
        let mut store = RootCertStore::empty();
        for certificate in certificates {
            let added = store.add(certificate.into_owned());
            added.map_err(|error| RootsError::Unusable(error.to_string()))?;
        }
        Ok(Self(Arc::new(Source::Fixed(Arc::new(store)))))
    }

    /// Reads them, if that has not happened. A program that has upstreams with TLS reports the
    /// error at its start.
    ///
    /// # Errors
    ///
    /// [`RootsError::None`].
    pub fn check(&self) -> Result<(), RootsError> {
        self.store().map(|_| ())
    }

    fn store(&self) -> Result<Arc<RootCertStore>, RootsError> {
        match &*self.0 {
            Source::Fixed(store) => Ok(Arc::clone(store)),
            Source::System(read) => read.get_or_init(read_system).clone(),
        }
    }
}

fn read_system() -> Result<Arc<RootCertStore>, RootsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let reason = found.errors.first().map(ToString::to_string);
        return Err(RootsError::None(
            reason.unwrap_or_else(|| "the list is empty".to_owned()),
        ));
    }
    Ok(Arc::new(store))
}

/// TLS towards one resolver. Sessions are resumed.
pub(super) struct Tls {
    roots: Roots,
    name: ServerName<'static>,
    protocol: &'static [u8],
    config: OnceLock<Arc<ClientConfig>>,
}

impl Tls {
    pub(super) fn new(roots: Roots, name: ServerName<'static>, protocol: &'static [u8]) -> Self {
        Self {
            roots,
            name,
            protocol,
            config: OnceLock::new(),
        }
    }

    fn config(&self) -> Result<Arc<ClientConfig>, ExchangeError> {
        if let Some(config) = self.config.get() {
            return Ok(Arc::clone(config));
        }
        let store = self.roots.store().map_err(failed)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![self.protocol.to_vec()];
        Ok(Arc::clone(self.config.get_or_init(|| Arc::new(config))))
    }
}

/// Connects without TLS.
pub(super) fn plain_connect<O: Opener>(target: Target, opener: O) -> Connect {
    Arc::new(move || {
        let (target, opener) = (target.clone(), opener.clone());
        Box::pin(async move {
            let stream = opener.open(target, CLASS).await?;
            Ok(Box::new(stream) as Box<dyn Io>)
        })
    })
}

/// Connects with TLS.
pub(super) fn tls_connect<O: Opener>(target: Target, opener: O, tls: Tls) -> Connect {
    let tls = Arc::new(tls);
    Arc::new(move || {
        let (target, opener, tls) = (target.clone(), opener.clone(), Arc::clone(&tls));
        Box::pin(async move {
            let connector = TlsConnector::from(tls.config()?);
            let stream = opener.open(target, CLASS).await?;
            let connected = connector.connect(tls.name.clone(), stream).await;
            Ok(Box::new(connected.map_err(failed)?) as Box<dyn Io>)
        })
    })
}

fn failed(error: impl fmt::Display) -> ExchangeError {
    ExchangeError::Tls(error.to_string())
}
