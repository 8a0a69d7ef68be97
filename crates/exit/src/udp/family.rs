//! The sockets of a source: one for each address family, and the same for ICMP echo requests.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Ready;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::debug;

use super::client::Client;
use super::echo::EchoIo;
use crate::datagram::FlowFailure;
use crate::target::ECHO_PORT;
use crate::udp_io::{Arrival, Packet, UdpIo, UdpOptions};

/// Pause after a socket could not be opened.
const BIND_PAUSE: Duration = Duration::from_secs(1);

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    is_v6: bool,
    is_echo: bool,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::new(false, false),
        Self::new(true, false),
        Self::new(false, true),
        Self::new(true, true),
    ];

    const fn new(is_v6: bool, is_echo: bool) -> Self {
        Self { is_v6, is_echo }
    }

    /// The kind of socket for a remote.
    pub(super) fn of(remote: &SocketAddr) -> Self {
        Self::new(remote.is_ipv6(), remote.port() == ECHO_PORT)
    }

    fn index(self) -> usize {
        usize::from(self.is_v6) + 2 * usize::from(self.is_echo)
    }
}

/// A socket of either kind.
#[derive(Debug)]
pub(super) enum Io {
    Udp(UdpIo),
    Echo(EchoIo),
}

impl Io {
    fn io(&self) -> &UdpIo {
        match self {
            Self::Udp(io) => io,
            Self::Echo(echo) => echo.io(),
        }
    }

    /// [`UdpIo::send`].
    pub(super) fn send(
        &self,
        queued: &[(SocketAddr, Bytes)],
        failed: impl FnMut(usize, io::Error),
    ) -> usize {
        match self {
            Self::Echo(echo) => echo.send(queued, failed),
            Self::Udp(io) => {
                let packets = queued.iter().map(|(remote, payload)| Packet {
                    remote: Some(*remote),
                    local: None,
                    head: &[],
                    body: payload,
                });
                io.send(&packets.collect::<Vec<_>>(), failed)
            }
        }
    }

    /// [`UdpIo::try_receive`]; an answer to an echo request has [`ECHO_PORT`], and nothing else
    /// has.
    pub(super) fn try_receive(&self, mut each: impl FnMut(Arrival<'_>)) -> io::Result<usize> {
        self.io().try_receive(|arrival| match self {
            // Nothing could be sent back to this port.
            Self::Udp(_) if arrival.remote.port() == ECHO_PORT => {}
            Self::Udp(_) => each(arrival),
            Self::Echo(echo) => {
                if let Some(payload) = echo.answer(arrival.payload) {
                    each(Arrival { payload, ..arrival });
                }
            }
        })
    }

    /// [`UdpIo::take_errors`].
    pub(super) fn take_errors(&self, each: impl FnMut(crate::udp_io::SocketError)) {
        self.io().take_errors(each);
    }
}

/// The sockets of a source; each is opened when it is first needed.
#[derive(Default)]
pub(super) struct Families([Family; 4]);

#[derive(Default)]
struct Family {
    io: Option<(Io, Option<OwnedSemaphorePermit>)>,
    /// Why it could not be opened, and when that is tried again.
    failed: Option<(FlowFailure, Instant)>,
}

impl Families {
    /// The socket of this kind, if it is open.
    pub(super) fn io(&self, kind: Kind) -> Option<&Io> {
        self.0[kind.index()].io.as_ref().map(|(io, _)| io)
    }

    /// The socket of this kind, which is opened if it is not open yet.
    pub(super) fn open(
        &mut self,
        kind: Kind,
        client: &Client,
        now: Instant,
    ) -> Result<&Io, FlowFailure> {
        let family = &mut self.0[kind.index()];
        if family.io.is_none() {
            if let Some((failure, until)) = family.failed
                && now < until
            {
                return Err(failure);
            }
            match bind(kind, client) {
                Ok(bound) => family.io = Some(bound),
                Err(failure) => family.failed = Some((failure, now + BIND_PAUSE)),
            }
        }
        let failure = family
            .failed
            .map_or(FlowFailure::Other, |(failure, _)| failure);
        family.io.as_ref().map(|(io, _)| io).ok_or(failure)
    }

    /// Waits for one of the sockets.
    pub(super) async fn arrived(&self) -> (Kind, Ready) {
        let ready = async |kind: Kind| match self.io(kind) {
            Some(io) => match io.io().ready().await {
                Ok(ready) => (kind, ready),
                // Only at the end of the runtime.
                Err(_) => pending().await,
            },
            None => pending().await,
        };
        let [v4, v6, echo_v4, echo_v6] = Kind::ALL;
        tokio::select! {
            arrived = ready(v4) => arrived,
            arrived = ready(v6) => arrived,
            arrived = ready(echo_v4) => arrived,
            arrived = ready(echo_v6) => arrived,
        }
    }
}

fn bind(kind: Kind, client: &Client) -> Result<(Io, Option<OwnedSemaphorePermit>), FlowFailure> {
    let place = match &client.sockets {
        Some(sockets) => {
            let place = Arc::clone(sockets).try_acquire_owned();
            Some(place.map_err(|_| FlowFailure::LimitReached)?)
        }
        None => None,
    };
    let settings = &client.settings;
    let local = match kind.is_v6 {
        true => IpAddr::from(settings.local_v6),
        false => IpAddr::from(settings.local_v4),
    };
    let bound = match kind.is_echo {
        true => EchoIo::bind(local, &settings.outgoing).map(Io::Echo),
        false => {
            let options = UdpOptions {
                errors: true,
                receive_buffer: settings.receive_buffer,
                ..UdpOptions::default()
            };
            let address = SocketAddr::new(local, 0);
            UdpIo::bind_over(address, options, &settings.outgoing).map(Io::Udp)
        }
    };
    bound.map(|io| (io, place)).map_err(|error| {
        debug!(%local, %error, ?kind, "cannot open a socket for datagrams");
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                FlowFailure::LimitReached
            }
            Some(libc::EACCES | libc::EPERM) => FlowFailure::Other,
            _ => FlowFailure::NetworkUnreachable,
        }
    })
}
