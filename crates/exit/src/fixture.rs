//! Addresses that do not answer, for tests of this crate and of `sumlink-transport`.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// A listener with a full queue: SYNs to it are dropped and never answered.
pub(crate) struct Silent {
    pub(crate) address: SocketAddr,
    _queued: Vec<TcpStream>,
    _listener: TcpListener,
}

impl Silent {
    pub(crate) async fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        let patience = Duration::from_millis(250);
        while let Ok(Ok(stream)) = tokio::time::timeout(patience, TcpStream::connect(address)).await
        {
            queued.push(stream);
        }
        Self {
            address,
            _queued: queued,
            _listener: listener,
        }
    }
}

/// A port on which nothing listens.
pub(crate) async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
