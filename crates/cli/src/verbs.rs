//! The command line of `sumlink`: its verbs.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::args::{
    CheckArgs, ClientArgs, EventsArgs, KeygenArgs, LinksArgs, ManArgs, PubkeyArgs, ServerArgs,
    StatusArgs, Verbosity,
};
use crate::cc::CcCommand;
use crate::clients::{ClientsArgs, InviteArgs};
use crate::diag::DiagArgs;
use crate::doctor::DoctorArgs;
use crate::drain::DrainArgs;
use crate::gateway::{DownArgs, RouteArgs, UpArgs};
use crate::join::JoinArgs;
use crate::link::LinkArgs;
use crate::setup::SetupArgs;
use crate::speedtest::SpeedtestArgs;

/// Bond all links of a machine into one connection.
#[derive(Debug, Parser)]
#[command(
    name = "sumlink",
    version,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// How much is logged.
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a key pair: write the secret key to a file and print the public key.
    Keygen(KeygenArgs),
    /// Print the public key of a key file.
    Pubkey(PubkeyArgs),
    /// Run the server: accept sessions of authorized clients and connect their streams to the
    /// targets.
    Server(ServerArgs),
    /// Run the client: open one session over all links and serve SOCKS5, HTTP CONNECT and forwards.
    Client(ClientArgs),
    /// Run the client as a gateway: all programs of this machine, and of the LAN behind it, use the
    /// bond.
    Up(UpArgs),
    /// End the running gateway and remove everything that it has changed.
    Down(DownArgs),
    /// List, add, remove and test the routing rules of a running gateway.
    Route(RouteArgs),
    /// Set up a client or a server: make its key and its configuration, check them, start it.
    Setup(SetupArgs),
    /// Invite a new client: print one line, and a QR code, for `sumlink join`.
    Invite(InviteArgs),
    /// Join the server that printed this invitation: make a key and a configuration file.
    Join(JoinArgs),
    /// List, disable and remove the clients of a server; set their quotas.
    Clients(ClientsArgs),
    /// Have a running server refuse new sessions before it is stopped; present ones go on.
    Drain(DrainArgs),
    /// Check a configuration file; report each problem with its line and reason.
    Check(CheckArgs),
    /// List the interfaces of this machine and show which can be used as links.
    Links(LinksArgs),
    /// Show the sessions, paths and links of a running client or server.
    Status(StatusArgs),
    /// Print the events of a running client, server or gateway as they happen.
    Events(EventsArgs),
    /// Measure the speed of each link alone, and of all together, between this client and its
    /// server.
    Speedtest(SpeedtestArgs),
    /// Check configuration, machine, links and server; print a remedy for each fault.
    Doctor(DoctorArgs),
    /// Write a report for others to one text file, without secrets and identities.
    Diag(DiagArgs),
    /// Show or change the policy of a running client's link: priority, limits, data caps.
    Link(LinkArgs),
    /// List, load and unload congestion controls.
    Cc {
        /// The verb of `cc`.
        #[command(subcommand)]
        command: CcCommand,
    },
    /// Print the completion script of a shell.
    Completions {
        /// Shell to write the script for.
        shell: Shell,
    },
    /// Write the manual pages.
    Man(ManArgs),
}

impl Verb {
    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Keygen(args) => args.json,
            Self::Pubkey(args) => args.json,
            Self::Server(args) => args.json,
            Self::Client(args) => args.json,
            Self::Up(args) => args.client.json,
            Self::Down(args) => args.json,
            Self::Route(args) => args.json,
            Self::Setup(args) => args.json(),
            Self::Invite(args) => args.json(),
            Self::Join(args) => args.json,
            Self::Clients(args) => args.json(),
            Self::Drain(args) => args.json,
            Self::Check(args) => args.json,
            Self::Links(args) => args.json,
            Self::Status(args) => args.json,
            Self::Events(args) => args.json,
            Self::Speedtest(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Link(args) => args.json(),
            Self::Cc { command } => command.json(),
            Self::Diag(_) | Self::Completions { .. } | Self::Man(_) => false,
        }
    }
}
