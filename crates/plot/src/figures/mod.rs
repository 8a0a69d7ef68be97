//! Pictures of the figures (SVG): lines over two axes ([`lines`]), maps of cells ([`maps()`]),
//! frames on a time axis ([`frames()`]).

mod frames;
mod maps;

use super::{Anchor, Ink, MAX_SERIES, Svg, more, short};

pub use frames::{Chart, Mark, Row, frames};
pub use maps::maps;

/// Inks of the lines, in their order.
const INKS: [Ink; MAX_SERIES] = [
    Ink::Color(2),
    Ink::Color(3),
    Ink::Color(4),
    Ink::Color(5),
    Ink::Color(6),
    Ink::Color(1),
];
/// Dashes of the lines, in their order.
const DASHES: [&str; MAX_SERIES] = ["", "7 3", "2 2", "7 3 2 3", "12 4", "4 4"];

/// A line with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Label in the legend.
    pub name: String,
    /// Points, in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// Whether each point is marked by a dot, to distinguish measured points from the lines between
    /// them.
    pub dots: bool,
}

impl Series {
    /// A line with dots.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            dots: true,
        }
    }

    /// The share of values at or below each value.
    pub fn cumulative(name: impl Into<String>, mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let count = values.len().max(1) as f64;
        let mut points = vec![];
        let mut below = 0.0;
        for (index, value) in values.iter().enumerate() {
            // Steps: the share before the value, then the one with it.
            points.push((*value, below));
            below = (index + 1) as f64 / count;
            points.push((*value, below));
        }
        Self {
            dots: false,
            ..Self::new(name, points)
        }
    }
}

/// Title and labels of the axes.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// Title above the chart.
    pub title: &'a str,
    /// Label below the horizontal axis.
    pub x: &'a str,
    /// Label beside the vertical axis.
    pub y: &'a str,
}

/// The title of a chart, at `place`.
fn heading(svg: &mut Svg, place: (f64, f64), title: &str) {
    let bold = "font-weight=\"600\"";
    svg.text(place, 15.0, Ink::Text, Anchor::Start, bold, title);
}

