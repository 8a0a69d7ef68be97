//! The socket of a source for one address family.

use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Ready;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::debug;

use super::client::Client;
use crate::datagram::FlowFailure;
use crate::udp_io::{UdpIo, UdpOptions};

/// Pause after a socket could not be opened.
const BIND_PAUSE: Duration = Duration::from_secs(1);

/// The socket of one address family.
#[derive(Default)]
pub(super) struct Family {
    io: Option<(UdpIo, Option<OwnedSemaphorePermit>)>,
    /// Why it could not be opened, and when that is tried again.
    failed: Option<(FlowFailure, Instant)>,
}

impl Family {
    /// The socket, if it is open.
    pub(super) fn io(&self) -> Option<&UdpIo> {
        self.io.as_ref().map(|(io, _)| io)
    }

    /// The socket, which is opened if it is not open yet.
    pub(super) fn open(
        &mut self,
        is_v6: bool,
        client: &Client,
        now: Instant,
    ) -> Result<&UdpIo, FlowFailure> {
        if self.io.is_none() {
            if let Some((failure, until)) = self.failed
                && now < until
            {
                return Err(failure);
            }
            match Self::bind(is_v6, client) {
                Ok(bound) => self.io = Some(bound),
                Err(failure) => self.failed = Some((failure, now + BIND_PAUSE)),
            }
        }
        let failure = self
            .failed
            .map_or(FlowFailure::Other, |(failure, _)| failure);
        self.io().ok_or(failure)
    }

    fn bind(
        is_v6: bool,
        client: &Client,
    ) -> Result<(UdpIo, Option<OwnedSemaphorePermit>), FlowFailure> {
        let place = match &client.sockets {
            Some(sockets) => {
                let place = Arc::clone(sockets).try_acquire_owned();
                Some(place.map_err(|_| FlowFailure::LimitReached)?)
            }
            None => None,
        };
        let settings = &client.settings;
        let local = match is_v6 {
            true => IpAddr::from(settings.local_v6),
            false => IpAddr::from(settings.local_v4),
        };
        let options = UdpOptions {
            errors: true,
            receive_buffer: settings.receive_buffer,
            ..UdpOptions::default()
        };
        let bound = UdpIo::bind_family(SocketAddr::new(local, 0), options);
        bound.map(|io| (io, place)).map_err(|error| {
            debug!(%local, %error, "cannot open a UDP socket");
            match error.raw_os_error() {
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    FlowFailure::LimitReached
                }
                _ => FlowFailure::NetworkUnreachable,
            }
        })
    }
}

/// Waits for one of the sockets, and returns whether it is the one for IPv6.
pub(super) async fn arrived(v4: &Family, v6: &Family) -> (bool, Ready) {
    let ready = async |family: &Family| match family.io() {
        Some(io) => match io.ready().await {
            Ok(ready) => ready,
            // Only at the end of the runtime.
            Err(_) => pending().await,
        },
        None => pending().await,
    };
    tokio::select! {
        ready = ready(v4) => (false, ready),
        ready = ready(v6) => (true, ready),
    }
}
