//! Why a bond could not be made, or a link's policy not changed.

use sumlink_engine::ConfigError;
use sumlink_engine::frame::RefuseCode;

use crate::carrier::handshake::CarrierError;
use crate::carrier::socket::SocketError;
use crate::links::LinkError;
use crate::links::policy::{PolicyError, StateError};

/// Why a bond could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server is not given as HOST:PORT.
    #[error("the server must be given as HOST:PORT, not \"{0}\"")]
    ServerAddress(String),
    /// The server's name does not resolve.
    #[error(
        "cannot resolve the server's name {name}: {reason}; check the name and this machine's \
        resolver"
    )]
    Resolve {
        /// The name.
        name: String,
        /// The resolver's error.
        reason: String,
    },
    /// No interface can be used; the text has the reason of each requested one.
    #[error("no link can be used: {0}")]
    NoLink(String),
    /// The kernel's links cannot be queried.
    #[error(transparent)]
    Links(#[from] LinkError),
    /// The saved link state cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The policy of a link is invalid.
    #[error("{link}: {error}")]
    Policy {
        /// The link.
        link: String,
        /// The invalid value.
        error: PolicyError,
    },
    /// No link could connect; the error of the most promising link.
    #[error("{link}: {error}")]
    Socket {
        /// The link.
        link: String,
        /// The error on that link.
        error: SocketError,
    },
    /// A network answers in the server's place until the user signs in.
    #[error("{link}: behind a captive portal: sign in at {page}")]
    Portal {
        /// The link.
        link: String,
        /// The portal's page.
        page: String,
    },
    /// A connection was made but did not become a carrier; the error of the most promising link.
    #[error("{link}: {error}")]
    Carrier {
        /// The link.
        link: String,
        /// The error on that link.
        error: CarrierError,
    },
}

/// Why a link's policy was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetPolicyError {
    /// Neither the machine nor the configuration has this link.
    #[error("no link named {}; known links: {known}", .name.escape_debug())]
    NoSuchLink {
        /// The name.
        name: String,
        /// The known links.
        known: String,
    },
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy cannot be saved.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Whether the server's refusal means that this session will not come back.
pub(crate) fn is_lost(error: &CarrierError) -> bool {
    matches!(
        error,
        CarrierError::Refused {
            code: RefuseCode::NoSuchSession,
            ..
        }
    )
}
