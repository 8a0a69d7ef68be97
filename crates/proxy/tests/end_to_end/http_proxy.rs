//! An HTTP proxy port, as seen by programs.

use crate::common::{FAILING, Proxy, echo, exchange, origin, rest, within};
use sumlink_proxy::{OpenError, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn connect_makes_a_tunnel_over_both_families() {
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let target = echo(listen).await;
        let proxy = Proxy::start(listen, Service::HttpProxy).await;
        let mut client = proxy.connect().await;
        let sent = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nahead");
        let expected = [established, &b"ahead"[..]].concat();
        exchange(&mut client, sent.as_bytes(), &expected).await;
        exchange(&mut client, b"hello", b"hello").await;
    }
}

#[tokio::test]
async fn only_the_first_plain_request_reaches_its_origin() {
    let (listener, target) = origin("127.0.0.1:0").await;
    let proxy = Proxy::start("127.0.0.1:0", Service::HttpProxy).await;
    let mut client = proxy.connect().await;
    let request = format!(
        "POST http://{target}/form HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\n\
         Content-Length: 8\r\n\r\nbody"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut accepted, _) = within(listener.accept()).await.unwrap();
    let expected = format!(
        "POST /form HTTP/1.1\r\nHost: {target}\r\nContent-Length: 8\r\n\
         Connection: close\r\n\r\nbody"
    );
    exchange(&mut accepted, b"", expected.as_bytes()).await;

    // The rest of the body, and a request meant for another host. The proxy does not close the
    // direction after the body: the origin would consider the request canceled.
    client
        .write_all(b"bodyGET http://secret.test/ HTTP/1.1\r\n\r\n")
        .await
        .unwrap();
    exchange(&mut accepted, b"", b"body").await;
    let response = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nanswer";
    accepted.write_all(response).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut accepted).await.unwrap(), b"");
    drop(accepted);
    assert_eq!(rest(&mut client).await.unwrap(), response);
}

#[tokio::test]
async fn a_request_without_a_body_is_not_half_closed() {
    let (listener, target) = origin("127.0.0.1:0").await;
    let proxy = Proxy::start("127.0.0.1:0", Service::HttpProxy).await;
    let mut client = proxy.connect().await;
    let request = format!("GET http://{target} HTTP/1.1\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut accepted, _) = within(listener.accept()).await.unwrap();
    let expected = format!("GET / HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n");
    exchange(&mut accepted, b"", expected.as_bytes()).await;
    let response = b"HTTP/1.1 204 No Content\r\n\r\n";
    exchange(&mut accepted, response, b"").await;
    exchange(&mut client, b"", response).await;
    let mut end = [0];
    tokio::select! {
        biased;
        read = accepted.read(&mut end) => panic!("the origin reads {read:?}"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test]
async fn failures_have_their_status_codes() {
    let proxy = Proxy::start("127.0.0.1:0", Service::HttpProxy).await;
    let failing = FAILING.map(|(name, error)| {
        let status = match error {
            OpenError::NotAllowed => 403,
            OpenError::TimedOut => 504,
            OpenError::LimitReached | OpenError::SessionClosed => 503,
            _ => 502,
        };
        let request = format!("CONNECT {name}:443 HTTP/1.1\r\n\r\n");
        (request.into_bytes(), status, format!("\r\n\r\n{error}\n"))
    });
    let bad = |request: &str, status, text: &str| (request.into(), status, text.to_owned());
    let long = format!("GET http://a/{} HTTP/1.1\r\n", "a".repeat(100_000));
    let refused = [
        bad("GET http://forbidden.test/ HTTP/1.1\r\n\r\n", 403, "policy"),
        bad(
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            400,
            "proxy port, not a web server",
        ),
        bad("CONNECT a HTTP/1.1\r\n\r\n", 400, "no port"),
        bad("nonsense\r\n\r\n", 400, "not an HTTP/1.1 request"),
        bad("\x05\x01\x00", 400, "SOCKS"),
        bad("\x16\x03\x01", 400, "TLS"),
        bad(&long, 431, "longer than"),
    ];
    for (request, status, text) in failing.into_iter().chain(refused) {
        let mut client = proxy.connect().await;
        client.write_all(&request).await.unwrap();
        let response = String::from_utf8(rest(&mut client).await.unwrap()).unwrap();
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{response}"
        );
        assert!(response.contains(&text), "{response}");
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}

#[tokio::test(start_paused = true)]
async fn an_endless_request_head_is_answered() {
    let proxy = Proxy::start("127.0.0.1:0", Service::HttpProxy).await;
    let mut client = proxy.connect().await;
    client.write_all(b"CONNECT exam").await.unwrap();
    client.shutdown().await.ok();
    let mut client = proxy.connect().await;
    client.write_all(b"CONNECT exam").await.unwrap();
    let mut response = [0; 12];
    client.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 408");
}
