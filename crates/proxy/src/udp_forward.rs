//! A UDP port with one target for all datagrams.

use std::borrow::Cow;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sumlink_exit::datagram::{Received, SendError};
use sumlink_exit::udp_io::{Arrival, Packet, UdpIo, UdpOptions};
use tracing::{debug, info};

use crate::class::{Flow, class_of_datagrams};
use crate::peers::{self, Port};
use crate::socks5::send_all;
use crate::udp_bind_error::UdpBindError;
use crate::{Class, ClassRule, DatagramOpener, Origin, SourceLimit, Target, UdpForward};

/// Receive buffer of the port in bytes: many local addresses share it.
const RECEIVE_BUFFER: usize = 1 << 20;

/// A bound UDP port that forwards nothing until [`UdpForwarder::serve`].
///
/// Every local address that sends to the port is a separate source, so the target sees different
/// ports and replies find their way back. A reply comes from the port, and from the address to
/// which the program has sent. Datagrams that reach a source from elsewhere than the target are
/// dropped: the program could not distinguish them.
#[derive(Debug)]
pub struct UdpForwarder {
    forwarded: Forwarded,
    limit: SourceLimit,
}

/// The port and its target.
#[derive(Debug)]
struct Forwarded {
    io: UdpIo,
    address: SocketAddr,
    target: Target,
    rules: Arc<[ClassRule]>,
}

impl UdpForwarder {
    /// Binds the port. `[::]:PORT` takes IPv4 as well. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// As the variants of [`UdpBindError`] say.
    pub fn bind(forward: UdpForward) -> Result<Self, UdpBindError> {
        let UdpForward { listen, target } = forward;
        let options = UdpOptions {
            traffic_class: true,
            local_address: listen.ip().is_unspecified(),
            receive_buffer: RECEIVE_BUFFER,
            ..UdpOptions::default()
        };
        let bound = UdpIo::bind(listen, options).and_then(|io| {
            let address = io.local_addr()?;
            Ok((io, address))
        });
        let (io, address) = bound.map_err(|error| UdpBindError::new(listen, error))?;
        Ok(Self {
            forwarded: Forwarded {
                io,
                address,
                target,
                rules: Arc::default(),
            },
            limit: SourceLimit::default(),
        })
    }

    /// Serves local addresses within this limit, shared with the other entries that have it. When
    /// it is reached, a new one takes the place of one of the client that has the most; or of one
    /// of its own client, if that was idle for 5 s.
    pub fn with_sources(mut self, limit: SourceLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Gives each source the class of the first rule that matches its first datagram.
    pub fn with_classes(mut self, rules: Arc<[ClassRule]>) -> Self {
        self.forwarded.rules = rules;
        self
    }

    /// The bound address; with port 0, it has the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.forwarded.address
    }

    /// Forwards datagrams over `opener` until `shutdown` completes, then closes the port.
    pub async fn serve<D: DatagramOpener>(self, opener: D, shutdown: impl Future<Output = ()>) {
        let Self { forwarded, limit } = self;
        let (address, target) = (forwarded.address, forwarded.target.clone());
        info!(%address, %target, "forwarding datagrams");
        peers::serve(Arc::new(forwarded), address, opener, limit, shutdown).await;
        info!(%address, %target, "no longer forwarding datagrams");
    }
}

/// A forward's notes about a datagram.
#[derive(Clone, Copy)]
struct Label {
    /// The address to which the program has sent, if the port has several.
    local: Option<IpAddr>,
    dscp: Option<u8>,
}

impl Port for Forwarded {
    type Label = Label;

    fn io(&self) -> &UdpIo {
        &self.io
    }

    fn label(&self, arrival: &Arrival<'_>) -> Option<Label> {
        let Arrival { local, dscp, .. } = *arrival;
        Some(Label { local, dscp })
    }

    fn origin(&self, peer: SocketAddr, label: &Label) -> Origin {
        let local = label.local.unwrap_or(self.address.ip());
        Origin::at_entry(peer, SocketAddr::new(local, self.address.port()))
    }

    fn flow(&self, label: &Label) -> (Cow<'_, Target>, Option<Class>) {
        let flow = Flow {
            port: self.target.port,
            dscp: label.dscp,
            user: None,
        };
        let class = class_of_datagrams(&self.rules, &flow);
        (Cow::Borrowed(&self.target), class)
    }

    fn unsent(&self, _: SocketAddr, _: &Label, error: SendError) {
        debug!(target = %self.target, %error, "a forwarded datagram is dropped");
    }

    async fn answer(&self, peer: SocketAddr, last: &Label, events: &[(Target, Received)]) {
        let target = &self.target;
        let packets: Vec<Packet<'_>> = events
            .iter()
            .filter_map(|(remote, event)| match event {
                Received::Datagram(payload) if remote == target => Some(Packet {
                    remote: Some(peer),
                    local: last.local,
                    head: &[],
                    body: payload,
                }),
                Received::Datagram(_) => None,
                Received::Failed(failure) => {
                    debug!(%target, %failure, "forwarded datagrams fail");
                    None
                }
            })
            .collect();
        send_all(&self.io, &packets).await;
    }
}
