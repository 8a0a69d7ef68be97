//! Why a store cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The user's fault: the store does not exist.
    #[error(
        "{}: there is no store of clients; a server with `[clients] store` creates it when it \
        starts",
        .0
    )]
    Missing(String),
    /// The user's or the system's fault: the file has other content or is damaged. It was not
    /// changed.
    #[error(
        "{}: not a store of clients, or damaged ({reason}); the file was not changed: restore a \
        backup of it, or move it away to begin with an empty store",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The user's fault: a newer version of the program has written it.
    #[error(
        "{store}: the store has format {found}, and this version of sumlink knows up to {known}: \
        run the version that wrote it"
    )]
    Newer {
        /// The file or database.
        store: String,
        /// Its format.
        found: u32,
        /// The newest known format.
        known: u32,
    },
    /// The user's fault: another process has the store open.
    #[error(
        "{}: another process uses this store: only one server can; to reach the running server, \
        name its control socket with --control",
        .0.display()
    )]
    InUse(PathBuf),
    /// The user's fault: the file was removed, or another one has taken its place, while the store
    /// was open.
    #[error(
        "{}: the store of clients was removed or replaced while the server runs: put the file \
        back, or start the server again to use the one that is there",
        .0.display()
    )]
    Replaced(PathBuf),
    /// The user's or the system's fault: a copy cannot be written.
    #[error("cannot write the copy {}: {reason}; nothing is left of it", copy.display())]
    BackUp {
        /// The copy.
        copy: PathBuf,
        /// The system's or SQLite's error.
        reason: String,
    },
    /// The system's fault: the file cannot be read or written, for example because the disk is
    /// full.
    #[error("{}: cannot use the store of clients: {reason}", file.display())]
    System {
        /// The file.
        file: PathBuf,
        /// The system's or SQLite's error.
        reason: String,
        /// Whether the machine lacks disk space, memory or descriptors.
        is_shortage: bool,
    },
    /// The network's or the database's fault: no answer. Another attempt may succeed.
    #[error("{database}: cannot reach the database of the clients: {reason}")]
    Unreachable {
        /// The database, without a password.
        database: String,
        /// The problem.
        reason: String,
    },
    /// The user's fault: the database does not let this server in.
    #[error(
        "{database}: the database of the clients refuses this server: {reason}; check `store` and \
        `password_file` of [clients], and the rights of the user"
    )]
    Denied {
        /// The database, without a password.
        database: String,
        /// The problem.
        reason: String,
    },
    /// The user's fault: the database can only be read.
    #[error(
        "{0}: the database of the clients is read-only; a standby cannot be used: name the primary"
    )]
    ReadOnly(String),
    /// The database's fault: a statement failed, or a value is not one that sumlink writes.
    #[error("{database}: cannot use the database of the clients: {reason}")]
    Database {
        /// The database, without a password.
        database: String,
        /// The problem.
        reason: String,
    },
    /// The user's fault: the database has its own means for copies.
    #[error(
        "{0}: sumlink does not copy a database: use pg_dump, which needs no stop of the servers"
    )]
    HasOwnBackUp(String),
    /// The user's fault: this build of the program cannot use a database.
    #[error("{0}: this build of sumlink has no PostgreSQL (feature `postgres`): name a file")]
    NoDatabases(String),
}

impl StoreError {
    /// Whether the same call may succeed later without anyone's help.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether the machine lacks disk space, memory or descriptors.
    pub fn is_shortage(&self) -> bool {
        matches!(
            self,
            Self::System {
                is_shortage: true,
                ..
            }
        )
    }

    pub(crate) fn of_io(file: &Path, error: &io::Error) -> Self {
        Self::System {
            file: file.to_owned(),
            reason: sumlink_util::plain(error).to_string(),
            is_shortage: sumlink_util::is_shortage(error),
        }
    }
}
