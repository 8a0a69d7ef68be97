//! Where a store is: a file, or a database.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{Sqlite, Store, StoreError};

/// The place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// An SQLite file, for one server.
    File(PathBuf),
    /// A PostgreSQL database, which several servers may share.
    Database(DatabaseUrl),
}

/// The URL of a database: `postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE`.
/// [`Display`](fmt::Display) and [`Debug`](fmt::Debug) do not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    text: String,
    /// A file with the password, which is read for each connection.
    password_file: Option<PathBuf>,
}

/// A text that is no URL of a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a URL of a PostgreSQL database: {0}; write postgres://USER@HOST/DATABASE")]
pub struct LocationError(pub(crate) String);

impl Location {
    /// Whether a text names a database, and not a file.
    pub fn is_database(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// As [`Location::open_or_create`], and [`StoreError::Missing`].
    pub fn open(&self) -> Result<Box<dyn Store>, StoreError> {
        match self {
            Self::File(file) => Ok(Box::new(Sqlite::open(file)?)),
            #[cfg(feature = "postgres")]
            Self::Database(url) => Ok(Box::new(crate::Postgres::open(url)?)),
            #[cfg(not(feature = "postgres"))]
            Self::Database(url) => Err(StoreError::NoDatabases(url.to_string())),
        }
    }

    /// Opens the store, and creates it if it does not exist. A database must exist; its tables are
    /// created.
    ///
    /// Do not call this, or drop the store, in an asynchronous task: a database uses a runtime of
    /// its own.
    ///
    /// # Errors
    ///
    /// The store cannot be reached, is damaged, is of another program or of a newer version, or is
    /// in use.
    pub fn open_or_create(&self) -> Result<Box<dyn Store>, StoreError> {
        match self {
            Self::File(file) => Ok(Box::new(Sqlite::open_or_create(file)?)),
            #[cfg(feature = "postgres")]
            Self::Database(url) => Ok(Box::new(crate::Postgres::open_or_create(url)?)),
            #[cfg(not(feature = "postgres"))]
            Self::Database(url) => Err(StoreError::NoDatabases(url.to_string())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Database(url) => url.fmt(f),
        }
    }
}

impl DatabaseUrl {
    /// Checks a URL. The password may be in a file instead, or in the environment variable
    /// `PGPASSWORD`.
    pub fn new(text: &str, password_file: Option<&Path>) -> Result<Self, LocationError> {
        if !Location::is_database(text) {
            return Err(LocationError("it has another scheme".to_owned()));
        }
        let url = Self {
            text: text.to_owned(),
            password_file: password_file.map(Path::to_owned),
        };
        #[cfg(feature = "postgres")]
        crate::postgres::Target::of(&url)?;
        Ok(url)
    }

    /// Whether the URL itself has a password.
    pub fn has_password(&self) -> bool {
        let (credentials, _) = self.parts();
        credentials.is_some_and(|credentials| credentials.contains(':'))
            || self.options().any(|(name, _)| name == "password")
    }

    /// The file with the password.
    pub fn password_file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }

    /// The text without its options.
    pub(crate) fn base(&self) -> &str {
        self.text.split('?').next().unwrap_or_default()
    }

    /// The options behind the question mark.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let (_, query) = self.text.split_once('?').unwrap_or_default();
        let options = query.split('&').filter(|option| !option.is_empty());
        options.map(|option| option.split_once('=').unwrap_or((option, "")))
    }

    /// User and password, if any, and the rest.
    fn parts(&self) -> (Option<&str>, &str) {
        let base = self.base();
        let behind = base.split_once("://").map_or(base, |(_, behind)| behind);
        match behind.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, behind),
        }
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (credentials, rest) = self.parts();
        f.write_str("postgres://")?;
        if let Some(credentials) = credentials {
            let user = credentials.split(':').next().unwrap_or_default();
            write!(f, "{user}@")?;
        }
        f.write_str(rest)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for (text, shown) in [
            (
                "postgres://bob:pw@db/x?sslmode=disable",
                "postgres://bob@db/x",
            ),
            (
                "postgresql://bob:p%40w@db:5433/x",
                "postgres://bob@db:5433/x",
            ),
            ("postgres://db/x?user=bob&password=pw", "postgres://db/x"),
            (
                "postgres://bob@/x?host=/run/postgresql",
                "postgres://bob@/x",
            ),
        ] {
            let url = DatabaseUrl::new(text, None).unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("DatabaseUrl({shown})"));
            assert_eq!(
                url.has_password(),
                text.contains("pw") || text.contains("p%40w")
            );
        }
    }

    #[test]
    fn wrong_urls_are_refused_without_their_password() {
        for (text, reason) in [
            ("mysql://bob:secret@db/x", "another scheme"),
            #[cfg(feature = "postgres")]
            ("postgres://bob:secret@db/x?sslmode=maybe", "sslmode"),
            #[cfg(feature = "postgres")]
            ("postgres://bob:secret@db:port/x", "port"),
            #[cfg(feature = "postgres")]
            ("postgres://bob:secret@db/x?colour=red", "colour"),
            #[cfg(feature = "postgres")]
            ("postgres://bob:secret@db", "names no database"),
        ] {
            let error = DatabaseUrl::new(text, None).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
