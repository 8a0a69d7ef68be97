//! What the panels of the chart have in common.

use super::events::Timeline;
use sumlink_plot::{Anchor, Axis, Ink, Svg, short, shortened};

pub(super) const PLOT_X: (f64, f64) = (76.0, 936.0);
/// Bottom and top of the panel with the bytes held by the receiver.
pub(super) const HELD_Y: (f64, f64) = (680.0, 610.0);

/// Top of the links' lanes, and the height of a lane.
pub(super) const LANES: f64 = 720.0;
pub(super) const LANE: f64 = 20.0;

/// Time since the first byte.
pub(super) fn seconds(story: &Timeline, ns: u64) -> f64 {
    (ns - story.span.0.min(ns)) as f64 / 1e9
}

/// Gray is reserved for other shapes.
pub(super) fn ink(lane: usize) -> Ink {
    Ink::Color(2 + lane % 7)
}

pub(super) fn name(links: &[String], link: usize) -> String {
    links
        .get(link)
        .map_or_else(|| format!("link {link}"), |name| shortened(name, 14))
}

pub(super) fn lane_of(story: &Timeline, lanes: &[usize], path: u32) -> usize {
    let link = story.links.get(&path);
    link.and_then(|link| lanes.iter().position(|lane| lane == link))
        .unwrap_or(0)
}

/// Draws the background of a panel, with its axes.
pub(super) fn panel(svg: &mut Svg, x: &Axis, y: &Axis, what: &str) {
    let (bottom, top) = y.place;
    let width = PLOT_X.1 - PLOT_X.0;
    svg.rect((PLOT_X.0, top), (width, bottom - top), Ink::Panel);
    let (unit, size) = byte_unit(y.range.1);
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line((PLOT_X.0, at), (PLOT_X.1, at), Ink::Grid, 1.0, "");
        svg.text(
            (PLOT_X.0 - 6.0, at + 4.0),
            11.0,
            Ink::Muted,
            Anchor::End,
            "",
            &short(tick / size),
        );
    }
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line((at, top), (at, bottom), Ink::Grid, 1.0, "");
    }
    caption(svg, top, &format!("{what}, {unit}"));
}

/// Draws the caption above a panel.
pub(super) fn caption(svg: &mut Svg, top: f64, text: &str) {
    svg.text(
        (PLOT_X.0, top - 6.0),
        11.0,
        Ink::Muted,
        Anchor::Start,
        "",
        text,
    );
}

fn byte_unit(largest: f64) -> (&'static str, f64) {
    match largest {
        bytes if bytes >= 2e6 => ("MB", 1e6),
        bytes if bytes >= 2e3 => ("kB", 1e3),
        _ => ("bytes", 1.0),
    }
}
