//! The traffic through sumlink's library on both ends, without a proxy, as in a program that uses
//! the library.
//!
//! Each side has a single thread for the session, its carriers and the program.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Buf;
use sumlink_scenario::system::Variant;
use sumlink_transport::config::{AuthorizedClient, ClientConfig, ServerConfig, SessionConfig};
use sumlink_transport::{Class, Client, Server, ServerHandle, SessionStatus, Stream, Target};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::error::LabError;
use crate::prose::note;
use crate::results::EndsRecord;

use super::connection::CHUNK;
use super::pattern::Pattern;
use super::record::Recorder;
use super::{Keys, Request, Window, server};

/// The target of every stream, and the port of those that carry bulk traffic.
const TRAFFIC: (&str, u16) = ("traffic", 1);
/// The port of the streams that request the counters of the server's end.
const COUNTED: u16 = 2;
/// Time limit for the answer with the counters.
const COUNTED_LIMIT: Duration = Duration::from_secs(2);

/// Serves bulk streams until the process is killed.
pub(crate) fn serve(address: SocketAddr, keys: &Keys, variant: &str) -> Result<(), LabError> {
    let failed = |error: String| LabError::system(format!("listening on {address}"), error);
    let authorized = vec![AuthorizedClient {
        key: keys.peer,
        name: String::new(),
        publish: Vec::new(),
    }];
    let key = keys.secret().map_err(LabError::Usage)?;
    let config = ServerConfig::new(address, key, authorized)
        .session(session(variant).map_err(LabError::Usage)?);
    let serving = async move {
        let handle: Arc<OnceLock<ServerHandle>> = Arc::default();
        let of_streams = Arc::clone(&handle);
        let server = Server::bind_with(config, move |_, target, stream| {
            let handle = Arc::clone(&of_streams);
            tokio::spawn(async move {
                let answered = match handle.get() {
                    Some(handle) if target.port == COUNTED => tell_counted(handle, stream).await,
                    _ => answer(stream).await,
                };
                if let Err(error) = answered {
                    note!("a stream: {error}");
                }
            });
        });
        let server = server.await.map_err(|error| error.to_string())?;
        handle.get_or_init(|| server.handle());
        server.run(std::future::pending()).await;
        Ok(())
    };
    on_one_thread(serving)
        .and_then(|served| served)
        .map_err(failed)
}

/// The client's side: one stream over every link that leads to the server.
pub(super) fn run(
    server: SocketAddr,
    keys: &Keys,
    variant: &str,
    class: Option<Class>,
    request: &Request,
    window: Window,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let config =
        ClientConfig::new(server.to_string(), keys.peer, keys.secret()?).session(session(variant)?);
    on_one_thread(async {
        let client = Client::connect(config).await.map_err(|e| e.to_string())?;
        let mut stream = open(&client, TRAFFIC.1, class).await?;
        recorder.record.connected = true;
        let moved = async {
            send_request(&mut stream, request).await?;
            match request.down {
                true => receive(&mut stream, window, recorder).await,
                false => send(&mut stream, window).await,
            }
        };
        let moved = moved.await.map_err(|error| error.to_string());
        recorder.record.ends = counted_by_both(&client).await;
        client.close().await;
        moved
    })?
}

async fn open(client: &Client, port: u16, class: Option<Class>) -> Result<Stream, String> {
    let target = Target::new(TRAFFIC.0, port).map_err(|error| error.to_string())?;
    let stream = client.open_stream_as(target, class).await;
    stream.map_err(|error| error.to_string())
}

/// The counters of both ends; `None` if the other end does not answer.
async fn counted_by_both(client: &Client) -> Option<EndsRecord> {
    let own = client.status().await;
    let asked = async {
        let mut stream = open(client, COUNTED, None).await.ok()?;
        stream.write_all(own.session.as_bytes()).await.ok()?;
        stream.shutdown().await.ok()?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.ok()?;
        serde_json::from_slice::<Option<EndsRecord>>(&text).ok()?
    };
    let of_server = timeout(COUNTED_LIMIT, asked).await.ok()??;
    Some(of_server.and(counted(&own)))
}

