//! Why a connection or a listening socket could not be made.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sumlink_util::plain;

use crate::links::LinkError;

/// Why a connection or a listening socket could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The link is missing, down, or does not lead to the server.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The host answers, but no program listens on this port.
    #[error("{remote} refused the connection: is the server running, and is this its port?")]
    Refused {
        /// The server's address.
        remote: SocketAddr,
    },
    /// No answer.
    #[error(
        "{remote} did not answer within {} s: check the address and firewalls in between",
        timeout.as_secs_f32()
    )]
    TimedOut {
        /// The server's address.
        remote: SocketAddr,
        /// The timeout.
        timeout: Duration,
    },
    /// A router, or this machine, has no route.
    #[error("{remote} cannot be reached: no route leads there")]
    Unreachable {
        /// The server's address.
        remote: SocketAddr,
    },
    /// The system denies permission.
    #[error("not permitted to {action}: {hint}")]
    NotPermitted {
        /// The attempted action.
        action: String,
        /// How to fix it.
        hint: &'static str,
    },
    /// The kernel has no congestion control of this name.
    #[error("unknown congestion control {name}: this kernel has {available}")]
    UnknownCongestion {
        /// The name.
        name: String,
        /// `/proc/sys/net/ipv4/tcp_available_congestion_control`.
        available: String,
    },
    /// The kernel has this congestion control, but keeps it for privileged programs.
    #[error(
        "congestion control {name} needs CAP_NET_ADMIN: without it this kernel allows {allowed} \
        (sysctl net.ipv4.tcp_allowed_congestion_control)"
    )]
    CongestionNotAllowed {
        /// The name.
        name: String,
        /// `/proc/sys/net/ipv4/tcp_allowed_congestion_control`.
        allowed: String,
    },
    /// Another program listens on the port.
    #[error("{address} is in use by another program: stop it or choose another port")]
    PortTaken {
        /// The address and port.
        address: SocketAddr,
    },
    /// The address to listen on belongs to no interface.
    #[error("{address} is not an address of this machine: listen on a local address, or on [::]")]
    NotLocal {
        /// The address.
        address: IpAddr,
    },
    /// Any other error of the system.
    #[error("cannot {action}: {source}", source = plain(.source))]
    System {
        /// The attempted action.
        action: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The meaning of a system error of a socket that is to listen on `address`.
pub(crate) fn listen_error(error: io::Error, address: SocketAddr) -> SocketError {
    match error.raw_os_error() {
        Some(libc::EADDRINUSE) => SocketError::PortTaken { address },
        Some(libc::EADDRNOTAVAIL) => SocketError::NotLocal {
            address: address.ip(),
        },
        Some(libc::EACCES | libc::EPERM) => SocketError::NotPermitted {
            action: format!("listen on {address}"),
            hint: "ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one",
        },
        _ => SocketError::System {
            action: format!("listen on {address}"),
            source: error,
        },
    }
}

/// The meaning of a system error of a connection to `remote`.
pub(crate) fn connect_error(
    error: io::Error,
    remote: SocketAddr,
    timeout: Duration,
) -> SocketError {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => SocketError::Refused { remote },
        Some(libc::ETIMEDOUT) => SocketError::TimedOut { remote, timeout },
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL) => {
            SocketError::Unreachable { remote }
        }
        Some(libc::EACCES | libc::EPERM) => SocketError::NotPermitted {
            action: format!("connect to {remote}"),
            hint: "a firewall or sandbox of this machine forbids it",
        },
        _ => SocketError::System {
            action: format!("connect to {remote}"),
            source: error,
        },
    }
}
