//! Why an end cannot start or go on.

use std::io;
use std::net::SocketAddr;

use sumlink_util::plain;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The user's: what the core is told cannot be.
    #[error("{0}")]
    Config(#[from] sumlink_edge::ConfigError),
    /// The user's: the process may not make a TUN device.
    #[error(
        "making the TUN device {name} is not permitted: run as root, or give the program CAP_NET_ADMIN and a /dev/net/tun that it may open"
    )]
    NotPermitted {
        /// Its name.
        name: String,
    },
    /// The system's: there is no TUN driver.
    #[error("there is no /dev/net/tun: load it with: modprobe tun")]
    NoTun,
    /// The user's or the system's: the device cannot be made or set up.
    #[error("cannot set up the TUN device {name}: {what}: {reason}", reason = plain(.reason))]
    Device {
        /// Its name.
        name: String,
        /// Which step.
        what: String,
        /// What the system said.
        reason: io::Error,
    },
    /// The user's or the system's: a link's socket cannot be made.
    #[error("link {link}: cannot open a tunnel from {local} to {remote}: {reason}", reason = plain(.reason))]
    Tunnel {
        /// The link.
        link: String,
        /// This end.
        local: SocketAddr,
        /// The other one.
        remote: SocketAddr,
        /// What the system said.
        reason: io::Error,
    },
    /// The user's: packets of the device do not fit the link.
    #[error(
        "link {link}: packets of {mtu} bytes are {needed} in the tunnel, and the link takes {takes}; lower `mtu` to {}",
        takes.saturating_sub(needed - mtu)
    )]
    Mtu {
        /// The link.
        link: String,
        /// Of the device.
        mtu: usize,
        /// With all headers.
        needed: usize,
        /// What the link takes.
        takes: usize,
    },
    /// The system's.
    #[error("{what}: {reason}", reason = plain(.reason))]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        reason: io::Error,
    },
}

impl NodeError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |reason| Self::System { what, reason }
    }
}
