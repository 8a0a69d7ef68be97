//! The store in a file, by SQLite.
//!
//! The file is in WAL mode: a process that is killed, or a machine that loses power, loses no
//! transaction that has ended. One process has it open at a time; another one gets
//! [`StoreError::InUse`], because it would not notice the changes of the first.

mod row;
mod schema;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};
use sumlink_transport::PublicKey;

use crate::{
    Batch, Change, Client, Contents, Invitation, News, ServerEntry, Store, StoreError, Tag,
};

/// A store in an SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    file: PathBuf,
    /// Device and inode of the open file.
    identity: (u64, u64),
    /// The last batch of usage that was written.
    batch: u64,
}

impl Sqlite {
    /// Opens the store, and creates it with mode 0600 if the file does not exist.
    ///
    /// # Errors
    ///
    /// The file is damaged or of another program (it is not changed then), is in use, or cannot be
    /// read or written.
    pub fn open_or_create(file: &Path) -> Result<Self, StoreError> {
        match Self::open(file) {
            Err(StoreError::Missing(_)) => {
                create(file)?;
                Self::open(file)
            }
            opened => opened,
        }
    }

    /// Opens the store.
    ///
    /// # Errors
    ///
    /// As above, and [`StoreError::Missing`].
    pub fn open(file: &Path) -> Result<Self, StoreError> {
        let metadata = std::fs::metadata(file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::Missing(file.display().to_string()),
            _ => StoreError::of_io(file, &error),
        })?;
        // For SQLite an empty file is a new database; here it is one that was cut.
        if metadata.len() == 0 || !metadata.is_file() {
            return Err(StoreError::Damaged {
                file: file.to_owned(),
                reason: "it is empty".to_owned(),
            });
        }
        let opened = connect(file).and_then(|connection| {
            // Until the file has been checked, closing it must not write to it.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
            Ok(connection)
        });
        let mut store = Self {
            connection: opened.map_err(|error| explain(file, error))?,
            file: file.to_owned(),
            identity: identity(&metadata),
            batch: 0,
        };
        schema::check(&store.connection, file)?;
        store.run(schema::migrate)?;
        store.run(|connection| {
            // Takes the lock, which is then kept.
            let transaction = connection.transaction()?;
            transaction.pragma_update(None, "user_version", schema::VERSION)?;
            transaction.commit()?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
            Ok(())
        })?;
        Ok(store)
    }

    fn run<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        work(&mut self.connection).map_err(|error| explain(&self.file, error))
    }

    /// The same in a transaction, which changes the file that has the store's name: SQLite would
    /// go on with a file that was deleted, and the changes would end with the process.
    fn transact<T>(
        &mut self,
        work: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.check()?;
        self.run(|connection| {
            let transaction = connection.transaction()?;
            let result = work(&transaction)?;
            transaction.commit()?;
            Ok(result)
        })
    }
}

impl Store for Sqlite {
    fn check(&mut self) -> Result<(), StoreError> {
        let metadata = std::fs::metadata(&self.file);
        match metadata.map(|metadata| identity(&metadata)) {
            Ok(identity) if identity == self.identity => Ok(()),
            _ => Err(StoreError::Replaced(self.file.clone())),
        }
    }

    fn contents(&mut self) -> Result<Contents, StoreError> {
        self.run(|connection| {
            let mut statement = connection.prepare("SELECT * FROM clients ORDER BY name")?;
            let clients = statement.query_map([], row::client)?;
            let clients = clients.collect::<rusqlite::Result<_>>()?;
            let mut statement = connection.prepare("SELECT * FROM invitations ORDER BY name")?;
            let invitations = statement.query_map([], row::invitation)?;
            let invitations = invitations.collect::<rusqlite::Result<_>>()?;
            Ok(Contents {
                clients,
                invitations,
            })
        })
    }

    /// No other server has the file open.
    fn news(&mut self) -> Result<News, StoreError> {
        Ok(News::Clients(Vec::new()))
    }

