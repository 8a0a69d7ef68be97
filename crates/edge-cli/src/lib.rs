//! The program `sumlink-edge` as a library; the laboratory uses its verb `run` for its own
//! processes.

#![forbid(unsafe_code)]

mod args;
mod config;
mod error;
mod link;
mod metrics;
mod metrics_server;
mod node;
mod status;

use std::process::ExitCode;

use sumlink::args::Verbosity;
use sumlink::error::CliError;
use sumlink::exit::Exit;
use sumlink::program::{Program, block_on};
use sumlink::{check, generate};

use args::{Cli, Verb};

pub use args::EdgeArgs;
pub use node::run;

/// Control sockets of the units, below `/run`.
const SOCKETS: &[&str] = &["sumlink-edge/control.sock"];

/// Runs the program `sumlink-edge`.
pub fn main() -> ExitCode {
    sumlink::program::main::<Cli>()
}

impl Program for Cli {
    const NAME: &'static str = "sumlink-edge";
    const EXITS: &'static [Exit] = &[
        Exit::Ok,
        Exit::Other,
        Exit::Usage,
        Exit::Config,
        Exit::Network,
        Exit::Control,
        Exit::Interrupted,
    ];

    fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    fn json(&self) -> bool {
        match &self.verb {
            Verb::Run(args) => args.json,
            Verb::Check(args) => args.json,
            Verb::Status(args) => args.json,
            Verb::Link(args) => args.json,
            Verb::Completions { .. } | Verb::Man(_) => false,
        }
    }

    fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Run(args) => block_on(run(args)),
            Verb::Check(args) => check::report(&args, config::check(&args.file)?, |settings| {
                ("edge", settings.describe())
            }),
            Verb::Status(args) => status::run(&args),
            Verb::Link(args) => link::run(&args),
            Verb::Completions { shell } => generate::completions::<Self>(shell),
            Verb::Man(args) => generate::man::<Self>(&args),
        }
    }
}
