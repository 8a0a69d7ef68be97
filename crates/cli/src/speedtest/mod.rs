//! `sumlink speedtest`: measures each link alone, and all of them bonded.
//!
//! It makes sessions of its own, with the configuration and the key of the client. The bytes go
//! between client and server only, and are not counted against the data caps of links.

pub(crate) mod measure;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use sumlink_engine::Priority;
use sumlink_engine::scheduler::OwnSchedulers;
use sumlink_gateway::kernel::CARRIER_MARK;
use sumlink_transport::Client;
use sumlink_transport::config::{ClientConfig, LinkConfig};
use sumlink_transport::links::{self, Link, name_matches, with_listed_servers};
use sumlink_transport::processors::Processors;
use tokio::time::{Instant, sleep};

use crate::args::ClientArgs;
use crate::config::ClientPlan;
use crate::error::{CliError, Failure};
use crate::exit::Exit;
use crate::find_socket;
use crate::links::{resolve, towards};
use crate::output::{note, print, print_json};
use crate::signals::Stop;
use crate::table::{self, Table};

/// The file that the packages' units use.
pub(crate) const CLIENT_FILE: &str = "/etc/sumlink/client.toml";

/// `sumlink speedtest`
#[derive(Debug, Args)]
pub(crate) struct SpeedtestArgs {
    /// Use the server, key and links of this client's configuration file. Default:
    /// /etc/sumlink/client.toml.
    #[arg(long, value_name = "FILE", default_value = CLIENT_FILE, hide_default_value = true)]
    config: PathBuf,
    /// Measure only this link, a name or a quoted glob; repeatable. Default: every link of the
    /// configuration but those that are metered or have a data cap.
    #[arg(long, value_name = "NAME")]
    link: Vec<String>,
    /// Measure for this time in each direction, 1 to 30 seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u8).range(1..=30)
    )]
    seconds: u8,
    /// Measure metered links and links with a data cap, too. The bytes are not counted against the
    /// caps.
    #[arg(long)]
    metered: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time for the links that are still connecting once the first one has.
const JOINING: Duration = Duration::from_secs(3);

/// Interval of the checks whether they have connected.
const LOOK: Duration = Duration::from_millis(50);

/// Percent of a processor's time from which it limits a transfer.
pub(crate) const FULL: u8 = 95;

/// The rates of a link alone, or of the bond.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Rates {
    /// Smoothed round-trip time before the transfers in milliseconds, the least of all paths.
    pub(crate) rtt_ms: f64,
    /// From the server, in bit/s.
    pub(crate) down_bps: f64,
    /// To the server, in bit/s.
    pub(crate) up_bps: f64,
    /// The share of bytes to the server that TCP sent again, 0..=1.
    pub(crate) resent: f64,
}

/// A link alone.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LinkResult {
    pub(crate) link: String,
    #[serde(flatten)]
    pub(crate) rates: Option<Rates>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// All figures of a test.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) server: String,
    pub(crate) links: Vec<LinkResult>,
    /// The bond of the links that were measured; absent with fewer than two.
    pub(crate) bond: Option<Rates>,
    /// Why the bond was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bond_error: Option<String>,
    /// Bonded rates divided by the sum of the links' rates.
    pub(crate) of_sum: Option<Directions>,
    /// Bonded rates divided by the best link's.
    pub(crate) of_best: Option<Directions>,
    /// The limit of the download: `links`, `client processor` or `server processor`.
    pub(crate) limited_by: &'static str,
    /// The kind of the first error.
    #[serde(skip)]
    failed: Option<Exit>,
}

/// A figure for each direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Directions {
    pub(crate) down: f64,
    pub(crate) up: f64,
}

