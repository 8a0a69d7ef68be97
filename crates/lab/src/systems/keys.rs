//! Keys of the two ends, for systems with traffic programs that authenticate each other.

use std::path::PathBuf;

use sumlink_transport::keys::KeyError;
use sumlink_transport::{PublicKey, SecretKey};

use crate::error::LabError;
use crate::topology::Side;
use crate::traffic::Keys;

use super::Stage;

/// The keys of one side; the first call creates those of both sides.
pub(crate) fn of(stage: &Stage<'_>, side: Side) -> Result<Keys, LabError> {
    let (client, server) = (key(stage, Side::Client)?, key(stage, Side::Server)?);
    let (own, peer) = match side {
        Side::Client | Side::Lan => (client.0, server.1),
        Side::Server | Side::Internet => (server.0, client.1),
    };
    Ok(Keys { own, peer })
}

fn key(stage: &Stage<'_>, side: Side) -> Result<(PathBuf, PublicKey), LabError> {
    let failed = |error: KeyError| LabError::system("making a key", error);
    let file = stage.directory.join(format!("traffic-{}.key", side.name()));
    let key = if file.exists() {
        SecretKey::load(&file).map_err(failed)?
    } else {
        let key = SecretKey::generate().map_err(failed)?;
        key.save(&file).map_err(failed)?;
        key
    };
    Ok((file, key.public()))
}
