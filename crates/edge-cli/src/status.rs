//! `sumlink-edge status`: the state of one end of an edge node as text.

use std::path::PathBuf;

use clap::Args;
use sumlink::error::CliError;
use sumlink::grid::{Column, Grid, View};
use sumlink::status;
use sumlink::table::{Table, bytes, duration, printable, rate};
use sumlink_edge_node::NodeStatus;

/// `sumlink-edge status`
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Ask at this control socket. Default: the running service's, in /run/sumlink-edge.
    #[arg(long, value_name = "SOCKET")]
    control: Option<PathBuf>,
    /// Show every column, regardless of the terminal's width.
    #[arg(long, conflicts_with = "json")]
    wide: bool,
    /// Refresh every second until interrupted.
    #[arg(long)]
    watch: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the verb.
pub(crate) fn run(args: &StatusArgs) -> Result<(), CliError> {
    let args = sumlink::args::StatusArgs {
        control: args.control.clone(),
        client: Vec::new(),
        details: false,
        wide: args.wide,
        watch: args.watch,
        json: args.json,
    };
    status::watch(&args, crate::SOCKETS, render_node)
}

/// The node's part of the report.
fn render_node(node: &serde_json::Value, view: View) -> String {
    match serde_json::from_value::<NodeStatus>(node.clone()) {
        Ok(node) => render(&node, view),
        Err(error) => {
            format!("cannot read the report of an edge node of another version: {error}\n")
        }
    }
}

/// Columns of the table of links.
const LINKS: [Column; 7] = [
    Column::text("LINK", 15, 0),
    Column::text("STATE", 5, 0),
    Column::number("RTT", 9, 0),
    Column::number("QUEUE", 11, 0),
    Column::number("SERVED", 11, 0),
    Column::number("SENT", 8, 1),
    Column::number("RECEIVED", 8, 1),
];

/// Renders the totals, then the links.
fn render(edge: &NodeStatus, view: View) -> String {
    let mut head = Table::new(&["device", &printable(&edge.device)]);
    let mut line = |name: &str, value: String| head.row([name.to_owned(), value]);
    let (core, order) = (&edge.core, &edge.reorder);
    line("up", duration(edge.uptime_s));
    line(
        "sends",
        format!(
            "{}, {}, as the {}'s end",
            edge.mode, edge.steering, edge.role
        ),
    );
    line(
        "flows",
        format!(
            "{}, {} of them busy, {} owed data; {} reset",
            core.flows, core.busy_flows, core.owed_flows, core.resets
        ),
    );
    line(
        "packets",
        format!(
            "{} to the links, {} dropped by full queues; {} from the links",
            core.down_packets, core.dropped, core.up_packets
        ),
    );
    line(
        "duplicates",
        format!(
            "{}: {} boosted, {} held; {} packets retransmitted by the node",
            core.duplicates,
            core.boosted,
            core.held,
            core.sent_again()
        ),
    );
    line(
        "order",
        format!(
            "{} put in order, {} of them waited; {} missing, {} late",
            order.delivered, order.reordered, order.missing, order.late
        ),
    );
    let mut links = Grid::new(&LINKS, None);
    for link in &edge.links {
        let cells = [
            link.name.clone(),
            link.state.clone(),
            link.rtt_ms
                .map_or("-".to_owned(), |ms| format!("{ms:.1} ms")),
            format!("{}/{}", link.queue_packets, link.queue_limit),
            link.service_bps.map_or("-".to_owned(), rate),
            bytes(link.sent_bytes),
            bytes(link.received_bytes),
        ];
        links.row(cells, "");
    }
    format!("{}\n{}", head.render(), links.render(view))
}

#[cfg(test)]
mod tests {
    use sumlink_edge_node::status::LinkStatus;

    use super::*;

    #[test]
    fn an_edge_node_with_a_dead_link() {
        let link = |name: &str, state: &str, rtt_ms| LinkStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            rtt_ms,
            queue_packets: 12,
            queue_limit: 40,
            service_bps: rtt_ms.map(|_| 25e6),
            sent_bytes: 1_500_000,
            ..LinkStatus::default()
        };
        let node = NodeStatus {
            role: "node".to_owned(),
            mode: "lwip+visible".to_owned(),
            steering: "qdepl".to_owned(),
            device: "edge0".to_owned(),
            links: vec![
                link("lte", "up", Some(31.5)),
                link("wifi\u{7}", "down", None),
            ],
            ..NodeStatus::default()
        };
        let text = render_node(&serde_json::to_value(node).unwrap(), View::Fit(80));
        assert!(
            text.lines().all(|line| line.chars().count() <= 80) && !text.contains('\u{7}'),
            "{text}"
        );
        for words in [
            "lwip+visible, qdepl, as the node's end",
            "31.5 ms",
            "12/40",
            "down",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let strange = render_node(&serde_json::json!({ "role": 7 }), View::Fit(80));
        assert!(strange.contains("another version"), "{strange}");
    }
}
