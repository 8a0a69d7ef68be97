//! The tables, and their versions.

use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;

use super::errors::Failure;
use super::row::Values;
use crate::StoreError;

/// The lock of the database under which one server at a time makes or changes the tables: "suml".
const LOCK: i64 = 0x7375_6d6c;

/// The changes from each version of the tables to the next; the first makes them.
const STEPS: [&str; 1] = ["
CREATE TABLE sumlink_state (
    single BOOLEAN PRIMARY KEY DEFAULT true CHECK (single),
    version INTEGER NOT NULL,
    revision BIGINT NOT NULL
);
INSERT INTO sumlink_state (version, revision) VALUES (0, 0);
CREATE TABLE sumlink_clients (
    key BYTEA PRIMARY KEY CHECK (length(key) = 32),
    name TEXT NOT NULL UNIQUE,
    created BIGINT NOT NULL,
    disabled BOOLEAN NOT NULL,
    expires BIGINT,
    quota TEXT,
    sent BIGINT NOT NULL,
    received BIGINT NOT NULL,
    sent_now TEXT NOT NULL,
    received_now TEXT NOT NULL,
    changed BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE sumlink_invitations (
    tag BYTEA PRIMARY KEY CHECK (length(tag) = 16),
    digest BYTEA NOT NULL CHECK (length(digest) = 32),
    name TEXT NOT NULL UNIQUE,
    created BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    quota TEXT,
    client_expires BIGINT
);
CREATE TABLE sumlink_writers (
    id BYTEA PRIMARY KEY CHECK (length(id) = 16),
    batch BIGINT NOT NULL,
    seen TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE TABLE sumlink_servers (
    addresses TEXT[] PRIMARY KEY,
    name TEXT NOT NULL,
    key BYTEA NOT NULL CHECK (length(key) = 32),
    seen TIMESTAMPTZ NOT NULL DEFAULT now()
);
"];

/// The present version.
const VERSION: i32 = STEPS.len() as i32;

/// Refuses a database that cannot be written, such as a standby.
pub(super) async fn check_writable(connection: &Connection) -> Result<(), Failure> {
    let row = connection
        .query_typed_one("SELECT current_setting('transaction_read_only')", &[])
        .await?;
    match row.try_get(0)? {
        "off" => Ok(()),
        _ => Err(Failure::Store(StoreError::ReadOnly(String::new()))),
    }
}

/// Whether the tables exist.
pub(super) async fn exists(connection: &Connection) -> Result<bool, Failure> {
    let statement = "SELECT to_regclass('sumlink_state') IS NOT NULL";
    let row = connection.query_typed_one(statement, &[]).await?;
    Ok(row.try_get(0)?)
}

/// Makes the tables, or brings them to the present version: all steps or none.
pub(super) async fn create_or_migrate(connection: &mut Connection) -> Result<(), Failure> {
    let transaction = connection.transaction().await?;
    let values: Values<'_> = &[(&LOCK, Type::INT8)];
    let statement = "SELECT pg_advisory_xact_lock($1)";
    transaction.query_typed(statement, values).await?;
    let mut done = 0;
    if exists(transaction.client()).await? {
        let statement = "SELECT version FROM sumlink_state";
        let row = transaction.query_typed_one(statement, &[]).await?;
        done = row.try_get(0)?;
        must_be_known(done)?;
    }
    if done < VERSION {
        for step in STEPS.iter().skip(usize::try_from(done).unwrap_or(0)) {
            transaction.batch_execute(step).await?;
        }
        let values: Values<'_> = &[(&VERSION, Type::INT4)];
        let statement = "UPDATE sumlink_state SET version = $1, revision = revision + 1";
        transaction.execute_typed(statement, values).await?;
    }
    let old = "DELETE FROM sumlink_writers WHERE seen < now() - interval '30 days'";
    transaction.execute_typed(old, &[]).await?;
    Ok(transaction.commit().await?)
}

/// Refuses tables of a newer version.
pub(super) fn must_be_known(found: i32) -> Result<(), Failure> {
    match found > VERSION {
        true => Err(Failure::Store(StoreError::Newer {
            store: String::new(),
            found: u32::try_from(found).unwrap_or(0),
            known: VERSION as u32,
        })),
        false => Ok(()),
    }
}
