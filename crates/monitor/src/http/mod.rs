//! The HTTP server: connections, their limits, and the answers.
//!
//! Whoever reaches the port may open connections and never read. A connection beyond the limit
//! therefore ends the oldest one; a request head must arrive in time and is bounded; a reader that
//! takes nothing for a while loses its connection.

mod answer;
mod patient;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sumlink_transport::accept::Accepting;
use sumlink_transport::slots::{Slot, Slots};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::cache::Cache;
use crate::page::History;
use crate::{Settings, Watched};
use patient::Patient;

/// Most connections that wait for requests or answers.
const MAX_CONNECTIONS: usize = 32;

/// Most connections that follow the events.
const MAX_FOLLOWERS: usize = 16;

/// Time for a request's head, and between two requests of a connection. Prometheus asks every
/// minute or more often and keeps its connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);

/// Time for which a reader may take nothing.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Largest request head in bytes, as hyper reads it.
const MAX_HEAD: usize = 16 << 10;

/// Most header fields of a request.
const MAX_HEADERS: usize = 64;

/// What all connections share.
#[derive(Debug)]
struct Shared<W> {
    settings: Settings,
    cache: Cache<W>,
    history: History,
    followers: Mutex<Slots>,
}

/// Answers requests without end.
pub(crate) async fn serve(listener: TcpListener, settings: Settings, program: impl Watched) {
    let shared = Arc::new(Shared {
        cache: Cache::new(program, settings.per_client),
        settings,
        history: History::default(),
        followers: Mutex::new(Slots::new(MAX_FOLLOWERS)),
    });
    let recording = record(Arc::clone(&shared));
    let accepting = async {
        let mut accepting = Accepting::new("the monitoring port");
        let mut slots = Slots::new(MAX_CONNECTIONS);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = tokio::select! {
                accepted = accepting.next(&listener) => accepted,
                Some(_) = connections.join_next() => continue,
            };
            connections.spawn(connection(stream, slots.enter(), Arc::clone(&shared)));
        }
    };
    tokio::join!(recording, accepting);
}

/// Keeps the history up to date.
async fn record<W: Watched>(shared: Arc<Shared<W>>) {
    loop {
        let shot = shared.cache.get().await;
        shared.history.record(&shot.report);
        drop(shot);
        tokio::time::sleep(History::EVERY).await;
    }
}

/// Serves a connection until either side ends it, or another one needs its slot.
async fn connection<W: Watched>(stream: TcpStream, slot: Slot, shared: Arc<Shared<W>>) {
    let follows = Arc::new(AtomicBool::new(false));
    let service = service_fn(|request| {
        let (shared, follows) = (Arc::clone(&shared), Arc::clone(&follows));
        async move { Ok::<_, Infallible>(answer::answer(request, &shared, &follows).await) }
    });
    let mut http = http1::Builder::new();
    // Some clients end their side after the request.
    http.half_close(true)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    let serving = http.serve_connection(TokioIo::new(Patient::new(stream, STALL_TIMEOUT)), service);
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => Some(ended),
        Ok(()) = slot => None,
    };
    let ended = match ended {
        // A follower of events has a slot among its like.
        None if follows.load(Ordering::Relaxed) => serving.await,
        None => return,
        Some(ended) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "monitoring connection");
    }
}
