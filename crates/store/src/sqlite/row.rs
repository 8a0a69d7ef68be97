//! Rows of the tables. Dates, quotas and counters of months are JSON.

use rusqlite::types::Type;
use rusqlite::{Row, Statement};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sumlink_transport::PublicKey;

use crate::invitation::Digest;
use crate::{Client, Invitation, Traffic};

pub(super) const INSERT_CLIENT: &str = "INSERT INTO clients \
    (key, name, created, disabled, expires, quota, sent, received, sent_now, received_now) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

pub(super) const UPDATE_TRAFFIC: &str = "UPDATE clients SET \
    sent = ?2, received = ?3, sent_now = ?4, received_now = ?5 WHERE key = ?1";

/// Whether a client or an invitation has a name.
pub(super) const HAS_NAME: &str = "SELECT EXISTS (SELECT 1 FROM clients WHERE name = ?1) \
    OR EXISTS (SELECT 1 FROM invitations WHERE name = ?1)";

pub(super) const INSERT_INVITATION: &str = "INSERT INTO invitations \
    (tag, digest, name, created, expires, quota, client_expires) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Sets the parameters of [`INSERT_CLIENT`].
pub(super) fn bind_client(statement: &mut Statement<'_>, client: &Client) -> rusqlite::Result<()> {
    let traffic = &client.traffic;
    statement.raw_bind_parameter(1, client.key.as_bytes())?;
    statement.raw_bind_parameter(2, &client.name)?;
    statement.raw_bind_parameter(3, signed(client.created))?;
    statement.raw_bind_parameter(4, client.disabled)?;
    statement.raw_bind_parameter(5, client.expires.map(signed))?;
    statement.raw_bind_parameter(6, client.quota.as_ref().map(json))?;
    statement.raw_bind_parameter(7, signed(traffic.sent))?;
    statement.raw_bind_parameter(8, signed(traffic.received))?;
    statement.raw_bind_parameter(9, json(&traffic.sent_now))?;
    statement.raw_bind_parameter(10, json(&traffic.received_now))
}

/// Sets the parameters of [`UPDATE_TRAFFIC`].
pub(super) fn bind_traffic(statement: &mut Statement<'_>, client: &Client) -> rusqlite::Result<()> {
    let traffic = &client.traffic;
    statement.raw_bind_parameter(1, client.key.as_bytes())?;
    statement.raw_bind_parameter(2, signed(traffic.sent))?;
    statement.raw_bind_parameter(3, signed(traffic.received))?;
    statement.raw_bind_parameter(4, json(&traffic.sent_now))?;
    statement.raw_bind_parameter(5, json(&traffic.received_now))
}

/// Sets the parameters of [`INSERT_INVITATION`].
pub(super) fn bind_invitation(
    statement: &mut Statement<'_>,
    invitation: &Invitation,
) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(1, invitation.tag)?;
    statement.raw_bind_parameter(2, invitation.digest.as_bytes())?;
    statement.raw_bind_parameter(3, &invitation.name)?;
    statement.raw_bind_parameter(4, signed(invitation.created))?;
    statement.raw_bind_parameter(5, signed(invitation.expires))?;
    statement.raw_bind_parameter(6, invitation.quota.as_ref().map(json))?;
    statement.raw_bind_parameter(7, invitation.client_expires.map(signed))
}

pub(super) fn client(row: &Row<'_>) -> rusqlite::Result<Client> {
    Ok(Client {
        key: key(row)?,
        name: row.get("name")?,
        created: unsigned(row, "created")?,
        disabled: row.get("disabled")?,
        expires: optional(row, "expires")?,
        quota: from_json(row, "quota")?,
        traffic: Traffic {
            sent: unsigned(row, "sent")?,
            received: unsigned(row, "received")?,
            sent_now: present(from_json(row, "sent_now")?)?,
            received_now: present(from_json(row, "received_now")?)?,
        },
    })
}

pub(super) fn invitation(row: &Row<'_>) -> rusqlite::Result<Invitation> {
    Ok(Invitation {
        tag: row.get("tag")?,
        digest: Digest::from_bytes(row.get("digest")?),
        name: row.get("name")?,
        created: unsigned(row, "created")?,
        expires: unsigned(row, "expires")?,
        quota: from_json(row, "quota")?,
        client_expires: optional(row, "client_expires")?,
    })
}

fn key(row: &Row<'_>) -> rusqlite::Result<PublicKey> {
    PublicKey::from_bytes(row.get("key")?).map_err(wrong)
}

/// SQLite's integers are signed; larger numbers become the largest.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(wrong)
}

fn optional(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<u64>> {
    let number: Option<i64> = row.get(column)?;
    number.map(u64::try_from).transpose().map_err(wrong)
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("these values have no maps and no foreign types")
}

fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = row.get(column)?;
    let value = text.map(|text| serde_json::from_str(&text)).transpose();
    value.map_err(wrong)
}

fn present<T>(value: Option<T>) -> rusqlite::Result<T> {
    value.ok_or(rusqlite::Error::InvalidQuery)
}

fn wrong(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}
