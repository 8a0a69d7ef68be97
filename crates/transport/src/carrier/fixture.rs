//! Both ends of a carrier, for tests.

use rustls::Connection;
use sumlink_engine::PathId;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::Carrier;
use crate::carrier::keys::SecretKey;
use crate::carrier::tls::{Authorized, client_config, server_config, server_name};

/// Both ends of a carrier on loopback.
pub(super) async fn carrier() -> (Carrier, Carrier) {
    let (client, server) = (
        SecretKey::generate().unwrap(),
        SecretKey::generate().unwrap(),
    );
    let authorized = Authorized::new([client.public()]);
    let connector = TlsConnector::from(client_config(&client, &server.public()));
    let acceptor = TlsAcceptor::from(server_config(&server, &authorized));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connect = async {
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await?;
        connector.connect(server_name(), tcp).await
    };
    let accept = async { acceptor.accept(listener.accept().await?.0).await };
    let (client, server) = tokio::try_join!(connect, accept).unwrap();
    let new = |tcp, tls| Carrier::new(PathId(0), "lo".to_owned(), tcp, tls, Vec::new());
    let (tcp, tls) = client.into_inner();
    let client = new(tcp, Connection::Client(tls)).unwrap();
    let (tcp, tls) = server.into_inner();
    (client, new(tcp, Connection::Server(tls)).unwrap())
}
