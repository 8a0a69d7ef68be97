//! UDP sockets that move many datagrams with one system call.
//!
//! Receiving uses recvmmsg(2) with `UDP_GRO`. Sending uses `UDP_SEGMENT` (udp(7)) for datagrams of
//! one length to one remote, and a call for each of the others: most of its cost is the network
//! stack's work on a packet. ICMP errors come from the socket's error queue (ip(7), `IP_RECVERR`).
//!
//! `quinn-udp` has the same purpose but does not fit here: it sets "don't fragment", and reports
//! neither the DSCP of a datagram nor the remote that an ICMP error is about.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{Interest, Ready};
use tokio::net::UdpSocket;
use tracing::debug;

use crate::datagram::FlowFailure;
use crate::outgoing::Outgoing;

mod fragments;
mod receive;
mod send;

/// Pause after a full send buffer. Waiting for "writable" is no alternative: tokio treats a UDP
/// socket as closed for writing, thus always ready, after its first ICMP error. In this time, the
/// default send buffer of 208 KiB drains at 1.7 Gbit/s.
pub const SEND_PAUSE: Duration = Duration::from_millis(1);

/// A UDP socket. All methods work on a shared reference, from any task.
#[derive(Debug)]
pub struct UdpIo {
    socket: UdpSocket,
    is_v6: bool,
    /// What [`UdpIo::ready`] waits for.
    interest: Interest,
    /// Longest datagram that was not refused with `UDP_SEGMENT`.
    longest_segment: AtomicUsize,
}

/// Options of a [`UdpIo`].
#[derive(Clone, Copy, Debug, Default)]
pub struct UdpOptions {
    /// Report ICMP errors through [`UdpIo::take_errors`].
    pub errors: bool,
    /// Report the DSCP of received datagrams.
    pub traffic_class: bool,
    /// Report the local address to which datagrams were sent. Only for sockets that are bound to an
    /// unspecified address.
    pub local_address: bool,
    /// Report the address and port to which datagrams were sent, which a packet filter with TPROXY
    /// leaves as they were (`IP_RECVORIGDSTADDR`, ip(7)).
    pub original_destination: bool,
    /// Permit any address to be bound, and accept datagrams to any address (`IP_TRANSPARENT`,
    /// ip(7)). Needs CAP_NET_ADMIN or CAP_NET_RAW.
    pub transparent: bool,
    /// Size of the kernel's receive buffer in bytes, which the system may limit
    /// (`net.core.rmem_max`); 0 is the system's default.
    pub receive_buffer: usize,
}

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Its sender; an IPv4 address is never written as IPv6.
    pub remote: SocketAddr,
    /// The address to which it was sent, with [`UdpOptions::local_address`].
    pub local: Option<IpAddr>,
    /// The address and port to which it was sent, with [`UdpOptions::original_destination`].
    pub original: Option<SocketAddr>,
    /// Its DSCP (RFC 2474), 0 to 63, with [`UdpOptions::traffic_class`].
    pub dscp: Option<u8>,
    /// Its payload.
    pub payload: &'a [u8],
}

/// A datagram to send, in two parts: an entry's header and the payload behind it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The receiver; `None` on a connected socket.
    pub remote: Option<SocketAddr>,
    /// The address to send from; the system chooses one if `None`.
    pub local: Option<IpAddr>,
    /// The first part.
    pub head: &'a [u8],
    /// The second part.
    pub body: &'a [u8],
}

/// An ICMP error about a datagram that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketError {
    /// The receiver of that datagram.
    pub remote: SocketAddr,
    /// The meaning of the error.
    pub failure: FlowFailure,
}

impl UdpIo {
    /// Binds a socket. IPv4 and IPv6 are separate unless `[::]` is bound, which accepts both. Must
    /// be called within a tokio runtime.
    ///
    /// IPv4 datagrams may be fragmented on the way (RFC 4787, REQ-13): "don't fragment" is not set.
    ///
    /// # Errors
    ///
    /// Those of socket(2) and bind(2), and a refused [`UdpOptions::transparent`]. Another option
    /// that the system refuses is logged and left out.
    pub fn bind(address: SocketAddr, options: UdpOptions) -> io::Result<Self> {
        let both = address.ip().is_unspecified();
        Self::new(address, options, both, &Outgoing::default())
    }

    /// [`UdpIo::bind`] for one family only: `[::]` does not accept IPv4.
    pub fn bind_family(address: SocketAddr, options: UdpOptions) -> io::Result<Self> {
        Self::bind_over(address, options, &Outgoing::default())
    }

