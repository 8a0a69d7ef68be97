//! A QUIC server and client over given sockets.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime};
use sumlink_transport::{SecretKey, tls};

/// The outcome of a download.
pub(crate) struct Download {
    pub(crate) bytes: Vec<u8>,
    /// Packets of the server, and those that it counted as lost.
    pub(crate) sent_packets: u64,
    pub(crate) lost_packets: u64,
    /// Reductions of the server's window.
    pub(crate) congestion_events: u64,
}

/// Sends `bytes` from a server on one socket to a client on the other, which connects to `address`.
pub(crate) fn download(
    server: UdpSocket,
    client: UdpSocket,
    address: &str,
    bytes: Vec<u8>,
) -> Download {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let limit = Duration::from_secs(60);
    let address = address.parse().unwrap();
    let transfer = async move {
        let (server_key, client_key) = (SecretKey::generate(), SecretKey::generate());
        let (server_key, client_key) = (server_key.unwrap(), client_key.unwrap());
        let authorized = tls::Authorized::new([client_key.public()]);
        let tls = tls::server_config(&server_key, &authorized);
        let config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        let server = endpoint(server, Some(config));
        let sending = tokio::spawn(async move {
            let connection = server.accept().await.unwrap().await.unwrap();
            let mut stream = connection.open_uni().await.unwrap();
            stream.write_all(&bytes).await.unwrap();
            stream.finish().unwrap();
            // The client closes the connection when it has everything.
            connection.closed().await;
            connection.stats().path
        });
        let tls = tls::client_config(&client_key, &server_key.public());
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let client = endpoint(client, None);
        let connecting = client.connect_with(config, address, &tls::server_name().to_str());
        let connection = connecting.unwrap().await.unwrap();
        let mut stream = connection.accept_uni().await.unwrap();
        let bytes = stream.read_to_end(usize::MAX).await.unwrap();
        connection.close(0u32.into(), b"");
        client.wait_idle().await;
        let path = sending.await.unwrap();
        Download {
            bytes,
            sent_packets: path.sent_packets,
            lost_packets: path.lost_packets,
            congestion_events: path.congestion_events,
        }
    };
    runtime
        .block_on(async { tokio::time::timeout(limit, transfer).await })
        .expect("the download takes too long")
}

pub(crate) fn endpoint(socket: UdpSocket, server: Option<ServerConfig>) -> Endpoint {
    socket.set_read_timeout(None).unwrap();
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new(EndpointConfig::default(), server, socket, runtime).unwrap()
}
