//! `sumlink clients` and `sumlink invite`: the clients of a server that are managed at run time.

mod desk;
mod keeper;
mod place;
mod qr;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Local};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sumlink_settings::units;
use sumlink_store::{Quota, parse_beyond, parse_quota};
use sumlink_transport::policy::Beyond;

use crate::config::server_address;
use crate::control::{ClientsRequest, InviteRequest};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::table::{self, Table};
pub(crate) use keeper::{Keeper, Running};
use place::Place;
pub(crate) use place::addresses;
pub use report::{ClientReport, InviteReport};

/// Where the clients are: a running server, or its store.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Ask the running server at this control socket. Default: the running service's.
    #[arg(long, value_name = "SOCKET", global = true, conflicts_with = "config")]
    control: Option<PathBuf>,
    /// Take the control socket from this server's configuration file; if that server does not run,
    /// use its store.
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

/// `sumlink clients`
#[derive(Debug, Args)]
pub struct ClientsArgs {
    #[command(subcommand)]
    command: ClientsCommand,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Debug, Subcommand)]
enum ClientsCommand {
    /// List all clients with their usage, and open invitations
    List,
    /// Show one client
    Show {
        /// Name of the client.
        name: String,
    },
    /// Refuse a client and end its sessions
    Disable {
        /// Name of the client.
        name: String,
    },
    /// Admit a disabled client again
    Enable {
        /// Name of the client.
        name: String,
    },
    /// Forget a client and end its sessions, or withdraw an open invitation
    Remove {
        /// Name of the client.
        name: String,
    },
    /// Set the time after which a client may no longer connect
    Expire {
        /// Name of the client.
        name: String,
        /// Time from now on, with a unit up to h, such as 720h; or never.
        #[arg(value_name = "TIME|never", value_parser = parse_expiry)]
        time: Expiry,
    },
    /// Copy the store, as it is now, to a new file with mode 0600
    Backup {
        /// The new file; the running server's user must be able to write it.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Set the monthly quota of a client
    Quota {
        /// Name of the client.
        name: String,
        /// Bytes in a month, both directions together, such as 100GB/month; or none.
        #[arg(value_name = "SIZE|none", value_parser = parse_quota_or_none)]
        size: QuotaSize,
        /// Options of the quota.
        #[command(flatten)]
        options: QuotaArgs,
    },
}

/// A time from now on, or no limit.
#[derive(Clone, Copy, Debug)]
struct Expiry(Option<Duration>);

/// Bytes of a month, or no quota.
#[derive(Clone, Copy, Debug)]
struct QuotaSize(Option<u64>);

/// Options of a quota.
#[derive(Debug, Args)]
struct QuotaArgs {
    /// Begin the month on this day, 1 to 31. Default: 1.
    #[arg(long, value_name = "DAY", value_parser = clap::value_parser!(u8).range(1..=31))]
    reset_day: Option<u8>,
    /// Beyond the quota, block the client, or limit its rate in each direction. Default: `beyond`
    /// of the server's configuration, or block.
    #[arg(long, value_name = "block|RATE", value_parser = parse_beyond)]
    beyond: Option<Beyond>,
}

/// `sumlink invite`
#[derive(Debug, Args)]
pub struct InviteArgs {
    /// Give the client this name. Default: client-1, or the next number.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
    /// Time in which the invitation can be used.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_time)]
    expires: Duration,
    /// Give the client this monthly quota, both directions together, such as 100GB/month.
    #[arg(long, value_name = "SIZE", value_parser = parse_quota)]
    quota: Option<u64>,
    #[command(flatten)]
    options: QuotaArgs,
    /// Time after which the client may no longer connect. Default: no limit.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    client_expires: Option<Duration>,
    /// Put this address of the server into the invitation; repeatable. Default: `address` of the
    /// server's configuration, or the addresses of its machine.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_address)]
    address: Vec<String>,
    /// Print the QR code even if the output is not a terminal.
    #[arg(long, conflicts_with = "json")]
    qr: bool,
    #[command(flatten)]
    place: PlaceArgs,
}

impl ClientsArgs {
    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        self.place.json
    }
}

impl InviteArgs {
    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        self.place.json
    }
}

/// Runs `sumlink clients`.
pub(crate) async fn run(args: ClientsArgs) -> Result<(), CliError> {
    let is_list = matches!(args.command, ClientsCommand::List);
    let is_backup = matches!(args.command, ClientsCommand::Backup { .. });
    let request = match args.command {
        ClientsCommand::List => ClientsRequest::List {},
        ClientsCommand::Show { name } => ClientsRequest::Show { name },
        ClientsCommand::Disable { name } => ClientsRequest::Disable { name },
        ClientsCommand::Enable { name } => ClientsRequest::Enable { name },
        ClientsCommand::Remove { name } => ClientsRequest::Remove { name },
        ClientsCommand::Expire { name, time } => ClientsRequest::Expire {
            name,
            seconds: time.0.map(|time| time.as_secs()),
        },
        ClientsCommand::Backup { file } => ClientsRequest::Backup {
            file: std::path::absolute(file)?,
        },
        ClientsCommand::Quota {
            name,
            size,
            options,
        } => ClientsRequest::Quota {
            name,
            quota: options.quota(size.0)?,
        },
    };
    let place = Place::find(args.place.control.as_deref(), args.place.config.as_deref())?;
    let answer = place.ask(request).await?;
    if args.place.json {
        return print_json(&answer);
    }
    if is_backup {
        let file = answer["file"].as_str().unwrap_or_default();
        return print(&format!("store copied to {}\n", table::printable(file)));
    }
    match is_list {
        true => print(&render(&parsed::<Vec<ClientReport>>(answer)?)),
        false => print(&details(&parsed(answer)?)),
    }
}

