//! A chart of an edge node's handling of a flow: over time the sender's window and round-trip time,
//! the number and holding time of duplicate acknowledgments, and the node's queues.
//!
//! It is drawn from the lines `flow` and `queue` of a trace of `sumlink-lab run --trace` or
//! `sumlink-lab sim run --trace`.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Deserialize;

use sumlink_plot::{Anchor, Axis, Ink, Svg, draw_panel, short, shortened, thinned};

/// A line of a trace; other events are ignored.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Flow {
        t_ns: u64,
        connection: usize,
        cwnd: f64,
        in_flight: f64,
        srtt_us: f64,
        duplicates: f64,
        held_average: f64,
        held_us: f64,
    },
    Queue {
        t_ns: u64,
        link: usize,
        packets: f64,
    },
    #[serde(other)]
    Other,
}

/// Values over time in seconds.
type Values = Vec<(f64, f64)>;

/// The samples of a connection.
#[derive(Debug, Default)]
struct Flow {
    /// In kilobytes.
    cwnd: Values,
    in_flight: Values,
    /// In milliseconds.
    srtt: Values,
    /// P and PH^a.
    duplicates: Values,
    held_average: Values,
    /// H, in milliseconds.
    held: Values,
}

/// Lines with the same unit.
struct Panel<'a> {
    unit: &'a str,
    lines: Vec<(&'a str, Ink, &'a Values)>,
}

/// The name of a line.
const AVERAGE: &str = "held for each hole, average (PH^a)";

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 44.0;
const LEGEND: f64 = 22.0;
const HEIGHT: f64 = 110.0;
const GAP: f64 = 16.0;
const BELOW: f64 = 34.0;

/// Draws a trace as SVG; `None` if it contains no connection through an edge node. `links` lists
/// the links' names in order. Of several connections, the one with the most samples is drawn.
///
/// # Errors
///
/// Returns an error if the trace cannot be read or a line is invalid, with the number of the line.
pub fn edge_timeline(
    trace: impl BufRead,
    links: &[String],
    title: &str,
) -> Result<Option<String>, String> {
    let mut flows: BTreeMap<usize, Flow> = BTreeMap::new();
    let mut queues: BTreeMap<usize, Values> = BTreeMap::new();
    for (number, line) in trace.lines().enumerate() {
        let place = |what: String| format!("line {}: {what}", number + 1);
        let line = line.map_err(|error| place(error.to_string()))?;
        match serde_json::from_str(&line).map_err(|error| place(error.to_string()))? {
            Line::Flow {
                t_ns,
                connection,
                cwnd,
                in_flight,
                srtt_us,
                duplicates,
                held_average,
                held_us,
            } => {
                let flow = flows.entry(connection).or_default();
                for (values, value) in [
                    (&mut flow.cwnd, cwnd / 1e3),
                    (&mut flow.in_flight, in_flight / 1e3),
                    (&mut flow.srtt, srtt_us / 1e3),
                    (&mut flow.duplicates, duplicates),
                    (&mut flow.held_average, held_average),
                    (&mut flow.held, held_us / 1e3),
                ] {
                    values.push((t_ns as f64 / 1e9, value));
                }
            }
            Line::Queue {
                t_ns,
                link,
                packets,
            } => queues
                .entry(link)
                .or_default()
                .push((t_ns as f64 / 1e9, packets)),
            Line::Other => {}
        }
    }
    let count = flows.len();
    let most = |(_, a): &(usize, Flow), (_, b): &(usize, Flow)| a.cwnd.len().cmp(&b.cwnd.len());
    let Some((connection, flow)) = flows.into_iter().rev().max_by(most) else {
        return Ok(None);
    };
    let note = match count {
        1 => String::new(),
        _ => format!("connection {connection} of {count}"),
    };
    Ok(Some(draw(title, &note, &flow, &queues, links)))
}

