//! Errors of changing the kernel's state.

use std::io;
use std::path::PathBuf;

use sumlink_util::plain;

use super::Refusal;

/// Why the gateway cannot change, or clean, the kernel's state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The settings do not fit the system.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Another gateway holds the lock.
    #[error("a gateway is running already{}", where_to_end(.pid))]
    AlreadyRunning {
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// A query to the kernel failed.
    #[error("cannot {action}: {}", plain(.source))]
    System {
        /// What failed.
        action: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A file could not be used.
    #[error("cannot use {}: {}", .path.display(), plain(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A change failed; those before it were undone.
    #[error("cannot start the gateway: `{step}`: {}", plain(.source))]
    Step {
        /// The change, as a command.
        step: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A change failed, and undoing others failed, too.
    #[error(
        "cannot start the gateway: `{step}`: {}; `sumlink down` must remove what is left: {left}",
        plain(.source)
    )]
    NotRolledBack {
        /// The change, as a command.
        step: String,
        /// The system's reason.
        source: io::Error,
        /// The changes that could not be undone, and why.
        left: String,
    },
    /// Packets to the server would enter the bond that they carry.
    #[error(
        "packets to the server {server} would be routed into {device}: remove the route or rule \
         that leads there"
    )]
    CarriersIntoBond {
        /// The server's address.
        server: std::net::IpAddr,
        /// The TUN device.
        device: String,
    },
    /// Something could not be removed.
    #[error("cannot remove everything: {0}")]
    Left(String),
}

impl KernelError {
    pub(super) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        |source| Self::System { action, source }
    }
}

fn where_to_end(pid: &Option<u32>) -> String {
    match pid {
        Some(pid) => format!(" (process {pid}): end it with `sumlink down`"),
        None => {
            " with other folders, for example in a container: run `sumlink down` there".to_owned()
        }
    }
}