/// Sends this end's counters of the session that the stream names.
async fn tell_counted(handle: &ServerHandle, mut stream: Stream) -> io::Result<()> {
    let mut name = String::new();
    stream.read_to_string(&mut name).await?;
    let sessions = handle.status().await;
    let asking = sessions.iter().find(|session| session.session == name);
    let text = serde_json::to_vec(&asking.map(counted))?;
    stream.write_all(&text).await?;
    stream.shutdown().await
}

fn counted(session: &SessionStatus) -> EndsRecord {
    EndsRecord {
        duplicates_bytes: session.duplicates_sent_bytes,
        reorder_peak_bytes: session.reorder_peak_bytes,
        in_order_wait_p99_s: session.in_order_wait_p99_ms / 1e3,
    }
}

/// The session settings in a system's name after `library:`.
fn session(variant: &str) -> Result<SessionConfig, String> {
    let variant = Variant::parse(variant, &[])?;
    Ok(SessionConfig {
        scheduler: variant.scheduler,
        class_schedulers: variant.class_schedulers,
        own_schedulers: sumlink_schedulers::all(),
        redundancy: variant.options.redundancy,
        fbdt: variant.options.fbdt,
        ..SessionConfig::default()
    })
}

fn on_one_thread<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    Ok(runtime.map_err(|error| error.to_string())?.block_on(work))
}

async fn answer(mut stream: Stream) -> io::Result<()> {
    let mut text = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut text).await?;
    let request: Request = serde_json::from_slice(&text)?;
    let window = Window {
        epoch_ns: request.epoch_ns,
        duration_ms: request.duration_ms,
    };
    if request.down {
        return send(&mut stream, window).await;
    }
    let mut recorder = Recorder::new(request.flow, window, request.interval_ms).with_arrivals();
    recorder.record.connected = true;
    if let Err(error) = receive(&mut stream, window, &mut recorder).await {
        recorder.record.error = Some(error.to_string());
    }
    server::report(&recorder)
}

async fn send_request(stream: &mut Stream, request: &Request) -> io::Result<()> {
    let text = serde_json::to_vec(request)?;
    let length = u16::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_u16(length).await?;
    stream.write_all(&text).await
}

/// Sends the pattern from its start until the run is over.
async fn send(stream: &mut Stream, window: Window) -> io::Result<()> {
    let pattern = Pattern::new();
    let mut buffer = vec![0; CHUNK];
    let mut offset = 0;
    while let Some(left) = window.left() {
        pattern.fill(offset, &mut buffer);
        match timeout(left, stream.write_all(&buffer)).await {
            Ok(Ok(())) => offset += CHUNK as u64,
            // The other end stops by the same clock.
            Ok(Err(_)) if is_nearly_over(window) => break,
            Ok(Err(error)) => return Err(error),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Receives and checks the bytes from [`send`].
async fn receive(stream: &mut Stream, window: Window, recorder: &mut Recorder) -> io::Result<()> {
    let pattern = Pattern::new();
    let mut offset = 0u64;
    while let Some(left) = window.left() {
        let mut received = match timeout(left, stream.received()).await {
            Err(_) => break,
            Ok(Err(_)) if is_nearly_over(window) => break,
            Ok(received) => received?,
        };
        if !received.has_remaining() {
            match is_nearly_over(window) {
                true => break,
                false => return Err(io::Error::other(server::early(window))),
            }
        }
        recorder.count(received.remaining());
        while received.has_remaining() {
            let bytes = received.chunk();
            if let Some(at) = pattern.difference(offset, bytes) {
                return Err(io::Error::other(format!(
                    "byte {at} differs from the sent one"
                )));
            }
            let len = bytes.len();
            offset += len as u64;
            received.advance(len);
        }
    }
    Ok(())
}

/// Whether the other end may already have stopped by the same clock.
fn is_nearly_over(window: Window) -> bool {
    const CLOSING: Duration = Duration::from_millis(500);
    window.left().is_none_or(|left| left < CLOSING)
}
