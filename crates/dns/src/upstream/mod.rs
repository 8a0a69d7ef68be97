//! Upstream resolvers.
//!
//! The forwarder opens no socket towards the internet. An upstream has an [`Opener`] and a
//! [`DatagramOpener`] and uses nothing else: those of the bond, or those of a link's local exit.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use sumlink_proxy::{Class, DatagramOpener, OpenError, Opener};
use sumlink_util::plain;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::statistics::{UpstreamCounters, UpstreamStatistics};
use crate::wire::Query;

mod address;
mod datagram;
mod group;
mod https;
mod stream;
mod tls;

pub use address::{UpstreamAddress, UpstreamAddressError};
pub(crate) use group::Group;
pub use tls::{Roots, RootsError};

/// The class of all traffic to upstreams: requests and responses.
const CLASS: Option<Class> = Some(Class::Interactive);

/// An upstream resolver, with the way to it. Clones share its connection and its statistics.
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    address: UpstreamAddress,
    exchange: Box<dyn Exchange>,
    counters: UpstreamCounters,
}

/// Why an upstream gave no usable answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The connection or the source could not be opened.
    #[error("cannot reach the resolver: {0}")]
    Open(#[from] OpenError),
    /// The rule for the name has no upstream.
    #[error("no resolver is configured for the name")]
    None,
    /// No answer arrived in time.
    #[error("the resolver did not answer in time")]
    TimedOut,
    /// The connection ended before the answer.
    #[error("the connection to the resolver ended")]
    Closed,
    /// Datagrams do not reach the resolver.
    #[error("datagrams do not reach the resolver: {0}")]
    Datagrams(String),
    /// TLS failed: the certificate, or the protocol.
    #[error("TLS with the resolver failed: {0}")]
    Tls(String),
    /// HTTP failed, or the status is not 200.
    #[error("the resolver's HTTP answer cannot be used: {0}")]
    Http(String),
    /// The received message does not answer the question.
    #[error("the resolver's answer cannot be used")]
    Unusable,
    /// No bytes for an unpredictable ID.
    #[error("the system has no random numbers")]
    NoRandom,
}

/// A future of this module, as an object.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way to exchange messages with a resolver.
trait Exchange: Send + Sync {
    /// Asks, and returns a response to exactly this query. Its ID is that of the hop. The second
    /// value is the age of the response in seconds. It has no time limit and may be dropped at any
    /// time.
    fn exchange<'a>(&'a self, query: &'a Query) -> Boxed<'a, Result<Response, ExchangeError>>;
}

/// A response from upstream.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) message: Bytes,
    /// Time that it spent in caches on the way, in seconds.
    pub(crate) age: u32,
}

/// A connection.
trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// Makes a connection to a resolver.
type Connect = Arc<dyn Fn() -> Boxed<'static, Result<Box<dyn Io>, ExchangeError>> + Send + Sync>;

impl Upstream {
    /// The resolver at `address`, reached through `opener`. Nothing is opened before the first
    /// question. `roots` are needed for `tls://` and `https://`, and read when they are first
    /// used.
    pub fn new<O: Opener + DatagramOpener>(
        address: UpstreamAddress,
        opener: O,
        roots: &Roots,
    ) -> Self {
        let exchange: Box<dyn Exchange> = match &address {
            UpstreamAddress::Server | UpstreamAddress::Udp(_) => {
                Box::new(datagram::DatagramExchange::new(address.target(), opener))
            }
            UpstreamAddress::Tcp(target) => {
                let connect = tls::plain_connect(target.clone(), opener);
                Box::new(stream::StreamExchange::new(connect, stream::IDLE, false))
            }
            UpstreamAddress::Tls { target, name } => {
                let tls = tls::Tls::new(roots.clone(), name.clone(), tls::DOT);
                let connect = tls::tls_connect(target.clone(), opener, tls);
                Box::new(stream::StreamExchange::new(connect, stream::TLS_IDLE, true))
            }
            UpstreamAddress::Https { target, name, uri } => {
                let tls = tls::Tls::new(roots.clone(), name.clone(), tls::H2);
                let connect = tls::tls_connect(target.clone(), opener, tls);
                Box::new(https::HttpsExchange::new(connect, uri.clone()))
            }
        };
        Self(Arc::new(Inner {
            address,
            exchange,
            counters: UpstreamCounters::default(),
        }))
    }

    /// The address.
    pub fn address(&self) -> &UpstreamAddress {
        &self.0.address
    }

    /// Whether this is a clone of `other`.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn statistics(&self) -> UpstreamStatistics {
        self.0.counters.read(self.0.address.to_string())
    }

    /// Asks, and counts.
    async fn ask(&self, query: &Query) -> Result<Response, ExchangeError> {
        let pending = self.0.counters.begin();
        let response = self.0.exchange.exchange(query).await;
        pending.end(response.is_ok());
        response
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Upstream").field(&self.0.address).finish()
    }
}

impl From<std::io::Error> for ExchangeError {
    fn from(error: std::io::Error) -> Self {
        tracing::debug!(error = %plain(&error), "a connection to a resolver failed");
        Self::Closed
    }
}

/// An ID that others cannot predict (RFC 5452, section 9.2).
pub(crate) fn random_id() -> Result<u16, ExchangeError> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut id = [0; 2];
    match SystemRandom::new().fill(&mut id) {
        Ok(()) => Ok(u16::from_be_bytes(id)),
        Err(ring::error::Unspecified) => Err(ExchangeError::NoRandom),
    }
}
