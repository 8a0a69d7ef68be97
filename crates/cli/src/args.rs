//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use sumlink_engine::{SelectorConfig, scheduler};
use sumlink_proxy::Forward;
use sumlink_transport::config::Carriers;
use sumlink_transport::egress::EgressRule;
use sumlink_transport::{Class, Early, PublicKey};

use crate::cc::CcCommand;
use crate::link::LinkArgs;

/// One connection over every link a machine has.
#[derive(Debug, Parser)]
#[command(
    name = "sumlink",
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

/// How much is logged, at every program and verb.
#[derive(Clone, Copy, Debug, Args)]
pub struct Verbosity {
    /// Log more on standard error: debug, given twice trace; SUMLINK_LOG overrides.
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 100, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Log only errors.
    #[arg(short, long, global = true, display_order = 100)]
    pub quiet: bool,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Make a key pair: writes the secret key to a file, prints the public key.
    Keygen(KeygenArgs),
    /// Print the public key of a key file.
    Pubkey(PubkeyArgs),
    /// Run the server: takes sessions of authorised clients and dials what they ask for.
    Server(ServerArgs),
    /// Run the client: makes one session over all links and serves SOCKS5, HTTP and forwards.
    Client(ClientArgs),
    /// Check a configuration file; problems are told with line and reason.
    Check(CheckArgs),
    /// List this machine's interfaces, and which of them can be used as links.
    Links(LinksArgs),
    /// Ask a running client or server how its paths are doing.
    Status(StatusArgs),
    /// Show or change what a link of a running client may be used for: priority, limits, caps.
    Link(LinkArgs),
    /// Congestion controls: which ones exist, and loading ours into the kernel.
    Cc {
        /// What to do there.
        #[command(subcommand)]
        command: CcCommand,
    },
    /// Print the completion script of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages.
    Man(ManArgs),
}

impl Verb {
    /// Whether this verb was asked to print JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Keygen(args) => args.json,
            Self::Pubkey(args) => args.json,
            Self::Server(args) => args.json,
            Self::Client(args) => args.json,
            Self::Check(args) => args.json,
            Self::Links(args) => args.json,
            Self::Status(args) => args.json,
            Self::Link(args) => args.json(),
            Self::Cc { command } => command.json(),
            Self::Completions { .. } | Self::Man(_) => false,
        }
    }
}

/// `sumlink keygen`
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// File for the secret key; made with mode 0600, never overwritten.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink pubkey`
#[derive(Debug, Args)]
pub struct PubkeyArgs {
    /// The file that `sumlink keygen` wrote.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink server`
#[derive(Debug, Default, Args)]
pub struct ServerArgs {
    /// Configuration file; flags given here override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address and port for all clients; PORT alone, and `*:PORT`, is on all addresses, IPv6 and IPv4.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::config::parse_public)]
    pub listen: Option<SocketAddr>,
    /// This server's key file.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Public key of a client that may connect; repeat it, or give several.
    #[arg(long, value_name = "PUBKEY", num_args = 1..)]
    pub authorize: Vec<PublicKey>,
    /// Where clients may go, e.g. `allow 10.0.0.0/8:80`; repeatable, first match decides.
    #[arg(long, value_name = "RULE")]
    pub egress: Vec<EgressRule>,
    /// Flags that both roles have.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink client`
#[derive(Debug, Default, Args)]
pub struct ClientArgs {
    /// Configuration file; flags given here override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The server's host and port.
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// The server's public key, as `sumlink keygen` printed it there.
    #[arg(long, value_name = "PUBKEY")]
    pub server_key: Option<PublicKey>,
    /// This client's key file.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Interface to use, by name or glob; repeatable. Without it: every one with a route to the
    /// server.
    #[arg(long, value_name = "NAME")]
    pub link: Vec<String>,
    /// Connections at once over each link, 1 to 8, or `auto` for as many as measurably bring something; without it
    /// one.
    #[arg(long, value_name = "NUMBER|auto", value_parser = crate::config::parse_carriers)]
    pub carriers: Option<Carriers>,
    /// File in which the client remembers what links have moved, and policies set with `sumlink link --keep`; without it
    /// links.json in $STATE_DIRECTORY, where systemd gives one.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// When to tell a program that it is connected before the server says so: `never`, `known` (where the target was
    /// connected within the last minute; so it is without this) or `always`.
    #[arg(
        long,
        value_name = "WHEN",
        value_parser = PossibleValuesParser::new(Early::NAMES).try_map(|when| when.parse::<Early>())
    )]
    pub early: Option<Early>,
    /// Serve SOCKS5 here; PORT alone is on 127.0.0.1. It is 127.0.0.1:1080 when no --socks, --http nor --forward is
    /// given.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::config::parse_entry)]
    pub socks: Option<SocketAddr>,
    /// Serve HTTP CONNECT here; PORT alone is on 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::config::parse_entry)]
    pub http: Option<SocketAddr>,
    /// Listen on LOCAL (PORT or ADDR:PORT) and connect each connection to REMOTE (HOST:PORT) from the
    /// server; repeatable.
    #[arg(long, value_name = "LOCAL=REMOTE")]
    pub forward: Vec<Forward>,
    /// Local connections at once, over all entries together, 1 to 1048576; a further one is refused. Without it
    /// three quarters of the limit on open files, at most 65536.
    #[arg(long, value_name = "NUMBER", value_parser = crate::config::parse_max_connections)]
    pub max_connections: Option<usize>,
    /// Flags that both roles have.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub json: bool,
}

