//! The clients of a server, as they are managed at run time: keys, quotas, usage and invitations.
//!
//! A [`Store`] keeps them; [`Sqlite`] does so in a file. A [`Registry`] is the view of a running
//! server: it has every client in memory, counts usage there, and writes the changes when it
//! is asked to, so that a store that cannot be written stops no session. Time is an argument
//! everywhere ([`Now`]).

#![deny(unsafe_code)]

mod client;
mod invitation;
mod registry;
mod sqlite;

use std::io;
use std::path::{Path, PathBuf};

use sumlink_transport::PublicKey;

pub use client::{Client, NameError, Quota, Standing, Traffic, check_name, format_beyond};
pub use client::{parse_beyond, parse_quota};
pub use invitation::{BadLink, Digest, Invitation, InvitationLink, Secret, Tag};
pub use registry::{Change, ChangeError, Registry};
pub use sqlite::Sqlite;

/// A moment: the local date decides about months, the seconds about expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: u64,
    /// The local date.
    pub today: chrono::NaiveDate,
}

impl Now {
    /// The present by the system's clock.
    pub fn read() -> Self {
        let now = chrono::Local::now();
        Self {
            seconds: u64::try_from(now.timestamp()).unwrap_or(0),
            today: now.date_naive(),
        }
    }
}

/// Keeps clients and invitations. Each call is one transaction: all of it is kept, or nothing.
pub trait Store: Send {
    /// Checks that the store is still in its place.
    fn check(&mut self) -> Result<(), StoreError>;

    /// All clients.
    fn clients(&mut self) -> Result<Vec<Client>, StoreError>;

    /// All invitations, expired ones included.
    fn invitations(&mut self) -> Result<Vec<Invitation>, StoreError>;

    /// Replaces the stored clients with these keys, their usage included.
    fn write(&mut self, clients: &[&Client]) -> Result<(), StoreError>;

    /// Removes a client.
    fn remove(&mut self, key: &PublicKey) -> Result<(), StoreError>;

    /// Adds an invitation.
    fn invite(&mut self, invitation: &Invitation) -> Result<(), StoreError>;

    /// Removes an invitation.
    fn cancel(&mut self, tag: &Tag) -> Result<(), StoreError>;

    /// Removes an invitation and adds its client. False, and no change, if the invitation does not
    /// exist: of two calls for one invitation, one succeeds.
    fn redeem(&mut self, tag: &Tag, client: &Client) -> Result<bool, StoreError>;

    /// Removes the invitations that have expired.
    fn forget_expired(&mut self, now: u64) -> Result<(), StoreError>;

    /// Copies the store, as it is now, to a new file with mode 0600.
    fn back_up(&mut self, copy: &Path) -> Result<(), StoreError>;
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The user's fault: the store does not exist.
    #[error(
        "{}: there is no store of clients; a server with `[clients] store` creates it when it \
        starts",
        .0.display()
    )]
    Missing(PathBuf),
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
        "{}: the store has format {found}, and this version of sumlink knows up to {known}: run \
        the version that wrote it",
        file.display()
    )]
    Newer {
        /// The file.
        file: PathBuf,
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
    },
}

impl StoreError {
    pub(crate) fn of_io(file: &std::path::Path, error: &io::Error) -> Self {
        Self::System {
            file: file.to_owned(),
            reason: sumlink_util::plain(error).to_string(),
        }
    }
}
