//! `sumlink-lab cc`: records congestion windows.

mod trace;

use clap::Subcommand;
use sumlink::error::CliError;
use sumlink::program::block_on;

use trace::TraceArgs;

/// The verbs of `sumlink-lab cc`.
#[derive(Debug, Subcommand)]
pub(crate) enum CcCommand {
    /// Record the windows of TCP connections at every acknowledgment
    Trace(TraceArgs),
}

impl CcCommand {
    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Trace(args) => args.json,
        }
    }
}

/// Runs the verb.
pub(crate) fn run(command: CcCommand) -> Result<(), CliError> {
    match command {
        CcCommand::Trace(args) => block_on(trace::run(args)),
    }
}