/// Runs `sumlink invite`.
pub(crate) async fn invite(args: InviteArgs) -> Result<(), CliError> {
    let request = ClientsRequest::Invite(InviteRequest {
        name: args.name,
        seconds: args.expires.as_secs(),
        quota: args.options.quota(args.quota)?,
        client_seconds: args.client_expires.map(|time| time.as_secs()),
        addresses: args.address,
    });
    let place = Place::find(args.place.control.as_deref(), args.place.config.as_deref())?;
    let answer = place.ask(request).await?;
    if args.place.json {
        return print_json(&answer);
    }
    let report: InviteReport = parsed(answer)?;
    if args.qr || std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        print(&qr::of(&report.invitation)?)?;
    }
    print(&format!("{}\n", report.invitation))
}

impl QuotaArgs {
    fn quota(&self, bytes: Option<u64>) -> Result<Option<Quota>, CliError> {
        match bytes {
            Some(bytes) => Ok(Some(Quota {
                bytes,
                reset_day: self.reset_day.unwrap_or(1),
                beyond: self.beyond,
            })),
            None if self.reset_day.is_some() || self.beyond.is_some() => Err(CliError::Usage(
                "--reset-day and --beyond need a quota: give its size, too".to_owned(),
            )),
            None => Ok(None),
        }
    }
}

fn parse_expiry(text: &str) -> Result<Expiry, String> {
    match text {
        "never" => Ok(Expiry(None)),
        time => parse_time(time).map(|time| Expiry(Some(time))),
    }
}

fn parse_quota_or_none(text: &str) -> Result<QuotaSize, String> {
    match text {
        "none" => Ok(QuotaSize(None)),
        size => parse_quota(size).map(|bytes| QuotaSize(Some(bytes))),
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    let checked = sumlink_store::check_name(text);
    checked
        .map(|()| text.to_owned())
        .map_err(|error| error.to_string())
}

fn parse_time(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text) {
        Ok(time) if time >= Duration::from_secs(1) => Ok(time),
        Ok(_) => Err("write a time of at least 1s".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn parse_address(text: &str) -> Result<String, String> {
    server_address(text).map_err(|error| error.to_string())
}

fn parsed<T: DeserializeOwned>(answer: Value) -> Result<T, CliError> {
    serde_json::from_value(answer).map_err(|error| CliError::System(error.into()))
}

fn render(clients: &[ClientReport]) -> String {
    let columns = [
        "name",
        "state",
        ">month",
        ">quota",
        ">sent",
        ">received",
        "expires",
        "from",
    ];
    let mut table = Table::new(&columns);
    for client in clients {
        let month = client.month_sent_bytes + client.month_received_bytes;
        table.row([
            client.name.clone(),
            client.state.clone(),
            table::bytes(month),
            client.quota_bytes.map_or("-".to_owned(), table::bytes),
            table::bytes(client.sent_bytes),
            table::bytes(client.received_bytes),
            client.expires.map_or("-".to_owned(), date),
            client.source.clone(),
        ]);
    }
    table.render()
}

fn details(client: &ClientReport) -> String {
    let mut lines = vec![
        ("name", client.name.clone()),
        ("from", client.source.clone()),
        ("state", client.state.clone()),
    ];
    // The holder of an open invitation has none yet.
    if !client.key.is_empty() {
        lines.insert(1, ("key", client.key.clone()));
    }
    lines.extend(client.created.map(|created| ("joined", date(created))));
    lines.extend(client.expires.map(|expires| ("expires", date(expires))));
    if let Some(quota) = client.quota_bytes {
        let (quota, day, beyond) = (table::bytes(quota), client.reset_day, &client.beyond);
        let text = format!("{quota} a month from day {day}, beyond it: {beyond}");
        lines.push(("quota", text));
    }
    let moved = |sent, received| {
        format!(
            "{} sent, {} received",
            table::bytes(sent),
            table::bytes(received)
        )
    };
    let month = moved(client.month_sent_bytes, client.month_received_bytes);
    lines.push(("this month", month));
    lines.push(("in total", moved(client.sent_bytes, client.received_bytes)));
    let line = |(name, value): (&str, String)| format!("{name:<12}{}\n", table::printable(&value));
    lines.into_iter().map(line).collect()
}

/// A time of day in the local zone.
fn date(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok();
    let time = time.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    time.map_or_else(String::new, |time| {
        time.with_timezone(&Local)
            .format("%Y-%m-%d %H:%M")
            .to_string()
    })
}
