//! Which destinations the host routes into a device.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use futures_util::TryStreamExt;
use nix::net::if_::if_nametoindex;
use rtnetlink::packet_route::route::RouteAttribute;
use rtnetlink::{Handle, RouteMessageBuilder};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tracing::debug;

/// Time for which an answer is used. Meanwhile, the packet filter drops the request or lets it
/// pass, whatever the answer.
const LIFETIME: Duration = Duration::from_secs(2);

/// Most answers that are kept.
const MAX: usize = 1024;

/// Longest wait for the kernel.
const WAIT: Duration = Duration::from_secs(1);

/// Asks the kernel for routes.
pub(super) struct Routes {
    handle: Handle,
    connection: JoinHandle<()>,
    known: HashMap<IpAddr, (Instant, bool)>,
}

impl Routes {
    pub(super) fn open() -> io::Result<Self> {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        Ok(Self {
            handle,
            connection: tokio::spawn(connection),
            known: HashMap::new(),
        })
    }

    /// Whether packets to this destination go to the device.
    pub(super) async fn lead_to(
        &mut self,
        destination: IpAddr,
        device: &str,
        now: Instant,
    ) -> bool {
        if let Some((until, answer)) = self.known.get(&destination)
            && now < *until
        {
            return *answer;
        }
        let index = if_nametoindex(device).ok();
        let answer = index.is_some() && self.interface(destination).await == index;
        if self.known.len() >= MAX {
            self.known.clear();
        }
        self.known.insert(destination, (now + LIFETIME, answer));
        answer
    }

    /// The interface by which packets to this destination leave.
    async fn interface(&self, destination: IpAddr) -> Option<u32> {
        let bits = if destination.is_ipv4() { 32 } else { 128 };
        let asked = RouteMessageBuilder::<IpAddr>::new().destination_prefix(destination, bits);
        let request = self.handle.route().get(asked.ok()?.build());
        let answer = timeout(WAIT, async {
            std::pin::pin!(request.execute()).try_next().await
        });
        match answer.await {
            Ok(Ok(route)) => route?
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                }),
            Ok(Err(error)) => {
                debug!(%destination, %error, "no route");
                None
            }
            Err(_) => None,
        }
    }
}

impl Drop for Routes {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
