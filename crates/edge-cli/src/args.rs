//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use sumlink::args::{CheckArgs, ManArgs, Verbosity};

use crate::link::LinkArgs;
use crate::status::StatusArgs;

/// One end of an edge node: spreads the packets of ordinary connections over links, with a TUN device and tunnels.
#[derive(Debug, Parser)]
#[command(
    name = "sumlink-edge",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// How much is logged.
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run one end of an edge node until a signal ends it.
    Run(EdgeArgs),
    /// Check a configuration file; each problem is reported with its line and the reason.
    Check(CheckArgs),
    /// Show the counters and links of a running edge node.
    Status(StatusArgs),
    /// Set the rate of a link of a running edge node.
    Link(LinkArgs),
    /// Print the completion script of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages.
    Man(ManArgs),
}

/// `sumlink-edge run`
#[derive(Debug, Args)]
pub struct EdgeArgs {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Unix socket for `sumlink-edge status`, instead of the file's; made with mode 0600.
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Write queues, counters and link states to this file as JSON lines, ten a second.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub json: bool,
}