/// Runs the verb.
pub(crate) async fn run(args: SpeedtestArgs) -> Result<(), CliError> {
    let config = client_config(&args.config)?;
    let mut stop = Stop::new()?;
    let measuring = async {
        let config = answering(config).await?;
        let links = chosen(&config, &args.link, args.metered).await?;
        let seconds = Duration::from_secs(args.seconds.into());
        measure(&config, links, seconds, |line| match args.json {
            true => (),
            false => note(&format!("{line}\n")),
        })
        .await
    };
    let results = tokio::select! {
        results = measuring => results?,
        _ = stop.next() => return Err(CliError::AlreadyReported(Exit::Interrupted)),
    };
    if args.json {
        print_json(&results)?;
    } else {
        print(&render(&results))?;
    }
    match results.links.iter().any(|link| link.rates.is_some()) {
        true => Ok(()),
        false => Err(CliError::AlreadyReported(
            results.failed.unwrap_or(Exit::Network),
        )),
    }
}

/// The configuration for the server that the client would use now.
pub(crate) async fn answering(config: ClientConfig) -> Result<ClientConfig, CliError> {
    let (config, _) = with_listed_servers(config).await?;
    if config.alternatives.is_empty() {
        return Ok(config);
    }
    let client = Client::connect(config.clone()).await?;
    let server = client.server();
    client.close().await;
    Ok(only(config, &server))
}

/// The configuration with this one of its servers.
pub(crate) fn only(mut config: ClientConfig, server: &str) -> ClientConfig {
    let found = config.servers().find(|(name, _)| *name == server);
    if let Some((server, key)) = found.map(|(server, key)| (server.to_owned(), key)) {
        (config.server, config.server_key) = (server, key);
    }
    config.alternatives(Vec::new())
}

/// The configuration of a client's file for sessions beside the running client's: nothing is
/// published or saved, and a running gateway does not capture them.
pub(crate) fn client_config(file: &Path) -> Result<ClientConfig, CliError> {
    let args = ClientArgs {
        config: Some(file.to_owned()),
        ..ClientArgs::default()
    };
    let plan = ClientPlan::start(args, &OwnSchedulers::default())?;
    Ok(beside(plan.config, plan.gateway.is_some()))
}

/// See [`client_config`].
pub(crate) fn beside(config: ClientConfig, has_gateway: bool) -> ClientConfig {
    let mut config = config.publish(Vec::new());
    config.state = None;
    let runs = find_socket::socket(None, find_socket::GATEWAY).is_ok();
    match has_gateway && runs {
        true => config.mark(CARRIER_MARK),
        false => config,
    }
}

/// The links of a configuration that exist, by name, with the settings of the block that matches.
pub(crate) async fn present(config: &ClientConfig) -> Result<Vec<LinkConfig>, CliError> {
    let mut found = Vec::new();
    let remotes = resolve(&config.server).await?;
    for link in links::list().await? {
        if let Some(block) = block_of(config, &link)
            && (!config.links.is_empty() || towards(link, &remotes).await?.usable)
        {
            found.push(block);
        }
    }
    Ok(found)
}

/// The settings of an interface as a link: those of the first block that matches, or the defaults
/// if there are no blocks. `None` if it is no link.
pub(crate) fn block_of(config: &ClientConfig, link: &Link) -> Option<LinkConfig> {
    let mut blocks = config.links.iter();
    match blocks.find(|block| name_matches(&block.name, &link.name)) {
        Some(block) => Some(LinkConfig {
            name: link.name.clone(),
            ..block.clone()
        }),
        None if !config.links.is_empty() || link.loopback => None,
        None if config.ignored_links.contains(&link.name) => None,
        None => Some(LinkConfig::named(&link.name)),
    }
}

/// The links to measure.
async fn chosen(
    config: &ClientConfig,
    named: &[String],
    metered: bool,
) -> Result<Vec<LinkConfig>, CliError> {
    let present = present(config).await?;
    let all: Vec<String> = present.iter().map(|link| link.name.clone()).collect();
    let mut chosen = Vec::new();
    for link in present {
        if !named.is_empty() {
            if named.iter().any(|name| name_matches(name, &link.name)) {
                chosen.push(link);
            }
            continue;
        }
        match bar(&link) {
            Some(Bar::Never) => left_out(&link.name, "its priority is never"),
            Some(Bar::Costs) if !metered => {
                let reason = "it is metered or has a data cap; --metered measures it, too";
                left_out(&link.name, reason);
            }
            _ => chosen.push(link),
        }
    }
    match chosen.is_empty() {
        false => Ok(chosen),
        true => {
            let all = match all.is_empty() {
                true => "this machine has none that leads to the server".to_owned(),
                false => format!("links: {}", all.join(", ")),
            };
            Err(Failure::new(Exit::Network, format!("no link to measure; {all}")).into())
        }
    }
}

