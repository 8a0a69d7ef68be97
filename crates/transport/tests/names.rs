//! What networks see of connections before they are encrypted.

use std::time::Duration;

use sumlink_transport::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use sumlink_transport::tls::HandshakeError;
use sumlink_transport::{CarrierError, Client, ConnectError, SecretKey, Server};

/// A server that accepts these protocols as well, and the configuration of a client.
async fn pair(accepted: &[&str]) -> ClientConfig {
    let [key, client] = [(); 2].map(|()| SecretKey::generate().unwrap());
    let server_key = key.public();
    let authorized = vec![AuthorizedClient {
        key: client.public(),
        name: String::new(),
        publish: Vec::new(),
    }];
    let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), key, authorized)
        .name("a.example.org".to_owned())
        .alpn(texts(accepted));
    let server = Server::bind(config).await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(server.run(std::future::pending()));
    ClientConfig::new(address.to_string(), server_key, client).links(vec![LinkConfig::named("lo")])
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Both kinds of carriers work with names that other programs have, too.
#[tokio::test(flavor = "multi_thread")]
async fn both_sides_may_agree_on_other_protocols() {
    let config = pair(&["h2", "h3"]).await;
    // The server still accepts its own names.
    for alpn in [&["h2", "http/1.1"][..], &[]] {
        let config = config
            .clone()
            .sni("www.example.org".to_owned())
            .alpn(texts(alpn))
            .datagram_alpn(texts(if alpn.is_empty() { &[] } else { &["h3"] }));
        let client = Client::connect(config).await.unwrap();
        let over_udp = async {
            loop {
                let status = client.status().await;
                assert_eq!(status.server_name, "a.example.org");
                if status
                    .datagram_paths
                    .iter()
                    .any(|path| path.carrier == "udp")
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let over_udp = tokio::time::timeout(Duration::from_secs(30), over_udp);
        over_udp.await.expect("a datagram carrier");
        client.close().await;
    }
}

#[tokio::test]
async fn a_server_refuses_protocols_that_it_does_not_know() {
    let config = pair(&[]).await.alpn(texts(&["h2"]));
    let error = Client::connect(config).await.unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::Carrier {
                error: CarrierError::Tls(HandshakeError::VersionMismatch),
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("the same `alpn`"), "{error}");
}
