//! `sumlink-lab cc`: recordings of congestion windows.

mod trace;

use clap::Subcommand;
use sumlink::exit::CliError;
use sumlink::program::block_on;

use trace::TraceArgs;

/// The verbs below `sumlink-lab cc`.
#[derive(Debug, Subcommand)]
pub(crate) enum CcCommand {
    /// Record what the windows of TCP connections do, for every acknowledgement that arrives
    Trace(TraceArgs),
}

impl CcCommand {
    /// Whether JSON was asked for.
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
