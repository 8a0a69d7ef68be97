//! The program `sumlink`, client and server in one, as a library: its verbs, and the parts that
//! `sumlink-lab` and `sumlink-edge` share with it.
//!
//! - [`program`] runs a command line from its arguments to its exit code ([`exit`], [`error`]);
//!   [`generate`] makes completions and manual pages from it.
//! - [`server`], [`client`] and [`keys`] are verbs that the laboratory has, too: it starts its own
//!   processes with them, with more schedulers.
//! - [`config`] reads configuration files; [`control`] is the socket at which a running program
//!   reports its status.
//! - [`output`], [`table`] and [`grid`] print results.

#![deny(unsafe_code)]

mod activation;
pub mod args;
mod cc;
pub mod check;
pub mod client;
pub mod clients;
pub mod config;
mod congestion;
pub mod control;
mod diag;
mod doctor;
mod drain;
pub mod error;
mod events;
pub mod exit;
pub mod find_socket;
pub mod gateway;
pub mod generate;
pub mod grid;
#[cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "mallopt(3) has no safe wrapper")
)]
mod heap;
mod join;
mod kernel;
pub mod keys;
mod link;
mod links;
mod log_format;
mod log_limit;
mod logging;
mod lookup;
mod monitor;
mod moved;
mod opener;
pub mod output;
pub mod program;
pub mod server;
mod setup;
pub mod signals;
mod speedtest;
mod spool;
pub mod status;
pub mod table;
mod usage;
mod verbs;

use std::process::ExitCode;

use sumlink_engine::scheduler::OwnSchedulers;

pub use sumlink_transport::slots;

use args::Verbosity;
use error::CliError;
use exit::Exit;
use program::{Program, block_on};
use verbs::{Cli, Verb};

/// Runs the program `sumlink`.
pub fn main() -> ExitCode {
    program::main::<Cli>()
}

impl Program for Cli {
    const NAME: &'static str = "sumlink";
    const EXITS: &'static [Exit] = &[
        Exit::Ok,
        Exit::Other,
        Exit::Usage,
        Exit::Config,
        Exit::Key,
        Exit::Network,
        Exit::Authentication,
        Exit::Version,
        Exit::Control,
        Exit::Kernel,
        Exit::Gateway,
        Exit::Interrupted,
    ];

    fn verbosity(&self) -> Verbosity {
        // The sessions that these make are a part of their answer, not events.
        let is_answer = matches!(
            self.verb,
            Verb::Doctor(_) | Verb::Speedtest(_) | Verb::Setup(_)
        );
        Verbosity {
            quiet: self.verbosity.quiet || (is_answer && self.verbosity.verbose == 0),
            ..self.verbosity
        }
    }

    fn json(&self) -> bool {
        self.verb.json()
    }

    fn moved(args: &[String]) -> Option<String> {
        moved::advice(args)
    }

    fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::Keygen(args) => keys::keygen(&args),
            Verb::Pubkey(args) => keys::pubkey(&args),
            Verb::Server(args) => block_on(server::run(args, OwnSchedulers::default())),
            Verb::Client(args) => block_on(client::run(args, OwnSchedulers::default())),
            Verb::Up(args) => block_on(gateway::up(args, OwnSchedulers::default())),
            Verb::Down(args) => block_on(gateway::down(args)),
            Verb::Route(args) => gateway::route(&args),
            Verb::Setup(args) => block_on(setup::run(args)),
            Verb::Invite(args) => block_on(clients::invite(args)),
            Verb::Join(args) => block_on(join::run(args)),
            Verb::Clients(args) => block_on(clients::run(args)),
            Verb::Drain(args) => drain::run(&args),
            Verb::Check(args) => check::run(&args),
            Verb::Links(args) => block_on(links::run(&args)),
            Verb::Status(args) => status::run(&args),
            Verb::Events(args) => events::run(&args),
            Verb::Speedtest(args) => block_on(speedtest::run(args)),
            Verb::Doctor(args) => block_on(doctor::run(&args)),
            Verb::Diag(args) => block_on(diag::run(args)),
            Verb::Link(args) => link::run(&args),
            Verb::Cc { command } => cc::run(command),
            Verb::Completions { shell } => generate::completions::<Self>(shell),
            Verb::Man(args) => generate::man::<Self>(&args),
        }
    }
}
