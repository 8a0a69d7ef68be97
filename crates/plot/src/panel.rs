//! A panel over time: its background, and lines reduced to the visible points.

use super::{Anchor, Axis, Ink, Svg, short};

/// The background of a panel over time, from `top` to `bottom`, with the grid of both axes and the
/// unit of its values.
pub fn draw_panel(
    svg: &mut Svg,
    time: &Axis,
    values: &Axis,
    (top, bottom): (f64, f64),
    unit: &str,
) {
    let (left, right) = time.place;
    svg.rect((left, top), (right - left, bottom - top), Ink::Panel);
    for tick in &values.ticks {
        let y = values.at(*tick);
        svg.line((left, y), (right, y), Ink::Grid, 1.0, "");
        svg.text(
            (left - 6.0, y + 3.5),
            10.0,
            Ink::Muted,
            Anchor::End,
            "",
            &short(*tick),
        );
    }
    for tick in &time.ticks {
        let x = time.at(*tick);
        svg.line((x, top), (x, bottom), Ink::Grid, 1.0, "");
    }
    svg.text((12.0, top - 6.0), 10.0, Ink::Muted, Anchor::Start, "", unit);
}

/// Positions of values that change in steps, reduced to the visible points: for each pixel of width
/// the first, the smallest, the largest and the last.
pub fn thinned(points: &[(f64, f64)], time: &Axis, values: &Axis) -> Vec<(f64, f64)> {
    let mut places: Vec<(f64, f64)> = Vec::new();
    let column = |point: &(f64, f64)| time.at(point.0).round();
    for part in points.chunk_by(|a, b| column(a) == column(b)) {
        let x = column(&part[0]);
        let heights = || part.iter().map(|point| values.at(point.1));
        let least = heights().fold(f64::MAX, f64::min);
        let most = heights().fold(f64::MIN, f64::max);
        let (first, last) = (values.at(part[0].1), values.at(part[part.len() - 1].1));
        if let Some(&(_, before)) = places.last() {
            places.push((x, before));
        }
        for y in [first, least, most, last] {
            if places.last() != Some(&(x, y)) {
                places.push((x, y));
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_no_more_points_than_pixels_can_show_and_keep_the_peaks() {
        let time = Axis::exact(10.0, (0.0, 100.0), 10.0);
        let values = Axis::from_zero(1000.0, (500.0, 0.0), 5.0);
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|n| (n as f64 / 1e4, 10.0)).collect();
        points[54_321].1 = 1000.0;
        let places = thinned(&points, &time, &values);
        assert!(places.len() < 101 * 5, "{}", places.len());
        assert!(places.iter().any(|(_, y)| *y == 0.0));
    }
}
