//! Pictures of the figures (SVG): lines over two axes ([`lines`]), maps of cells ([`maps()`]),
//! frames on a time axis ([`frames()`]).

mod frames;
mod maps;

use std::fmt::Write;

pub use frames::{Chart, Mark, Row, frames};
pub use maps::maps;

/// Colors that are distinguishable with color blindness (after Okabe and Ito, 2008).
const COLOURS: [&str; 6] = [
    "#0072b2", "#d55e00", "#00876a", "#b5568c", "#c98a00", "#222222",
];
const DASHES: [&str; 6] = ["", "7 3", "2 2", "7 3 2 3", "12 4", "4 4"];

/// A line with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Label in the legend.
    pub name: String,
    /// Its points, in the order in which they are joined.
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
    /// Above the picture.
    pub title: &'a str,
    /// Below the horizontal axis.
    pub x: &'a str,
    /// Beside the vertical axis.
    pub y: &'a str,
}

/// Text escaped for SVG.
fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

fn paper(width: f64, height: f64, title: &str) -> String {
    let title = escaped(title);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" font-family=\"system-ui, Helvetica, Arial, sans-serif\">\n<title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    )
}

/// Writes the title of a picture at that position.
fn heading(svg: &mut String, (x, y): (f64, f64), title: &str) {
    text(svg, (x, y), 15, "start", "font-weight=\"600\"", title);
}

fn text(svg: &mut String, (x, y): (f64, f64), size: u32, anchor: &str, more: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"#1f2933\" {more}>{words}</text>"
    );
}

fn rect(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
    );
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), stroke: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"/>",
        from.0, from.1, to.0, to.1
    );
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

fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Series with more points than this have no dots.
const MOST_DOTS: usize = 40;

/// A range widened to cover all finite values.
fn covering(range: (f64, f64), values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values = values.filter(|value| value.is_finite());
    values.fold(range, |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

/// Lines over two linear axes. The vertical axis has at least the range `y`, and is extended to the
/// values: none is clipped. Points that are not finite are left out.
pub fn lines(labels: &Labels<'_>, series: &[Series], y: (f64, f64)) -> String {
    let (width, height) = (830.0, 420.0);
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
    let mut svg = paper(width, height, labels.title);
    heading(&mut svg, (left, 26.0), labels.title);
    for tick in ticks(y, 6.0) {
        let (_, place) = at((x.0, tick));
        line(&mut svg, (left, place), (right, place), "#d9dee3");
        text(
            &mut svg,
            (left - 8.0, place + 4.0),
            12,
            "end",
            "",
            &short(tick),
        );
    }
    for tick in ticks(x, 8.0) {
        let (place, _) = at((tick, y.0));
        line(&mut svg, (place, bottom), (place, bottom + 5.0), "#52606d");
        text(
            &mut svg,
            (place, bottom + 20.0),
            12,
            "middle",
            "",
            &short(tick),
        );
    }
    line(&mut svg, (left, bottom), (right, bottom), "#52606d");
    text(
        &mut svg,
        ((left + right) / 2.0, height - 18.0),
        13,
        "middle",
        "",
        labels.x,
    );
    let turned = format!("transform=\"rotate(-90 18 {:.0})\"", (top + bottom) / 2.0);
    text(
        &mut svg,
        (18.0, (top + bottom) / 2.0),
        13,
        "middle",
        &turned,
        labels.y,
    );
    for (index, one) in series.iter().enumerate() {
        let (colour, dash) = (COLOURS[index % 6], DASHES[index % 6]);
        let style = format!(
            "fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.2\" stroke-dasharray=\"{dash}\""
        );
        let points: Vec<String> = one
            .points
            .iter()
            .map(|p| at(*p))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" {style}/>", points.join(" "));
        if one.dots && one.points.len() <= MOST_DOTS {
            for (x, y) in one.points.iter().map(|p| at(*p)) {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"
                );
            }
        }
        let row = top + 12.0 + 22.0 * index as f64;
        let _ = writeln!(
            svg,
            "<polyline points=\"{},{row} {},{row}\" {style}/>",
            right + 16.0,
            right + 46.0
        );
        text(
            &mut svg,
            (right + 54.0, row + 4.0),
            12,
            "start",
            "",
            &one.name,
        );
    }
    svg + "</svg>\n"
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
        assert_eq!((short(0.25).as_str(), short(3.0).as_str()), ("0.25", "3"));
    }

    #[test]
    fn a_value_beyond_the_range_that_was_asked_for_widens_it() {
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
    fn the_share_of_values_rises_in_steps_to_one() {
        let steps = Series::cumulative("s", vec![3.0, 1.0]);
        assert_eq!(
            steps.points,
            [(1.0, 0.0), (1.0, 0.5), (3.0, 0.5), (3.0, 1.0)]
        );
    }

    #[test]
    fn pictures_of_nothing_and_of_one_point_are_whole() {
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
