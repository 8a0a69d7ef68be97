//! Why a request at the control socket, or the socket itself, fails.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sumlink_transport::SetPolicyError;
use sumlink_util::plain;

use super::{LONGEST_PATH, PATIENCE};

/// Why a running process refused to show or change a link's policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Message for people.
    pub error: String,
    /// Cause.
    #[serde(default)]
    pub kind: RefusalKind,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// The link does not exist.
    NoSuchLink,
    /// The request is invalid.
    Usage,
    /// Any other cause.
    #[default]
    Other,
}

impl Refusal {
    /// The request is for another kind of program.
    pub(crate) fn not_here(reason: &str) -> Self {
        Self {
            error: reason.to_owned(),
            kind: RefusalKind::Usage,
        }
    }
}

impl From<SetPolicyError> for Refusal {
    fn from(error: SetPolicyError) -> Self {
        let kind = match error {
            SetPolicyError::NoSuchLink { .. } => RefusalKind::NoSuchLink,
            SetPolicyError::Policy(_) => RefusalKind::Usage,
            _ => RefusalKind::Other,
        };
        Self {
            error: error.to_string(),
            kind,
        }
    }
}

/// Failures of the control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Caused by the user: another process uses the socket.
    #[error("{}: another sumlink already uses this control socket; choose another --control", .0.display())]
    InUse(PathBuf),
    /// Caused by the user: the path is a file and not a socket.
    #[error("{}: the file is not a socket; choose another --control", .0.display())]
    NotASocket(PathBuf),
    /// Caused by the system or the user: the socket cannot be created.
    #[error("{}: cannot create the control socket: {reason}; choose a --control of at most {LONGEST_PATH} bytes in a directory that exists and that you may write to", path.display(), reason = plain(.reason))]
    Create {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// Caused by the user: no process listens there.
    #[error("{}: no sumlink answers at this control socket ({reason}); is it running with --control?", path.display(), reason = plain(.reason))]
    Nobody {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// Caused by the user: no socket was named, and no service runs.
    #[error("no sumlink runs as a service here (no answer at {}): name the socket with --control", paths(.0))]
    NoService(Vec<PathBuf>),
    /// Caused by the user: no socket was named, and several services run.
    #[error("several sumlink services run here: choose one with --control, from {}", paths(.0))]
    Several(Vec<PathBuf>),
    /// Caused by the user: the socket belongs to another user.
    #[error("{}: not permitted: run this as the user of that sumlink, or as root", .0.display())]
    NotPermitted(PathBuf),
    /// Caused by the user: the other program refused the request.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// Caused by the other program: it takes too long to answer.
    #[error("{}: no answer within {} s: that sumlink is stopped, or waits for a disk; see its log", path.display(), PATIENCE.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
    },
    /// Caused by the other program: its answer is invalid.
    #[error("{}: invalid answer: {reason}; check that --control is the socket of a running sumlink of this version", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
}

fn paths(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}