/// Why a link is not measured unless its user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bar {
    /// Its priority is never.
    Never,
    /// It is metered or has a data cap.
    Costs,
}

/// Why this link is not measured, if that is so.
pub(crate) fn bar(link: &LinkConfig) -> Option<Bar> {
    let policy = &link.policy;
    match policy.metered || policy.has_cap() {
        _ if policy.priority == Some(Priority::Never) => Some(Bar::Never),
        true => Some(Bar::Costs),
        false => None,
    }
}

fn left_out(link: &str, reason: &str) {
    note(&format!("{link} is not measured: {reason}\n"));
}

/// Measures each link alone and then all that worked, one after the other.
pub(crate) async fn measure(
    config: &ClientConfig,
    links: Vec<LinkConfig>,
    duration: Duration,
    progress: impl Fn(&str),
) -> Result<Results, CliError> {
    let mut results = Vec::new();
    let mut working = Vec::new();
    let mut limited_by = "links";
    let mut failed = None;
    for link in links {
        progress(&format!("measuring {}", link.name));
        let name = link.name.clone();
        let config = config.clone().links(vec![link.clone()]);
        let (rates, error) = match of(config, 1, duration).await {
            Ok((rates, limit)) => {
                working.push(link);
                limited_by = limit;
                (Some(rates), None)
            }
            Err(error) => {
                failed.get_or_insert(error.exit());
                (None, Some(error.to_string()))
            }
        };
        results.push(LinkResult {
            link: name,
            rates,
            error,
        });
    }
    let (mut bond, mut bond_error) = (None, None);
    if working.len() > 1 {
        progress("measuring all links together");
        let count = working.len();
        match of(config.clone().links(working), count, duration).await {
            Ok((rates, limit)) => (bond, limited_by) = (Some(rates), limit),
            Err(error) => bond_error = Some(error.to_string()),
        }
    }
    Ok(Results {
        server: config.server.clone(),
        of_sum: bond.as_ref().and_then(|bond| compare(bond, &results, sum)),
        of_best: bond.as_ref().and_then(|bond| compare(bond, &results, best)),
        links: results,
        bond,
        bond_error,
        limited_by,
        failed,
    })
}

fn sum(rates: &[f64]) -> f64 {
    rates.iter().sum()
}

fn best(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(0.0, f64::max)
}

/// The bond's rates divided by the sum or the best of the links'; `None` if these are 0.
fn compare(bond: &Rates, links: &[LinkResult], whole: fn(&[f64]) -> f64) -> Option<Directions> {
    let rates: Vec<&Rates> = links
        .iter()
        .filter_map(|link| link.rates.as_ref())
        .collect();
    let of = |rate: fn(&Rates) -> f64| {
        let links: Vec<f64> = rates.iter().map(|rates| rate(rates)).collect();
        let whole = whole(&links);
        (whole > 0.0).then(|| rate(bond) / whole)
    };
    Some(Directions {
        down: of(|rates| rates.down_bps)?,
        up: of(|rates| rates.up_bps)?,
    })
}

/// Connects with this configuration, and measures its bond once `links` of its links are connected
/// or have had time for it.
async fn of(
    config: ClientConfig,
    links: usize,
    duration: Duration,
) -> Result<(Rates, &'static str), CliError> {
    let client = Client::connect(config).await?;
    let measured = transfers(&client, links, duration).await;
    client.close().await;
    measured
}

