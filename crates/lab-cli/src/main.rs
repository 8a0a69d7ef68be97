//! sumlink-lab: the laboratory, the simulator, 60 GHz Wi-Fi, and recordings of congestion windows.

#![forbid(unsafe_code)]

mod cc;
mod error;
mod mmwave;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use clap_complete::Shell;
use sumlink::args::{ClientArgs, KeygenArgs, ManArgs, ServerArgs, Verbosity};
use sumlink::error::CliError;
use sumlink::exit::Exit;
use sumlink::gateway::UpArgs;
use sumlink::program::{Program, block_on};
use sumlink::{client, gateway, generate, keys, server};
use sumlink_edge_cli::EdgeArgs;
use sumlink_lab::LabCommand;

use cc::CcCommand;
use mmwave::MmwaveCommand;
use sim::SimCommand;

/// Emulate and simulate links, and measure sumlink and other programs on them.
#[derive(Debug, Parser)]
#[command(
    name = "sumlink-lab",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Cli {
    /// The verb.
    #[command(subcommand)]
    verb: Verb,
    /// Log level.
    #[command(flatten)]
    verbosity: Verbosity,
}

/// The verbs.
#[derive(Debug, Subcommand)]
enum Verb {
    #[command(flatten)]
    Lab(LabCommand),
    /// Simulate scenarios: the engine in virtual time over the laboratory's links
    Sim {
        /// The verb of `sim` or `mmwave`.
        #[command(subcommand)]
        command: SimCommand,
    },
    /// Record congestion windows of TCP connections
    Cc {
        /// The verb of `cc`.
        #[command(subcommand)]
        command: CcCommand,
    },
    /// Simulate beam training in 60 GHz Wi-Fi
    Mmwave {
        /// The verb of `sim` or `mmwave`.
        #[command(subcommand)]
        command: MmwaveCommand,
    },
    /// Print the completion script of a shell
    Completions {
        /// Shell to write the script for.
        shell: Shell,
    },
    /// Write the manual pages
    Man(ManArgs),
    /// `sumlink keygen`, for the laboratory's processes
    #[command(hide = true)]
    Keygen(KeygenArgs),
    /// `sumlink server`, for the laboratory's processes
    #[command(hide = true)]
    Server(ServerArgs),
    /// `sumlink client`, for the laboratory's processes
    #[command(hide = true)]
    Client(ClientArgs),
    /// `sumlink up`, for the laboratory's processes
    #[command(hide = true)]
    Up(UpArgs),
    /// `sumlink-edge run`, for the laboratory's processes
    #[command(hide = true)]
    Edge(EdgeArgs),
}

fn main() -> ExitCode {
    sumlink::program::main::<Cli>()
}

impl Program for Cli {
    const NAME: &'static str = "sumlink-lab";
    const EXITS: &'static [Exit] = &Exit::ALL;

    fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    fn json(&self) -> bool {
        match &self.verb {
            Verb::Lab(command) => command.json(),
            Verb::Sim { command } => command.json(),
            Verb::Cc { command } => command.json(),
            Verb::Mmwave { command } => command.json(),
            Verb::Completions { .. } | Verb::Man(_) => false,
            Verb::Keygen(args) => args.json,
            Verb::Server(args) => args.json,
            Verb::Client(args) => args.json,
            Verb::Up(args) => args.client.json,
            Verb::Edge(args) => args.json,
        }
    }

    fn run(self) -> Result<(), CliError> {
        match self.verb {
            // The laboratory enters namespaces, which is possible only before any thread is
            // started.
            Verb::Lab(command) => sumlink_lab::run(command).map_err(error::of_lab),
            Verb::Sim { command } => sim::run(&command),
            Verb::Cc { command } => cc::run(command),
            Verb::Mmwave { command } => mmwave::run(&command),
            Verb::Completions { shell } => generate::completions::<Self>(shell),
            Verb::Man(args) => generate::man::<Self>(&args),
            Verb::Keygen(args) => keys::keygen(&args),
            Verb::Server(args) => block_on(server::run(args, sumlink_schedulers::all())),
            Verb::Client(args) => block_on(client::run(args, sumlink_schedulers::all())),
            Verb::Up(args) => block_on(gateway::up(args, sumlink_schedulers::all())),
            Verb::Edge(args) => block_on(sumlink_edge_cli::run(args)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
