//! One end of an edge node as text.

use sumlink_edge_node::NodeStatus;

use crate::grid::{Column, Grid, View};
use crate::table::{Table, bytes, duration, printable, rate};

/// The columns of the table of links.
const LINKS: [Column; 7] = [
    Column::text("LINK", 15, 0),
    Column::text("STATE", 5, 0),
    Column::number("RTT", 9, 0),
    Column::number("QUEUE", 11, 0),
    Column::number("SERVED", 11, 0),
    Column::number("SENT", 8, 1),
    Column::number("RECEIVED", 8, 1),
];

/// What it does, then its links.
pub(super) fn render(edge: &NodeStatus, view: View) -> String {
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
            "{}, {} of them busy, {} owed something; {} reset",
            core.flows, core.busy_flows, core.owed_flows, core.resets
        ),
    );
    line(
        "packets",
        format!(
            "{} to the links, {} of them without room; {} from the links",
            core.down_packets, core.dropped, core.up_packets
        ),
    );
    line(
        "duplicates",
        format!(
            "{}: {} boosted, {} held; {} packets sent again from here",
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
