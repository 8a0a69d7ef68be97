//! Errors and exit codes: one error type for every verb, one documented exit code for each kind of
//! failure.

use std::path::PathBuf;

use serde_json::json;
use sumlink_proxy::{ListenError, UdpBindError};
use sumlink_transport::join::JoinError;
use sumlink_transport::keys::KeyError;
use sumlink_transport::links::LinkError;
use sumlink_transport::tls::HandshakeError;
use sumlink_transport::{CarrierError, ConnectError, RefuseCode, ServerError};
use sumlink_util::plain;

use crate::config::ConfigError;
use crate::control::{ControlError, RefusalKind};

/// The exit codes; `--help`, the man pages and docs/cli.md show this table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success, or a daemon stopped by a signal.
    Ok = 0,
    /// None of the others: output could not be written, or the system refused an operation.
    Other = 1,
    /// The command line is wrong; nothing was started.
    Usage = 2,
    /// The configuration file is missing or wrong.
    Config = 3,
    /// A key file is missing, malformed, readable by others, or would be overwritten.
    Key = 4,
    /// An address or a link: taken port, unknown host or link, no route, no answer.
    Network = 5,
    /// The server has another key, or does not know this client's key.
    Authentication = 6,
    /// The peer speaks another version of the protocol.
    Version = 7,
    /// The control socket does not answer, is in use, or may not be opened.
    Control = 8,
    /// The laboratory could not run.
    Laboratory = 9,
    /// The laboratory ran, and a figure missed its target or is invalid.
    Measurement = 10,
    /// Congestion controls and traces in the kernel.
    Kernel = 11,
    /// Routes, firewall, device or DNS port of a gateway.
    Gateway = 12,
    /// A signal interrupted doctor, speedtest, setup, join or the laboratory, or a second signal
    /// arrived while a daemon was closing.
    Interrupted = 130,
}

impl Exit {
    /// Every code, in ascending order.
    pub const ALL: [Self; 14] = [
        Self::Ok,
        Self::Other,
        Self::Usage,
        Self::Config,
        Self::Key,
        Self::Network,
        Self::Authentication,
        Self::Version,
        Self::Control,
        Self::Laboratory,
        Self::Measurement,
        Self::Kernel,
        Self::Gateway,
        Self::Interrupted,
    ];

    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The `kind` of `--json` errors.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Other => "other",
            Self::Usage => "usage",
            Self::Config => "configuration",
            Self::Key => "key",
            Self::Network => "network",
            Self::Authentication => "authentication",
            Self::Version => "version",
            Self::Control => "control",
            Self::Laboratory => "laboratory",
            Self::Measurement => "measurement",
            Self::Kernel => "kernel",
            Self::Gateway => "gateway",
            Self::Interrupted => "interrupted",
        }
    }

    /// The meaning of the code, for help texts.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "success, including a client or server that a signal stopped",
            Self::Other => "any other failure, such as output that cannot be written",
            Self::Usage => "wrong command line",
            Self::Config => "missing or wrong configuration file",
            Self::Key => "key file missing, malformed, readable by others, or already present",
            Self::Network => {
                "address or link: taken port, unknown host or link, no route, no answer"
            }
            Self::Authentication => "wrong server key, or this client is not authorized",
            Self::Version => "the peer speaks another version of the protocol",
            Self::Control => "control socket: no process listens, already in use, or not permitted",
            Self::Laboratory => {
                "laboratory: a program, device or permission is missing, or a part failed"
            }
            Self::Measurement => "laboratory: a figure missed its target, or was refused",
            Self::Kernel => {
                "congestion controls in the kernel: privilege or feature missing, or refused"
            }
            Self::Gateway => {
                "gateway: privilege, device or firewall missing, refused, or already running"
            }
            Self::Interrupted => {
                "interrupted: doctor, speedtest, setup, join or the laboratory; a daemon by a second \
                 signal"
            }
        }
    }
}

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

/// A failure as a JSON object.
pub fn error_json(exit: Exit, message: &str) -> serde_json::Value {
    json!({ "error": { "kind": exit.kind(), "exit_code": exit.code(), "message": message } })
}

/// Exit codes of failures to open a session.
fn connect_exit(error: &ConnectError) -> Exit {
    match error {
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
        ServerError::Config(_) | ServerError::NobodyAuthorized => Exit::Config,
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

/// A table of exit codes, indented, one per line.
pub(crate) fn table(exits: &[Exit]) -> String {
    let line = |exit: &Exit| format!("  {:>3}  {}\n", exit.code(), exit.meaning());
    exits.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_ascending() {
        assert!(
            Exit::ALL
                .windows(2)
                .all(|pair| pair[0].code() < pair[1].code())
        );
    }

    #[test]
    fn the_manual_lists_every_code_with_the_same_words() {
        let manual = include_str!("../../../docs/cli.md");
        for exit in Exit::ALL {
            let row = format!("| {} | {} |", exit.code(), exit.meaning());
            assert!(manual.contains(&row), "docs/cli.md lacks this row: {row}");
        }
    }
}
