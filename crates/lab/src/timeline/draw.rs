//! The timeline chart: four panels below each other with a common time axis.

use super::events::Timeline;
use super::lower;
use super::marks::Marks;
use super::panel::{LANE, LANES, PLOT_X, ink, lane_of, name, panel, seconds};
use sumlink_plot::{Anchor, Axis, Ink, Svg, Unit, shortened};

const WIDTH: f64 = 960.0;
/// Top of the legend.
const LEGEND: f64 = 44.0;
/// Bottom and top of the panels: the position of each piece in the data, and its distance from the
/// reader's position.
const PLACE_Y: (f64, f64) = (310.0, 90.0);
const AHEAD_Y: (f64, f64) = (570.0, 350.0);

pub(super) fn draw(story: &Timeline, links: &[String], title: &str) -> String {
    let lanes = links_of(story);
    let bottom = LANES + LANE * lanes.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 46.0, title);
    let x = Axis::exact(seconds(story, story.span.1).max(1e-6), PLOT_X, 12.0);
    let heading = format!(
        "{title}: bytes carried by each link over time ({})",
        story.direction
    );
    let heading = shortened(&heading, 100);
    svg.text(
        (PLOT_X.0, 24.0),
        15.0,
        Ink::Text,
        Anchor::Start,
        "",
        &heading,
    );
    legend(&mut svg, story, links, &lanes);
    places(&mut svg, story, &lanes, &x);
    ahead(&mut svg, story, &lanes, &x);
    lower::held(&mut svg, story, &x);
    lower::waits(&mut svg, story, links, &lanes, &x);
    times(&mut svg, &x, bottom + 14.0);
    svg.finish()
}

/// The links that have paths, in order.
fn links_of(story: &Timeline) -> Vec<usize> {
    let mut links: Vec<usize> = story.links.values().copied().collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// Draws the legend: colors, and each link's share of the bytes.
fn legend(svg: &mut Svg, story: &Timeline, links: &[String], lanes: &[usize]) {
    let total: u64 = story.pieces.iter().map(|piece| piece.bytes).sum();
    let percent = |bytes: u64| {
        let share = 100.0 * bytes as f64 / total.max(1) as f64;
        format!("{share:.1} % of the bytes")
    };
    let mut left = PLOT_X.0;
    let mut entry = |svg: &mut Svg, ink: Ink, height: f64, text: &str| {
        let top = LEGEND + (12.0 - height) / 2.0;
        svg.rect((left, top), (12.0, height), ink);
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
        let share = percent(own.map(|piece| piece.bytes).sum());
        // The words appear once; the same applies to the other entries.
        let share = match lane {
            0 => share.as_str(),
            _ => share.trim_end_matches(" of the bytes"),
        };
        entry(
            svg,
            ink(lane),
            12.0,
            &format!("{} {share}", name(links, *link)),
        );
    }
    let twice = 100.0 * story.twice as f64 / total.max(1) as f64;
    entry(
        svg,
        Ink::Color(1),
        12.0,
        &format!("sent again: {twice:.1} %"),
    );
    entry(svg, Ink::Color(0), 2.0, "the program");
}

/// Draws the time axis below all panels.
fn times(svg: &mut Svg, x: &Axis, at: f64) {
    let time = Unit::of_time(x.range.1);
    for tick in &x.ticks {
        svg.text(
            (x.at(*tick), at),
            11.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &time.tick(*tick),
        );
    }
    let label = format!("{} since the first byte", time.name);
    svg.text(
        (PLOT_X.1, at + 16.0),
        11.0,
        Ink::Muted,
        Anchor::End,
        "",
        &label,
    );
}

/// Draws each piece at its position in the data, and the reader's position.
fn places(svg: &mut Svg, story: &Timeline, lanes: &[usize], x: &Axis) {
    let y = Axis::from_zero(story.height as f64, PLACE_Y, 5.0);
    let what = "position in the data: each piece when it was assigned to a link; line: position of \
                the receiving program";
    panel(svg, x, &y, what);
    let floor = |stream: u64| story.floors.get(&stream).copied().unwrap_or(0);
    let starts = story
        .pieces
        .iter()
        .map(|piece| floor(piece.stream) + piece.offset);
    pieces(svg, story, lanes, x, &y, 0.5, starts);
    let mut points: Vec<(f64, f64)> = Vec::new();
    for read in &story.reads {
        let at = x.at(seconds(story, read.at));
        let point = (at, y.at((floor(read.stream) + read.end) as f64));
        // One step per pixel is enough.
        match points.last() {
            Some(last) if (last.0 - point.0).abs() < 0.5 && points.len() > 1 => {
                points.pop();
            }
            Some(last) => points.push((point.0, last.1)),
            None => {}
        }
        points.push(point);
    }
    svg.polyline(&points, Ink::Color(0), 1.2, "");
}

/// Draws the same pieces by their distance from the reader's position: an enlarged view of the
/// narrow band in the first panel.
fn ahead(svg: &mut Svg, story: &Timeline, lanes: &[usize], x: &Axis) {
    let starts = story.ahead();
    let ends = starts.iter().zip(&story.pieces);
    let most = ends.map(|(start, piece)| start + piece.bytes).max();
    let y = Axis::from_zero(most.unwrap_or(1) as f64, AHEAD_Y, 5.0);
    let what = "the same, enlarged: distance of each piece from the position of the receiving \
                program, which is the bottom";
    panel(svg, x, &y, what);
    pieces(svg, story, lanes, x, &y, 1.0, starts.into_iter());
}

/// Draws all pieces, which start at these values of `y`: by link, with repeated pieces on top.
/// Marks have this width and distance in pixels.
fn pieces(
    svg: &mut Svg,
    story: &Timeline,
    lanes: &[usize],
    x: &Axis,
    y: &Axis,
    width: f64,
    starts: impl Iterator<Item = u64>,
) {
    let mut of_lane = vec![Marks::default(); lanes.len().max(1)];
    let mut again = Marks::default();
    for (piece, start) in story.pieces.iter().zip(starts) {
        let at = (x.at(seconds(story, piece.at)) / width).round() * width;
        let range = (start, start + piece.bytes);
        of_lane[lane_of(story, lanes, piece.path)].add(at, range, y);
        if piece.is_again {
            again.add(at, range, y);
        }
    }
    for (lane, marks) in of_lane.into_iter().enumerate() {
        marks.put(svg, width, ink(lane));
    }
    again.put(svg, width, Ink::Color(1));
}
