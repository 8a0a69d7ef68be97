//! The store in a PostgreSQL database, which several servers may share.
//!
//! Each change of clients or invitations first increments the revision in `sumlink_state`. Its row
//! lock puts these changes in an order, so that of two servers with one invitation only one adds a
//! client, and another server that reads a new revision reads everything again.
//!
//! Usage is frequent and has no revision: a server adds to the rows of its clients, locked in the
//! order of their keys. `changed` is the transaction that changed a row last, so that others find
//! these rows: those with a transaction that may have been open when they read before.
//!
//! A connection that is lost during a commit leaves open whether the database has the changes. The
//! number of the last batch of each writer, in the same transaction, says so for usage; the other
//! changes do no harm when they are repeated.

pub(crate) mod errors;
mod row;
mod schema;
mod store;
mod target;
mod tls;

use std::fmt;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::{Client as Connection, Transaction};

use crate::{DatabaseUrl, StoreError};
use errors::Failure;
pub(crate) use target::Target;

/// Longest time for a connection.
const CONNECT: Duration = Duration::from_secs(3);

/// Longest time for a transaction.
const ANSWER: Duration = Duration::from_secs(5);

/// Time without attempts after one that failed: meanwhile the store answers at once.
const PAUSE: Duration = Duration::from_secs(2);

/// A store in a PostgreSQL database.
///
/// Do not open or drop it in an asynchronous task: it contains a runtime.
pub struct Postgres {
    /// The URL without a password, for messages.
    database: String,
    url: DatabaseUrl,
    target: Target,
    runtime: Option<Runtime>,
    connection: Option<Connection>,
    /// When the last attempt to connect failed, and why.
    failed: Option<(Instant, String)>,
    /// Identifies this opened store among all that write usage.
    writer: [u8; 16],
    /// Position of the last read; `None` if all must be read.
    read: Option<Position>,
}

/// How far the database was read.
#[derive(Clone, Copy)]
struct Position {
    revision: i64,
    /// Transactions below it had ended.
    horizon: i64,
}

impl Postgres {
    /// Opens the store, and creates its tables if they do not exist.
    ///
    /// # Errors
    ///
    /// The database cannot be reached, refuses the user, is read-only or of a newer version.
    pub fn open_or_create(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let mut store = Self::connect(url)?;
        store.run(async |connection| schema::create_or_migrate(connection).await)?;
        Ok(store)
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// As above, and [`StoreError::Missing`].
    pub fn open(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let mut store = Self::connect(url)?;
        let database = store.database.clone();
        if !store.run(async |connection| schema::exists(connection).await)? {
            return Err(StoreError::Missing(database));
        }
        store.run(async |connection| schema::create_or_migrate(connection).await)?;
        Ok(store)
    }

    fn connect(url: &DatabaseUrl) -> Result<Self, StoreError> {
        let database = url.to_string();
        let failed = |reason: String| StoreError::Database {
            database: database.clone(),
            reason,
        };
        let target = Target::of(url).map_err(|error| failed(error.0))?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(sumlink_util::plain(&error).to_string()))?;
        let mut writer = [0; 16];
        let filled = SystemRandom::new().fill(&mut writer);
        filled.map_err(|_| failed("the system has no random numbers yet".to_owned()))?;
        let mut store = Self {
            database,
            url: url.clone(),
            target,
            runtime: Some(runtime),
            connection: None,
            failed: None,
            writer,
            read: None,
        };
        store.run(async |connection| schema::check_writable(connection).await)?;
        Ok(store)
    }

    /// Runs one transaction, on a new connection if there is none.
    fn run<T>(
        &mut self,
        job: impl AsyncFnOnce(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let Some(runtime) = &self.runtime else {
            unreachable!("the runtime ends with the store");
        };
        // The connection's task notices here that the database has closed it.
        runtime.block_on(async {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        });
        if self.connection.as_ref().is_none_or(Connection::is_closed) {
            self.connection = None;
            self.read = None;
            if let Some((at, reason)) = &self.failed
                && at.elapsed() < PAUSE
            {
                return Err(StoreError::Unreachable {
                    database: self.database.clone(),
                    reason: reason.clone(),
                });
            }
            let opening = open(&self.target, &self.url);
            let connected = runtime.block_on(async { timeout(2 * CONNECT, opening).await });
            let connected = connected.unwrap_or(Err(Failure::Silence));
            match connected.map_err(|failure| failure.at(&self.database)) {
                Ok(connection) => self.connection = Some(connection),
                Err(error) => {
                    if let StoreError::Unreachable { reason, .. } = &error {
                        self.failed = Some((Instant::now(), reason.clone()));
                    }
                    return Err(error);
                }
            }
            self.failed = None;
        }
        let Some(connection) = &mut self.connection else {
            unreachable!("it was made above");
        };
        let done = runtime.block_on(async { timeout(ANSWER, job(connection)).await });
        let done = done.unwrap_or(Err(Failure::Silence));
        done.map_err(|failure| {
            let error = failure.at(&self.database);
            // A database that is read-only now was the primary before: look for the new one.
            if error.may_pass() || matches!(error, StoreError::ReadOnly(_)) {
                self.connection = None;
                self.read = None;
            }
            error
        })
    }

    /// A transaction that changes clients or invitations, one at a time in the database.
    fn revise(
        &mut self,
        job: impl AsyncFnOnce(&Transaction<'_>) -> Result<bool, Failure>,
    ) -> Result<bool, StoreError> {
        self.run(async |connection| {
            let transaction = connection.transaction().await?;
            let statement = "UPDATE sumlink_state SET revision = revision + 1";
            transaction.execute_typed(statement, &[]).await?;
            let is_changed = job(&transaction).await?;
            match is_changed {
                true => transaction.commit().await?,
                false => transaction.rollback().await?,
            }
            Ok(is_changed)
        })
    }
}

/// Connects, with limits on the time that the database spends for a statement.
async fn open(target: &Target, url: &DatabaseUrl) -> Result<Connection, Failure> {
    let denied = |reason| {
        Failure::Store(StoreError::Denied {
            database: url.to_string(),
            reason,
        })
    };
    let config = target.with_password(url.password_file()).map_err(denied)?;
    let tls = target.tls().map_err(denied)?;
    let (connection, task) = config.connect(tls).await?;
    tokio::spawn(async move {
        // Its error is that of the next statement, too.
        let _ = task.await;
    });
    let limits = "SET statement_timeout = '4s'; SET lock_timeout = '3s'; \
                  SET idle_in_transaction_session_timeout = '10s'";
    connection.batch_execute(limits).await?;
    Ok(connection)
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres")
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            if let Some(connection) = self.connection.take() {
                // The connection's task says goodbye once its client is gone.
                drop(connection);
                runtime.block_on(async {
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                });
            }
            // A name lookup may hang.
            runtime.shutdown_background();
        }
    }
}
