//! The gateway: `sumlink up`, `sumlink down` and `sumlink route`.
//!
//! - `up` is the client with further entries: captured traffic of this machine and its LAN, and
//!   DNS.
//! - `run` has the parts of a running gateway and their order at start and end.
//! - `router` makes the router and the DNS forwarder.
//! - `resolver` makes the programs of this machine ask the gateway's DNS.

mod control;
mod down;
mod links;
mod lookup;
mod own;
mod resolver;
mod route;
mod router;
mod run;
pub(crate) mod status;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_gateway::kernel::{self, Facts, Plan};

use crate::args::ClientArgs;
use crate::config::ClientPlan;
use crate::error::CliError;
use crate::output::{Events, print, print_json};

pub(crate) use down::{DownArgs, run as down};
pub(crate) use route::{RouteArgs, run as route};

/// The file of a gateway that is started without one.
const CONFIG: &str = "/etc/sumlink/client.toml";

/// Folder of the control socket and of the state of a running gateway.
const RUN: &str = "/run/sumlink";

/// `sumlink up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Flags of the client.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Print the changes to routes, firewall and kernel parameters as commands, and make none.
    #[arg(long)]
    dry_run: bool,
}

/// Runs the verb until a signal or `sumlink down` ends it.
///
/// # Errors
///
/// The configuration is wrong, the gateway cannot start, or its session has ended.
pub async fn up(args: UpArgs, own: OwnSchedulers) -> Result<(), CliError> {
    let UpArgs {
        mut client,
        dry_run,
    } = args;
    if client.config.is_none() && client.server.is_none() {
        client.config = Some(PathBuf::from(CONFIG));
    }
    if !dry_run {
        // Before a key file or a socket that only root may open.
        kernel::check_permission().map_err(kernel::KernelError::from)?;
    }
    let json = client.json;
    let mut plan = ClientPlan::start(client, &own)?;
    let settings = plan.gateway.take().unwrap_or_default();
    if dry_run {
        return show_changes(&plan, settings.kernel, json).await;
    }
    let events = Events::new(json)?;
    events.end(run::carry(plan, settings, &events).await)
}

/// Prints the changes that a start would make.
async fn show_changes(
    plan: &ClientPlan,
    mut settings: kernel::Settings,
    json: bool,
) -> Result<(), CliError> {
    settings.links = run::named_links(plan);
    let facts = Facts::collect().await?;
    let changes = Plan::new(&settings, &facts).map_err(kernel::KernelError::from)?;
    let text = changes.to_string();
    if json {
        let lines: Vec<&str> = text.lines().collect();
        let warnings: Vec<String> = changes.warnings().iter().map(ToString::to_string).collect();
        return print_json(&json!({ "changes": lines, "warnings": warnings }));
    }
    for warning in changes.warnings() {
        tracing::warn!("{warning}");
    }
    print(&format!("{}\n", text.trim_end()))
}
