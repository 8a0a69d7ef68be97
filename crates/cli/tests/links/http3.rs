//! HTTP/3 through the bond: client and server of the crate h3, which know nothing of sumlink.

use std::future::poll_fn;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig};
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_transport::{SecretKey, tls};

use crate::datagrams::{FORWARD, with_forward};
use crate::quic::endpoint;

/// Longest time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(60);
const BYTES: usize = 2_000_000;

/// Two keys that know each other, with the protocol name of HTTP/3.
fn configs() -> (ServerConfig, ClientConfig) {
    let (server_key, client_key) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let authorized = tls::Authorized::new([client_key.public()]);
    let mut server = (*tls::server_config(&server_key, &authorized)).clone();
    let mut client = (*tls::client_config(&client_key, &server_key.public())).clone();
    server.alpn_protocols = vec![b"h3".to_vec()];
    client.alpn_protocols = vec![b"h3".to_vec()];
    let server = QuicServerConfig::try_from(server).unwrap();
    let client = QuicClientConfig::try_from(client).unwrap();
    (
        ServerConfig::with_crypto(Arc::new(server)),
        ClientConfig::new(Arc::new(client)),
    )
}

/// Answers one request with its path, and a body of pattern bytes.
async fn serve(endpoint: Endpoint) {
    let connection = endpoint.accept().await.unwrap().await.unwrap();
    let builder = h3::server::builder();
    let built = builder.build(h3_quinn::Connection::new(connection)).await;
    let mut connection: h3::server::Connection<_, Bytes> = built.unwrap();
    let resolver = connection.accept().await.unwrap().unwrap();
    let (request, mut stream) = resolver.resolve_request().await.unwrap();
    let response = http::Response::builder()
        .header("asked", request.uri().path())
        .body(());
    stream.send_response(response.unwrap()).await.unwrap();
    stream
        .send_data(Pattern::bytes(21, BYTES).into())
        .await
        .unwrap();
    stream.finish().await.unwrap();
    // The client closes the connection when it has everything.
    let _ = connection.accept().await;
}

async fn fetch(server: UdpSocket, client: UdpSocket) -> (String, Vec<u8>) {
    let (server_config, client_config) = configs();
    let serving = tokio::spawn(serve(endpoint(server, Some(server_config))));
    let endpoint = endpoint(client, None);
    let to = FORWARD.parse().unwrap();
    let connecting = endpoint.connect_with(client_config, to, &tls::server_name().to_str());
    let connection = connecting.unwrap().await.unwrap();
    let opened = h3::client::new(h3_quinn::Connection::new(connection)).await;
    let (mut driver, mut requests) = opened.unwrap();
    let driving = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let request = http::Request::builder()
        .uri("https://example.org/a/file")
        .body(());
    let mut stream = requests.send_request(request.unwrap()).await.unwrap();
    stream.finish().await.unwrap();
    let response = stream.recv_response().await.unwrap();
    let asked = response.headers()["asked"].to_str().unwrap().to_owned();
    let mut body = Vec::new();
    while let Some(mut part) = stream.recv_data().await.unwrap() {
        body.extend_from_slice(&part.copy_to_bytes(part.remaining()));
    }
    drop(requests);
    let _ = driving.await;
    serving.await.unwrap();
    (asked, body)
}

#[test]
fn a_file_is_fetched_over_http3() {
    let Some((bond, server, client)) = with_forward() else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fetched =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, fetch(server, client)).await });
    let (asked, body) = fetched.expect("the file takes too long");
    assert_eq!(asked, "/a/file");
    assert!(body == Pattern::bytes(21, BYTES), "the file is damaged");
    bond.stop();
}
