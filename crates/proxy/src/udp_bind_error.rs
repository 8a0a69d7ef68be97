//! Why a UDP port could not be bound.

use std::io;
use std::net::SocketAddr;

use sumlink_util::plain;

/// Why binding a UDP port failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpBindError {
    /// Another program uses the port.
    #[error(
        "cannot bind UDP port {0}: the port is taken; choose another one, or stop the program that \
         has it (`ss -lunp` shows which)"
    )]
    Taken(SocketAddr),
    /// Ports below 1024 require a privilege.
    #[error(
        "cannot bind UDP port {0}: not permitted; choose a port above 1023, or grant \
         CAP_NET_BIND_SERVICE"
    )]
    NotPermitted(SocketAddr),
    /// Datagrams to other machines require a privilege.
    #[error(
        "cannot bind UDP port {0} for datagrams to other machines: not permitted; run as root, or \
         grant CAP_NET_ADMIN"
    )]
    NotTransparent(SocketAddr),
    /// The address does not belong to this machine.
    #[error(
        "cannot bind UDP port {0}: this machine does not have that address (`ip address` lists its \
         addresses)"
    )]
    NoSuchAddress(SocketAddr),
    /// Another reason.
    #[error("cannot bind UDP port {0}: {reason}", reason = plain(.1))]
    Other(SocketAddr, io::Error),
}

impl UdpBindError {
    pub(crate) fn new(address: SocketAddr, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::Taken(address),
            io::ErrorKind::PermissionDenied => Self::NotPermitted(address),
            io::ErrorKind::AddrNotAvailable => Self::NoSuchAddress(address),
            _ => Self::Other(address, error),
        }
    }
}
