//! `sumlink drain`: prepares a server's end. New sessions are refused, so that clients with several
//! servers begin theirs elsewhere; present sessions go on.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::control;
use crate::error::CliError;
use crate::find_socket;
use crate::output::{print, print_json};

/// The socket of the service.
const SOCKETS: &[&str] = &["sumlink-server/control.sock"];

/// Interval at which `--wait` counts the sessions.
const LOOK: Duration = Duration::from_millis(500);

/// `sumlink drain`
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    /// Ask at this control socket. Default: that of the running server.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Admit new sessions again.
    #[arg(long, conflicts_with = "wait")]
    off: bool,
    /// Return when the last session has ended; Ctrl-C ends the wait, not the draining.
    #[arg(long)]
    wait: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &DrainArgs) -> Result<(), CliError> {
    let socket = find_socket::socket(args.control.as_deref(), SOCKETS)?;
    control::drain(&socket.path, !args.off)?;
    let mut left = control::ask(&socket.path)?.sessions.len();
    let mut shown = None;
    while args.wait && left > 0 {
        if !args.json && shown.replace(left) != Some(left) {
            print(&format!("{}\n", sessions(left)))?;
        }
        sleep(LOOK);
        left = control::ask(&socket.path)?.sessions.len();
    }
    if args.json {
        return print_json(&json!({ "draining": !args.off, "sessions": left }));
    }
    print(&match args.off {
        true => format!("new sessions are admitted; {}\n", sessions(left)),
        false => format!("new sessions are refused; {}\n", sessions(left)),
    })
}

fn sessions(left: usize) -> String {
    match left {
        1 => "1 session left".to_owned(),
        left => format!("{left} sessions left"),
    }
}