    /// [`UdpIo::bind_family`] with packets that leave as `outgoing` says.
    pub fn bind_over(
        address: SocketAddr,
        options: UdpOptions,
        outgoing: &Outgoing,
    ) -> io::Result<Self> {
        Self::new(address, options, false, outgoing)
    }

    fn new(
        address: SocketAddr,
        options: UdpOptions,
        both: bool,
        outgoing: &Outgoing,
    ) -> io::Result<Self> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(!both)?;
        }
        socket.set_nonblocking(true)?;
        outgoing.apply(&socket)?;
        if options.transparent {
            // Another transparent socket may have the address of the same remote.
            socket.set_reuse_address(true)?;
            match address {
                SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
                SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
            }
        }
        socket.bind(&address.into())?;
        let takes_v4 = address.is_ipv4() || both;
        set_options(&socket, options, takes_v4, address.is_ipv6());
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            is_v6: address.is_ipv6(),
            // A socket that never takes its errors must not wait for them, either.
            interest: match options.errors {
                true => Interest::READABLE | Interest::ERROR,
                false => Interest::READABLE,
            },
            longest_segment: AtomicUsize::new(usize::MAX),
        })
    }

    /// Wraps a bound, non-blocking socket for ICMP messages. It reports ICMP errors. Must be called
    /// within a tokio runtime.
    pub(crate) fn of_icmp(socket: Socket, is_v6: bool) -> io::Result<Self> {
        let options = match is_v6 {
            true => setsockopt(&socket, sockopt::Ipv6RecvErr, &true),
            false => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)
                .and_then(|()| fragments::allow(&socket)),
        };
        if let Err(error) = options {
            debug!(%error, "cannot set an option of an ICMP socket");
        }
        Ok(Self {
            // The type of the system calls, which are the same for both kinds of sockets.
            socket: UdpSocket::from_std(socket.into())?,
            is_v6,
            interest: Interest::READABLE | Interest::ERROR,
            // `UDP_SEGMENT` means nothing here.
            longest_segment: AtomicUsize::new(0),
        })
    }

    /// The bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Lets the kernel drop datagrams from any other address.
    pub fn connect(&self, remote: SocketAddr) -> io::Result<()> {
        socket2::SockRef::from(&self.socket).connect(&remote.into())
    }

    /// Waits for a datagram, or an ICMP error with [`UdpOptions::errors`]. Cancel safe.
    pub async fn ready(&self) -> io::Result<Ready> {
        self.socket.ready(self.interest).await
    }
}

/// Sets the options. The socket works without each of them, with less speed or information.
fn set_options(socket: &Socket, options: UdpOptions, v4: bool, v6: bool) {
    let log = |option: &str, result: nix::Result<()>| {
        if let Err(error) = result {
            debug!(option, %error, "cannot set an option of a UDP socket");
        }
    };
    log("UDP_GRO", setsockopt(socket, sockopt::UdpGroSegment, &true));
    if v4 {
        log("IP_MTU_DISCOVER", fragments::allow(socket));
    }
    if options.errors {
        if v4 {
            log(
                "IP_RECVERR",
                setsockopt(socket, sockopt::Ipv4RecvErr, &true),
            );
        }
        if v6 {
            log(
                "IPV6_RECVERR",
                setsockopt(socket, sockopt::Ipv6RecvErr, &true),
            );
        }
    }
    if options.traffic_class {
        if v4 {
            log("IP_RECVTOS", setsockopt(socket, sockopt::IpRecvTos, &true));
        }
        if v6 {
            log(
                "IPV6_RECVTCLASS",
                setsockopt(socket, sockopt::Ipv6RecvTClass, &true),
            );
        }
    }
    if options.local_address {
        // An IPv6 socket reports the addresses of IPv4 datagrams as IPv6, too.
        let result = match v6 {
            true => setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true),
            false => setsockopt(socket, sockopt::Ipv4PacketInfo, &true),
        };
        log("IP_PKTINFO", result);
    }
    if options.original_destination {
        if v4 {
            log(
                "IP_RECVORIGDSTADDR",
                setsockopt(socket, sockopt::Ipv4OrigDstAddr, &true),
            );
        }
        if v6 {
            log(
                "IPV6_RECVORIGDSTADDR",
                setsockopt(socket, sockopt::Ipv6OrigDstAddr, &true),
            );
        }
    }
    if options.receive_buffer > 0
        && let Err(error) = socket.set_recv_buffer_size(options.receive_buffer)
    {
        debug!(%error, "cannot set the receive buffer of a UDP socket");
    }
}

#[cfg(test)]
mod tests;
