//! A client: its entries, its links, and the server over each of them.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use sumlink_gateway::kernel::{Facts, NftSupport};
use sumlink_transport::config::{ClientConfig, LinkConfig};
use sumlink_transport::links::{self, name_matches, with_listed_servers};
use sumlink_transport::{Client, SessionStatus};
use tokio::time::{sleep, timeout};

use super::{Findings, TAKEN};
use crate::config::{ClientPlan, Entrance};
use crate::control::{self, Report};
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::find_socket;
use crate::links::{Row, resolve, towards};
use crate::speedtest::{self, Bar, FULL, measure};
use crate::table;

/// Control sockets of the units that run a client.
const SOCKETS: &[&str] = &["sumlink-client/control.sock", "sumlink/gateway.sock"];

/// Time for a link to connect.
const PATIENCE: Duration = Duration::from_secs(15);

/// Time for its datagrams to find their way.
const DATAGRAMS: Duration = Duration::from_secs(4);

/// Interval of the looks at the status meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Time in each direction for which `--speed` measures.
const MEASURED: Duration = Duration::from_secs(3);

/// Difference between two clocks from which it is reported, in seconds.
const CLOCKS: f64 = 5.0;

/// Signal of Wi-Fi in dBm below which rates are low and losses frequent.
const WEAK: f64 = -70.0;

pub(super) async fn check(
    plan: ClientPlan,
    speed: bool,
    found: &mut Findings,
) -> Result<(), CliError> {
    let running = running(&plan, found)?;
    entries(&plan, running.is_some(), found)?;
    let has_gateway = plan.gateway.is_some();
    if has_gateway {
        gateway(found).await?;
    }
    let config = speedtest::beside(plan.config, has_gateway);
    let Some((config, remotes)) = servers(config, found).await? else {
        return Ok(());
    };
    let mut rows = Vec::new();
    for link in links::list().await? {
        rows.push(towards(link, &remotes).await?);
    }
    for pattern in &config.links {
        if !rows
            .iter()
            .any(|row| name_matches(&pattern.name, &row.link.name))
        {
            found.warn(
                &format!("link {}", pattern.name),
                "no interface has this name; `sumlink links` lists the interfaces",
            )?;
        }
    }
    let mut working: Vec<LinkConfig> = Vec::new();
    let mut tried = 0;
    let is_named = !config.links.is_empty();
    for row in rows {
        let Some(block) = block_of(&config, &row) else {
            continue;
        };
        if speedtest::bar(&block) == Some(Bar::Never) {
            let subject = format!("link {}", block.name);
            found.ok(&subject, "not used: its priority is never")?;
            continue;
        }
        tried += 1;
        let alone = config.clone().links(vec![block.clone()]);
        if link(&row, alone, is_named, working.is_empty(), found).await? {
            working.push(block);
        }
    }
    match (tried, working.len()) {
        (0, _) => found.fail(
            "links",
            Exit::Network,
            "no interface leads to the server: connect one, or name it in a [[link]] block",
        ),
        (_, 0) => found.fail("links", Exit::Network, "none of them reaches the server"),
        (_, 1) => found.warn(
            "links",
            "only one reaches the server: there is nothing to bond",
        ),
        (_, many) => found.ok("links", format!("{many} reach the server")),
    }?;
    if speed {
        let (free, left_out): (Vec<_>, Vec<_>) = working
            .into_iter()
            .partition(|link| speedtest::bar(link).is_none());
        for link in left_out {
            let subject = format!("speed {}", link.name);
            found.ok(&subject, "not measured: metered, or with a data cap")?;
        }
        if !free.is_empty() {
            measured(&config, free, found).await?;
        }
    }
    Ok(())
}

