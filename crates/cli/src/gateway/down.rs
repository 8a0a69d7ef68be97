//! `sumlink down`: ends the running gateway, and removes the leftovers of a killed one.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;
use sumlink_gateway::kernel::{self, Cleaned};

use crate::control::{self, ControlError};
use crate::exit::CliError;
use crate::find_socket;
use crate::output::{print, print_json};

/// Time for a gateway to end: the session's goodbye, and the changes to the kernel.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let cleaned = kernel::clean(Path::new(kernel::DEFAULT_STATE)).await?;
    let mut removed = described(&cleaned);
    removed.extend(super::resolver::clean()?);
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
