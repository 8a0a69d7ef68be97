//! `sumlink links`: lists the interfaces and checks which of them have a route to the server.

use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use sumlink_transport::ConnectError;
use sumlink_transport::links::{self, Link, LinkError};

use crate::args::LinksArgs;
use crate::config;
use crate::error::CliError;
use crate::lookup;
use crate::output::{print, print_json};
use crate::table::Table;

/// An interface and its usability.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) link: Link,
    /// Whether a client could use it for the named server, or for any server if none is named.
    pub(crate) usable: bool,
    /// Source address of connections to the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<IpAddr>,
    /// Why it is usable or not.
    pub(crate) reason: String,
}

/// Runs the verb.
pub(crate) async fn run(args: &LinksArgs) -> Result<(), CliError> {
    let remotes = match &args.server {
        Some(server) => resolve(server).await?,
        None => Vec::new(),
    };
    let mut rows = Vec::new();
    for link in links::list().await? {
        let row = match args.server {
            Some(_) => towards(link, &remotes).await?,
            None => in_general(link),
        };
        rows.push(row);
    }
    if args.json {
        print_json(&rows)
    } else {
        print(&render(&rows))
    }
}

/// The addresses of a server, HOST:PORT.
pub(crate) async fn resolve(server: &str) -> Result<Vec<SocketAddr>, CliError> {
    let server = config::parse_server(server)?;
    let failed = |reason: String| ConnectError::Resolve {
        name: server.clone(),
        reason,
    };
    let addresses = lookup::addresses_of_server(&server)
        .await
        .map_err(|error| failed(error.to_string()))?;
    if addresses.is_empty() {
        Err(failed("it has no address".to_owned()).into())
    } else {
        Ok(addresses)
    }
}

/// Checks the routes of this link to a server with these addresses: yes if there is a route to one
/// of them, otherwise why there is none to the first.
pub(crate) async fn towards(link: Link, remotes: &[SocketAddr]) -> Result<Row, CliError> {
    let mut refusal = String::new();
    for remote in remotes {
        match links::can_reach(&link, *remote).await {
            Ok(source) => {
                let reason = format!("has a route to {}", remote.ip());
                return Ok(Row {
                    link,
                    usable: true,
                    source: Some(source),
                    reason,
                });
            }
            Err(error @ LinkError::System(_)) => return Err(error.into()),
            Err(error) if refusal.is_empty() => refusal = error.to_string(),
            Err(_) => {}
        }
    }
    Ok(Row {
        link,
        usable: false,
        source: None,
        reason: refusal,
    })
}

fn in_general(link: Link) -> Row {
    let reason = match &link {
        Link { loopback: true, .. } => "reaches only this machine",
        Link { up: false, .. } => "down: switch it on, plug it in or connect it to its network",
        Link { addresses, .. } if addresses.is_empty() => "has no address",
        _ => "up; --server HOST:PORT checks whether it has a route there",
    };
    let usable = link.up && !link.loopback && !link.addresses.is_empty();
    Row {
        link,
        usable,
        source: None,
        reason: reason.to_owned(),
    }
}

fn render(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "NAME",
        "KIND",
        "STATE",
        ">MTU",
        "USABLE",
        "ADDRESSES",
        "WHY",
    ]);
    for Row {
        link,
        usable,
        reason,
        ..
    } in rows
    {
        let addresses: Vec<String> = link.addresses.iter().map(IpAddr::to_string).collect();
        let state = if link.up { "up" } else { "down" };
        let usable = if *usable { "yes" } else { "no" };
        let kind = match (&link.kind, link.loopback) {
            (Some(kind), _) => kind,
            (None, true) => "loopback",
            (None, false) => "hardware",
        };
        table.row([
            link.name.clone(),
            kind.to_owned(),
            state.to_owned(),
            link.mtu.to_string(),
            usable.to_owned(),
            if addresses.is_empty() {
                "-".to_owned()
            } else {
                addresses.join(" ")
            },
            reason.clone(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, up: bool, addresses: &[&str]) -> Link {
        Link {
            index: 1,
            name: name.to_owned(),
            kind: None,
            loopback: name == "lo",
            up,
            mtu: 1500,
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn each_link_has_a_reason() {
        let rows = [
            in_general(link("lo", true, &["127.0.0.1", "::1"])),
            in_general(link("wlan0", true, &["192.0.2.7", "2001:db8::7"])),
            in_general(link("wwan0", true, &[])),
            in_general(link("eth0", false, &[])),
        ];
        insta::assert_snapshot!(render(&rows));
    }
}
