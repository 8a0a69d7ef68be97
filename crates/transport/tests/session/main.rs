//! Sessions over real sockets on loopback: all behavior that needs only one link.

mod carriers;
mod opens;
mod refusals;
mod schedulers;
mod sessions;
mod streams;

use std::net::SocketAddr;

use sumlink_transport::config::{AuthorizedClient, ClientConfig, LinkConfig, ServerConfig};
use sumlink_transport::egress::EgressPolicy;
use sumlink_transport::{PublicKey, SecretKey, Server, ServerHandle, Target};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A server on loopback, until it is dropped or stopped.
struct Running {
    address: SocketAddr,
    key: PublicKey,
    handle: ServerHandle,
    stop: Option<oneshot::Sender<()>>,
}

impl Running {
    async fn start(clients: &[&SecretKey], change: impl FnOnce(&mut ServerConfig)) -> Self {
        let key = SecretKey::generate().unwrap();
        let public = key.public();
        let authorized = clients.iter().map(|key| AuthorizedClient {
            key: key.public(),
            name: String::new(),
            publish: Vec::new(),
        });
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut config = ServerConfig::new(listen, key, authorized.collect())
            .egress(EgressPolicy::new(["allow 127.0.0.0/8".parse().unwrap()]));
        change(&mut config);
        let server = Server::bind(config).await.unwrap();
        let (address, handle) = (server.local_addr().unwrap(), server.handle());
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Self {
            address,
            key: public,
            handle,
            stop: Some(stop),
        }
    }

    fn client(&self, key: &SecretKey) -> ClientConfig {
        ClientConfig::new(self.address.to_string(), self.key, key.clone())
            .links(vec![LinkConfig::named("lo")])
    }
}

/// A target that echoes its input, and ends when its client ends.
async fn echo() -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reader, mut writer) = tcp.split();
                let _ = tokio::io::copy(&mut reader, &mut writer).await;
                let _ = writer.shutdown().await;
            });
        }
    });
    address.into()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect()
}