/// Round numbers within a range.
fn ticks((low, high): (f64, f64), about: f64) -> Vec<f64> {
    let raw = (high - low) / about;
    let magnitude = 10f64.powf(raw.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    let step = factors
        .map(|f| f * magnitude)
        .find(|step| *step >= raw * 0.999)
        .unwrap_or(raw);
    let first = (low / step).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// A line with more points than this has no dots.
const MAX_DOTS: usize = 40;

/// A range widened to cover all finite values.
fn covering(range: (f64, f64), values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = values.filter(|value| value.is_finite());
    values.fold(range, |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// Lines over two linear axes. The vertical axis has at least the range `y`, and is extended to the
/// values: none is clipped. Points that are not finite are left out. Of more than [`MAX_SERIES`]
/// lines, the first ones are drawn, with a note that the others are only in the table.
pub fn lines(labels: &Labels<'_>, series: &[Series], y: (f64, f64)) -> String {
    let (width, height) = (830.0, 420.0);
    let note = more(series.len().saturating_sub(MAX_SERIES));
    let series = &series[..series.len().min(MAX_SERIES)];
    let has_place = |point: &(f64, f64)| point.0.is_finite() && point.1.is_finite();
    let series = series.iter().map(|one| Series {
        points: one.points.iter().copied().filter(has_place).collect(),
        ..one.clone()
    });
    let series: Vec<Series> = series.collect();
    let heights = series
        .iter()
        .flat_map(|one| one.points.iter().map(|point| point.1));
    let y = covering(y, heights);
    let (left, right, top, bottom) = (64.0, 560.0, 48.0, 360.0);
    let all = series
        .iter()
        .flat_map(|one| one.points.iter().map(|point| point.0));
    let x = all.fold((f64::MAX, f64::MIN), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    let x = match x {
        (low, high) if high > low => x,
        (low, high) if high == low => (low - 1.0, high + 1.0),
        _ => (0.0, 1.0),
    };
    let at = |point: (f64, f64)| {
        (
            left + (right - left) * (point.0 - x.0) / (x.1 - x.0),
            bottom - (bottom - top) * (point.1 - y.0) / (y.1 - y.0),
        )
    };
    let mut svg = Svg::new(width, height, labels.title);
    heading(&mut svg, (left, 26.0), labels.title);
    for tick in ticks(y, 6.0) {
        let (_, place) = at((x.0, tick));
        svg.line((left, place), (right, place), Ink::Grid, 1.0, "");
        let beside = (left - 8.0, place + 4.0);
        svg.text(beside, 12.0, Ink::Text, Anchor::End, "", &short(tick));
    }
    for tick in ticks(x, 8.0) {
        let (place, _) = at((tick, y.0));
        svg.line((place, bottom), (place, bottom + 5.0), Ink::Muted, 1.0, "");
        let below = (place, bottom + 20.0);
        svg.text(below, 12.0, Ink::Text, Anchor::Middle, "", &short(tick));
    }
    svg.line((left, bottom), (right, bottom), Ink::Muted, 1.0, "");
    let below = ((left + right) / 2.0, height - 18.0);
    svg.text(below, 13.0, Ink::Text, Anchor::Middle, "", labels.x);
    let middle = (top + bottom) / 2.0;
    let turned = format!("transform=\"rotate(-90 18 {middle:.0})\"");
    let beside = (18.0, middle);
    svg.text(beside, 13.0, Ink::Text, Anchor::Middle, &turned, labels.y);
    for (index, one) in series.iter().enumerate() {
        let (ink, dash) = (INKS[index % INKS.len()], DASHES[index % DASHES.len()]);
        let points: Vec<(f64, f64)> = one.points.iter().map(|point| at(*point)).collect();
        svg.polyline(&points, ink, 2.2, dash);
        if one.dots && points.len() <= MAX_DOTS {
            for place in points {
                svg.dot(place, 3.0, ink);
            }
        }
        let row = top + 12.0 + 22.0 * index as f64;
        svg.polyline(&[(right + 16.0, row), (right + 46.0, row)], ink, 2.2, dash);
        let name = (right + 54.0, row + 4.0);
        svg.text(name, 12.0, Ink::Text, Anchor::Start, "", &one.name);
    }
    if let Some(note) = note {
        let below = (right + 16.0, top + 16.0 + 22.0 * MAX_SERIES as f64);
        svg.text(below, 12.0, Ink::Muted, Anchor::Start, "", &note);
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(
            ticks((0.0, 1.0), 5.0),
            [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]
        );
        assert_eq!(
            ticks((-10.0, 40.0), 5.0),
            [-10.0, 0.0, 10.0, 20.0, 30.0, 40.0]
        );
    }

    #[test]
    fn a_value_beyond_the_requested_range_widens_it() {
        let labels = Labels {
            title: "t",
            x: "x",
            y: "y",
        };
        let points = vec![(0.0, 12.0), (1.0, -3.0), (2.0, f64::NAN)];
        let svg = lines(&labels, &[Series::new("one", points)], (0.0, 10.0));
        let dots = svg.lines().filter(|line| line.starts_with("<circle"));
        let dots: Vec<&str> = dots.collect();
        // The plot is 312 pixels high, for values from -3 to 12.
        assert_eq!(dots.len(), 2, "{svg}");
        assert!(
            dots[0].contains("cy=\"48.0\"") && dots[1].contains("cy=\"360.0\""),
            "{dots:?}"
        );
        assert!(svg.contains(">10</text>") && !svg.contains("NaN"), "{svg}");
        assert_eq!(
            covering((0.0, 1.0), [0.5, f64::INFINITY].into_iter()),
            (0.0, 1.0)
        );
    }

    #[test]
    fn ten_lines_give_six_and_a_note() {
        let labels = Labels {
            title: "t",
            x: "x",
            y: "y",
        };
        let all: Vec<Series> = (0..10)
            .map(|n| Series::new(format!("line {n}"), vec![(0.0, f64::from(n)), (1.0, 1.0)]))
            .collect();
        let svg = lines(&labels, &all, (0.0, 1.0));
        assert!(
            svg.contains(">line 5<") && !svg.contains(">line 6<"),
            "{svg}"
        );
        assert!(svg.contains(">and 4 more in the table<"), "{svg}");
        // Each line and its sample in the legend.
        assert_eq!(svg.matches("<polyline").count(), 2 * MAX_SERIES);
        assert!(!lines(&labels, &all[..6], (0.0, 1.0)).contains("more in the table"));
    }

    #[test]
    fn the_share_of_values_rises_in_steps_to_one() {
        let steps = Series::cumulative("s", vec![3.0, 1.0]);
        assert_eq!(
            steps.points,
            [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]
        );
    }

    #[test]
    fn pictures_without_points_and_of_one_point_are_complete() {
        let labels = Labels {
            title: "a < b & c",
            x: "x",
            y: "y",
        };
        let one = [Series::new("one", vec![(2.0, 0.5)])];
        let pictures = [
            lines(&labels, &[], (0.0, 1.0)),
            lines(&labels, &one, (0.0, 1.0)),
            maps("none", ["0", "1"], &[], &[]),
            frames("none", &[]),
        ];
        for svg in pictures {
            assert!(
                svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
                "{svg}"
            );
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(!svg.contains("a < b"), "{svg}");
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
    }
}
