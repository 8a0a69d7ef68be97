//! The tables, and their versions.

use std::path::Path;

use rusqlite::Connection;

use super::explain;
use crate::StoreError;

/// Marks the file as a store of sumlink (`application_id` in its header): "suml".
pub(super) const APPLICATION: u32 = 0x7375_6d6c;

/// The changes from each version of the tables to the next; the first makes them.
const STEPS: [&str; 1] = ["
CREATE TABLE clients (
    key BLOB PRIMARY KEY CHECK (length(key) = 32),
    name TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    disabled INTEGER NOT NULL,
    expires INTEGER,
    quota TEXT,
    sent INTEGER NOT NULL,
    received INTEGER NOT NULL,
    sent_now TEXT NOT NULL,
    received_now TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE invitations (
    tag BLOB PRIMARY KEY CHECK (length(tag) = 16),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    name TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    quota TEXT,
    client_expires INTEGER
) STRICT, WITHOUT ROWID;
"];

/// The present version (`user_version` in the file's header).
pub(super) const VERSION: u32 = STEPS.len() as u32;

/// Checks that the file is an intact store. Changes nothing.
pub(super) fn check(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    let number = |name: &str| {
        let value = connection.pragma_query_value(None, name, |row| row.get::<_, u32>(0));
        value.map_err(|error| explain(file, error))
    };
    let damaged = |reason: String| StoreError::Damaged {
        file: file.to_owned(),
        reason,
    };
    if number("application_id")? != APPLICATION {
        return Err(damaged("it is a database of another program".to_owned()));
    }
    let found = number("user_version")?;
    if found > VERSION {
        return Err(StoreError::Newer {
            store: file.display().to_string(),
            found,
            known: VERSION,
        });
    }
    let verdict = connection.pragma_query_value(None, "integrity_check", |row| row.get(0));
    let verdict: String = verdict.map_err(|error| explain(file, error))?;
    match verdict.as_str() {
        "ok" => Ok(()),
        problem => Err(damaged(
            problem.lines().next().unwrap_or_default().to_owned(),
        )),
    }
}

/// Brings the tables to the present version.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    // The answer to this pragma is the mode in use.
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    // Every transaction that has ended survives a loss of power, not only the end of the process.
    connection.pragma_update(None, "synchronous", "FULL")?;
    apply(connection, &STEPS)
}

/// Applies the steps that are missing, all or none.
fn apply(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let done = transaction.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))?;
    for step in steps.iter().skip(done as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", steps.len() as u32)?;
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_steps_are_applied_once_and_in_order() {
        let mut connection = Connection::open_in_memory().unwrap();
        let steps = [
            "CREATE TABLE a (x INTEGER); INSERT INTO a VALUES (1);",
            "ALTER TABLE a ADD COLUMN y INTEGER NOT NULL DEFAULT 7;",
        ];
        apply(&mut connection, &steps[..1]).unwrap();
        apply(&mut connection, &steps).unwrap();
        apply(&mut connection, &steps).unwrap();
        let row = connection.query_row("SELECT x, y FROM a", [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        });
        assert_eq!(row, Ok((1, 7)));
        // A step that fails leaves the former version as it was.
        let failing = [steps[0], steps[1], "DROP TABLE a; DROP TABLE none;"];
        assert!(apply(&mut connection, &failing).is_err());
        let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
        assert_eq!(version, Ok(2));
        let rows = connection.query_row("SELECT count(*) FROM a", [], |row| row.get(0));
        assert_eq!(rows, Ok(1));
    }
}
