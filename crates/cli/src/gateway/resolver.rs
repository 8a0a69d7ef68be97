//! The resolver of this machine: systemd-resolved, or /etc/resolv.conf.

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use sumlink_dns::system::resolv_conf::{ResolvConf, Restored};
use sumlink_dns::system::resolved;

use crate::error::CliError;

/// The file that programs read.
const FILE: &str = "/etc/resolv.conf";

/// Directory of its content from before the start, which must outlive a restart of the machine.
const STATE: &str = "/var/lib/sumlink";

/// How this machine's programs were made to ask the gateway.
#[derive(Debug)]
pub(super) enum Resolver {
    /// Through systemd-resolved, for this device.
    Resolved(String),
    /// By the file.
    File,
}

impl Resolver {
    /// Makes this machine's programs ask `address`, a port of the gateway on `device`.
    ///
    /// # Errors
    ///
    /// Nothing is changed then.
    pub(super) async fn set(device: &str, address: IpAddr) -> Result<Self, CliError> {
        if resolved::is_used(Path::new(FILE)).await {
            resolved::apply(device, address).await.map_err(other)?;
            return Ok(Self::Resolved(device.to_owned()));
        }
        let state = state();
        if let Some(directory) = state.parent() {
            std::fs::create_dir_all(directory)?;
        }
        file().apply(address).map_err(other)?;
        Ok(Self::File)
    }

    /// Restores the former settings.
    pub(super) async fn restore(self) {
        let restored = match self {
            Self::Resolved(device) => resolved::revert(&device).await.map_err(other),
            Self::File => clean().map(drop),
        };
        if let Err(error) = restored {
            tracing::warn!("{error}");
        }
    }
}

/// Restores the file if a killed gateway left its address there, and returns a description.
/// systemd-resolved forgets its settings with the device.
pub(super) fn clean() -> Result<Option<String>, CliError> {
    match file().restore().map_err(other)? {
        Restored::Nothing => Ok(None),
        Restored::Yes => Ok(Some(format!("the gateway's address in {FILE}"))),
        Restored::ChangedByOthers => {
            tracing::warn!("{FILE} was changed by others meanwhile and is left as it is");
            Ok(None)
        }
    }
}

fn file() -> ResolvConf {
    ResolvConf::new(FILE, state())
}

/// The state file. Each network namespace has its own, because `ip netns exec` gives it an
/// /etc/resolv.conf of its own.
fn state() -> PathBuf {
    let namespace = |process: &str| {
        let namespace = std::fs::metadata(format!("/proc/{process}/ns/net")).ok()?;
        Some(namespace.ino())
    };
    match (namespace("self"), namespace("1")) {
        (Some(own), Some(first)) if own != first => {
            // Such a namespace does not outlive a restart.
            Path::new(super::RUN).join(format!("resolv.conf-{own}.json"))
        }
        _ => Path::new(STATE).join("resolv.conf.json"),
    }
}

fn other(error: impl std::error::Error + Send + Sync + 'static) -> CliError {
    CliError::System(io::Error::other(error))
}
