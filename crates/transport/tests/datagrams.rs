//! Datagram carriers at a server, over real sockets on loopback.

use std::time::Duration;

use sumlink_engine::PathId;
use sumlink_transport::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use sumlink_transport::quic::{QuicDialer, QuicError};
use sumlink_transport::{CarrierError, Client, RefuseCode, SecretKey, Server};

const PATIENCE: Duration = Duration::from_secs(30);

/// Another client is authorized, too, and knows the identifier of the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_join_the_session_of_another() {
    let keys = [(); 2].map(|()| SecretKey::generate().unwrap());
    let [owner, other] = &keys;
    let authorized = keys.iter().map(|key| AuthorizedClient {
        key: key.public(),
        name: String::new(),
        publish: Vec::new(),
    });
    let key = SecretKey::generate().unwrap();
    let server_key = key.public();
    let listen = "127.0.0.1:0".parse().unwrap();
    let config = ServerConfig::new(listen, key, authorized.collect());
    let server = Server::bind(config).await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(server.run(std::future::pending()));
    let config = ClientConfig::new(address.to_string(), server_key, owner.clone())
        .links(vec![LinkConfig::named("lo")]);
    let client = Client::connect(config).await.unwrap();
    let session = client.status().await.session;
    let session = u128::from_str_radix(&session, 16).unwrap().to_be_bytes();
    let join = async |key: &SecretKey, session| {
        let dialer = QuicDialer::new(key.clone(), &server_key);
        let opened = dialer.connect(Some("lo"), address, None, PATIENCE).await;
        let opened = opened.unwrap();
        opened.hello(session, PathId(77), "lo".to_owned()).await
    };
    let refused = join(other, session).await;
    assert!(
        matches!(
            refused,
            Err(QuicError::Join(CarrierError::Refused {
                code: RefuseCode::NoSuchSession,
                ..
            }))
        ),
        "{refused:?}"
    );
    // The session is known, and open to its owner.
    let joined = join(owner, session).await;
    assert!(joined.is_ok(), "{joined:?}");
    drop(client);
}
