//! The command line of `sumlink-edge`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use sumlink::args::{CheckArgs, ManArgs, Verbosity};

use crate::link::LinkArgs;
use crate::status::StatusArgs;

/// Run one end of an edge node: distribute packets of TCP connections over links, with a TUN device
/// and tunnels.
#[derive(Debug, Parser)]
#[command(
    name = "sumlink-edge",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Log level.
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run one end of an edge node until a signal ends it.
    Run(EdgeArgs),
    /// Check a configuration file; report each problem with its line and reason.
    Check(CheckArgs),
    /// Show the counters and links of a running edge node.
    Status(StatusArgs),
    /// Set the rate of a link of a running edge node.
    Link(LinkArgs),
    /// Print the completion script of a shell.
    Completions {
        /// Shell to write the script for.
        shell: Shell,
    },
    /// Write the manual pages.
    Man(ManArgs),
}

/// `sumlink-edge run`
#[derive(Debug, Args)]
pub struct EdgeArgs {
    /// Read this configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Create a Unix socket with mode 0600 for `sumlink-edge status`, instead of the file's.
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Write queues, counters and link states to this file as JSON lines, 10 per second.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub json: bool,
}
