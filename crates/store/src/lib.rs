//! The clients of a server, as they are managed at run time: keys, quotas, usage and invitations.
//!
//! A [`Store`] keeps them: [`Sqlite`] in a file, for one server, and `Postgres` in a database that
//! several servers share. A [`Registry`] is the view of a running server: it has every client in
//! memory, counts usage there, and writes the changes when it is asked to, so that a store that
//! cannot be written stops no session. Time is an argument everywhere ([`Now`]).

#![deny(unsafe_code)]

mod client;
mod error;
mod invitation;
mod location;
#[cfg(feature = "postgres")]
mod postgres;
mod registry;
mod sqlite;

use std::fmt;
use std::path::Path;

use chrono::NaiveDate;
use sumlink_transport::PublicKey;

pub use client::{Change, Client, NameError, Quota, Standing, Traffic, check_name, format_beyond};
pub use client::{parse_beyond, parse_quota};
pub use error::StoreError;
pub use invitation::{BadLink, Digest, Invitation, InvitationLink, Secret, ServerEntry, Tag};
pub use location::{DatabaseUrl, Location, LocationError};
#[cfg(feature = "postgres")]
pub use postgres::Postgres;
pub use registry::{ChangeError, Registry};
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
///
/// Several servers may use one store. Changes by another server between two calls are a normal
/// case: an answer of `false` says that the client or invitation was not there, or its name was.
pub trait Store: fmt::Debug + Send {
    /// Checks that the store is still in its place.
    fn check(&mut self) -> Result<(), StoreError>;

    /// Everything in the store at one moment.
    fn contents(&mut self) -> Result<Contents, StoreError>;

    /// The changes of other servers since the last call of this function or of
    /// [`Store::contents`].
    fn news(&mut self) -> Result<News, StoreError>;

    /// Changes the client with this key; false if there is none.
    fn change(&mut self, key: &PublicKey, change: &Change) -> Result<bool, StoreError>;

    /// Adds to the usage of clients. A batch counts once, even if it is given again because an
    /// error left open whether it was written. Keys without a client are ignored.
    fn count(&mut self, batch: &Batch) -> Result<(), StoreError>;

    /// Removes a client; false if there is none with this key.
    fn remove(&mut self, key: &PublicKey) -> Result<bool, StoreError>;

    /// Adds an invitation; false if its name belongs to a client or to another invitation.
    fn invite(&mut self, invitation: &Invitation) -> Result<bool, StoreError>;

    /// Removes an invitation; false if there is none with this tag.
    fn cancel(&mut self, tag: &Tag) -> Result<bool, StoreError>;

    /// Removes an invitation and adds its client. False, and no change, if the invitation does not
    /// exist, or if the key is another client's: of two calls for one invitation, one succeeds. The
    /// same call again, after an error left open whether it did, is true.
    fn redeem(&mut self, tag: &Tag, client: &Client) -> Result<bool, StoreError>;

    /// Removes the invitations that have expired.
    fn forget_expired(&mut self, now: u64) -> Result<(), StoreError>;

    /// Copies the store, as it is now, to a new file with mode 0600.
    fn back_up(&mut self, copy: &Path) -> Result<(), StoreError>;

    /// Enters this server into the list of all servers of the store. A store of one server has no
    /// list.
    fn announce(&mut self, server: &ServerEntry) -> Result<(), StoreError>;

    /// The servers that were announced in the last day, by address.
    fn servers(&mut self) -> Result<Vec<ServerEntry>, StoreError>;
}

/// All of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// All clients, by name.
    pub clients: Vec<Client>,
    /// All invitations, expired ones included, by name.
    pub invitations: Vec<Invitation>,
}

/// Changes by other servers. It may contain entries without a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Nothing but these clients; none of them is new.
    Clients(Vec<Client>),
    /// Anything: this is all of the store.
    All(Contents),
}

/// Usage that is written together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Identifies it among those of one opened store; each is larger than the former one.
    pub number: u64,
    /// The usage.
    pub used: Vec<Used>,
}

/// The usage of a client on one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The client.
    pub key: PublicKey,
    /// The local date.
    pub day: NaiveDate,
    /// Bytes sent to the client.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
}
