//! Sessions end at a restart, by a revoked key or at a limit.

use std::time::Duration;

use sumlink_transport::config::AuthorizedClient;
use sumlink_transport::{CarrierError, Client, ConnectError, PathEvent, RefuseCode, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Running, echo};

#[tokio::test]
async fn a_client_of_a_stopped_server_connects_to_its_successor() {
    let key = SecretKey::generate().unwrap();
    let server_key = SecretKey::generate().unwrap();
    let mut server = Running::start(&[&key], |config| config.key = server_key.clone()).await;
    server.key = server_key.public();
    let client = Client::connect(server.client(&key)).await.unwrap();
    let mut events = client.events();
    let mut stream = client.open_stream(echo().await).await.unwrap();
    server.stop.take();
    loop {
        if let PathEvent::Closed { reason } = events.recv().await.unwrap().event {
            assert_eq!(reason, "the server is stopping");
            break;
        }
    }
    assert!(stream.read(&mut [0; 10]).await.is_err());
    let address = server.address;
    let again = Running::start(&[&key], |config| {
        config.key = server_key.clone();
        config.listen = address;
    })
    .await;
    assert_eq!(again.address, address);
    let mut stream = client.open_stream(echo().await).await.unwrap();
    stream.write_all(b"again").await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"again");
}

#[tokio::test]
async fn a_revoked_key_ends_its_session() {
    let (key, other) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let server = Running::start(&[&key, &other], |_| {}).await;
    let client = Client::connect(server.client(&key)).await.unwrap();
    let mut events = client.events();
    server.handle.set_authorized(&[AuthorizedClient {
        key: other.public(),
        name: String::new(),
        publish: Vec::new(),
    }]);
    loop {
        if let PathEvent::Closed { reason } = events.recv().await.unwrap().event {
            assert_eq!(reason, "the client's key is no longer authorized");
            break;
        }
    }
    Client::connect(server.client(&other)).await.unwrap();
}

#[tokio::test]
async fn sessions_of_a_client_are_limited() {
    let key = SecretKey::generate().unwrap();
    let server = Running::start(&[&key], |config| config.limits.sessions = 2).await;
    let _first = Client::connect(server.client(&key)).await.unwrap();
    let second = Client::connect(server.client(&key)).await.unwrap();
    let error = Client::connect(server.client(&key)).await.unwrap_err();
    let limited = matches!(
        &error,
        ConnectError::Carrier {
            error: CarrierError::Refused {
                code: RefuseCode::Limit,
                ..
            },
            ..
        }
    );
    assert!(limited, "{error}");
    second.close().await;
    // The server forgets the session as soon as it has read the CLOSE frame.
    let connected = async {
        while Client::connect(server.client(&key)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), connected)
        .await
        .unwrap();
}
