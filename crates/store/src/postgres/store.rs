//! The transactions of the store.

use std::path::Path;

use sumlink_transport::PublicKey;
use tokio_postgres::types::Type;
use tokio_postgres::{IsolationLevel, Row};

use super::errors::Failure;
use super::{Position, Postgres, row, schema};
use crate::{
    Batch, Change, Client, Contents, Invitation, News, ServerEntry, Store, StoreError, Tag,
};

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
                let reason = "the table sumlink_state is empty: restore a backup";
                return Err(Failure::Value(reason.to_owned()));
            };
            let now = position(first)?;
            // One row without a client stands for none.
            let has_client = |row: &&Row| row.get::<_, Option<&[u8]>>("key").is_some();
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
fn position(row: &Row) -> Result<Position, Failure> {
    schema::must_be_known(row.try_get("version")?)?;
    Ok(Position {
        revision: row.try_get("revision")?,
        horizon: row.try_get("horizon")?,
    })
}
