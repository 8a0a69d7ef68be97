//! `sumlink route`: shows, changes and tests the routing rules of a running gateway.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use sumlink_gateway::rules::{Entry, Protocol, Rule};
use sumlink_transport::Target;
use sumlink_transport::target::{Host, TargetError};

use crate::control::{self, RouteRequest};
use crate::error::CliError;
use crate::find_socket;
use crate::output::{print, print_json};
use crate::table::Table;

/// `sumlink route`
#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    #[command(subcommand)]
    command: RouteCommand,
    /// Ask at this control socket. Default: that of the running gateway.
    #[arg(long, value_name = "SOCKET", global = true)]
    control: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
enum RouteCommand {
    /// List the rules; the first one that matches decides
    List,
    /// Add a rule before all others: CONDITION... ACTION
    ///
    /// Conditions: domain=, to= (network), port=, protocol= (tcp, udp or icmp), user=, cgroup=,
    /// device= (address or MAC of a host on the LAN), each with one value or several between
    /// commas. Actions: bond, link NAME, direct (the best link, without the bond), block.
    Add {
        /// The rule, for example: domain=bank.example link wwan0
        #[arg(value_name = "WORD", required = true)]
        words: Vec<String>,
        /// Keep the rule over restarts; the file needs `kept_rules`, or the service a state
        /// directory.
        #[arg(long)]
        keep: bool,
    },
    /// Remove a rule that was added at run time
    Remove {
        /// Its id in the list.
        id: u64,
    },
    /// Show which rule decides about a destination, and why
    Test {
        /// Name or address, with a port if it is not 443.
        #[arg(value_name = "HOST[:PORT]")]
        host: String,
        /// Protocol: tcp, udp or icmp.
        #[arg(long, value_name = "WORD", default_value = "tcp")]
        protocol: Protocol,
        /// As if this host on the LAN connected.
        #[arg(long, value_name = "ADDRESS")]
        from: Option<IpAddr>,
    },
}

/// The answer to a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tested {
    /// `bond`, `link NAME`, `direct`, `block`; or `bypass`, if the traffic never reaches the
    /// gateway.
    pub(crate) action: String,
    /// Id of the rule that decides; `None` if no rule matches.
    #[serde(default)]
    pub(crate) rule: Option<u64>,
    /// Why.
    pub(crate) reason: String,
}

/// Port of a tested destination without one.
const HTTPS: u16 = 443;

/// Runs the verb.
pub(crate) fn run(args: &RouteArgs) -> Result<(), CliError> {
    let request = match &args.command {
        RouteCommand::List => RouteRequest::List {},
        RouteCommand::Add { words, keep } => {
            let text = words.join(" ");
            // The mistake is reported even if no gateway runs.
            let rule: Rule = text
                .parse()
                .map_err(|error| CliError::Usage(format!("{error}")))?;
            RouteRequest::Add {
                rule: rule.to_string(),
                keep: *keep,
            }
        }
        RouteCommand::Remove { id } => RouteRequest::Remove { id: *id },
        RouteCommand::Test {
            host,
            protocol,
            from,
        } => {
            let (host, port) = destination(host)?;
            RouteRequest::Test {
                host,
                port,
                protocol: protocol.to_string(),
                from: *from,
            }
        }
    };
    let socket = find_socket::socket(args.control.as_deref(), find_socket::GATEWAY)?;
    let answer = control::route(&socket.path, request)?;
    if args.json {
        return print_json(&answer);
    }
    let wrong = |error: serde_json::Error| control::ControlError::Answer {
        path: socket.path.clone(),
        reason: error.to_string(),
    };
    match &args.command {
        RouteCommand::Test { .. } => {
            let tested: Tested = serde_json::from_value(answer).map_err(wrong)?;
            print(&format!("{}: {}\n", tested.action, tested.reason))
        }
        _ => {
            let entries: Vec<Entry> = serde_json::from_value(answer).map_err(wrong)?;
            print(&table(&entries))
        }
    }
}

/// A destination in `HOST[:PORT]`, and the port of HTTPS without one.
fn destination(text: &str) -> Result<(String, u16), CliError> {
    let parsed = match text.parse::<IpAddr>() {
        Ok(ip) => Target::new(&ip.to_string(), HTTPS),
        Err(_) => match text.parse::<Target>() {
            Err(TargetError::NoPort) => Target::new(text, HTTPS),
            parsed => parsed,
        },
    };
    let target = parsed.map_err(|error| CliError::Usage(format!("`{text}`: {error}")))?;
    let host = match target.host {
        Host::Name(name) => name,
        Host::Ip(ip) => ip.to_string(),
    };
    Ok((host, target.port))
}

/// The rules as a table.
fn table(entries: &[Entry]) -> String {
    let mut table = Table::new(&["id", "rule", "from"]);
    for entry in entries {
        let source = match (entry.is_configured, entry.is_kept) {
            (true, _) => "the configuration",
            (false, true) => "kept",
            (false, false) => "until the gateway ends",
        };
        table.row([
            entry.id.to_string(),
            entry.rule.to_string(),
            source.to_owned(),
        ]);
    }
    table.row(["".to_owned(), "bond".to_owned(), "the default".to_owned()]);
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_without_a_port_is_https() {
        for (text, host, port) in [
            ("example.org", "example.org", 443),
            ("example.org:80", "example.org", 80),
            ("192.0.2.1", "192.0.2.1", 443),
            ("2001:db8::1", "2001:db8::1", 443),
            ("[2001:db8::1]:53", "2001:db8::1", 53),
        ] {
            assert_eq!(destination(text).unwrap(), (host.to_owned(), port));
        }
        for text in ["", "example.org:0x", "a b"] {
            assert!(destination(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_list_shows_where_each_rule_is_from() {
        let entry = |id, is_configured, is_kept, rule: &str| Entry {
            id,
            is_configured,
            is_kept,
            rule: rule.parse().unwrap(),
        };
        let text = table(&[
            entry(3, false, false, "domain=bank.example link wwan0"),
            entry(2, false, true, "port=25 block"),
            entry(1, true, false, "to=192.0.2.0/24 direct"),
        ]);
        insta::assert_snapshot!(text);
    }
}
