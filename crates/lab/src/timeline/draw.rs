//! The picture.

use std::collections::BTreeMap;

use super::events::{State, Story};
use crate::plot::{Anchor, Axis, Ink, Svg, Unit, short, shortened};

const WIDTH: f64 = 960.0;
const PLOT_X: (f64, f64) = (76.0, 936.0);
/// Top of the legend, of the panel of bytes, of that of what waits, and of the links' lanes.
const LEGEND: f64 = 48.0;
const BYTES_Y: (f64, f64) = (500.0, 84.0);
const WAITING_Y: (f64, f64) = (620.0, 540.0);
const LANES: f64 = 650.0;
const LANE: f64 = 20.0;

/// Marks lie on a raster of this many places for a pixel, so that a picture is bounded whatever the trace is.
const RASTER: f64 = 2.0;
/// The height of the least mark, in places.
const LEAST: i64 = 2;

/// Vertical marks: by place from the left, from where to where.
type Marks = BTreeMap<i64, Vec<(i64, i64)>>;

pub(super) fn draw(story: &Story, links: &[String], title: &str) -> String {
    let lanes = links_of(story);
    let height = LANES + LANE * lanes.len() as f64 + 66.0;
    let mut svg = Svg::new(WIDTH, height, title);
    let time = |ns: u64| (ns - story.span.0.min(ns)) as f64 / 1e9;
    let end = time(story.span.1).max(1e-6);
    let x = Axis::exact(end, PLOT_X, 12.0);
    let y = Axis::from_zero(story.height as f64, BYTES_Y, 6.0);
    let heading = format!(
        "{title}: who carried which bytes when ({})",
        story.direction
    );
    svg.text(
        (PLOT_X.0, 24.0),
        15.0,
        Ink::Text,
        Anchor::Start,
        "",
        &shortened(&heading, 100),
    );
    legend(&mut svg, story, links, &lanes);
    ground(&mut svg, &x, &y);
    bytes(&mut svg, story, &lanes, &x, &y);
    waiting(&mut svg, story, &x);
    below(&mut svg, story, links, &lanes, &x);
    svg.finish()
}

/// The links that have paths, in their order.
fn links_of(story: &Story) -> Vec<usize> {
    let mut links: Vec<usize> = story.links.values().copied().collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// Greys are for what is no link.
fn ink(lane: usize) -> Ink {
    Ink::Colour(2 + lane % 7)
}

fn name(links: &[String], link: usize) -> String {
    links
        .get(link)
        .map_or_else(|| format!("link {link}"), |name| shortened(name, 14))
}

fn lane_of(story: &Story, lanes: &[usize], path: u32) -> usize {
    let link = story.links.get(&path);
    link.and_then(|link| lanes.iter().position(|lane| lane == link))
        .unwrap_or(0)
}

fn legend(svg: &mut Svg, story: &Story, links: &[String], lanes: &[usize]) {
    let total: u64 = story.pieces.iter().map(|piece| piece.bytes).sum();
    let mut left = PLOT_X.0;
    let mut entry = |svg: &mut Svg, ink: Ink, text: &str| {
        svg.rect((left, LEGEND), (12.0, 12.0), ink);
        svg.text(
            (left + 17.0, LEGEND + 10.5),
            12.0,
            Ink::Text,
            Anchor::Start,
            "",
            text,
        );
        left += 36.0 + 6.6 * text.chars().count() as f64;
    };
    for (lane, link) in lanes.iter().enumerate() {
        let own = story
            .pieces
            .iter()
            .filter(|piece| lane_of(story, lanes, piece.path) == lane);
        let bytes: u64 = own.map(|piece| piece.bytes).sum();
        let share = 100.0 * bytes as f64 / total.max(1) as f64;
        entry(
            svg,
            ink(lane),
            &format!("{} {} %", name(links, *link), short(share)),
        );
    }
    let twice = 100.0 * story.twice as f64 / total.max(1) as f64;
    entry(
        svg,
        Ink::Colour(1),
        &format!("sent before: {} %", short(twice)),
    );
    entry(svg, Ink::Colour(0), "read by the program");
}

fn ground(svg: &mut Svg, x: &Axis, y: &Axis) {
    let width = PLOT_X.1 - PLOT_X.0;
    svg.rect(
        (PLOT_X.0, BYTES_Y.1),
        (width, BYTES_Y.0 - BYTES_Y.1),
        Ink::Panel,
    );
    svg.rect(
        (PLOT_X.0, WAITING_Y.1),
        (width, WAITING_Y.0 - WAITING_Y.1),
        Ink::Panel,
    );
    let (unit, size) = byte_unit(y.range.1);
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line((PLOT_X.0, at), (PLOT_X.1, at), Ink::Grid, 1.0, "");
        let label = short(tick / size);
        svg.text(
            (PLOT_X.0 - 6.0, at + 4.0),
            11.0,
            Ink::Muted,
            Anchor::End,
            "",
            &label,
        );
    }
    let label = format!("place in what is sent, {unit}");
    svg.text(
        (PLOT_X.0, BYTES_Y.1 - 6.0),
        11.0,
        Ink::Muted,
        Anchor::Start,
        "",
        &label,
    );
    let time = Unit::of_time(x.range.1);
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line((at, BYTES_Y.1), (at, BYTES_Y.0), Ink::Grid, 1.0, "");
        svg.line((at, WAITING_Y.1), (at, WAITING_Y.0), Ink::Grid, 1.0, "");
        svg.text(
            (at, BYTES_Y.0 + 15.0),
            11.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &time.tick(*tick),
        );
    }
    let label = format!("{} since the first byte", time.name);
    svg.text(
        (PLOT_X.1, BYTES_Y.0 + 30.0),
        11.0,
        Ink::Muted,
        Anchor::End,
        "",
        &label,
    );
}

