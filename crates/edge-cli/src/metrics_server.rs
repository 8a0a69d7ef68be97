//! Metrics over HTTP for Prometheus and other readers of its text format, if the file has
//! `metrics`.
//!
//! `GET /metrics` is answered, one request per connection. There is no authentication: any host
//! that reaches the port reads link names and counters, so use a loopback address.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use sumlink::slots::Slots;
use sumlink_transport::accept::Accepting;
use sumlink_util::plain;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Limit on open connections; one more ends the oldest.
const MAX_CONNECTIONS: usize = 32;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 8 << 10;

/// Time limit of a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Content type of the output of `text::encode`.
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why metrics cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for metrics: {}", hint(reason))]
pub(crate) struct MetricsError {
    address: SocketAddr,
    reason: io::Error,
}

fn hint(reason: &io::Error) -> String {
    match reason.kind() {
        io::ErrorKind::AddrInUse => {
            "the port is taken; choose another one in `metrics`, or stop the \
            program that has it (`ss -ltnp` shows which)"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "not permitted; choose a port above 1023, or grant CAP_NET_BIND_SERVICE".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address (`ip address` shows them)".to_owned()
        }
        _ => plain(reason).to_string(),
    }
}

/// A port that is bound and not yet served.
#[derive(Debug)]
pub(crate) struct MetricsServer {
    listener: TcpListener,
}

impl MetricsServer {
    /// Binds the port.
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self, MetricsError> {
        let failed = |reason| MetricsError { address, reason };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self { listener })
    }

    /// Answers requests without end, each with the current values of the registry.
    pub(crate) async fn serve(&self, registry: Registry) {
        let registry = Arc::new(registry);
        let mut slots = Slots::new(MAX_CONNECTIONS);
        let mut accepting = Accepting::new("the metrics");
        loop {
            let (stream, _) = accepting.next(&self.listener).await;
            let slot = slots.enter();
            let registry = Arc::clone(&registry);
            tokio::spawn(async move {
                tokio::select! {
                    done = tokio::time::timeout(PATIENCE, answer(stream, &registry)) => {
                        if let Ok(Err(error)) = done {
                            tracing::debug!(%error, "metrics connection");
                        }
                    }
                    Ok(()) = slot => {}
                }
            });
        }
    }
}

async fn answer(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    let Some(head) = read_head(&mut stream).await? else {
        return Ok(());
    };
    let (status, content, body) = respond(&head, registry);
    let length = body.len();
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\nConnection: close\r\n"
    );
    if status.starts_with("405") {
        response.push_str("Allow: GET, HEAD\r\n");
    }
    response.push_str("\r\n");
    if !head.starts_with(b"HEAD ") {
        response.push_str(&body);
    }
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// Reads up to the empty line or the limit; `None` if the connection ends before.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() <= MAX_HEAD {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

/// Status line, content type and body.
fn respond(head: &[u8], registry: &Registry) -> (&'static str, &'static str, String) {
    const TEXT: &str = "text/plain; charset=utf-8";
    if head.len() > MAX_HEAD {
        let body = "the request is too long\n".to_owned();
        return ("431 Request Header Fields Too Large", TEXT, body);
    }
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let [method, target, version] = words[..] else {
        return ("400 Bad Request", TEXT, "invalid request\n".to_owned());
    };
    if !version.starts_with(b"HTTP/1.") {
        return ("400 Bad Request", TEXT, "HTTP/1 expected\n".to_owned());
    }
    if method != b"GET" && method != b"HEAD" {
        let body = "metrics are read-only\n".to_owned();
        return ("405 Method Not Allowed", TEXT, body);
    }
    let path = target.split(|&byte| byte == b'?').next();
    if path != Some(b"/metrics") {
        return ("404 Not Found", TEXT, "try /metrics\n".to_owned());
    }
    let mut body = String::new();
    match encode(&mut body, registry) {
        Ok(()) => ("200 OK", CONTENT, body),
        Err(error) => ("500 Internal Server Error", TEXT, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_paths_are_answered() {
        let registry = Registry::default();
        let long = format!("GET /metrics HTTP/1.1\r\nA: {}", "a".repeat(MAX_HEAD));
        for (head, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200 OK"),
            ("HEAD /metrics HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET /metrics?a=b HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/2\r\n\r\n", "400 Bad Request"),
            ("\u{1}\u{0}\r\n\r\n", "400 Bad Request"),
            (&long, "431 Request Header Fields Too Large"),
        ] {
            assert_eq!(respond(head.as_bytes(), &registry).0, status, "{head:.40}");
        }
    }

    #[tokio::test]
    async fn metrics_are_read_over_http() {
        let server = MetricsServer::bind("127.0.0.1:0".parse().unwrap()).await;
        let server = server.unwrap();
        let address = server.listener.local_addr().unwrap();
        let mut registry = Registry::with_prefix("sumlink");
        let gauge = prometheus_client::metrics::gauge::ConstGauge::new(5i64);
        registry.register("flows", "Flows", gauge);
        let read = async |request: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // In pieces, as a network may deliver it.
            let (start, end) = request.split_at(request.len() / 2);
            stream.write_all(start.as_bytes()).await.unwrap();
            stream.write_all(end.as_bytes()).await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            response
        };
        let ask = async {
            // Connections without a request delay no others.
            let mut idle = Vec::new();
            for _ in 0..2 * MAX_CONNECTIONS {
                idle.push(TcpStream::connect(address).await.unwrap());
            }
            let begun = tokio::time::Instant::now();
            let response = read("GET /metrics HTTP/1.1\r\n\r\n").await;
            assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
            assert!(begun.elapsed() < PATIENCE / 2);
            for _ in 0..2 * MAX_CONNECTIONS {
                let response = read("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
                let (head, body) = response.split_once("\r\n\r\n").unwrap();
                assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
                assert!(
                    head.contains(&format!("Content-Length: {}", body.len())),
                    "{head}"
                );
                assert!(body.contains("\nsumlink_flows 5\n"), "{body}");
            }
            let response = read("HEAD /metrics HTTP/1.1\r\n\r\n").await;
            assert!(response.ends_with("\r\n\r\n"), "{response}");
        };
        tokio::select! {
            () = server.serve(registry) => panic!("serving ended"),
            () = ask => {}
        }
    }

    #[tokio::test]
    async fn a_taken_port_is_reported_on_one_line() {
        let any = "127.0.0.1:0".parse().unwrap();
        let first = MetricsServer::bind(any).await.unwrap();
        let address = first.listener.local_addr().unwrap();
        let error = MetricsServer::bind(address).await.unwrap_err().to_string();
        let expected = format!("cannot listen on {address} for metrics: the port is taken");
        assert!(
            error.starts_with(&expected) && !error.contains('\n'),
            "{error}"
        );
    }
}
