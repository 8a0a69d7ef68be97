//! systemd-resolved, through `resolvectl`.

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sumlink_util::plain;
use tokio::process::Command;
use tokio::time::timeout;
use tracing::debug;

const PROGRAM: &str = "resolvectl";

/// Time for a call. D-Bus starts the service if needed.
const TIME: Duration = Duration::from_secs(10);

/// The stub resolvers of systemd-resolved (systemd-resolved.service(8)).
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];

/// The directory of systemd-resolved's files for /etc/resolv.conf.
const RUN: &str = "/run/systemd/resolve";

/// Why systemd-resolved has not changed its settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolvedError {
    /// There is no `resolvectl`.
    #[error(
        "`resolvectl` is not installed, so systemd-resolved cannot be configured; use \
         /etc/resolv.conf instead"
    )]
    Missing,
    /// It failed.
    #[error("`resolvectl {0}` failed: {1}")]
    Failed(String, String),
    /// It does not end.
    #[error("`resolvectl {0}` does not end; is systemd-resolved hung?")]
    TimedOut(String),
    /// It could not be started.
    #[error("cannot run `resolvectl {0}`: {reason}", reason = plain(.1))]
    Spawn(String, io::Error),
}

/// Whether systemd-resolved runs and the programs of this machine ask it. `resolv_conf` is usually
/// `/etc/resolv.conf`: it must lead to the stub resolver or be one of the files of
/// systemd-resolved.
pub async fn is_used(resolv_conf: &Path) -> bool {
    leads_to_resolved(resolv_conf) && run(&["status"]).await.is_ok()
}

/// Makes `address` the resolver of `device` and of all names: its domain `~.` precedes the default
/// routes of other devices (resolvectl(1)).
///
/// # Errors
///
/// See the variants of [`ResolvedError`]. The settings of the device are then unchanged.
pub async fn apply(device: &str, address: IpAddr) -> Result<(), ResolvedError> {
    let applied = async {
        run(&["dns", device, &address.to_string()]).await?;
        run(&["domain", device, "~."]).await?;
        run(&["default-route", device, "true"]).await?;
        // The forwarder speaks plain DNS, on this machine. Older versions lack the setting.
        if let Err(error) = run(&["dnsovertls", device, "no"]).await {
            debug!(%error, "the setting for DNS over TLS stays");
        }
        // Otherwise, answers from before are used.
        if let Err(error) = run(&["flush-caches"]).await {
            debug!(%error, "systemd-resolved keeps its cache");
        }
        Ok(())
    };
    let applied = applied.await;
    if applied.is_err()
        && let Err(error) = revert(device).await
    {
        debug!(%error, "the settings of the device are not reverted");
    }
    applied
}

/// Forgets the settings of `device`. A device that has vanished has none, and that is no error.
///
/// # Errors
///
/// See the variants of [`ResolvedError`].
pub async fn revert(device: &str) -> Result<(), ResolvedError> {
    match run(&["revert", device]).await {
        Err(ResolvedError::Failed(_, text)) if is_gone(&text) => Ok(()),
        reverted => reverted,
    }
}

fn is_gone(text: &str) -> bool {
    [
        "Failed to resolve interface",
        "No such device",
        "not known",
        "Unknown link",
    ]
    .iter()
    .any(|part| text.contains(part))
}

async fn run(arguments: &[&str]) -> Result<(), ResolvedError> {
    let shown = || arguments.join(" ");
    let mut command = Command::new(PROGRAM);
    // English messages, for [`is_gone`].
    command
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match timeout(TIME, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ResolvedError::Missing);
        }
        Ok(Err(error)) => return Err(ResolvedError::Spawn(shown(), error)),
        Err(_) => return Err(ResolvedError::TimedOut(shown())),
    };
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = match text.trim() {
        "" => output.status.to_string(),
        text => plain(text).line(),
    };
    Err(ResolvedError::Failed(shown(), text))
}

fn leads_to_resolved(resolv_conf: &Path) -> bool {
    if std::fs::canonicalize(resolv_conf).is_ok_and(|path| path.starts_with(RUN)) {
        return true;
    }
    let Ok(content) = std::fs::read_to_string(resolv_conf) else {
        return false;
    };
    let servers = content
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver"));
    let mut servers = servers.map(str::trim).peekable();
    servers.peek().is_some() && servers.all(|server| STUBS.contains(&server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_whether_programs_ask_systemd_resolved() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("resolv.conf");
        let leads = |content: &str| {
            std::fs::write(&path, content).unwrap();
            leads_to_resolved(&path)
        };
        assert!(leads(
            "# stub\nnameserver 127.0.0.53\noptions edns0 trust-ad\n"
        ));
        assert!(!leads("nameserver 192.0.2.53\n"));
        assert!(!leads("nameserver 127.0.0.53\nnameserver 192.0.2.53\n"));
        assert!(!leads(""));
        assert!(!leads_to_resolved(&directory.path().join("missing")));
    }
}
