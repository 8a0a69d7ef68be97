//! Looks up the server's name while this machine's resolver is the gateway itself.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sumlink_transport::links::Lookup;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// Time for the machine's resolver. Without the bond it may never answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The server's addresses from before the start, and newer ones once they are known.
///
/// The resolver asks over the bond, so it knows of a move only while some link still reaches the
/// server, or after a restart.
#[derive(Clone, Debug)]
pub(super) struct KnownServer {
    known: Arc<Mutex<Vec<SocketAddr>>>,
}

impl KnownServer {
    /// Looks up the server, before anything is captured.
    ///
    /// # Errors
    ///
    /// The resolver's.
    pub(super) async fn new(server: &str) -> io::Result<Self> {
        let found = lookup_host(server).await?.collect();
        Ok(Self {
            known: Arc::new(Mutex::new(found)),
        })
    }

    /// The addresses.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }
}

impl Lookup for KnownServer {
    fn look_up(
        &self,
        host: String,
        port: u16,
    ) -> futures_util::future::BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let server = self.clone();
        Box::pin(async move {
            let found = timeout(PATIENCE, lookup_host((host, port))).await;
            if let Ok(Ok(found)) = found {
                let found: Vec<SocketAddr> = found.collect();
                if !found.is_empty() {
                    let mut known = server.known.lock().unwrap_or_else(PoisonError::into_inner);
                    *known = found;
                }
            }
            Ok(server.addresses())
        })
    }
}
