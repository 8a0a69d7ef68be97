//! Why a verb failed: one error type for every verb, with its exit code.

use std::path::PathBuf;

use sumlink_proxy::{ListenError, UdpBindError};
use sumlink_transport::join::JoinError;
use sumlink_transport::keys::KeyError;
use sumlink_transport::links::LinkError;
use sumlink_transport::tls::HandshakeError;
use sumlink_transport::{CarrierError, ConnectError, RefuseCode, ServerError};
use sumlink_util::plain;

use crate::config::ConfigError;
use crate::control::{ControlError, RefusalKind};
use crate::exit::{Exit, error_json};

/// Why a verb failed. Each message is one line that states the problem and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// Caused by the user: contradicting or missing flags.
    #[error("{0}")]
    Usage(String),
    /// Caused by the user: the configuration file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Caused by the user: a key file.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Caused by the user: a local address that cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Caused by the user: a local UDP port that cannot be bound.
    #[error(transparent)]
    BindUdp(#[from] UdpBindError),
    /// Caused by the network, the server or the user: no session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Caused by the system or the user: the server could not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Caused by the system or the user: the monitoring port.
    #[error(transparent)]
    Monitor(#[from] sumlink_monitor::BindError),
    /// Caused by the network, the server or the user: this client could not join.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Caused by the system or the user: the store of clients cannot be used.
    #[error(transparent)]
    Store(#[from] sumlink_store::StoreError),
    /// Caused by the system: interfaces could not be listed.
    #[error(transparent)]
    Links(#[from] LinkError),
    /// Caused by the system or the user: an interface that cannot be split.
    #[error("{0}")]
    Split(String),
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Caused by the system or the user: routes, firewall or kernel parameters of a gateway.
    #[error(transparent)]
    Gateway(#[from] sumlink_gateway::kernel::KernelError),
    /// Caused by the system or the user: the gateway's device, or its capture of echo requests.
    #[error(transparent)]
    Device(#[from] sumlink_tun::TunError),
    /// Caused by the user: a port of the gateway's DNS.
    #[error(transparent)]
    Dns(#[from] sumlink_dns::BindError),
    /// Caused by the user: a routing rule, or the file of kept ones.
    #[error(transparent)]
    Rule(#[from] sumlink_gateway::rules::RuleError),
    /// A failure in another program of the workspace: the laboratory, the edge node.
    #[error("{}", .0.message)]
    Other(Box<Failure>),
    /// Congestion controls and traces in the kernel.
    #[error(transparent)]
    Kernel(Box<crate::kernel::Error>),
    /// A file could not be written.
    #[error("cannot write {}: {reason}; choose a directory that you may write to", path.display(), reason = plain(.reason))]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
    /// Standard output failed, or the system refused an operation.
    #[error("{}", plain(.0))]
    System(#[from] std::io::Error),
    /// A file could not be read.
    #[error("cannot read {}: {}", path.display(), plain(.reason))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
    /// The problem has been printed already.
    #[error("failed")]
    AlreadyReported(Exit),
    /// A second signal arrived while closing.
    #[error("stopped by a second signal before everything was closed")]
    Interrupted,
}

impl CliError {
    /// The exit code of this failure: a documented one, unless a program passes on the code of a
    /// command that it ran.
    pub fn code(&self) -> u8 {
        match self {
            Self::Other(failure) => failure.code.unwrap_or(failure.exit.code()),
            _ => self.exit().code(),
        }
    }

    /// The kind of this failure.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Config(error) => error.exit(),
            Self::Key(error) if error.may_pass() => Exit::Other,
            Self::Key(_) => Exit::Key,
            Self::Connect(error) => connect_exit(error),
            Self::Server(error) => server_exit(error),
            Self::Join(error) => join_exit(error),
            Self::Listen(_)
            | Self::BindUdp(_)
            | Self::Monitor(_)
            | Self::Links(_)
            | Self::Split(_) => Exit::Network,
            Self::Control(ControlError::Refused(refusal)) => match refusal.kind {
                RefusalKind::NoSuchLink => Exit::Network,
                RefusalKind::Usage => Exit::Usage,
                RefusalKind::Other => Exit::Other,
            },
            Self::Control(_) => Exit::Control,
            Self::Kernel(error) => kernel_exit(error),
            Self::Gateway(_) | Self::Device(_) | Self::Dns(_) => Exit::Gateway,
            Self::Store(error) if error.may_pass() => Exit::Network,
            Self::Store(error) if error.is_shortage() => Exit::Other,
            Self::Rule(_) | Self::Store(_) => Exit::Config,
            Self::Other(failure) => failure.exit,
            Self::AlreadyReported(exit) => *exit,
            Self::Write { .. } | Self::Read { .. } | Self::System(_) => Exit::Other,
            Self::Interrupted => Exit::Interrupted,
        }
    }

    /// The failure as one JSON object, as `--json` prints it on standard output.
    pub fn json(&self) -> serde_json::Value {
        error_json(self.exit(), &plain(self).to_string())
    }
}

/// A failure of a kind that this library does not know.
#[derive(Debug)]
pub struct Failure {
    /// The kind.
    pub exit: Exit,
    /// The exit code, if it differs from that of the kind.
    pub code: Option<u8>,
    /// The problem and a remedy.
    pub message: String,
    /// Whether each line of the message begins with file and line, as editors expect.
    pub has_places: bool,
}

impl Failure {
    /// Makes a failure of this kind with a message of one line.
    pub fn new(exit: Exit, message: impl ToString) -> Self {
        Self {
            exit,
            code: None,
            message: message.to_string(),
            has_places: false,
        }
    }
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        Self::Other(Box::new(failure))
    }
}

impl From<crate::kernel::Error> for CliError {
    fn from(error: crate::kernel::Error) -> Self {
        Self::Kernel(Box::new(error))
    }
}

/// Exit codes of failures to open a session.
fn connect_exit(error: &ConnectError) -> Exit {
    match error {
        // Unlike a wrong file, a full disk needs no correction: the service tries again.
        ConnectError::State(error) if error.may_pass() => Exit::Other,
        ConnectError::Config(_) | ConnectError::Policy { .. } | ConnectError::State(_) => {
            Exit::Config
        }
        ConnectError::Carrier {
            error:
                CarrierError::Refused {
                    code: RefuseCode::Version,
                    ..
                },
            ..
        } => Exit::Version,
        ConnectError::Carrier { error, .. } => carrier_exit(error),
        _ => Exit::Network,
    }
}

/// Exit codes of failed handshakes.
fn carrier_exit(error: &CarrierError) -> Exit {
    match error {
        CarrierError::Tls(
            HandshakeError::WrongServerKey { .. }
            | HandshakeError::NotAuthorized { .. }
            | HandshakeError::UnknownClient { .. }
            | HandshakeError::PinnedElsewhere,
        ) => Exit::Authentication,
        CarrierError::Tls(HandshakeError::VersionMismatch) => Exit::Version,
        _ => Exit::Network,
    }
}

/// Exit codes of failures to join.
fn join_exit(error: &JoinError) -> Exit {
    match error {
        JoinError::NotAccepted => Exit::Authentication,
        JoinError::NotOffered => Exit::Version,
        JoinError::Failed(_) => Exit::Other,
        JoinError::Carrier(error) => carrier_exit(error),
        _ => Exit::Network,
    }
}

/// Exit codes of failures to start a server.
fn server_exit(error: &ServerError) -> Exit {
    match error {
        ServerError::Config(_) | ServerError::NobodyAuthorized | ServerError::Adopted(_) => {
            Exit::Config
        }
        _ => Exit::Network,
    }
}

/// Exit codes of failures of the kernel part.
fn kernel_exit(error: &crate::kernel::Error) -> Exit {
    match crate::kernel::is_usage(error) {
        true => Exit::Usage,
        false => Exit::Kernel,
    }
}
