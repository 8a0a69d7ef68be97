//! An HTTP/1.1 proxy: CONNECT tunnels, and plain `http://` requests in absolute-form.
//!
//! Each plain request uses a separate connection. It is passed on with `Connection: close`, the
//! response is returned byte for byte, and then the connection ends; the program opens another one
//! for its next request. Data after the first request's body is never passed on, except after a
//! chunked body, whose end this proxy does not detect.

use std::time::Duration;

use sumlink_transport::target::OpenError;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::Opener;
use crate::classes::Classes;
use request::{MAX_HEAD, Request, RequestError};
use sumlink_exit::relay::{Upload, part, relay};

pub mod request;

/// How long a program may take from connecting to the end of its request head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one connection until it ends.
pub(crate) async fn serve<O: Opener>(mut local: TcpStream, opener: O, classes: Classes) {
    let mut received = Vec::with_capacity(4096);
    let answer = match timeout(HEAD_TIMEOUT, read_head(&mut local, &mut received)).await {
        Ok(Some(Ok(request))) => match open(&opener, request, &classes).await {
            Ok((stream, Request::Connect(_))) => {
                let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
                if local.write_all(established).await.is_ok() {
                    relay(local, stream, &received, Upload::Unlimited).await;
                }
                return;
            }
            Ok((stream, Request::Forward(request))) => {
                let mut early = request.head;
                let sent = request.body.map_or(received.len(), |body| {
                    usize::try_from(body).map_or(received.len(), |body| body.min(received.len()))
                });
                early.extend_from_slice(&received[..sent]);
                let upload = match request.body {
                    Some(body) => Upload::Limited(body - sent as u64),
                    None => Upload::Unlimited,
                };
                relay(local, stream, &early, upload).await;
                return;
            }
            Err(error) => response(status(error), &format!("{error}\n")),
        },
        Ok(Some(Err(error))) => {
            warn!(%error, "HTTP proxy request refused");
            let status = match error {
                RequestError::TooLong => "431 Request Header Fields Too Large",
                _ => "400 Bad Request",
            };
            response(status, &format!("{error}\n"))
        }
        Ok(None) => return,
        Err(_) => response(
            "408 Request Timeout",
            "the request head did not arrive in time\n",
        ),
    };
    if local.write_all(&answer).await.is_ok() {
        part(local).await;
    }
}

/// A complete response with one line of text, after which the connection ends.
pub(crate) fn response(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Reads the request head and leaves the following bytes in `received`; `None` if the program
/// closed the connection.
async fn read_head(
    local: &mut TcpStream,
    received: &mut Vec<u8>,
) -> Option<Result<Request, RequestError>> {
    loop {
        match Request::decode(received) {
            Ok(Some((request, length))) => {
                received.drain(..length);
                return Some(Ok(request));
            }
            Ok(None) => {}
            Err(error) => return Some(Err(error)),
        }
        // An incomplete head is shorter than the limit, so its rest fits.
        let room = MAX_HEAD.saturating_sub(received.len()) as u64;
        match (&mut *local).take(room).read_buf(received).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

async fn open<O: Opener>(
    opener: &O,
    request: Request,
    classes: &Classes,
) -> Result<(O::Stream, Request), OpenError> {
    let target = match &request {
        Request::Connect(target) => target,
        Request::Forward(request) => &request.target,
    };
    match opener.open(target.clone(), classes.of(target, None)).await {
        Ok(stream) => {
            debug!(%target, "HTTP proxy connected");
            Ok((stream, request))
        }
        Err(error) => {
            debug!(%target, %error, "cannot open the HTTP proxy target");
            Err(error)
        }
    }
}

/// Status code of an error (RFC 9110, section 15).
fn status(error: OpenError) -> &'static str {
    match error {
        OpenError::BadTarget => "400 Bad Request",
        OpenError::NotAllowed => "403 Forbidden",
        OpenError::LimitReached | OpenError::SessionClosed => "503 Service Unavailable",
        OpenError::TimedOut => "504 Gateway Timeout",
        _ => "502 Bad Gateway",
    }
}