/// The addresses of the server; with several servers, also whether each one accepts the client.
/// Returns the configuration for one of them, the first that does, with its addresses.
async fn servers(
    config: ClientConfig,
    found: &mut Findings,
) -> Result<Option<(ClientConfig, Vec<SocketAddr>)>, CliError> {
    const SUBJECT: &str = "server";
    let config = match with_listed_servers(config).await {
        Ok((config, failed)) => {
            for error in failed {
                found.warn(SUBJECT, CliError::from(error))?;
            }
            config
        }
        Err(error) => {
            let error = CliError::from(error);
            found.fail(SUBJECT, error.exit(), error)?;
            return Ok(None);
        }
    };
    let names: Vec<String> = config.servers().map(|(name, _)| name.to_owned()).collect();
    let several = names.len() > 1;
    let (mut working, mut known) = (None, None);
    let mut failed = None;
    for name in &names {
        let alone = speedtest::only(config.clone(), name);
        let addresses = match resolve(name).await {
            Ok(addresses) => addresses,
            Err(error) => {
                let exit = error.exit();
                failed.get_or_insert(exit);
                match several {
                    true => found.warn(SUBJECT, error)?,
                    false => found.fail(SUBJECT, exit, error)?,
                }
                continue;
            }
        };
        let shown: Vec<String> = addresses.iter().map(|a| a.ip().to_string()).collect();
        found.ok(SUBJECT, format!("{name} is {}", shown.join(", ")))?;
        if several {
            match connect(alone.clone()).await {
                Ok(client) => {
                    client.close().await;
                    found.ok(SUBJECT, format!("{name} accepts this client"))?;
                    working.get_or_insert((alone.clone(), addresses.clone()));
                }
                Err(error) => {
                    failed.get_or_insert(error.exit());
                    found.warn(SUBJECT, format!("{name}: {error}"))?;
                }
            }
        }
        known.get_or_insert((alone, addresses));
    }
    if several && working.is_none() {
        let exit = failed.unwrap_or(Exit::Network);
        found.fail(SUBJECT, exit, "none of the servers can be used")?;
    }
    Ok(working.or(known))
}

/// Connects, within [`PATIENCE`].
async fn connect(config: ClientConfig) -> Result<Client, CliError> {
    match timeout(PATIENCE, Client::connect(config)).await {
        Ok(connected) => Ok(connected?),
        Err(_) => {
            let reason = format!(
                "no answer from the server within {} s: check that its firewall and this network \
                 let TCP pass to its port",
                PATIENCE.as_secs()
            );
            Err(Failure::new(Exit::Network, reason).into())
        }
    }
}

/// The client that runs, and the state of its paths.
fn running(plan: &ClientPlan, found: &mut Findings) -> Result<Option<Report>, CliError> {
    let socket = match find_socket::socket(plan.control.as_deref(), SOCKETS) {
        Ok(socket) if socket.path.exists() => socket,
        Ok(_) | Err(_) => {
            found.ok("client", "not running")?;
            return Ok(None);
        }
    };
    let report = match control::ask(&socket.path) {
        Ok(report) => report,
        Err(error) => {
            found.warn("client", error)?;
            return Ok(None);
        }
    };
    match report.note.as_str() {
        "" => found.ok("client", format!("running, process {}", report.pid))?,
        note => found.warn("client", format!("running, process {}: {note}", report.pid))?,
    }
    for path in report.sessions.iter().flat_map(|session| &session.paths) {
        if path.state != "active" {
            let subject = format!("link {}", path.link);
            found.warn(
                &subject,
                format!("{} in the running client: {}", path.state, path.reason),
            )?;
        }
    }
    Ok(Some(report))
}

/// The local ports: free, or in use by the running client.
fn entries(plan: &ClientPlan, runs: bool, found: &mut Findings) -> Result<(), CliError> {
    for entry in &plan.entries {
        let bound = match &entry.service {
            Entrance::Tcp(_) => TcpListener::bind(entry.address).map(drop),
            Entrance::Udp(_) => UdpSocket::bind(entry.address).map(drop),
        };
        let text = format!("{} on {}", entry.word, entry.address);
        match bound {
            Ok(()) => found.ok("entry", format!("{text}: free"))?,
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => match runs {
                true => found.ok("entry", format!("{text}: in use, while a client runs"))?,
                false => found.warn("entry", format!("{text}: {TAKEN}"))?,
            },
            Err(error) => found.fail(
                "entry",
                Exit::Network,
                format!(
                    "{text}: {}; choose another address",
                    sumlink_util::plain(error)
                ),
            )?,
        }
    }
    Ok(())
}

