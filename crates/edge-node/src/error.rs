//! Errors of an end.

use std::io;
use std::net::SocketAddr;

use sumlink_util::plain;

/// Why an end cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The user's fault: the core rejects its configuration.
    #[error("{0}")]
    Config(#[from] sumlink_edge::ConfigError),
    /// The TUN device cannot be created or set up.
    #[error(transparent)]
    Device(#[from] sumlink_tun_device::DeviceError),
    /// The user's or the system's fault: a link's socket cannot be opened.
    #[error(
        "link {link}: cannot open a tunnel from {local} to {remote}: {reason}",
        reason = plain(.reason)
    )]
    Tunnel {
        /// Name of the link.
        link: String,
        /// Local address.
        local: SocketAddr,
        /// Remote address.
        remote: SocketAddr,
        /// The system's error.
        reason: io::Error,
    },
    /// The user's fault: the device's packets do not fit the link.
    #[error(
        "link {link}: packets of {mtu} bytes grow to {needed} in the tunnel, but the link carries \
         at most {takes}; lower `mtu` to {}",
        takes.saturating_sub(needed - mtu)
    )]
    Mtu {
        /// Name of the link.
        link: String,
        /// MTU of the device.
        mtu: usize,
        /// Size of such a packet with all tunnel headers.
        needed: usize,
        /// Largest packet that the link carries.
        takes: usize,
    },
    /// The system's fault.
    #[error("{what}: {reason}", reason = plain(.reason))]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        reason: io::Error,
    },
}

impl NodeError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::System { what, reason }
    }
}
