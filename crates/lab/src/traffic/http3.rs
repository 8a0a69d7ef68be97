//! Bulk transfers over HTTP/3 (RFC 9114), with quinn's default congestion control, CUBIC.
//!
//! Both ends authenticate with raw public keys, as sumlink's carriers do. The windows of flow
//! control are so large that only congestion control limits the rate.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::StreamError;
use h3::server::RequestStream;
use h3_quinn::{BidiStream, OpenStreams};
use http::{Request as HttpRequest, Response};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use socket2::SockRef;
use sumlink_transport::tls;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

use crate::error::LabError;
use crate::prose::note;

use super::datagrams::prepare;
use super::pattern::Pattern;
use super::record::Recorder;
use super::server::{early, report};
use super::{Http3, Keys, Request, Route, Window};

/// The protocol in the TLS handshake (RFC 9114, section 3.1).
const ALPN: &[u8] = b"h3";
/// The header of a request that has the parameters of the transfer, as JSON.
const PARAMETERS: &str = "sumlink-lab-request";
/// Bytes given to the library at once.
const CHUNK: usize = 64 << 10;
/// Window of flow control: more than 1 s at 400 Mbit/s.
const FLOW_WINDOW: u32 = 64 << 20;
/// Pause after an attempt to connect failed.
const RETRY: Duration = Duration::from_millis(100);
/// Tolerance for the end of the other side.
const CLOSING: Duration = Duration::from_millis(500);

/// Serves transfers in the background until the process ends; returns the address.
pub(crate) fn serve(parameters: Http3) -> Result<SocketAddr, LabError> {
    let Http3 { listen, keys } = parameters;
    let failed = |error: String| LabError::system(format!("HTTP/3 on {listen}"), error);
    let config = server_config(&keys).map_err(failed)?;
    let socket = UdpSocket::bind(listen).map_err(|error| failed(error.to_string()))?;
    let runtime = runtime().map_err(failed)?;
    let endpoint = {
        let _inside = runtime.enter();
        endpoint(socket, Some(config)).map_err(failed)?
    };
    let local = endpoint.local_addr();
    let local = local.map_err(|error| failed(error.to_string()))?;
    thread::spawn(move || {
        LocalSet::new().block_on(&runtime, async {
            while let Some(incoming) = endpoint.accept().await {
                spawn_local(async {
                    if let Err(error) = serve_connection(incoming).await {
                        note!("HTTP/3: {error}");
                    }
                });
            }
        });
    });
    Ok(local)
}

/// The client's side of one transfer; returns when the run is over.
pub(super) fn run(
    route: &Route,
    keys: &Keys,
    request: &Request,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let window = window(request);
    let server = route.http3.ok_or("the route carries no HTTP/3")?;
    let config = client_config(keys)?;
    runtime()?.block_on(async {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|e| e.to_string())?;
        if let Some(link) = route.device() {
            let bound = SockRef::from(&socket).bind_device(Some(link.as_bytes()));
            bound.map_err(|error| error.to_string())?;
        }
        let endpoint = endpoint(socket, None)?;
        let Some(connection) = connect(&endpoint, config, server, window).await else {
            return Ok(());
        };
        recorder.record.connected = true;
        let opened = h3::client::new(h3_quinn::Connection::new(connection.clone())).await;
        let (mut driver, mut requests) = opened.map_err(|error| error.to_string())?;
        let driving = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        let moved = transfer(&mut requests, request, window, recorder).await;
        connection.close(0u32.into(), b"");
        driving.abort();
        endpoint.wait_idle().await;
        moved
    })
}

/// Connects, with repeated attempts until the run is over.
async fn connect(
    endpoint: &Endpoint,
    config: ClientConfig,
    server: SocketAddr,
    window: Window,
) -> Option<quinn::Connection> {
    let name = tls::server_name();
    while let Some(left) = window.left() {
        if let Ok(connecting) = endpoint.connect_with(config.clone(), server, &name.to_str())
            && let Ok(Ok(connection)) = timeout(left, connecting).await
        {
            return Some(connection);
        }
        tokio::time::sleep(RETRY.min(left)).await;
    }
    None
}

