//! Questions over HTTP/2 (RFC 8484), which is the least version that resolvers must offer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::{Method, Request, StatusCode, Uri, header};
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::{Boxed, Connect, Exchange, ExchangeError, Response};
use crate::wire::{Form, Query};

/// The media type of messages (RFC 8484, section 6).
const MEDIA_TYPE: &str = "application/dns-message";

/// Longest message, in bytes.
const MAX_MESSAGE: usize = 65_535;

/// Time for a connection and its TLS handshake.
const CONNECT: Duration = Duration::from_secs(4);

/// Time without an answer after which a connection is not used again.
const STALL: Duration = Duration::from_secs(2);

/// Asks over one connection, which is made for the first question and again after it has ended.
pub(super) struct HttpsExchange {
    connect: Connect,
    uri: Uri,
    /// The current connection with its number.
    current: Mutex<Option<(u64, SendRequest<Bytes>)>>,
    /// Held while a connection is made, so that others wait for it.
    connecting: tokio::sync::Mutex<()>,
    made: AtomicU64,
}

/// Forgets a connection if its question is given up after a while: it may be dead.
struct Watch<'a> {
    exchange: &'a HttpsExchange,
    number: u64,
    asked: Instant,
    is_answered: bool,
}

impl HttpsExchange {
    pub(super) fn new(connect: Connect, uri: Uri) -> Self {
        Self {
            connect,
            uri,
            current: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            made: AtomicU64::new(0),
        }
    }

    async fn ask(&self, query: &Query) -> Result<Response, ExchangeError> {
        // The ID is 0, so that caches recognize equal questions (RFC 8484, section 4.1).
        let body = Bytes::from(query.encode(0, Form::Padded));
        loop {
            let (number, sender, is_new) = self.connection().await?;
            let mut watch = Watch {
                exchange: self,
                number,
                asked: Instant::now(),
                is_answered: false,
            };
            let result = self.post(sender, body.clone()).await;
            watch.is_answered = true;
            match result {
                Ok((message, age)) if query.is_answered_by(0, &message) => {
                    return Ok(Response { message, age });
                }
                Ok(_) => return Err(ExchangeError::Unusable),
                // The server may close a connection at any time.
                Err(Failure::Connection(_)) if !is_new => self.forget(number),
                Err(Failure::Connection(error)) => {
                    self.forget(number);
                    return Err(ExchangeError::Http(error.to_string()));
                }
                Err(Failure::Answer(error)) => return Err(error),
            }
        }
    }

    async fn post(&self, sender: SendRequest<Bytes>, body: Bytes) -> Result<(Bytes, u32), Failure> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.uri.clone())
            .header(header::CONTENT_TYPE, MEDIA_TYPE)
            .header(header::ACCEPT, MEDIA_TYPE)
            .header(header::CONTENT_LENGTH, body.len())
            .body(())
            .map_err(|error| Failure::Answer(ExchangeError::Http(error.to_string())))?;
        let mut sender = sender.ready().await?;
        let (answer, mut stream) = sender.send_request(request, false)?;
        stream.send_data(body, true)?;
        let (head, mut body) = answer.await?.into_parts();
        if head.status != StatusCode::OK {
            let error = ExchangeError::Http(format!("status {}", head.status.as_u16()));
            return Err(Failure::Answer(error));
        }
        let age = head.headers.get(header::AGE);
        let age = age.and_then(|age| age.to_str().ok()?.trim().parse().ok());
        let mut message = Vec::new();
        while let Some(data) = body.data().await {
            let data = data?;
            if message.len() + data.len() > MAX_MESSAGE {
                return Err(Failure::Answer(ExchangeError::Unusable));
            }
            message.extend_from_slice(&data);
            body.flow_control().release_capacity(data.len())?;
        }
        Ok((message.into(), age.unwrap_or(0)))
    }

    /// The current connection, or a new one.
    async fn connection(&self) -> Result<(u64, SendRequest<Bytes>, bool), ExchangeError> {
        if let Some((number, sender)) = self.current() {
            return Ok((number, sender, false));
        }
        let _guard = self.connecting.lock().await;
        if let Some((number, sender)) = self.current() {
            return Ok((number, sender, false));
        }
        let connected = async {
            let stream = (self.connect)().await?;
            let made = h2::client::Builder::new()
                .enable_push(false)
                .max_header_list_size(16 * 1024)
                .handshake(stream)
                .await;
            made.map_err(|error| ExchangeError::Http(error.to_string()))
        };
        let connected = timeout(CONNECT, connected).await;
        let (sender, connection) = connected.map_err(|_| ExchangeError::TimedOut)??;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection to a resolver ended");
            }
        });
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        *self.lock() = Some((number, sender.clone()));
        Ok((number, sender, true))
    }

    fn current(&self) -> Option<(u64, SendRequest<Bytes>)> {
        self.lock().clone()
    }

    fn forget(&self, number: u64) {
        self.lock().take_if(|(current, _)| *current == number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(u64, SendRequest<Bytes>)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.is_answered && self.asked.elapsed() >= STALL {
            self.exchange.forget(self.number);
        }
    }
}

impl Exchange for HttpsExchange {
    fn exchange<'a>(&'a self, query: &'a Query) -> Boxed<'a, Result<Response, ExchangeError>> {
        Box::pin(self.ask(query))
    }
}

enum Failure {
    /// The connection failed; another one may work.
    Connection(h2::Error),
    /// The answer cannot be used.
    Answer(ExchangeError),
}

impl From<h2::Error> for Failure {
    fn from(error: h2::Error) -> Self {
        Self::Connection(error)
    }
}
