//! Connections through load balancers: the client's address is in a header of the PROXY protocol.
//!
//! Until its header has arrived, such a connection has one of the balancers' places. Then it takes
//! one of the half-open places, by the client's address, as a direct connection does from its first
//! packet on.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

use super::Shared;
use super::half_open::HalfOpen;
use crate::api::config::HalfOpenLimits;
use crate::carrier::handshake::{CarrierError, within};
use crate::local::proxy_header::{self, Origin, ProxyHeaderError};

/// Time for the header, which balancers send at once.
const PATIENCE: Duration = Duration::from_secs(3);

/// The places of connections without their headers: as many as half-open ones, for each balancer.
pub(super) fn places(limits: &HalfOpenLimits) -> HalfOpenLimits {
    HalfOpenLimits {
        reserved: 0,
        per_address: limits.total,
        ..*limits
    }
}

impl Shared {
    /// A place for a new connection.
    pub(super) fn admit(&self, from: SocketAddr) -> HalfOpen {
        match self.config.is_balancer(from.ip()) {
            true => self.balanced.admit(from.ip()),
            false => self.half_open.admit(from.ip()),
        }
    }

    /// The address of a connection's client, for which the connection has a place from then on.
    /// `Ok(None)` is a balancer that only checks whether the server accepts connections.
    pub(super) async fn origin(
        &self,
        tcp: &mut TcpStream,
        from: SocketAddr,
        guard: &mut HalfOpen,
    ) -> Result<Option<SocketAddr>, Option<CarrierError>> {
        if !self.config.is_balancer(from.ip()) {
            return Ok(Some(from));
        }
        let patience = PATIENCE.min(guard.patience);
        let read = tokio::select! {
            read = within(patience, proxy_header::read(tcp)) => read.map_err(Some)?,
            () = guard.evicted() => {
                let _ = tcp.set_zero_linger();
                return Err(None);
            }
        };
        let origin = match read {
            Ok(Origin::Peer(peer)) => peer,
            Ok(Origin::Balancer) if ends(tcp, patience).await => return Ok(None),
            Ok(Origin::Balancer) => from,
            Err(ProxyHeaderError::Nothing) => return Ok(None),
            Err(ProxyHeaderError::Io(error))
                if error.kind() == std::io::ErrorKind::ConnectionReset =>
            {
                return Ok(None);
            }
            Err(error) => return Err(Some(error.into())),
        };
        *guard = self.half_open.admit(origin.ip());
        Ok(Some(origin))
    }
}

/// Whether a connection ends without another byte.
async fn ends(tcp: &TcpStream, patience: Duration) -> bool {
    let mut byte = [0];
    let next = within(patience, tcp.peek(&mut byte)).await;
    !matches!(next, Ok(Ok(1..)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::ClientConfig as TlsConfig;
    use sumlink_engine::PathId;
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::carrier::handshake::ClientCarrier;
    use crate::carrier::keys::{PublicKey, SecretKey};
    use crate::carrier::tls;
    use crate::fixture::server_config;
    use crate::local::proxy_header::header;
    use crate::server::{Server, ServerHandle};

    /// A server behind a load balancer on this machine, and a client of it.
    struct Scene {
        handle: ServerHandle,
        address: SocketAddr,
        tls: Arc<TlsConfig>,
        key: PublicKey,
    }

    impl Scene {
        async fn new(balancers: &[&str]) -> Self {
            let [server, key] = [(); 2].map(|()| SecretKey::generate().unwrap());
            let networks = balancers.iter().map(|text| text.parse().unwrap());
            let config = server_config(&server, &key)
                .name("a.example".to_owned())
                .proxy_protocol_from(networks.collect());
            let bound = Server::bind(config).await.unwrap();
            let (handle, address) = (bound.handle(), bound.local_addr().unwrap());
            tokio::spawn(bound.run(std::future::pending()));
            let tls = tls::client_config(&key, &server.public());
            let key = key.public();
            Self {
                handle,
                address,
                tls,
                key,
            }
        }

        /// Makes a session through a balancer that sends these bytes first.
        async fn connect(&self, first: &[u8]) -> Result<(), CarrierError> {
            let mut tcp = TcpStream::connect(self.address).await?;
            tcp.write_all(first).await?;
            let name = tls::server_name();
            let client = ClientCarrier::connect(tcp, &self.tls, name, &self.key).await?;
            let hello = client.hello([1; 16], true, PathId(0), "lo".to_owned());
            let (carrier, name) = hello.await?;
            assert_eq!(name.unwrap().to_str(), "a.example");
            let shown = async {
                loop {
                    let sessions = self.handle.status().await;
                    let path = sessions.iter().flat_map(|session| &session.paths).next();
                    if let Some(path) = path {
                        return path.remote.clone();
                    }
                    tokio::task::yield_now().await;
                }
            };
            let expected = match first {
                [] | [_, _, _, _, _, _, _, _, _, _, _, _, 0x20, ..] => carrier.local.to_string(),
                _ => "203.0.113.9:50000".to_owned(),
            };
            assert_eq!(shown.await, expected);
            Ok(())
        }

        fn refused(&self) -> u64 {
            self.handle.refused().values().sum()
        }
    }

    fn proxied() -> Vec<u8> {
        header(
            "203.0.113.9:50000".parse().unwrap(),
            "192.0.2.1:443".parse().unwrap(),
        )
    }

    #[tokio::test]
    async fn the_address_in_the_header_is_that_of_the_client() {
        let line = b"PROXY TCP4 203.0.113.9 192.0.2.1 50000 443\r\n".to_vec();
        let own = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
        for first in [proxied(), line, own] {
            let scene = Scene::new(&["127.0.0.0/8"]).await;
            scene.connect(&first).await.unwrap();
            assert_eq!(scene.refused(), 0);
        }
    }

    #[tokio::test]
    async fn a_balancer_must_send_a_header_and_no_other_may() {
        let scene = Scene::new(&["127.0.0.0/8"]).await;
        scene.connect(b"").await.unwrap_err();
        assert_eq!(scene.handle.refused()["protocol"], 1);
        for others in [&["192.0.2.0/24"][..], &[]] {
            let scene = Scene::new(others).await;
            scene.connect(&proxied()).await.unwrap_err();
            assert_eq!(scene.handle.refused()["not_sumlink"], 1);
            scene.connect(b"").await.unwrap();
        }
    }

    /// HAProxy checks every two seconds, with or without a header.
    #[tokio::test]
    async fn a_check_of_health_is_no_refused_client() {
        let scene = Scene::new(&["127.0.0.1/32"]).await;
        for first in [&b""[..], b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"] {
            let mut tcp = TcpStream::connect(scene.address).await.unwrap();
            tcp.write_all(first).await.unwrap();
            tcp.shutdown().await.unwrap();
            let mut end = [0];
            // The server closes it, too.
            let read = tokio::io::AsyncReadExt::read(&mut tcp, &mut end).await;
            assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        }
        assert_eq!(scene.refused(), 0);
    }
}