fn draw(
    title: &str,
    note: &str,
    flow: &Flow,
    queues: &BTreeMap<usize, Values>,
    links: &[String],
) -> String {
    let mut panels = vec![
        Panel {
            unit: "kB",
            lines: vec![
                ("congestion window", Ink::Color(2), &flow.cwnd),
                ("in flight", Ink::Color(3), &flow.in_flight),
            ],
        },
        Panel {
            unit: "ms",
            lines: vec![("smoothed round-trip time", Ink::Color(4), &flow.srtt)],
        },
        Panel {
            unit: "packets",
            lines: vec![
                (
                    "duplicates of the hole (P)",
                    Ink::Color(5),
                    &flow.duplicates,
                ),
                (AVERAGE, Ink::Color(6), &flow.held_average),
            ],
        },
        Panel {
            unit: "ms",
            lines: vec![("holding time (H)", Ink::Color(6), &flow.held)],
        },
    ];
    let of_link = |(link, values): (&usize, _)| {
        let name = links.get(*link).map_or("a link", String::as_str);
        (name, Ink::Color(*link + 2), values)
    };
    panels.push(Panel {
        unit: "packets",
        lines: queues.iter().map(of_link).collect(),
    });
    // Panels without samples are omitted; an average without any duplicate is only the initial
    // value.
    panels.retain(|panel| {
        let is_seen = |values: &Values| values.iter().any(|(_, value)| *value > 0.0);
        let lines = panel.lines.iter();
        let mut seen = lines.filter(|(name, _, values)| *name != AVERAGE && is_seen(values));
        seen.next().is_some()
    });

    let height = TOP + panels.len() as f64 * (LEGEND + HEIGHT + GAP) + BELOW;
    let mut svg = Svg::new(WIDTH, height, title);
    let (bold, name) = ("font-weight=\"600\"", shortened(title, 100));
    svg.text((LEFT, 24.0), 15.0, Ink::Text, Anchor::Start, bold, &name);
    svg.text((RIGHT, 24.0), 11.0, Ink::Muted, Anchor::End, "", note);
    let last = |values: &Values| values.last().map_or(0.0, |(time, _)| *time);
    let end = panels.iter().flat_map(|panel| &panel.lines);
    let end = end.map(|(.., values)| last(values)).fold(0.0, f64::max);
    let time = Axis::exact(end, (LEFT, RIGHT), 10.0);
    let mut top = TOP;
    for panel in &panels {
        top += LEGEND;
        draw_lines(&mut svg, &time, panel, top);
        top += HEIGHT + GAP;
    }
    for tick in &time.ticks {
        let place = (time.at(*tick), top);
        svg.text(place, 10.0, Ink::Muted, Anchor::Middle, "", &short(*tick));
    }
    let place = (RIGHT, top + 16.0);
    svg.text(place, 10.0, Ink::Muted, Anchor::End, "", "seconds");
    svg.finish()
}

fn draw_lines(svg: &mut Svg, time: &Axis, panel: &Panel<'_>, top: f64) {
    let values = panel.lines.iter().flat_map(|(.., values)| values.iter());
    let values = values.map(|(_, value)| *value);
    let axis = Axis::covering(values, (top + HEIGHT, top), 4.0);
    draw_panel(svg, time, &axis, (top, top + HEIGHT), panel.unit);
    let mut x = LEFT;
    for (name, ink, values) in &panel.lines {
        svg.line((x, top - 8.0), (x + 22.0, top - 8.0), *ink, 2.0, "");
        let name = shortened(name, 40);
        svg.text(
            (x + 28.0, top - 4.0),
            11.0,
            Ink::Text,
            Anchor::Start,
            "",
            &name,
        );
        x += 250.0;
        svg.polyline(&thinned(values, time, &axis), *ink, 1.4, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(connection: usize, t_ms: u64, duplicates: u32) -> String {
        format!(
            "{{\"t_ns\":{},\"event\":\"flow\",\"side\":\"server\",\"connection\":{connection},\"cwnd\":{},\"in_flight\":1000,\
             \"srtt_us\":40000,\"duplicates\":{duplicates},\"held_average\":1.5,\"held_us\":300,\"retransmissions\":0,\"owed\":0}}\n",
            t_ms * 1_000_000,
            14_000 + t_ms
        )
    }

    fn queue(t_ms: u64, link: usize, packets: u32) -> String {
        let t_ns = t_ms * 1_000_000;
        format!(
            "{{\"t_ns\":{t_ns},\"event\":\"queue\",\"side\":\"server\",\"link\":{link},\"packets\":{packets},\"bytes\":1}}\n"
        )
    }

    fn picture(trace: &str) -> String {
        let links = ["lte", "wi<fi"].map(str::to_owned);
        edge_timeline(trace.as_bytes(), &links, "a node")
            .unwrap()
            .unwrap()
    }

    fn lines(svg: &str) -> usize {
        let document = roxmltree::Document::parse(svg).expect("well-formed");
        let is_line = |node: &roxmltree::Node<'_, '_>| node.has_tag_name("polyline");
        document.descendants().filter(is_line).count()
    }

    #[test]
    fn windows_round_trips_duplicates_holding_times_and_queues_are_drawn() {
        let mut trace =
            String::from("{\"t_ns\":1,\"event\":\"up\",\"side\":\"server\",\"path\":0}\n");
        for ms in (0..100).step_by(10) {
            trace += &flow(0, ms, 3);
            trace += &(queue(ms, 0, 7) + &queue(ms, 1, 9));
        }
        let svg = picture(&trace);
        assert_eq!(lines(&svg), 8);
        for name in ["congestion window", "holding time (H)", "lte", "wi&lt;fi"] {
            assert!(svg.contains(name), "{name}");
        }
    }

    #[test]
    fn empty_panels_are_omitted_and_one_connection_is_shown() {
        let one = flow(0, 0, 0).replace("\"held_us\":300", "\"held_us\":0");
        let other = |ms| flow(1, ms, 0).replace("\"held_us\":300", "\"held_us\":0");
        let svg = picture(&(one + &other(0) + &other(10)));
        assert!(svg.contains("connection 1 of 2"));
        for name in ["holding time", "PH^a", "lte"] {
            assert!(!svg.contains(name), "{name}");
        }
    }

    #[test]
    fn a_trace_without_connections_has_no_chart_and_an_invalid_one_is_an_error() {
        assert_eq!(edge_timeline(queue(1, 0, 1).as_bytes(), &[], ""), Ok(None));
        let broken = flow(0, 1, 1) + "{\"t_ns\":1,";
        let error = edge_timeline(broken.as_bytes(), &[], "").unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
    }
}
