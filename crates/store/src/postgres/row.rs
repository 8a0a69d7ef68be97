//! Rows of the tables, and the statements that read and write them. Dates, quotas and counters of
//! months are JSON, as in SQLite.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sumlink_transport::PublicKey;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

use super::errors::Failure;
use crate::invitation::Digest;
use crate::{Client, Invitation, ServerEntry, Traffic};

/// Parameters of a statement with their types, so that the database is not asked for them.
pub(super) type Values<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// The state, and the oldest transaction that is still open.
pub(super) const STATE: &str = "SELECT version, revision, \
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon FROM sumlink_state";

pub(super) const CLIENTS: &str = "SELECT * FROM sumlink_clients ORDER BY name";

pub(super) const INVITATIONS: &str = "SELECT * FROM sumlink_invitations ORDER BY name";

/// The state with each client that was changed in transaction $1 or later. One statement reads one
/// moment.
pub(super) const NEWS: &str = "SELECT s.version, s.revision, \
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon, c.* \
    FROM sumlink_state s LEFT JOIN sumlink_clients c ON c.changed >= $1";

pub(super) const SET_DISABLED: &str = "UPDATE sumlink_clients SET disabled = $2 WHERE key = $1";

pub(super) const SET_QUOTA: &str = "UPDATE sumlink_clients SET quota = $2 WHERE key = $1";

pub(super) const SET_EXPIRES: &str = "UPDATE sumlink_clients SET expires = $2 WHERE key = $1";

/// Changes no row if the batch was written already.
pub(super) const BEGIN_BATCH: &str = "INSERT INTO sumlink_writers AS w (id, batch) \
    VALUES ($1, $2) ON CONFLICT (id) \
    DO UPDATE SET batch = $2, seen = now() WHERE w.batch < $2";

pub(super) const LOCK_CLIENTS: &str =
    "SELECT * FROM sumlink_clients WHERE key = ANY ($1) ORDER BY key FOR UPDATE";

/// Whether a client or an invitation has a name.
pub(super) const HAS_NAME: &str = "SELECT EXISTS (SELECT FROM sumlink_clients WHERE name = $1) \
    OR EXISTS (SELECT FROM sumlink_invitations WHERE name = $1)";

pub(super) const NAME_OF_KEY: &str = "SELECT name FROM sumlink_clients WHERE key = $1";

pub(super) const ANNOUNCE: &str = "INSERT INTO sumlink_servers (addresses, name, key) \
    VALUES ($1, $2, $3) ON CONFLICT (addresses) \
    DO UPDATE SET name = $2, key = $3, seen = now()";

pub(super) const SERVERS: &str = "SELECT * FROM sumlink_servers \
    WHERE seen > now() - interval '1 day' ORDER BY addresses";

const INSERT_CLIENT: &str = "INSERT INTO sumlink_clients \
    (key, name, created, disabled, expires, quota, sent, received, sent_now, received_now) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

const INSERT_INVITATION: &str = "INSERT INTO sumlink_invitations \
    (tag, digest, name, created, expires, quota, client_expires) \
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

const WRITE_TRAFFIC: &str = "UPDATE sumlink_clients c SET sent = u.sent, received = u.received, \
    sent_now = u.sent_now, received_now = u.received_now, \
    changed = pg_current_xact_id()::text::bigint \
    FROM unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::text[], $5::text[]) \
    AS u (key, sent, received, sent_now, received_now) WHERE c.key = u.key";

pub(super) async fn insert_client(
    transaction: &Transaction<'_>,
    client: &Client,
) -> Result<(), Failure> {
    let traffic = &client.traffic;
    let key: &[u8] = client.key.as_bytes();
    let expires = client.expires.map(signed);
    let quota = client.quota.as_ref().map(json);
    let (sent_now, received_now) = (json(&traffic.sent_now), json(&traffic.received_now));
    let values: Values<'_> = &[
        (&key, Type::BYTEA),
        (&client.name, Type::TEXT),
        (&signed(client.created), Type::INT8),
        (&client.disabled, Type::BOOL),
        (&expires, Type::INT8),
        (&quota, Type::TEXT),
        (&signed(traffic.sent), Type::INT8),
        (&signed(traffic.received), Type::INT8),
        (&sent_now, Type::TEXT),
        (&received_now, Type::TEXT),
    ];
    transaction.execute_typed(INSERT_CLIENT, values).await?;
    Ok(())
}

