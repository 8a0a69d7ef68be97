//! A UDP port for datagrams to other machines, which a packet filter passes to it (TPROXY).
//!
//! The kernel leaves the addresses of such a datagram as they are. Each program's address is a
//! source, and the address to which it has sent is the remote. An answer must come from the remote,
//! so it is sent from a socket that is bound to the remote's address (`IP_TRANSPARENT`, ip(7)).

use std::borrow::Cow;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sumlink_exit::datagram::{FlowFailure, Received, SendError};
use sumlink_exit::udp_io::{Arrival, Packet, UdpIo, UdpOptions};
use sumlink_transport::target::Host;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info};

use crate::class::{Flow, class_of_datagrams};
use crate::origin::canonical;
use crate::peers::{self, Port};
use crate::socks5::send_all;
use crate::udp_bind_error::UdpBindError;
use crate::{Class, ClassRule, DatagramOpener, Origin, SourceLimit, Target};
use answers::Answers;
use icmp::Icmp;

mod answers;
mod icmp;

/// Receive buffer of the port in bytes: all machines of the network share it.
const RECEIVE_BUFFER: usize = 4 << 20;

/// How often idle sockets for answers are closed.
const EXPIRY: Duration = Duration::from_secs(10);

/// Headers of a UDP datagram over IPv4 (RFC 791, RFC 768) and over IPv6 (RFC 8200), in bytes.
const HEADERS_V4: usize = 28;
const HEADERS_V6: usize = 48;

/// A bound UDP port that takes datagrams to other machines, but none until
/// [`TransparentUdp::serve`].
///
/// Datagrams to the port itself are dropped. Failures are reported to the program's machine as ICMP
/// errors, if this process may send them.
#[derive(Debug)]
pub struct TransparentUdp {
    captured: Captured,
    limit: SourceLimit,
}

/// The port, and the sockets for answers.
#[derive(Debug)]
struct Captured {
    io: UdpIo,
    address: SocketAddr,
    answers: Answers,
    icmp: Icmp,
    rules: Arc<[ClassRule]>,
}

impl TransparentUdp {
    /// Binds the port for the family of `address`, which should be a loopback address. Must be
    /// called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// As the variants of [`UdpBindError`] say.
    pub fn bind(address: SocketAddr) -> Result<Self, UdpBindError> {
        let options = UdpOptions {
            traffic_class: true,
            original_destination: true,
            transparent: true,
            receive_buffer: RECEIVE_BUFFER,
            ..UdpOptions::default()
        };
        let bound = UdpIo::bind_family(address, options).and_then(|io| {
            let address = io.local_addr()?;
            Ok((io, address))
        });
        let (io, address) = bound.map_err(|error| match UdpBindError::new(address, error) {
            UdpBindError::NotPermitted(address) => UdpBindError::NotTransparent(address),
            error => error,
        })?;
        Ok(Self {
            captured: Captured {
                io,
                address,
                answers: Answers::default(),
                icmp: Icmp::open(address.is_ipv6()),
                rules: Arc::default(),
            },
            limit: SourceLimit::default(),
        })
    }

    /// Serves programs within this limit, shared with the other entries that have it. When it is
    /// reached, a new one takes the place of one of the client that has the most; or of one of its
    /// own client, if that was idle for 5 s.
    pub fn with_sources(mut self, limit: SourceLimit) -> Self {
        self.limit = limit;
        self
    }

    /// Gives each flow the class of the first rule that matches its first datagram.
    pub fn with_classes(mut self, rules: Arc<[ClassRule]>) -> Self {
        self.captured.rules = rules;
        self
    }

    /// The bound address; with port 0, it has the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.captured.address
    }

    /// Passes datagrams to `opener` until `shutdown` completes, then closes the port.
    pub async fn serve<D: DatagramOpener>(self, opener: D, shutdown: impl Future<Output = ()>) {
        let Self { captured, limit } = self;
        let address = captured.address;
        info!(%address, "taking datagrams to other machines");
        let captured = Arc::new(captured);
        let serving = peers::serve(Arc::clone(&captured), address, opener, limit, shutdown);
        let expiring = async {
            let mut expiry = interval(EXPIRY);
            expiry.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                expiry.tick().await;
                captured.answers.expire(tokio::time::Instant::now());
            }
        };
        tokio::select! {
            () = serving => {}
            () = expiring => {}
        }
        info!(%address, "no longer taking datagrams to other machines");
    }
}

/// The port's notes about a datagram.
#[derive(Clone, Copy)]
struct Label {
    remote: SocketAddr,
    dscp: Option<u8>,
}

impl Port for Captured {
    type Label = Label;

    fn io(&self) -> &UdpIo {
        &self.io
    }

    fn label(&self, arrival: &Arrival<'_>) -> Option<Label> {
        let remote = canonical(arrival.original?);
        let ip = remote.ip();
        let is_host = !(ip.is_unspecified() || ip.is_multicast() || ip.is_loopback());
        // A datagram to the port itself would be sent back to it.
        (is_host && remote.port() != 0 && remote != self.address).then_some(Label {
            remote,
            dscp: arrival.dscp,
        })
    }

    fn origin(&self, peer: SocketAddr, _: &Label) -> Origin {
        Origin::lan(peer)
    }

    fn flow(&self, label: &Label) -> (Cow<'_, Target>, Option<Class>) {
        let flow = Flow {
            port: label.remote.port(),
            dscp: label.dscp,
            user: None,
        };
        let class = class_of_datagrams(&self.rules, &flow);
        (Cow::Owned(Target::from(label.remote)), class)
    }

    fn unsent(&self, peer: SocketAddr, label: &Label, error: SendError) {
        let headers = match label.remote {
            SocketAddr::V4(_) => HEADERS_V4,
            SocketAddr::V6(_) => HEADERS_V6,
        };
        if let SendError::TooBig { most } = error
            && let Ok(mtu) = u32::try_from(most.saturating_add(headers))
        {
            let failure = FlowFailure::TooBig { mtu };
            self.icmp.report(peer, label.remote, failure);
        }
    }

    async fn answer(&self, peer: SocketAddr, _: &Label, events: &[(Target, Received)]) {
        // Answers of one remote side by side take fewer system calls.
        for events in events.chunk_by(|(one, _), (other, _)| one == other) {
            let Some(remote) = events.first().and_then(|(remote, _)| address(remote)) else {
                continue;
            };
            let mut packets = Vec::with_capacity(events.len());
            for (_, event) in events {
                match event {
                    Received::Datagram(payload) => packets.push(Packet {
                        remote: Some(peer),
                        local: None,
                        head: &[],
                        body: payload,
                    }),
                    Received::Failed(failure) => self.icmp.report(peer, remote, *failure),
                }
            }
            if packets.is_empty() || remote.is_ipv6() != peer.is_ipv6() {
                continue;
            }
            match self.answers.socket(remote) {
                Ok(io) => {
                    send_all(&io, &packets).await;
                }
                Err(error) => debug!(%remote, %error, "cannot answer from a remote's address"),
            }
        }
    }
}

/// The address of a remote; its programs send to addresses only.
fn address(remote: &Target) -> Option<SocketAddr> {
    match remote.host {
        Host::Ip(ip) => Some(SocketAddr::new(ip, remote.port)),
        Host::Name(_) => None,
    }
}
