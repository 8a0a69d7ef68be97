//! Why a port could not be opened.

use std::io;
use std::net::SocketAddr;

use sumlink_util::plain;

use crate::Service;

/// Why listening on a port failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// Another program uses the port.
    #[error(
        "cannot listen on {0} for {1}: the port is taken; choose another one, or stop the program \
         that has it (`ss -ltnp` shows which)"
    )]
    Taken(SocketAddr, Service),
    /// Ports below 1024 require a privilege.
    #[error(
        "cannot listen on {0} for {1}: not permitted; choose a port above 1023, or grant \
         CAP_NET_BIND_SERVICE"
    )]
    NotPermitted(SocketAddr, Service),
    /// Connections to other machines require a privilege.
    #[error("cannot listen on {0} for {1}: not permitted; run as root, or grant CAP_NET_ADMIN")]
    NotTransparent(SocketAddr, Service),
    /// The address does not belong to this machine.
    #[error(
        "cannot listen on {0} for {1}: this machine does not have that address (`ip address` lists \
         its addresses)"
    )]
    NoSuchAddress(SocketAddr, Service),
    /// Another reason.
    #[error("cannot listen on {0} for {1}: {reason}", reason = plain(.2))]
    Other(SocketAddr, Service, io::Error),
}

impl ListenError {
    pub(crate) fn new(address: SocketAddr, service: Service, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AddrInUse => Self::Taken(address, service),
            io::ErrorKind::PermissionDenied if service == Service::Transparent => {
                Self::NotTransparent(address, service)
            }
            io::ErrorKind::PermissionDenied => Self::NotPermitted(address, service),
            io::ErrorKind::AddrNotAvailable => Self::NoSuchAddress(address, service),
            _ => Self::Other(address, service, error),
        }
    }
}
