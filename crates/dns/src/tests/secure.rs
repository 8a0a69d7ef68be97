//! Upstreams over TLS and HTTPS.

use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::testing::address;
use crate::wire::{code, kind};

const AUTHORITY: &[u8] = include_bytes!("../../tests/certificates/ca.pem");
/// For `dns.example` and 192.0.2.53, valid until 2120.
const CERTIFICATE: &[u8] = include_bytes!("../../tests/certificates/resolver.pem");
const KEY: &[u8] = include_bytes!("../../tests/certificates/resolver.key");

fn roots() -> Roots {
    Roots::only([CertificateDer::from_pem_slice(AUTHORITY).unwrap()]).unwrap()
}

fn acceptor(protocol: &[u8]) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Resolvers that speak DNS over TLS.
fn over_tls(script: impl FnMut(&Asked) -> Reaction + Send + 'static) -> Network {
    let acceptor = acceptor(b"dot");
    Network {
        accept: Some(Arc::new(move |stream, network, target| {
            let accepting = acceptor.accept(stream);
            tokio::spawn(async move {
                if let Ok(stream) = accepting.await {
                    network.serve_stream(target, stream).await;
                }
            });
        })),
        ..Network::new(script)
    }
}

/// Resolvers that speak DNS over HTTPS, with this status and age. Each connection ends after the
/// given number of answers.
fn over_https(status: u16, age: Option<u32>, answers: usize) -> Network {
    let acceptor = acceptor(b"h2");
    let accept = move |stream, network: Network, target: Target| {
        let accepting = acceptor.accept(stream);
        tokio::spawn(async move {
            let Ok(stream) = accepting.await else {
                return;
            };
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut left = answers;
            while let Some(Ok((request, mut respond))) = connection.accept().await {
                if left == 0 {
                    return;
                }
                left -= 1;
                assert_eq!(request.method(), http::Method::POST);
                assert_eq!(request.uri().to_string(), "https://dns.example/dns-query");
                let (network, target) = (network.clone(), target.clone());
                tokio::spawn(async move {
                    let mut body = request.into_body();
                    let mut message = Vec::new();
                    while let Some(data) = body.data().await {
                        message.extend_from_slice(&data.unwrap());
                    }
                    // Padded (RFC 8467).
                    assert_eq!(message.len() % 128, 0);
                    let (_, replies) = network.react(&target, true, &message);
                    let mut head = http::Response::builder()
                        .status(status)
                        .header(http::header::CONTENT_TYPE, "application/dns-message");
                    if let Some(age) = age {
                        head = head.header(http::header::AGE, age);
                    }
                    let mut stream = respond
                        .send_response(head.body(()).unwrap(), false)
                        .unwrap();
                    for reply in replies {
                        stream.send_data(reply.into(), false).unwrap();
                    }
                    stream.send_data(Bytes::new(), true).unwrap();
                });
            }
        });
    };
    Network {
        accept: Some(Arc::new(accept)),
        ..Network::answering(Answer::records([address("192.0.2.100", 60)]))
    }
}

fn forwarder(network: &Network, address: &str) -> Forwarder {
    let upstream = Upstream::new(address.parse().unwrap(), network.clone(), &roots());
    Forwarder::with_clock(settings(), Rules::new(vec![upstream]), clock)
}

#[tokio::test]
async fn a_resolver_with_tls_is_asked_if_its_certificate_is_right() {
    for (address_of, expected) in [
        ("tls://192.0.2.53", (code::NO_ERROR, 1)),
        ("tls://198.51.100.1#dns.example", (code::NO_ERROR, 1)),
        ("tls://192.0.2.54", (code::SERVER_FAILURE, 0)),
        ("tls://192.0.2.53#other.example", (code::SERVER_FAILURE, 0)),
    ] {
        let good = Answer::records([address("192.0.2.100", 60)]);
        let network = over_tls(move |_| Reaction::Answer(good.clone()));
        let forwarder = forwarder(&network, address_of);
        for name in ["a.example", "b.example"] {
            assert_eq!(
                outcome(&forwarder, name, kind::A).await,
                expected,
                "{address_of}"
            );
        }
        if expected.1 > 0 {
            assert_eq!(*network.opened.lock().unwrap(), 1);
        }
    }
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let network = over_tls(|_| Reaction::Silence);
    let strangers = Roots::only([]).unwrap();
    let address = "tls://192.0.2.53".parse().unwrap();
    let upstream = Upstream::new(address, network.clone(), &strangers);
    let forwarder = Forwarder::new(settings(), Rules::new(vec![upstream]));
    assert_eq!(
        outcome(&forwarder, "a.example", kind::A).await,
        (code::SERVER_FAILURE, 0)
    );
    assert!(network.asked().is_empty());
}

#[tokio::test]
async fn a_resolver_with_https_is_asked_over_one_connection() {
    for address in [
        "https://dns.example/dns-query",
        "https://198.51.100.1/dns-query#dns.example",
    ] {
        let network = over_https(200, None, 100);
        let forwarder = forwarder(&network, address);
        let (one, two) = tokio::join!(
            outcome(&forwarder, "a.example", kind::A),
            outcome(&forwarder, "b.example", kind::A),
        );
        assert_eq!((one, two), ((0, 1), (0, 1)));
        assert_eq!(*network.opened.lock().unwrap(), 1);
        // The ID is 0, so that caches on the way recognize equal questions.
        assert!(network.asked().iter().all(|asked| asked.client.id == 0));
    }
}

#[tokio::test]
async fn a_connection_with_https_that_ended_is_made_again() {
    let network = over_https(200, None, 1);
    let forwarder = forwarder(&network, "https://dns.example");
    for (name, opened) in [("a.example", 1), ("b.example", 2), ("c.example", 3)] {
        assert_eq!(outcome(&forwarder, name, kind::A).await, (0, 1));
        assert_eq!(*network.opened.lock().unwrap(), opened);
    }
}

#[tokio::test]
async fn time_in_http_caches_counts() {
    let network = over_https(200, Some(25), 100);
    let forwarder = forwarder(&network, "https://dns.example");
    let reply = ask(&forwarder, "a.example", kind::A).await;
    assert_eq!(
        Message::read(&reply).unwrap().answers().next().unwrap().ttl,
        35
    );
}

#[tokio::test]
async fn an_http_error_is_a_failure() {
    let network = over_https(429, None, 100);
    let forwarder = forwarder(&network, "https://dns.example");
    assert_eq!(
        outcome(&forwarder, "a.example", kind::A).await,
        (code::SERVER_FAILURE, 0)
    );
}
