//! `sumlink down`: ends the running gateway, and removes the leftovers of a killed one.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use sumlink_gateway::kernel::{self, Cleaned};

use crate::control::{self, ControlError};
use crate::error::CliError;
use crate::find_socket;
use crate::output::{print, print_json};

/// Time for a gateway to end: the session's goodbye, and the changes to the kernel.
const PATIENCE: Duration = Duration::from_secs(20);

/// The variable with systemd's view of how the service ended.
const RESULT: &str = "SERVICE_RESULT";

/// Pause between two checks of the ending process.
const LOOK: Duration = Duration::from_millis(20);

/// `sumlink down`
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Ask at this control socket. Default: that of the running gateway.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Do not end a running gateway: only remove the leftovers of a killed one.
    #[arg(long, conflicts_with = "control")]
    clean: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the verb.
pub(crate) async fn run(args: DownArgs) -> Result<(), CliError> {
    let stopped = match args.clean {
        true => None,
        false => stop(args.control.as_deref())?,
    };
    if args.clean && will_restart() {
        // The kill switch has no gap until the next start takes it over.
        return match args.json {
            true => print_json(&json!({ "stopped": stopped, "removed": [] })),
            false => print("the gateway was killed and starts again: its kill switch stays\n"),
        };
    }
    let cleaned = kernel::clean(Path::new(kernel::DEFAULT_STATE)).await?;
    let mut removed = described(&cleaned);
    removed.extend(super::resolver::clean()?);
    removed.extend(remove_socket());
    if args.json {
        return print_json(&json!({ "stopped": stopped, "removed": removed }));
    }
    if let Some(pid) = stopped {
        print(&format!("the gateway (process {pid}) has ended\n"))?;
    }
    if !removed.is_empty() {
        print(&format!("removed: {}\n", removed.join(", ")))?;
    }
    if stopped.is_none() && removed.is_empty() {
        print("no gateway runs, and none has left anything\n")?;
    }
    Ok(())
}

/// Whether this is `ExecStopPost=` of a unit that systemd is about to start again because the
/// program was killed (systemd.exec(5), `$SERVICE_RESULT`).
fn will_restart() -> bool {
    let killed = ["signal", "core-dump", "oom-kill", "watchdog"];
    std::env::var(RESULT).is_ok_and(|result| killed.contains(&result.as_str()))
}

/// Removes the control socket of a killed gateway, and the link to it.
fn remove_socket() -> Option<String> {
    let place = find_socket::of_gateway();
    let is_dead = UnixStream::connect(&place)
        .is_err_and(|error| error.kind() != io::ErrorKind::PermissionDenied);
    if !is_dead || place.symlink_metadata().is_err() {
        return None;
    }
    if let Ok(target) = fs::canonicalize(&place)
        && fs::metadata(&target).is_ok_and(|found| found.file_type().is_socket())
    {
        let _ = fs::remove_file(target);
    }
    // The target may be this path.
    let _ = fs::remove_file(&place);
    let is_removed = place.symlink_metadata().is_err();
    is_removed.then(|| "the control socket".to_owned())
}

/// The removed changes, in words.
fn described(cleaned: &Cleaned) -> Vec<String> {
    let count = |number: usize, what: &str| (number > 0).then(|| format!("{number} {what}"));
    let all = [
        count(cleaned.rules, "routing rules"),
        count(cleaned.routes, "routes"),
        cleaned.table.then(|| "the firewall table".to_owned()),
        count(cleaned.sysctls, "changed kernel parameters"),
    ];
    all.into_iter().flatten().collect()
}

/// Ends the running gateway, if there is one, and returns its process id.
fn stop(named: Option<&Path>) -> Result<Option<u32>, CliError> {
    let socket = match find_socket::socket(named, find_socket::GATEWAY) {
        Err(ControlError::NoService(_)) => return Ok(None),
        found => found?,
    };
    let pid = match control::stop(&socket.path) {
        Err(ControlError::Nobody { .. }) => return Ok(None),
        asked => asked?.stopping,
    };
    let begun = Instant::now();
    while is_alive(pid) {
        if begun.elapsed() > PATIENCE {
            return Err(CliError::System(std::io::Error::other(format!(
                "the gateway (process {pid}) has not ended within {} s; end it with kill {pid}, then run sumlink down \
                 again",
                PATIENCE.as_secs()
            ))));
        }
        sleep(LOOK);
    }
    Ok(Some(pid))
}

/// Whether the process runs. A zombie does not.
fn is_alive(pid: u32) -> bool {
    // proc_pid_stat(5): the state follows the name, which is in parentheses.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
