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
mod target;
mod tls;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use sumlink_transport::PublicKey;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::types::Type;
use tokio_postgres::{Client as Connection, IsolationLevel, Transaction};

use crate::{
    Batch, Change, Client, Contents, DatabaseUrl, Invitation, News, ServerEntry, Store, StoreError,
    Tag,
};
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
/// Do not open or drop it in an asynchronous task: it has a runtime of its own.
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
    /// What was read last; `None` if all must be read.
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

impl Store for Postgres {
    /// The next statement does so.
    fn check(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn contents(&mut self) -> Result<Contents, StoreError> {
        let (contents, read) = self.run(async |connection| {
            let transaction = connection
                .build_transaction()
                .isolation_level(IsolationLevel::RepeatableRead)
                .read_only(true)
                .start()
                .await?;
            let state = transaction.query_typed_one(row::STATE, &[]).await?;
            let read = position(&state)?;
            let clients = transaction.query_typed(row::CLIENTS, &[]).await?;
            let invitations = transaction.query_typed(row::INVITATIONS, &[]).await?;
            transaction.commit().await?;
            let clients = clients.iter().map(row::client);
            let invitations = invitations.iter().map(row::invitation);
            let contents = Contents {
                clients: clients.collect::<Result<_, _>>()?,
                invitations: invitations.collect::<Result<_, _>>()?,
            };
            Ok((contents, read))
        })?;
        self.read = Some(read);
        Ok(contents)
    }

    fn news(&mut self) -> Result<News, StoreError> {
        let Some(read) = self.read else {
            return self.contents().map(News::All);
        };
        let (now, clients) = self.run(async |connection| {
            let values: row::Values<'_> = &[(&read.horizon, Type::INT8)];
            let rows = connection.query_typed(row::NEWS, values).await?;
            let Some(first) = rows.first() else {
                return Err(Failure::Value("sumlink_state is empty".to_owned()));
            };
            let now = position(first)?;
            // One row without a client stands for none.
            let has_client =
                |row: &&tokio_postgres::Row| row.get::<_, Option<&[u8]>>("key").is_some();
            let clients = rows.iter().filter(has_client).map(row::client);
            Ok((now, clients.collect::<Result<Vec<_>, _>>()?))
        })?;
        // A new connection may be to a database that was restored.
        if self.read.is_none() || now.revision != read.revision {
            return self.contents().map(News::All);
        }
        self.read = Some(now);
        Ok(News::Clients(clients))
    }

    fn change(&mut self, key: &PublicKey, change: &Change) -> Result<bool, StoreError> {
        let key: &[u8] = key.as_bytes();
        self.revise(async |transaction| {
            let changed = match change {
                Change::Disabled(disabled) => {
                    let values: row::Values<'_> = &[(&key, Type::BYTEA), (disabled, Type::BOOL)];
                    transaction.execute_typed(row::SET_DISABLED, values).await?
                }
                Change::Quota(quota) => {
                    let quota = quota.as_ref().map(row::json);
                    let values: row::Values<'_> = &[(&key, Type::BYTEA), (&quota, Type::TEXT)];
                    transaction.execute_typed(row::SET_QUOTA, values).await?
                }
                Change::Expires(expires) => {
                    let expires = expires.map(row::signed);
                    let values: row::Values<'_> = &[(&key, Type::BYTEA), (&expires, Type::INT8)];
                    transaction.execute_typed(row::SET_EXPIRES, values).await?
                }
            };
            Ok(changed > 0)
        })
    }

    fn count(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let writer = self.writer;
        self.run(async |connection| {
            let transaction = connection.transaction().await?;
            let (id, number): (&[u8], _) = (&writer, row::signed(batch.number));
            let values: row::Values<'_> = &[(&id, Type::BYTEA), (&number, Type::INT8)];
            if transaction.execute_typed(row::BEGIN_BATCH, values).await? == 0 {
                // It was written, and only the answer was lost.
                transaction.rollback().await?;
                return Ok(());
            }
            let keys: Vec<&[u8]> = batch
                .used
                .iter()
                .map(|used| &used.key.as_bytes()[..])
                .collect();
            let values: row::Values<'_> = &[(&keys, Type::BYTEA_ARRAY)];
            let found = transaction.query_typed(row::LOCK_CLIENTS, values).await?;
            let found = found.iter().map(row::client);
            let mut clients = found.collect::<Result<Vec<Client>, _>>()?;
            for used in &batch.used {
                // Both are in the order of the keys.
                if let Ok(at) = clients.binary_search_by(|client| client.key.cmp(&used.key)) {
                    clients[at].count(used.sent, used.received, used.day);
                }
            }
            row::write_traffic(&transaction, &clients).await?;
            Ok(transaction.commit().await?)
        })
    }

    fn remove(&mut self, key: &PublicKey) -> Result<bool, StoreError> {
        let key: &[u8] = key.as_bytes();
        self.revise(async |transaction| {
            let statement = "DELETE FROM sumlink_clients WHERE key = $1";
            let values: row::Values<'_> = &[(&key, Type::BYTEA)];
            Ok(transaction.execute_typed(statement, values).await? > 0)
        })
    }

    fn invite(&mut self, invitation: &Invitation) -> Result<bool, StoreError> {
        self.revise(async |transaction| {
            let values: row::Values<'_> = &[(&invitation.name, Type::TEXT)];
            let row = transaction.query_typed_one(row::HAS_NAME, values).await?;
            if row.try_get(0)? {
                return Ok(false);
            }
            row::insert_invitation(transaction, invitation).await?;
            Ok(true)
        })
    }

    fn cancel(&mut self, tag: &Tag) -> Result<bool, StoreError> {
        let tag: &[u8] = tag;
        self.revise(async |transaction| {
            let statement = "DELETE FROM sumlink_invitations WHERE tag = $1";
            let values: row::Values<'_> = &[(&tag, Type::BYTEA)];
            Ok(transaction.execute_typed(statement, values).await? > 0)
        })
    }

    fn redeem(&mut self, tag: &Tag, client: &Client) -> Result<bool, StoreError> {
        let (tag, key): (&[u8], &[u8]) = (tag, client.key.as_bytes());
        self.revise(async |transaction| {
            let values: row::Values<'_> = &[(&key, Type::BYTEA)];
            if let Some(known) = transaction
                .query_typed_opt(row::NAME_OF_KEY, values)
                .await?
            {
                return Ok(known.try_get::<_, &str>(0)? == client.name);
            }
            let statement = "DELETE FROM sumlink_invitations WHERE tag = $1";
            let values: row::Values<'_> = &[(&tag, Type::BYTEA)];
            if transaction.execute_typed(statement, values).await? == 0 {
                return Ok(false);
            }
            row::insert_client(transaction, client).await?;
            Ok(true)
        })
    }

    fn forget_expired(&mut self, now: u64) -> Result<(), StoreError> {
        let now = row::signed(now);
        let forgotten = self.revise(async |transaction| {
            let statement = "DELETE FROM sumlink_invitations WHERE expires <= $1";
            let values: row::Values<'_> = &[(&now, Type::INT8)];
            Ok(transaction.execute_typed(statement, values).await? > 0)
        });
        forgotten.map(drop)
    }

    fn back_up(&mut self, _: &Path) -> Result<(), StoreError> {
        Err(StoreError::HasOwnBackUp(self.database.clone()))
    }

    fn announce(&mut self, server: &ServerEntry) -> Result<(), StoreError> {
        self.run(async |connection| {
            let (name, key): (_, &[u8]) = (&server.name, server.key.as_bytes());
            let values: row::Values<'_> = &[
                (&server.addresses, Type::TEXT_ARRAY),
                (name, Type::TEXT),
                (&key, Type::BYTEA),
            ];
            connection.execute_typed(row::ANNOUNCE, values).await?;
            Ok(())
        })
    }

    fn servers(&mut self) -> Result<Vec<ServerEntry>, StoreError> {
        self.run(async |connection| {
            let rows = connection.query_typed(row::SERVERS, &[]).await?;
            rows.iter().map(row::server).collect()
        })
    }
}

/// The position of a row with the state; an error if a newer version has changed the tables.
fn position(row: &tokio_postgres::Row) -> Result<Position, Failure> {
    schema::must_be_known(row.try_get("version")?)?;
    Ok(Position {
        revision: row.try_get("revision")?,
        horizon: row.try_get("horizon")?,
    })
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