pub(super) async fn insert_invitation(
    transaction: &Transaction<'_>,
    invitation: &Invitation,
) -> Result<(), Failure> {
    let (tag, digest): (&[u8], &[u8]) = (&invitation.tag, invitation.digest.as_bytes());
    let quota = invitation.quota.as_ref().map(json);
    let client_expires = invitation.client_expires.map(signed);
    let values: Values<'_> = &[
        (&tag, Type::BYTEA),
        (&digest, Type::BYTEA),
        (&invitation.name, Type::TEXT),
        (&signed(invitation.created), Type::INT8),
        (&signed(invitation.expires), Type::INT8),
        (&quota, Type::TEXT),
        (&client_expires, Type::INT8),
    ];
    transaction.execute_typed(INSERT_INVITATION, values).await?;
    Ok(())
}

/// Writes the usage of clients that are locked, in one statement.
pub(super) async fn write_traffic(
    transaction: &Transaction<'_>,
    clients: &[Client],
) -> Result<(), Failure> {
    let mut columns = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for client in clients {
        let traffic = &client.traffic;
        columns.0.push(&client.key.as_bytes()[..]);
        columns.1.push(signed(traffic.sent));
        columns.2.push(signed(traffic.received));
        columns.3.push(json(&traffic.sent_now));
        columns.4.push(json(&traffic.received_now));
    }
    let values: Values<'_> = &[
        (&columns.0, Type::BYTEA_ARRAY),
        (&columns.1, Type::INT8_ARRAY),
        (&columns.2, Type::INT8_ARRAY),
        (&columns.3, Type::TEXT_ARRAY),
        (&columns.4, Type::TEXT_ARRAY),
    ];
    transaction.execute_typed(WRITE_TRAFFIC, values).await?;
    Ok(())
}

pub(super) fn client(row: &Row) -> Result<Client, Failure> {
    Ok(Client {
        key: key(row)?,
        name: row.try_get("name")?,
        created: unsigned(row, "created")?,
        disabled: row.try_get("disabled")?,
        expires: optional(row, "expires")?,
        quota: from_json(row, "quota")?,
        traffic: Traffic {
            sent: unsigned(row, "sent")?,
            received: unsigned(row, "received")?,
            sent_now: present(from_json(row, "sent_now")?, "sent_now")?,
            received_now: present(from_json(row, "received_now")?, "received_now")?,
        },
    })
}

pub(super) fn invitation(row: &Row) -> Result<Invitation, Failure> {
    Ok(Invitation {
        tag: bytes(row, "tag")?,
        digest: Digest::from_bytes(bytes(row, "digest")?),
        name: row.try_get("name")?,
        created: unsigned(row, "created")?,
        expires: unsigned(row, "expires")?,
        quota: from_json(row, "quota")?,
        client_expires: optional(row, "client_expires")?,
    })
}

pub(super) fn server(row: &Row) -> Result<ServerEntry, Failure> {
    Ok(ServerEntry {
        name: row.try_get("name")?,
        key: key(row)?,
        addresses: row.try_get("addresses")?,
    })
}

fn key(row: &Row) -> Result<PublicKey, Failure> {
    PublicKey::from_bytes(bytes(row, "key")?).map_err(|_| wrong("key"))
}

fn bytes<const N: usize>(row: &Row, column: &str) -> Result<[u8; N], Failure> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map_err(|_| wrong(column))
}

/// The database's integers are signed; larger numbers become the largest.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row, column: &str) -> Result<u64, Failure> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| wrong(column))
}

fn optional(row: &Row, column: &str) -> Result<Option<u64>, Failure> {
    let number: Option<i64> = row.try_get(column)?;
    let number = number.map(u64::try_from).transpose();
    number.map_err(|_| wrong(column))
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("these values have no maps and no foreign types")
}

fn from_json<T: DeserializeOwned>(row: &Row, column: &str) -> Result<Option<T>, Failure> {
    let text: Option<&str> = row.try_get(column)?;
    let value = text.map(serde_json::from_str).transpose();
    value.map_err(|_| wrong(column))
}

fn present<T>(value: Option<T>, column: &str) -> Result<T, Failure> {
    value.ok_or_else(|| wrong(column))
}

fn wrong(column: &str) -> Failure {
    Failure::Value(format!(
        "its column `{column}` has a value that is not sumlink's"
    ))
}
