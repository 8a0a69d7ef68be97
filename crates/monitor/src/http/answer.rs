//! The answer to a request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, VARY, WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use sumlink_transport::LinkPolicy;
use tokio::sync::mpsc;

use super::Shared;
use crate::metrics::Format;
use crate::{Watched, access, page};

/// Time for the report of a program that is busy.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the body of a change, and its most bytes.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BODY: usize = 4096;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The page runs its own script and style, asks its own origin, and nothing else; no other page
/// may frame it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// A body: whole, or events without end.
#[derive(Debug)]
pub(super) enum Answer {
    Whole(Option<Bytes>),
    Events(mpsc::Receiver<Bytes>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = match self.get_mut() {
            Self::Whole(bytes) => bytes.take(),
            Self::Events(events) => ready!(events.poll_recv(cx)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Events(_) => SizeHint::default(),
        }
    }
}

/// Answers a request; sets `follows` if the answer is the stream of events.
pub(super) async fn answer<W: Watched>(
    request: Request<Incoming>,
    shared: &Arc<Shared<W>>,
    follows: &AtomicBool,
) -> Response<Answer> {
    let mut answer = match access::check(&request, &shared.settings) {
        Ok(()) if request.method() == Method::POST => change(request.into_body(), shared).await,
        Ok(()) => route(&request, shared, follows).await,
        Err((status, reason)) => refused(status, reason),
    };
    let headers = answer.headers_mut();
    let fixed = HeaderValue::from_static;
    headers.insert("content-security-policy", fixed(POLICY));
    headers.insert("x-content-type-options", fixed("nosniff"));
    headers.insert("cross-origin-resource-policy", fixed("same-origin"));
    headers.insert("referrer-policy", fixed("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(fixed("no-store"));
    answer
}

async fn route<W: Watched>(
    request: &Request<Incoming>,
    shared: &Arc<Shared<W>>,
    follows: &AtomicBool,
) -> Response<Answer> {
    let path = request.uri().path();
    if path == "/" {
        let page = page::index(shared.settings.token.is_some());
        return whole(StatusCode::OK, "text/html; charset=utf-8", page.into());
    }
    if let Some((kind, text)) = page::asset(path) {
        return whole(StatusCode::OK, kind, Bytes::from_static(text.as_bytes()));
    }
    if path == "/events" {
        if request.method() == Method::HEAD {
            return whole(StatusCode::OK, page::EVENTS, Bytes::new());
        }
        follows.store(true, Ordering::Relaxed);
        return events(shared).await;
    }
    if path == "/history.json" {
        return whole(StatusCode::OK, JSON, shared.history.json().into());
    }
    if !matches!(path, "/metrics" | "/healthz" | "/status.json") {
        let reason = "there are /, /metrics, /healthz, /status.json, /history.json and /events";
        return refused(StatusCode::NOT_FOUND, reason);
    }
    let Ok(shot) = tokio::time::timeout(REPORT_TIMEOUT, shared.cache.get()).await else {
        return refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "the program does not answer",
        );
    };
    match path {
        "/metrics" => {
            let accept = request.headers().get_all(ACCEPT).iter();
            let accept: Vec<&str> = accept.filter_map(|value| value.to_str().ok()).collect();
            let format = Format::accepted(&accept.join(","));
            let text = shot.metrics(format);
            let mut answer = whole(StatusCode::OK, format.content_type(), text);
            answer
                .headers_mut()
                .insert(VARY, HeaderValue::from_static("Accept"));
            answer
        }
        "/status.json" => whole(StatusCode::OK, JSON, shot.json()),
        _ if shot.report.is_healthy() => whole(StatusCode::OK, TEXT, Bytes::from_static(b"ok\n")),
        _ => refused(StatusCode::SERVICE_UNAVAILABLE, &shot.report.note),
    }
}

/// A change of a link's policy, as the page sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    name: String,
    policy: Option<LinkPolicy>,
}

/// Sets the policy of a link until the program ends.
async fn change<W: Watched>(body: Incoming, shared: &Arc<Shared<W>>) -> Response<Answer> {
    let read = tokio::time::timeout(BODY_TIMEOUT, whole_body(body)).await;
    let Ok(Some(bytes)) = read else {
        return refused(
            StatusCode::BAD_REQUEST,
            "the request is too long or too slow",
        );
    };
    let Ok(change) = serde_json::from_slice::<Change>(&bytes) else {
        return refused(
            StatusCode::BAD_REQUEST,
            "write a link's name and its policy as JSON",
        );
    };
    let name = change.name.clone();
    let set = shared.cache.program().set_link(change.name, change.policy);
    match set.await {
        Ok(report) => {
            tracing::info!(link = %name, "the status page has changed the policy of a link");
            shared.cache.renew().await;
            let text = serde_json::to_vec(&report).unwrap_or_default();
            whole(StatusCode::OK, JSON, text.into())
        }
        Err(reason) => refused(StatusCode::UNPROCESSABLE_ENTITY, &reason),
    }
}

/// A body of at most [`MAX_BODY`] bytes.
async fn whole_body(mut body: Incoming) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        all.extend_from_slice(frame.ok()?.data_ref()?);
        if all.len() > MAX_BODY {
            return None;
        }
    }
    Some(all)
}

/// The program's events from now on, as server-sent events.
async fn events<W: Watched>(shared: &Arc<Shared<W>>) -> Response<Answer> {
    let slot = shared.followers.lock().await.enter();
    let receiver = page::follow(shared.cache.program().events(), slot);
    let mut answer = Response::new(Answer::Events(receiver));
    let kind = HeaderValue::from_static(page::EVENTS);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    // The connection has no slot of other connections any more, so it must end with the events.
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}

fn whole(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Answer> {
    let mut answer = Response::new(Answer::Whole(Some(body)));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// A refusal with its reason on one line.
fn refused(status: StatusCode, reason: &str) -> Response<Answer> {
    let mut answer = whole(status, TEXT, format!("{reason}\n").into());
    let headers = answer.headers_mut();
    if status == StatusCode::UNAUTHORIZED {
        let ask = HeaderValue::from_static("Basic realm=\"sumlink\", charset=\"UTF-8\"");
        headers.insert(WWW_AUTHENTICATE, ask);
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    answer
}
