//! The command line of `sumlink`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use sumlink_engine::{DatagramPolicy, SelectorConfig, scheduler};
use sumlink_proxy::AnyForward;
use sumlink_transport::config::Carriers;
use sumlink_transport::egress::EgressRule;
use sumlink_transport::{Class, Early, PublicKey};

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

/// Log level, for every program and verb.
#[derive(Clone, Copy, Debug, Args)]
pub struct Verbosity {
    /// Log more on standard error: -v debug, -vv trace; SUMLINK_LOG overrides it.
    #[arg(short, long, action = ArgAction::Count, global = true, display_order = 100, conflicts_with = "quiet")]
    pub verbose: u8,
    /// Log only errors.
    #[arg(short, long, global = true, display_order = 100)]
    pub quiet: bool,
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

/// `sumlink keygen`
#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// Write the secret key to this new file, with mode 0600.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink pubkey`
#[derive(Debug, Args)]
pub struct PubkeyArgs {
    /// Key file that `sumlink keygen` wrote.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink server`
#[derive(Debug, Default, Args)]
pub struct ServerArgs {
    /// Read this configuration file; flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Listen for clients on this address; PORT alone and `*:PORT` mean all IPv4 and IPv6
    /// addresses, an address alone its port 443.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::config::parse_server_listen)]
    pub listen: Option<SocketAddr>,
    /// Read the server's secret key from this file.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Authorize the client with this public key; takes several keys and is repeatable.
    #[arg(long, value_name = "PUBKEY", num_args = 1..)]
    pub authorize: Vec<PublicKey>,
    /// Allow or deny targets, e.g. `allow 10.0.0.0/8:80`; repeatable, the first match decides.
    #[arg(long, value_name = "RULE")]
    pub egress: Vec<EgressRule>,
    /// Flags of both roles.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink client`
#[derive(Debug, Default, Args)]
pub struct ClientArgs {
    /// Read this configuration file; flags override it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Connect to this server; a host alone means port 443.
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// Require this public key of the server, as `sumlink keygen` printed it there.
    #[arg(long, value_name = "PUBKEY")]
    pub server_key: Option<PublicKey>,
    /// Read the client's secret key from this file.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Use this interface, a name or glob; repeatable. Default: every interface with a route to the
    /// server.
    #[arg(long, value_name = "NAME")]
    pub link: Vec<String>,
    /// Open this number of connections over each link, 1 to 8, or `auto`: add connections while
    /// they raise the measured rate. Default: 1.
    #[arg(long, value_name = "NUMBER|auto", value_parser = crate::config::parse_carriers)]
    pub carriers: Option<Carriers>,
    /// Store the bytes counted against data caps, and policies set with `sumlink link --keep`, in
    /// this file. Default: links.json in $STATE_DIRECTORY if systemd sets it.
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Report a stream to the program as connected before the server confirms it: `never`, `known`
    /// (if the server connected to the target within the last minute) or `always`. Default: known.
    #[arg(
        long,
        value_name = "WHEN",
        value_parser = PossibleValuesParser::new(Early::NAMES).try_map(|when| when.parse::<Early>())
    )]
    pub early: Option<Early>,
    /// Serve SOCKS5 on this address; PORT alone means 127.0.0.1. Default: 127.0.0.1:1080 if none of
    /// --socks, --http and --forward is given.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::config::parse_entry)]
    pub socks: Option<SocketAddr>,
    /// Serve HTTP CONNECT on this address; PORT alone means 127.0.0.1.
    #[arg(long, value_name = "ADDR:PORT", value_parser = crate::config::parse_entry)]
    pub http: Option<SocketAddr>,
    /// Listen on LOCAL (PORT or ADDR:PORT) and connect each connection from the server to REMOTE
    /// (HOST:PORT); with the prefix `udp:`, carry datagrams; repeatable.
    #[arg(long, value_name = "[udp:]LOCAL=REMOTE")]
    pub forward: Vec<AnyForward>,
    /// Limit the open local connections of all entries together, 1 to 1048576; further ones are
    /// refused. Default: three quarters of the limit on open files, at most 65536.
    #[arg(long, value_name = "NUMBER", value_parser = crate::config::parse_max_connections)]
    pub max_connections: Option<usize>,
    /// Flags of both roles.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub json: bool,
}

/// Flags of client and server.
#[derive(Debug, Default, Args)]
pub struct CommonArgs {
    /// A scheduler of the engine.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = crate::config::SchedulerName,
        help = format!(
            "Choose the scheduler that assigns bytes to paths. Default: {}",
            scheduler::DEFAULT
        )
    )]
    pub scheduler: Option<String>,
    /// Use another scheduler for a class: conversational, streaming, interactive or background;
    /// repeatable.
    #[arg(long, value_name = "CLASS=NAME", value_parser = crate::config::parse_class_scheduler)]
    pub class_scheduler: Vec<(Class, String)>,
    /// Choose the paths that carry data from this side: none (use all paths), base, global or
    /// trials, with parameters as in base:alpha=0.1:probe=10s; see docs/selection.md. Default:
    /// none.
    #[arg(long, value_name = "NAME[:KEY=VALUE]...", value_parser = crate::config::parse_selector)]
    pub selector: Option<SelectorConfig>,
    /// Set the TCP congestion control of the paths: a name from `sumlink cc list`, or `auto`
    /// (CUBIC, and BBR on paths with loss without congestion). Default: the kernel's.
    #[arg(long, value_name = "NAME", value_parser = crate::config::parse_congestion)]
    pub congestion: Option<String>,
    /// Use a coupled congestion control such as `lia`: all paths together take the share of one
    /// connection. For links that share a bottleneck.
    #[arg(long, value_name = "NAME", conflicts_with = "congestion", value_parser = crate::congestion::parse_coupled)]
    pub coupled: Option<String>,
    /// Carry datagrams with this policy: auto, pinned (over one link), spread (over all links, in
    /// order) or duplicate (each over two links). Default: auto.
    #[arg(long, value_name = "POLICY", value_parser = crate::config::parse_datagram_policy)]
    pub datagrams: Option<DatagramPolicy>,
    /// Carry datagrams between client and server over UDP (`on`) or over the TCP connections
    /// (`off`). With `on`, links that block UDP use TCP. Default: on.
    #[arg(long, value_name = "on|off", value_parser = crate::config::parse_switch)]
    pub udp: Option<bool>,
    /// Create a Unix socket with mode 0600 for `sumlink status`.
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
}