async fn transfers(
    client: &Client,
    links: usize,
    duration: Duration,
) -> Result<(Rates, &'static str), CliError> {
    let deadline = Instant::now() + JOINING;
    let rtt_ms = loop {
        let status = client.status().await;
        let active: Vec<_> = status
            .paths
            .iter()
            .filter(|path| path.state == "active")
            .collect();
        let mut names: Vec<&str> = active.iter().map(|path| path.link.as_str()).collect();
        names.dedup();
        if names.len() >= links || Instant::now() >= deadline {
            let rtts = active.iter().map(|path| path.srtt_ms);
            break rtts.fold(f64::INFINITY, f64::min);
        }
        sleep(LOOK).await;
    };
    let before = Processors::now();
    let middle = async {
        sleep(duration / 2).await;
        measure::server(client).await
    };
    let (down, server) = tokio::join!(measure::download(client, duration), middle);
    let down_bps = down?;
    let here = Processors::now().busy_since(&before);
    let limited_by = match server {
        _ if here.busiest >= FULL => "client processor",
        Ok(server) if server.busiest >= FULL => "server processor",
        _ => "links",
    };
    let up_bps = measure::upload(client, duration).await?;
    let status = client.status().await;
    let (mut sent, mut again) = (0, 0);
    for link in &status.links {
        sent += link.tcp_bytes_sent;
        again += link.tcp_bytes_retransmitted;
    }
    let rates = Rates {
        rtt_ms: if rtt_ms.is_finite() { rtt_ms } else { 0.0 },
        down_bps,
        up_bps,
        resent: again as f64 / sent.max(1) as f64,
    };
    Ok((rates, limited_by))
}

/// The table and a line for each comparison.
pub(crate) fn render(results: &Results) -> String {
    let mut table = Table::new(&["LINK", ">RTT", ">DOWN", ">UP", ">RESENT", "REMARK"]);
    let mut row = |name: &str, rates: &Option<Rates>, remark: &str| {
        let cells = match rates {
            Some(rates) => [
                format!("{:.1} ms", rates.rtt_ms),
                table::rate(rates.down_bps),
                table::rate(rates.up_bps),
                format!("{:.1} %", rates.resent * 100.0),
            ],
            None => std::array::from_fn(|_| "-".to_owned()),
        };
        let cells = cells.into_iter().chain([remark.to_owned()]);
        table.row([name.to_owned()].into_iter().chain(cells));
    };
    for link in &results.links {
        row(&link.link, &link.rates, link.error.as_deref().unwrap_or(""));
    }
    if results.bond.is_some() || results.bond_error.is_some() {
        row(
            "bonded",
            &results.bond,
            results.bond_error.as_deref().unwrap_or(""),
        );
    }
    let mut text = table.render();
    if let (Some(sum), Some(best)) = (results.of_sum, results.of_best) {
        text.push_str(&format!(
            "bonded, of the sum of the links: {} down, {} up\n\
             bonded, times the best link: {:.2} down, {:.2} up\n",
            table::percent(sum.down),
            table::percent(sum.up),
            best.down,
            best.up,
        ));
    }
    match results.limited_by {
        "links" => text,
        limit => text + &format!("limited by the {limit}: the links may be faster\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, down: f64, up: f64) -> LinkResult {
        LinkResult {
            link: name.to_owned(),
            rates: Some(Rates {
                rtt_ms: 20.0,
                down_bps: down * 1e6,
                up_bps: up * 1e6,
                resent: 0.001,
            }),
            error: None,
        }
    }

    #[test]
    fn the_bond_is_compared_with_the_sum_and_the_best_link() {
        let links = [
            link("wifi", 40.0, 10.0),
            link("lte", 20.0, 5.0),
            LinkResult {
                link: "usb0".to_owned(),
                rates: None,
                error: Some("the link usb0 is down".to_owned()),
            },
        ];
        let bond = link("", 57.0, 14.7).rates.unwrap();
        let of_sum = compare(&bond, &links, sum);
        assert_eq!(
            of_sum,
            Some(Directions {
                down: 0.95,
                up: 0.98
            })
        );
        let results = Results {
            server: "vpn.example.org:7443".to_owned(),
            of_sum,
            of_best: compare(&bond, &links, best),
            links: links.to_vec(),
            bond: Some(bond),
            bond_error: None,
            limited_by: "client processor",
            failed: None,
        };
        insta::assert_snapshot!(render(&results));
    }

    #[test]
    fn links_that_carry_nothing_are_not_compared() {
        let links = [link("wifi", 0.0, 0.0)];
        assert_eq!(compare(&Rates::default(), &links, sum), None);
    }
}
