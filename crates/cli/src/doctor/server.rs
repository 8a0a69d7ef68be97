//! A server: its port, firewall, resolvers and store.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use sumlink_store::{Location, StoreError};
use sumlink_transport::resolver::Resolvers;

use super::firewall::{self, Incoming};
use super::{Findings, TAKEN};
use crate::config::ServerPlan;
use crate::control;
use crate::error::CliError;
use crate::exit::Exit;
use crate::find_socket;

/// Control sockets of the unit that runs a server.
const SOCKETS: &[&str] = &["sumlink-server/control.sock"];

pub(super) async fn check(plan: &ServerPlan, found: &mut Findings) -> Result<(), CliError> {
    let runs = running(plan, found)?;
    let listen = plan.config.listen;
    port(
        "TCP",
        listen,
        runs,
        TcpListener::bind(listen).map(drop),
        found,
    )?;
    if plan.config.udp {
        port(
            "UDP",
            listen,
            runs,
            UdpSocket::bind(listen).map(drop),
            found,
        )?;
    }
    match firewall::incoming(listen.port()).await {
        Incoming::Open => found.ok("firewall", "nftables drops nothing by default")?,
        Incoming::Accepted => {
            let text = format!("nftables accepts port {}", listen.port());
            found.ok("firewall", text)?;
        }
        Incoming::Dropped => found.warn(
            "firewall",
            format!(
                "nftables drops incoming packets, and no rule accepts port {}: allow TCP and UDP \
                 to it",
                listen.port()
            ),
        )?,
        Incoming::Unknown(reason) => found.warn("firewall", format!("not checked: {reason}"))?,
    }
    match Resolvers::new(plan.config.resolvers.clone()).addresses() {
        Ok(addresses) => {
            let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
            found.ok("resolvers", addresses.join(", "))?;
        }
        Err(error) => found.warn(
            "resolvers",
            format!("clients cannot look up names: {error}"),
        )?,
    }
    clients(plan, found).await
}

/// Whether the server runs.
fn running(plan: &ServerPlan, found: &mut Findings) -> Result<bool, CliError> {
    let socket = find_socket::socket(plan.control.as_deref(), SOCKETS);
    let Some(socket) = socket.ok().filter(|socket| socket.path.exists()) else {
        found.ok("server", "not running")?;
        return Ok(false);
    };
    match control::ask(&socket.path) {
        Ok(report) => {
            let sessions = report.sessions.len();
            let text = format!("running, process {}, {sessions} sessions", report.pid);
            found.ok("server", text)?;
            Ok(true)
        }
        Err(error) => {
            found.warn("server", error)?;
            Ok(false)
        }
    }
}

/// The port for clients: free, or in use by the running server.
fn port(
    protocol: &str,
    listen: SocketAddr,
    runs: bool,
    bound: std::io::Result<()>,
    found: &mut Findings,
) -> Result<(), CliError> {
    let text = format!("{protocol} {listen}");
    match bound {
        Ok(()) if runs => found.warn(
            "port",
            format!("{text}: free, although a server runs: it listens elsewhere"),
        ),
        Ok(()) => found.ok("port", format!("{text}: free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => match runs {
            true => found.ok("port", format!("{text}: in use, while a server runs")),
            false => found.warn("port", format!("{text}: {TAKEN}")),
        },
        Err(error) => {
            let advice = match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "run this command as the server's user, or give it CAP_NET_BIND_SERVICE"
                }
                _ => "stop the other program, or choose another port in `listen`",
            };
            let text = format!("{text}: {}; {advice}", sumlink_util::plain(error));
            found.fail("port", Exit::Network, text)
        }
    }
}

/// Those of the file, and the store of the others.
async fn clients(plan: &ServerPlan, found: &mut Findings) -> Result<(), CliError> {
    let count = plan.config.authorized.len();
    let store = match &plan.clients.store {
        None => return found.ok("clients", format!("{count} in the file, no store")),
        Some(Location::Database(_)) => return database(plan, count, found).await,
        Some(Location::File(store)) => store,
    };
    let directory = store
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    match (
        store.exists(),
        directory.is_none_or(|directory| directory.is_dir()),
    ) {
        (true, _) => found.ok(
            "clients",
            format!("{count} in the file, more in {}", store.display()),
        ),
        (false, true) => found.ok(
            "clients",
            format!(
                "{count} in the file; the first start makes {}",
                store.display()
            ),
        ),
        (false, false) => found.fail(
            "clients",
            Exit::Config,
            format!(
                "the directory of {} does not exist: make it",
                store.display()
            ),
        ),
    }
}

/// The store in a database: whether this server may use it.
async fn database(plan: &ServerPlan, count: usize, found: &mut Findings) -> Result<(), CliError> {
    let Some(location) = plan.clients.store.clone() else {
        return Ok(());
    };
    let shown = location.to_string();
    let opened = tokio::task::spawn_blocking(move || location.open().map(drop)).await;
    match opened.map_err(std::io::Error::other)? {
        Ok(()) => found.ok("clients", format!("{count} in the file, more in {shown}")),
        Err(StoreError::Missing(_)) => found.ok(
            "clients",
            format!("{count} in the file; the first start makes tables in {shown}"),
        ),
        Err(error) => {
            let text = error.to_string();
            found.fail("clients", CliError::Store(error).exit(), text)
        }
    }
}
