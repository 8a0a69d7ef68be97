//! The lower panels: bytes held by the receiver, and the links that it waited for.

use std::collections::BTreeMap;

use super::events::{State, Timeline};
use super::marks::{RASTER, merge};
use super::panel::{HELD_Y, LANE, LANES, PLOT_X, caption, ink, lane_of, name, panel, seconds};
use sumlink_plot::{Anchor, Axis, Ink, Svg};

/// Bytes held out of order.
pub(super) fn held(svg: &mut Svg, story: &Timeline, x: &Axis) {
    let most = story.held.iter().map(|(_, waiting)| *waiting).max();
    let y = Axis::from_zero(most.unwrap_or(0).max(1) as f64, HELD_Y, 2.0);
    panel(svg, x, &y, "held by the receiver behind gaps");
    // The maximum at each position.
    let mut peaks: BTreeMap<i64, u64> = BTreeMap::new();
    for (at, waiting) in &story.held {
        let at = x.at(seconds(story, *at));
        let peak = peaks.entry((at * RASTER).round() as i64).or_default();
        *peak = (*peak).max(*waiting);
    }
    let mut points = vec![(PLOT_X.0, HELD_Y.0)];
    for (place, peak) in peaks {
        let at = place as f64 / RASTER;
        let last = points.last().map_or(HELD_Y.0, |point| point.1);
        points.extend([(at, last), (at, y.at(peak as f64))]);
    }
    let last = points.last().map_or(PLOT_X.0, |point| point.0);
    points.push((last, HELD_Y.0));
    svg.area(&points, Ink::Color(0));
    svg.polyline(&points, Ink::Color(0), 1.0, "");
}

/// For each link the times in which its paths worked, and in which the receiver waited for a byte
/// that it carried.
pub(super) fn waits(svg: &mut Svg, story: &Timeline, links: &[String], lanes: &[usize], x: &Axis) {
    let at = |ns: u64| x.at(seconds(story, ns));
    let what =
        "link that carried the missing byte while the receiver held bytes; pale: the link delivers";
    caption(svg, LANES, what);
    for (lane, link) in lanes.iter().enumerate() {
        let top = LANES + LANE * lane as f64;
        svg.text(
            (PLOT_X.0 - 6.0, top + 12.0),
            11.0,
            Ink::Text,
            Anchor::End,
            "",
            &name(links, *link),
        );
        for (from, to) in working(story, *link) {
            let (left, right) = (at(from), at(to));
            svg.rect((left, top), (right - left, LANE - 4.0), Ink::Panel);
        }
        let own = story
            .waits
            .iter()
            .filter(|wait| lane_of(story, lanes, wait.2) == lane);
        let busy = own.map(|(from, to, _)| {
            let left = (at(*from) * RASTER).floor() as i64;
            (left, ((at(*to) * RASTER).ceil() as i64).max(left + 1))
        });
        for (left, right) in merge(busy.collect()) {
            let (left, right) = (left as f64 / RASTER, right as f64 / RASTER);
            svg.rect((left, top + 2.0), (right - left, LANE - 8.0), ink(lane));
        }
    }
}

/// Times in which a link had a delivering path, according to the sender.
fn working(story: &Timeline, link: usize) -> Vec<(u64, u64)> {
    let mut working: Vec<u32> = Vec::new();
    let mut since = None;
    let mut times = Vec::new();
    let own = story
        .states
        .iter()
        .filter(|(_, path, _)| story.links.get(path) == Some(&link));
    for (at, path, state) in own {
        working.retain(|other| other != path);
        if *state == State::Working {
            working.push(*path);
        }
        match (since, working.is_empty()) {
            (None, false) => since = Some(*at),
            (Some(from), true) => {
                times.push((from, *at));
                since = None;
            }
            _ => {}
        }
    }
    times.extend(since.map(|from| (from, story.span.1)));
    times
}