/// `sumlink check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file to check.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink links`
#[derive(Debug, Args)]
pub struct LinksArgs {
    /// Show for each interface whether it has a route to this server. Nothing is sent.
    #[arg(long, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Ask at this control socket. Default: the running service's, in /run/sumlink-client,
    /// /run/sumlink-server or /run/sumlink (a gateway).
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Show only clients with this name, a quoted glob such as 'laptop-*', or the beginning of a
    /// key; repeatable. One client alone is shown in full. Servers only.
    #[arg(long, value_name = "NAME")]
    pub client: Vec<String>,
    /// Show each client in full instead of on one line. Servers only.
    #[arg(long, conflicts_with = "json")]
    pub details: bool,
    /// Show every column, regardless of the terminal's width.
    #[arg(long, conflicts_with = "json")]
    pub wide: bool,
    /// Refresh every second until interrupted.
    #[arg(long)]
    pub watch: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink events`
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Ask at this control socket. Default: the running service's, in /run/sumlink-client,
    /// /run/sumlink-server or /run/sumlink (a gateway).
    #[arg(long, value_name = "SOCKET")]
    pub control: Option<PathBuf>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub json: bool,
}

/// `sumlink man`
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write one page per verb to this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    pub out: Option<PathBuf>,
    /// Print the page of this verb. Default: the program's own page.
    #[arg(value_name = "VERB")]
    pub page: Option<String>,
}