async fn transfer(
    requests: &mut SendRequest<OpenStreams, Bytes>,
    request: &Request,
    window: Window,
    recorder: &mut Recorder,
) -> Result<(), String> {
    let text = serde_json::to_string(request).map_err(|error| error.to_string())?;
    let method = if request.down { "GET" } else { "POST" };
    let head = HttpRequest::builder()
        .method(method)
        .uri("https://sumlink-lab/bulk")
        .header(PARAMETERS, text)
        .body(())
        .map_err(|error| error.to_string())?;
    let mut stream = requests
        .send_request(head)
        .await
        .map_err(|e| e.to_string())?;
    if !request.down {
        return send_until_over(window, async |part| stream.send_data(part).await).await;
    }
    stream.finish().await.map_err(|error| error.to_string())?;
    if let Some(left) = window.left() {
        match timeout(left, stream.recv_response()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return unless_over(window, &error.to_string()),
            Err(_) => return Ok(()),
        }
    }
    receive_until_over(window, recorder, async || {
        let data = stream.recv_data().await?;
        Ok::<_, StreamError>(data.map(|mut data| data.copy_to_bytes(data.remaining())))
    })
    .await
}

async fn serve_connection(incoming: quinn::Incoming) -> Result<(), String> {
    let connection = incoming.await.map_err(|error| error.to_string())?;
    let served = h3::server::builder()
        .build(h3_quinn::Connection::new(connection))
        .await;
    let mut served: h3::server::Connection<_, Bytes> = served.map_err(|error| error.to_string())?;
    while let Ok(Some(resolver)) = served.accept().await {
        spawn_local(async move {
            let answered = match resolver.resolve_request().await {
                Ok((head, stream)) => answer(&head, stream).await,
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = answered {
                note!("HTTP/3: {error}");
            }
        });
    }
    Ok(())
}

async fn answer(
    head: &HttpRequest<()>,
    mut stream: RequestStream<BidiStream<Bytes>, Bytes>,
) -> Result<(), String> {
    let text = head
        .headers()
        .get(PARAMETERS)
        .map(http::HeaderValue::as_bytes);
    let request: Request = serde_json::from_slice(text.unwrap_or_default())
        .map_err(|error| format!("{PARAMETERS}: {error}"))?;
    let window = window(&request);
    if request.down {
        let response = Response::builder()
            .body(())
            .map_err(|error| error.to_string())?;
        stream
            .send_response(response)
            .await
            .map_err(|error| error.to_string())?;
        return send_until_over(window, async |part| stream.send_data(part).await).await;
    }
    let mut recorder = Recorder::new(request.flow, window, request.interval_ms).with_arrivals();
    recorder.record.connected = true;
    let received = receive_until_over(window, &mut recorder, async || {
        let data = stream.recv_data().await?;
        Ok::<_, StreamError>(data.map(|mut data| data.copy_to_bytes(data.remaining())))
    })
    .await;
    recorder.record.error = received.err();
    report(&recorder).map_err(|error| error.to_string())
}

/// Sends the content with `send` until the run is over.
async fn send_until_over(
    window: Window,
    mut send: impl AsyncFnMut(Bytes) -> Result<(), StreamError>,
) -> Result<(), String> {
    let pattern = Pattern::new();
    let mut offset = 0;
    while let Some(left) = window.left() {
        match timeout(left, send(chunk(&pattern, &mut offset))).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return unless_over(window, &error.to_string()),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Counts and compares the parts that `next` returns until the run is over.
async fn receive_until_over(
    window: Window,
    recorder: &mut Recorder,
    mut next: impl AsyncFnMut() -> Result<Option<Bytes>, StreamError>,
) -> Result<(), String> {
    let pattern = Pattern::new();
    let mut offset = 0;
    while let Some(left) = window.left() {
        match timeout(left, next()).await {
            Ok(Ok(Some(data))) => {
                recorder.count(data.len());
                if let Some(at) = pattern.difference(offset, &data) {
                    return Err(format!("byte {at} differs from the sent one"));
                }
                offset += data.len() as u64;
            }
            Ok(Ok(None)) => return unless_over(window, &early(window)),
            Ok(Err(error)) => return unless_over(window, &error.to_string()),
            Err(_) => break,
        }
    }
    Ok(())
}

/// The next part of the content.
fn chunk(pattern: &Pattern, offset: &mut u64) -> Bytes {
    let mut bytes = vec![0; CHUNK];
    pattern.fill(*offset, &mut bytes);
    *offset += CHUNK as u64;
    bytes.into()
}

/// An error, unless the run is nearly over: the other end stops by the same clock.
fn unless_over(window: Window, what: &str) -> Result<(), String> {
    match window.left() {
        Some(left) if left > CLOSING => Err(what.to_owned()),
        _ => Ok(()),
    }
}

fn window(request: &Request) -> Window {
    Window {
        epoch_ns: request.epoch_ns,
        duration_ms: request.duration_ms,
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build()
        .map_err(|error| error.to_string())
}

fn endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> Result<Endpoint, String> {
    prepare(&socket).map_err(|error| error.to_string())?;
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), server, socket, runtime);
    endpoint.map_err(|error| error.to_string())
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(FLOW_WINDOW.into())
        .receive_window(FLOW_WINDOW.into())
        .send_window(FLOW_WINDOW.into());
    Arc::new(transport)
}

fn server_config(keys: &Keys) -> Result<ServerConfig, String> {
    let authorized = tls::Authorized::new([keys.peer]);
    let mut config = (*tls::server_config(&keys.secret()?, &authorized)).clone();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(config).map_err(|error| error.to_string())?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport());
    Ok(config)
}

fn client_config(keys: &Keys) -> Result<ClientConfig, String> {
    let mut config = (*tls::client_config(&keys.secret()?, &keys.peer)).clone();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(config).map_err(|error| error.to_string())?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(transport());
    Ok(config)
}

#[cfg(test)]
mod tests {
    use sumlink_transport::SecretKey;

    use super::super::{Job, now_ns};
    use super::*;

    #[test]
    fn a_download_and_an_upload_are_compared_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let (path, key) = (directory.path().join(name), SecretKey::generate().unwrap());
            key.save(&path).unwrap();
            (path, key.public())
        };
        let (client, server) = (key("client"), key("server"));
        let of_client = Keys {
            own: client.0.clone(),
            peer: server.1,
        };
        let of_server = Keys {
            own: server.0.clone(),
            peer: client.1,
        };
        let listen = ([127, 0, 0, 1], 0).into();
        let address = serve(Http3 {
            listen,
            keys: of_server,
        })
        .unwrap();
        let route = Route {
            http3: Some(address),
            ..Route::direct(address)
        };
        let count = |down: bool, duration_ms| {
            let window = Window {
                epoch_ns: now_ns(),
                duration_ms,
            };
            let request = Request {
                flow: u32::from(!down),
                epoch_ns: window.epoch_ns,
                duration_ms,
                interval_ms: 100,
                down,
                job: Job::Bulk,
            };
            let mut recorder = Recorder::new(request.flow, window, 100);
            run(&route, &of_client, &request, &mut recorder).unwrap();
            let bytes: u64 = recorder.record.buckets.iter().sum();
            recorder.record.connected.then_some(bytes)
        };
        // On a busy machine the handshake may take longer than the shortest one.
        let mut durations = [700, 3_000, 12_000].into_iter();
        assert!(durations.any(|duration_ms| count(true, duration_ms) > Some(0)));
        // The server counts uploads.
        let mut durations = [700, 3_000, 12_000].into_iter();
        assert!(durations.any(|duration_ms| count(false, duration_ms) == Some(0)));
    }
}
