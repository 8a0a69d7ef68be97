//! `sumlink-edge link`: sets the rate of a link of a running edge node.

use std::path::PathBuf;

use clap::Args;
use sumlink::control::{self, LinkRate};
use sumlink::error::CliError;
use sumlink::find_socket;
use sumlink::output::{print, print_json};
use sumlink::table::printable;
use sumlink_settings::units;

/// `sumlink-edge link`
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// Link to set.
    #[arg(value_name = "NAME")]
    name: String,
    /// Set the rate, such as 25mbit; 0 stops the link, none leaves the rate to its socket.
    #[arg(long, value_name = "RATE|none", value_parser = rate_or_none)]
    rate: Rate,
    /// Ask at this control socket. Default: the running service's.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A rate in bit/s, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rate(Option<u64>);

fn rate_or_none(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate(None)),
        _ => units::parse_rate(text)
            .map(|rate| Rate(Some(rate)))
            .map_err(|error| error.to_string()),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &LinkArgs) -> Result<(), CliError> {
    let socket = find_socket::socket(args.control.as_deref(), crate::SOCKETS)?.path;
    let name = args.name.clone();
    let Rate(rate_bps) = args.rate;
    let set = control::set_rate(&socket, LinkRate { name, rate_bps })?;
    if args.json {
        return print_json(&set);
    }
    let name = printable(&set.name);
    match set.rate_bps {
        Some(rate) => print(&format!("{name} carries {}\n", units::format_rate(rate))),
        None => print(&format!("{name}: no rate set; its socket limits it\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_a_unit_or_is_the_word_none() {
        assert_eq!(rate_or_none("25mbit"), Ok(Rate(Some(25_000_000))));
        assert_eq!(rate_or_none("0"), Ok(Rate(Some(0))));
        assert_eq!(rate_or_none("none"), Ok(Rate(None)));
        assert!(rate_or_none("fast").unwrap_err().contains("rate"));
    }
}