/// The kernel's part of a gateway.
async fn gateway(found: &mut Findings) -> Result<(), CliError> {
    const SUBJECT: &str = "gateway";
    let facts = match Facts::collect().await {
        Ok(facts) => facts,
        Err(error) => {
            let error = CliError::from(error);
            return found.fail(SUBJECT, error.exit(), error);
        }
    };
    if !facts.is_permitted {
        return found.warn(
            SUBJECT,
            "nftables is not checked, because only root may use it: run this command as root",
        );
    }
    match facts.nft {
        NftSupport::Works => found.ok(SUBJECT, "nftables captures connections"),
        NftSupport::Refused(reason) => found.warn(
            SUBJECT,
            format!("nftables cannot capture ({reason}): a TUN device does, which is slower"),
        ),
        // The program is missing.
        _ => found.warn(
            SUBJECT,
            "the program nft is missing: install nftables; without it, a TUN device captures, \
             which is slower",
        ),
    }
}

/// The settings of an interface as a link; `None` if it is not meant to be one.
fn block_of(config: &ClientConfig, row: &Row) -> Option<LinkConfig> {
    let is_candidate = row.link.up && !row.link.addresses.is_empty();
    speedtest::block_of(config, &row.link).filter(|_| !config.links.is_empty() || is_candidate)
}

/// Connects over one link alone. True if the server is reached.
async fn link(
    row: &Row,
    config: ClientConfig,
    is_named: bool,
    asks_server: bool,
    found: &mut Findings,
) -> Result<bool, CliError> {
    let subject = format!("link {}", row.link.name);
    if !row.usable {
        match (is_named, &row.link.kind) {
            (true, _) => found.fail(&subject, Exit::Network, &row.reason)?,
            (false, None) => found.warn(&subject, &row.reason)?,
            // A bridge or a tunnel is seldom meant to be a link.
            (false, Some(_)) => {}
        }
        return Ok(false);
    }
    if let Some(signal) = wireless(&row.link.name).filter(|signal| *signal < WEAK) {
        found.warn(
            &subject,
            format!("weak Wi-Fi signal, {signal:.0} dBm: its rate is low and varies"),
        )?;
    }
    let udp = config.udp;
    let begun = Instant::now();
    let client = match connect(config).await {
        Ok(client) => client,
        Err(error) => {
            found.fail(&subject, error.exit(), error)?;
            return Ok(false);
        }
    };
    let took = begun.elapsed().as_secs_f64() * 1e3;
    let status = with_datagrams(&client).await;
    let checked = connected(&subject, took, &status, udp, found);
    let server = match asks_server {
        true => server(&client, found).await,
        false => Ok(()),
    };
    client.close().await;
    checked.and(server).map(|()| true)
}

/// The status once datagrams have a carrier, or have had time to find one.
async fn with_datagrams(client: &Client) -> SessionStatus {
    let deadline = Instant::now() + DATAGRAMS;
    loop {
        let status = client.status().await;
        let mut paths = status.datagram_paths.iter();
        let is_decided = paths.any(|path| path.carrier == "udp" || !path.reason.is_empty());
        if is_decided || Instant::now() >= deadline {
            return status;
        }
        sleep(LOOK).await;
    }
}

/// The result of a connection over one link.
fn connected(
    subject: &str,
    took: f64,
    status: &SessionStatus,
    udp: bool,
    found: &mut Findings,
) -> Result<(), CliError> {
    let Some(path) = status.paths.iter().find(|path| path.state == "active") else {
        return found.warn(subject, "connected, and lost again at once");
    };
    let datagrams = status.datagram_paths.first();
    let over_udp = datagrams.is_some_and(|datagrams| datagrams.carrier == "udp");
    let carrier = if over_udp { "UDP" } else { "TCP" };
    found.ok(
        subject,
        format!(
            "from {} in {took:.0} ms; round trip {:.1} ms; datagrams over {carrier}",
            path.local, path.srtt_ms
        ),
    )?;
    if let Some(mtu) = path.mtu_bytes {
        let text = format!("packets of more than {mtu} bytes are lost: set its MTU to {mtu}");
        found.warn(subject, text)?;
    }
    if udp && !over_udp {
        let reason = match datagrams.map(|datagrams| datagrams.reason.as_str()) {
            None | Some("") => "the server has not answered yet",
            Some(reason) => reason,
        };
        found.warn(
            subject,
            format!(
                "UDP does not pass ({reason}): calls and games have more delay over it; allow UDP \
                 to the server's port"
            ),
        )?;
    }
    Ok(())
}

