//! Errors of the database as one line.

use std::error::Error as StdError;
use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::StoreError;

/// Why a transaction did not end well.
pub(super) enum Failure {
    /// The driver's or the database's error.
    Database(Error),
    /// No answer in time.
    Silence,
    /// A value that sumlink does not write.
    Value(String),
    /// Another problem.
    Store(StoreError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl Failure {
    /// The error of the store in this database.
    pub(super) fn at(self, database: &str) -> StoreError {
        let database = database.to_owned();
        match self {
            // These do not know the database.
            Self::Store(StoreError::ReadOnly(_)) => StoreError::ReadOnly(database),
            Self::Store(StoreError::Newer { found, known, .. }) => StoreError::Newer {
                store: database,
                found,
                known,
            },
            Self::Store(error) => error,
            Self::Value(reason) => StoreError::Database { database, reason },
            Self::Silence => StoreError::Unreachable {
                database,
                reason: "it does not answer".to_owned(),
            },
            Self::Database(error) => explain(&error, database),
        }
    }
}

fn explain(error: &Error, database: String) -> StoreError {
    let Some(answer) = error.as_db_error() else {
        let reason = chain(error);
        return match has_config_error(error) {
            true => StoreError::Denied { database, reason },
            false => StoreError::Unreachable { database, reason },
        };
    };
    let reason = one_line(answer.message());
    let code = answer.code();
    let class = code.code().get(..2).unwrap_or_default();
    match code {
        &SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly(database),
        &SqlState::INVALID_CATALOG_NAME | &SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Denied { database, reason }
        }
        _ if class == "28" => StoreError::Denied { database, reason },
        // Connection exceptions, resources, the operator's intervention (shutdown, start, timeout).
        _ if matches!(class, "08" | "53" | "57") => StoreError::Unreachable { database, reason },
        _ => StoreError::Database { database, reason },
    }
}

/// Whether the connection failed because of the URL, its files or the password.
fn has_config_error(error: &Error) -> bool {
    let text = error.to_string();
    if text.starts_with("invalid configuration") || text.starts_with("authentication error") {
        return true;
    }
    if !text.starts_with("error performing TLS handshake") {
        return false;
    }
    let mut source = error.source();
    while let Some(cause) = source {
        // A connection that was cut during the handshake is no such error.
        let inner = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(inner, Some(kind) if kind != io::ErrorKind::InvalidData
            && kind != io::ErrorKind::InvalidInput)
        {
            return false;
        }
        source = cause.source();
    }
    true
}

/// An error and its causes.
pub(super) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let part = match error.downcast_ref::<io::Error>() {
            Some(error) => sumlink_util::plain(error).to_string(),
            None => error.to_string(),
        };
        // Some errors contain their cause already.
        if !text.contains(&part) {
            let separator = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{separator}{part}");
        }
        next = error.source();
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