    fn change(&mut self, key: &PublicKey, change: &Change) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            let changed = match change {
                Change::Disabled(disabled) => transaction.execute(
                    "UPDATE clients SET disabled = ?2 WHERE key = ?1",
                    params![key.as_bytes(), disabled],
                ),
                Change::Quota(quota) => transaction.execute(
                    "UPDATE clients SET quota = ?2 WHERE key = ?1",
                    params![key.as_bytes(), quota.as_ref().map(row::json)],
                ),
                Change::Expires(expires) => transaction.execute(
                    "UPDATE clients SET expires = ?2 WHERE key = ?1",
                    params![key.as_bytes(), expires.map(row::signed)],
                ),
            };
            Ok(changed? > 0)
        })
    }

    fn count(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if batch.number <= self.batch {
            return Ok(());
        }
        self.transact(|transaction| {
            let mut find = transaction.prepare("SELECT * FROM clients WHERE key = ?1")?;
            let mut update = transaction.prepare(row::UPDATE_TRAFFIC)?;
            for used in &batch.used {
                let found = find.query_row([used.key.as_bytes()], row::client);
                let Some(mut client) = found.optional()? else {
                    continue;
                };
                client.count(used.sent, used.received, used.day);
                row::bind_traffic(&mut update, &client)?;
                update.raw_execute()?;
            }
            Ok(())
        })?;
        self.batch = batch.number;
        Ok(())
    }

    fn remove(&mut self, key: &PublicKey) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            let statement = "DELETE FROM clients WHERE key = ?1";
            Ok(transaction.execute(statement, [key.as_bytes()])? > 0)
        })
    }

    fn invite(&mut self, invitation: &Invitation) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            if transaction.query_row(row::HAS_NAME, [&invitation.name], |row| row.get(0))? {
                return Ok(false);
            }
            let mut statement = transaction.prepare(row::INSERT_INVITATION)?;
            row::bind_invitation(&mut statement, invitation)?;
            statement.raw_execute()?;
            Ok(true)
        })
    }

    fn cancel(&mut self, tag: &Tag) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            Ok(transaction.execute("DELETE FROM invitations WHERE tag = ?1", [tag])? > 0)
        })
    }

    fn redeem(&mut self, tag: &Tag, client: &Client) -> Result<bool, StoreError> {
        self.transact(|transaction| {
            let known = "SELECT name FROM clients WHERE key = ?1";
            let known = transaction.query_row(known, [client.key.as_bytes()], |row| {
                row.get::<_, String>(0)
            });
            if let Some(name) = known.optional()? {
                return Ok(client.name == name);
            }
            let removed = transaction.execute("DELETE FROM invitations WHERE tag = ?1", [tag])?;
            if removed == 0 {
                return Ok(false);
            }
            let mut statement = transaction.prepare(row::INSERT_CLIENT)?;
            row::bind_client(&mut statement, client)?;
            statement.raw_execute()?;
            Ok(true)
        })
    }

    fn announce(&mut self, _: &ServerEntry) -> Result<(), StoreError> {
        Ok(())
    }

    fn servers(&mut self) -> Result<Vec<ServerEntry>, StoreError> {
        Ok(Vec::new())
    }

    fn back_up(&mut self, copy: &Path) -> Result<(), StoreError> {
        let failed = |reason: String| StoreError::BackUp {
            copy: copy.to_owned(),
            reason,
        };
        let name = copy.to_str();
        let name = name.ok_or_else(|| failed("its name is not UTF-8".to_owned()))?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(copy)
            .map_err(|error| failed(sumlink_util::plain(&error).to_string()))?;
        let copied = self.run(|connection| connection.execute("VACUUM INTO ?1", [name]));
        copied.map(drop).map_err(|error| {
            // Only this call has made it.
            let _ = remove_all(copy);
            match error {
                StoreError::System { reason, .. } => failed(reason),
                other => other,
            }
        })
    }

    fn forget_expired(&mut self, now: u64) -> Result<(), StoreError> {
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        self.transact(|transaction| {
            transaction.execute("DELETE FROM invitations WHERE expires <= ?1", params![now])?;
            Ok(())
        })
    }
}

fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Removes a database and the files that SQLite keeps beside it.
fn remove_all(file: &Path) -> io::Result<()> {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut name = file.as_os_str().to_owned();
        name.push(ending);
        match std::fs::remove_file(name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Creates an empty store: beside its place at first, so that no half of one is ever there.
fn create(file: &Path) -> Result<(), StoreError> {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let of_io = |error: io::Error| StoreError::of_io(file, &error);
    remove_all(&new).map_err(of_io)?;
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)
        .map_err(of_io)?;
    let made = connect(&new).and_then(|mut connection| {
        connection.pragma_update(None, "application_id", schema::APPLICATION)?;
        schema::migrate(&mut connection)?;
        // Closing would do the same, but ignore a full disk.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        connection.close().map_err(|(_, error)| error)
    });
    let made = made.map_err(|error| explain(file, error));
    // A link, because a rename would replace a file that another process has just made. Some file
    // systems have no links.
    let made = made.and_then(|()| match std::fs::hard_link(&new, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => std::fs::rename(&new, file).map_err(of_io),
        Ok(()) => Ok(()),
    });
    let _ = remove_all(&new);
    made
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags)
}

fn explain(file: &Path, error: rusqlite::Error) -> StoreError {
    let file = file.to_owned();
    let code = error.sqlite_error_code();
    // Without the statement, which is the same for every cause.
    let reason = match &error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    };
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse(file),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Damaged { file, reason }
        }
        Some(code) => StoreError::System {
            file,
            reason,
            is_shortage: matches!(
                code,
                ErrorCode::DiskFull | ErrorCode::OutOfMemory | ErrorCode::SystemIoFailure
            ),
        },
        // A value that no version of the program writes.
        None => StoreError::Damaged { file, reason },
    }
}
