//! The arguments of client and server, and of verbs that other programs have, too.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args};
use sumlink_engine::{DatagramPolicy, SelectorConfig, scheduler};
use sumlink_proxy::AnyForward;
use sumlink_transport::config::Carriers;
use sumlink_transport::egress::EgressRule;
use sumlink_transport::{Class, Early, PublicKey};

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
    /// Connect to this server; a host alone means port 443. A name that begins with an underscore,
    /// such as _sumlink._tcp.example.org, has its servers in the DNS (SRV records).
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