fn byte_unit(largest: f64) -> (&'static str, f64) {
    match largest {
        bytes if bytes >= 2e6 => ("MB", 1e6),
        bytes if bytes >= 2e3 => ("kB", 1e3),
        _ => ("bytes", 1.0),
    }
}

/// What each link carried, what of it had been sent before, and how far the program was.
fn bytes(svg: &mut Svg, story: &Story, lanes: &[usize], x: &Axis, y: &Axis) {
    let mut of_lane: Vec<Marks> = vec![Marks::new(); lanes.len().max(1)];
    let mut again = Marks::new();
    let at = |ns: u64| x.at((ns - story.span.0.min(ns)) as f64 / 1e9);
    for piece in &story.pieces {
        let floor = story.floors.get(&piece.stream).copied().unwrap_or(0) + piece.offset;
        let place = (at(piece.at) * RASTER).round() as i64;
        let top = (y.at((floor + piece.bytes) as f64) * RASTER).floor() as i64;
        let bottom = (y.at(floor as f64) * RASTER).ceil() as i64;
        let mark = (top, bottom.max(top + LEAST));
        let lane = lane_of(story, lanes, piece.path);
        of_lane[lane].entry(place).or_default().push(mark);
        if piece.is_again {
            again.entry(place).or_default().push(mark);
        }
    }
    for (lane, marks) in of_lane.into_iter().enumerate() {
        put(svg, marks, ink(lane));
    }
    put(svg, again, Ink::Colour(1));
    let mut points: Vec<(f64, f64)> = Vec::new();
    for read in &story.reads {
        let floor = story.floors.get(&read.stream).copied().unwrap_or(0);
        let point = (at(read.at), y.at((floor + read.end) as f64));
        // One step for each pixel is enough.
        match points.last() {
            Some(last) if (last.0 - point.0).abs() < 0.5 && points.len() > 1 => {
                points.pop();
            }
            Some(last) => points.push((point.0, last.1)),
            None => {}
        }
        points.push(point);
    }
    svg.polyline(&points, Ink::Colour(0), 1.2, "");
}

/// Draws marks, those that touch as one.
fn put(svg: &mut Svg, marks: Marks, ink: Ink) {
    for (place, marks) in marks {
        for (top, bottom) in merge(marks) {
            let size = (1.0 / RASTER, (bottom - top) as f64 / RASTER);
            svg.rect((place as f64 / RASTER, top as f64 / RASTER), size, ink);
        }
    }
}

/// Those that touch are one.
fn merge(mut marks: Vec<(i64, i64)>) -> Vec<(i64, i64)> {
    marks.sort_unstable();
    let mut merged: Vec<(i64, i64)> = Vec::new();
    for (from, to) in marks {
        match merged.last_mut() {
            Some(last) if from <= last.1 + 1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// Bytes that wait behind gaps.
fn waiting(svg: &mut Svg, story: &Story, x: &Axis) {
    let most = story
        .reads
        .iter()
        .map(|read| read.waiting)
        .max()
        .unwrap_or(0);
    let y = Axis::from_zero(most.max(1) as f64, WAITING_Y, 2.0);
    let (unit, size) = byte_unit(y.range.1);
    for tick in &y.ticks {
        let label = short(tick / size);
        svg.text(
            (PLOT_X.0 - 6.0, y.at(*tick) + 4.0),
            11.0,
            Ink::Muted,
            Anchor::End,
            "",
            &label,
        );
    }
    let label = format!("held by the receiver behind gaps, {unit}");
    svg.text(
        (PLOT_X.0, WAITING_Y.1 - 6.0),
        11.0,
        Ink::Muted,
        Anchor::Start,
        "",
        &label,
    );
    // The most of each place.
    let mut peaks: BTreeMap<i64, u64> = BTreeMap::new();
    for read in &story.reads {
        let at = x.at((read.at - story.span.0.min(read.at)) as f64 / 1e9);
        let peak = peaks.entry((at * RASTER).round() as i64).or_default();
        *peak = (*peak).max(read.waiting);
    }
    let mut points = vec![(PLOT_X.0, WAITING_Y.0)];
    for (place, peak) in peaks {
        let at = place as f64 / RASTER;
        let last = points.last().map_or(WAITING_Y.0, |point| point.1);
        points.extend([(at, last), (at, y.at(peak as f64))]);
    }
    let last = points.last().map_or(PLOT_X.0, |point| point.0);
    points.push((last, WAITING_Y.0));
    svg.area(&points, Ink::Colour(0));
    svg.polyline(&points, Ink::Colour(0), 1.0, "");
}

/// For each link: when its paths worked, and when the receiver waited for a byte that it carried.
fn below(svg: &mut Svg, story: &Story, links: &[String], lanes: &[usize], x: &Axis) {
    let at = |ns: u64| x.at((ns - story.span.0.min(ns)) as f64 / 1e9);
    let label = "when the receiver waited for a byte on which link; pale: the link has a path that delivers";
    svg.text(
        (PLOT_X.0, LANES - 6.0),
        11.0,
        Ink::Muted,
        Anchor::Start,
        "",
        label,
    );
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

/// When a link had a path that delivers, by the sender's account.
fn working(story: &Story, link: usize) -> Vec<(u64, u64)> {
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