/// What client and server have in common.
#[derive(Debug, Default, Args)]
pub struct CommonArgs {
    /// One of the engine's.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(scheduler::NAMES),
        help = format!(
            "Scheduler that decides which path carries which bytes; without it {}",
            scheduler::DEFAULT
        )
    )]
    pub scheduler: Option<String>,
    /// Another scheduler for a class of traffic: conversational, streaming, interactive or background; repeatable.
    #[arg(long, value_name = "CLASS=NAME", value_parser = crate::config::parse_class_scheduler)]
    pub class_scheduler: Vec<(Class, String)>,
    /// Which paths carry what this side sends: none (all of them), base, global or trials, with parameters as in
    /// base:alpha=0.1:probe=10s; docs/selection.md explains them. Without it none.
    #[arg(long, value_name = "NAME[:KEY=VALUE]...", value_parser = crate::config::parse_selector)]
    pub selector: Option<SelectorConfig>,
    /// TCP congestion control of the paths, one of `sumlink cc list`, or `auto`: CUBIC, and BBR where packets are lost
    /// without congestion; without it the kernel's default.
    #[arg(long, value_name = "NAME", value_parser = crate::config::parse_congestion)]
    pub congestion: Option<String>,
    /// Make all paths together take what one connection would, by a coupled congestion control such as `lia`: for links
    /// that share a bottleneck.
    #[arg(long, value_name = "NAME", conflicts_with = "congestion", value_parser = crate::congestion::parse_coupled)]
    pub coupled: Option<String>,
    /// Unix socket for `sumlink status`; made with mode 0600.
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
}

/// `sumlink check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink links`
#[derive(Debug, Args)]
pub struct LinksArgs {
    /// Say for each interface whether it can reach this server.
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The control socket of the running client or server; without it the one of the service that runs, in
    /// /run/sumlink-client or /run/sumlink-server.
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// At a server: only clients of this name, a quoted glob such as 'laptop-*', or the beginning of a key; repeatable.
    /// A single client is shown in full.
    #[arg(long, value_name = "NAME")]
    pub client: Vec<String>,
    /// At a server: show all of each client, rather than a line.
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
    /// Show every column, however wide the terminal is.
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,
    /// Ask again every second until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Print JSON, one object a line.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write one page for each verb into this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    pub out: Option<PathBuf>,
    /// Print the page of this verb; without it the page of the program itself.
    #[arg(value_name = "VERB")]
    pub page: Option<String>,
}
