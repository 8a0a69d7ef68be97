//! Connections that fail say why, and have no effect on others.

use sumlink_transport::config::ClientConfig;
use sumlink_transport::tls::HandshakeError;
use sumlink_transport::{CarrierError, Client, ConnectError, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{Running, echo};

#[tokio::test]
async fn a_wrong_server_key_is_named() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let mut config = server.client(&key);
    config.server_key = SecretKey::generate().unwrap().public();
    let error = Client::connect(config).await.unwrap_err();
    let wrong = matches!(
        &error,
        ConnectError::Carrier { error: CarrierError::Tls(HandshakeError::WrongServerKey { seen, .. }), .. }
            if *seen == server.key
    );
    assert!(wrong, "{error}");
}

#[tokio::test]
async fn an_unknown_client_is_refused_without_effect_on_others() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    let stranger = SecretKey::generate().unwrap();
    let error = Client::connect(server.client(&stranger)).await.unwrap_err();
    let refused = matches!(
        &error,
        ConnectError::Carrier {
            error: CarrierError::Tls(HandshakeError::NotAuthorized { .. }),
            ..
        }
    );
    assert!(refused, "{error}");
    stream.write_all(b"still here").await.unwrap();
    let mut back = [0; 10];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"still here");
}

#[tokio::test]
async fn garbage_before_tls_costs_the_others_nothing() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 5000],
        &[0x16, 3, 1, 0xff, 0xff],
    ] {
        let mut tcp = TcpStream::connect(server.address).await.unwrap();
        tcp.write_all(garbage).await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // An alert or a reset both count as the end.
        let _ = tcp.read_to_end(&mut answer).await;
    }
    client.open_stream(echo().await).await.unwrap();
}

#[tokio::test]
async fn bad_addresses_and_links_say_what_is_wrong() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |_| {}).await;
    let connect = async |change: &dyn Fn(&mut ClientConfig)| {
        let mut config = server.client(&key);
        change(&mut config);
        Client::connect(config).await.unwrap_err().to_string()
    };
    let no_port = connect(&|config| config.server = "localhost".to_owned()).await;
    assert!(no_port.contains("HOST:PORT"), "{no_port}");
    let no_name = connect(&|config| config.server = "does-not-exist.invalid:1".to_owned()).await;
    assert!(no_name.contains("does-not-exist.invalid"), "{no_name}");
    let no_link = connect(&|config| config.links[0].name = "wlan99".to_owned()).await;
    assert!(no_link.contains("wlan99"), "{no_link}");
    let no_control = connect(&|config| config.congestion = Some("fastest".to_owned())).await;
    assert!(no_control.contains("fastest"), "{no_control}");
    let no_scheduler = connect(&|config| config.session.scheduler = "fastest".to_owned()).await;
    assert!(no_scheduler.contains("fbdt"), "{no_scheduler}");
    let unused = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let refused = connect(&|config| config.server = unused.to_string()).await;
    assert!(refused.contains("refused"), "{refused}");
}
