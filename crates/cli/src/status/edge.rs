//! One end of an edge node as text.

use sumlink_edge_node::NodeStatus;

use crate::table::{Table, bytes, duration, printable, rate};

/// What it does, then its links; tables in lines of `width` characters.
pub(super) fn render(edge: &NodeStatus, width: usize) -> String {
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
    let columns = [
        "LINK", "STATE", "RTT", "QUEUE", "SERVED", "SENT", "RECEIVED",
    ];
    let mut links = Table::new(&columns);
    for link in &edge.links {
        links.row([
            printable(&link.name),
            link.state.clone(),
            link.rtt_ms
                .map_or("-".to_owned(), |ms| format!("{ms:.1} ms")),
            format!("{}/{}", link.queue_packets, link.queue_limit),
            link.service_bps.map_or("-".to_owned(), rate),
            bytes(link.sent_bytes),
            bytes(link.received_bytes),
        ]);
    }
    links.fit(width, &["RECEIVED", "SENT", "SERVED"]);
    format!("{}\n{}", head.render(), links.render())
}