/// The server's clock and load, which a first link shows.
async fn server(client: &Client, found: &mut Findings) -> Result<(), CliError> {
    let server = match measure::server(client).await {
        Ok(server) => server,
        Err(error) => return found.warn("server", error),
    };
    match server.clock_ahead_s.abs() > CLOCKS {
        true => found.warn(
            "clock",
            format!(
                "{} s {} the server's: data caps and quotas count by it; set it, or start a time \
                 service",
                server.clock_ahead_s.abs().round(),
                if server.clock_ahead_s > 0.0 {
                    "behind"
                } else {
                    "ahead of"
                },
            ),
        )?,
        false => found.ok("clock", "agrees with the server's")?,
    }
    match server.busiest >= FULL {
        true => found.warn(
            "server",
            format!(
                "one of its processors is busy for {} % of the time and may limit transfers",
                server.busiest
            ),
        ),
        false => found.ok(
            "server",
            format!("its processors are busy for {} % of the time", server.busy),
        ),
    }
}

/// Rates, and their limit.
async fn measured(
    config: &ClientConfig,
    links: Vec<LinkConfig>,
    found: &mut Findings,
) -> Result<(), CliError> {
    let results = match speedtest::measure(config, links, MEASURED, |_| ()).await {
        Ok(results) => results,
        Err(error) => return found.warn("speed", error),
    };
    for link in &results.links {
        let subject = format!("speed {}", link.link);
        match (&link.rates, &link.error) {
            (Some(rates), _) => found.ok(
                &subject,
                format!(
                    "{} down, {} up, {:.1} % sent again",
                    table::rate(rates.down_bps),
                    table::rate(rates.up_bps),
                    rates.resent * 100.0
                ),
            )?,
            (None, error) => found.warn(&subject, error.as_deref().unwrap_or_default())?,
        }
    }
    if let (Some(bond), Some(of_sum), Some(of_best)) =
        (&results.bond, results.of_sum, results.of_best)
    {
        let text = format!(
            "{} down, {} up: {} and {} of the sum, {:.2} and {:.2} times the best link",
            table::rate(bond.down_bps),
            table::rate(bond.up_bps),
            table::percent(of_sum.down),
            table::percent(of_sum.up),
            of_best.down,
            of_best.up
        );
        match of_best.down < 0.95 || of_best.up < 0.95 {
            true => found.warn("speed bonded", text)?,
            false => found.ok("speed bonded", text)?,
        }
    }
    match results.limited_by {
        "links" => found.ok("limit", "the links"),
        limit => found.warn("limit", format!("the {limit}: the links may be faster")),
    }
}

/// The signal of a wireless interface in dBm; `None` for others.
fn wireless(name: &str) -> Option<f64> {
    signal(
        &std::fs::read_to_string(Path::new("/proc/net/wireless")).ok()?,
        name,
    )
}

/// `/proc/net/wireless` (proc(5)): name, status, quality of the link, level, noise.
fn signal(table: &str, name: &str) -> Option<f64> {
    let line = table.lines().find_map(|line| {
        let (first, rest) = line.split_once(':')?;
        (first.trim() == name).then_some(rest)
    })?;
    let level = line.split_whitespace().nth(2)?;
    let level: f64 = level.trim_end_matches('.').parse().ok()?;
    // Some drivers report a level without a unit, which is positive.
    (level < 0.0).then_some(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_of_wi_fi_is_read() {
        let table = "Inter-| sta-|   Quality        |   Discarded packets\n \
                     face | tus | link level noise |  nwid  crypt\n \
                     wlan0: 0000   38.  -72.  -256        0      0\n";
        assert_eq!(signal(table, "wlan0"), Some(-72.0));
        assert_eq!(signal(table, "eth0"), None);
        assert_eq!(signal(&table.replace("-72.", "52."), "wlan0"), None);
    }
}
