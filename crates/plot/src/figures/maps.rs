//! Maps of cells.

use super::{Anchor, Ink, Svg, covering, heading};

/// Size of a cell, and distance between maps, in pixels.
const CELL: f64 = 46.0;
const GAP: f64 = 40.0;
/// Color of cells without a value, and of the access point.
const NOTHING: &str = "#8a949e";
/// Most maps side by side.
const COLUMNS: usize = 3;
/// Height of a map besides its cells: its name, and space below.
const HEAD: f64 = 56.0;

/// Named maps of cells side by side; the first row is at the top. A scale above them goes from dark
/// for 0 to light for 1, or for the largest value of all cells if that is larger. `scale` labels 0
/// and 1; `notes` are printed below, a line each. Cells without a finite value are gray.
pub fn maps(
    title: &str,
    scale: [&str; 2],
    maps: &[(String, Vec<Vec<f64>>)],
    notes: &[&str],
) -> String {
    let first = maps.first().map(|(_, map)| map);
    let rows = first.map_or(0, Vec::len) as f64;
    let across = first.and_then(|map| map.first()).map_or(0, Vec::len) as f64;
    let (map_width, map_height) = (across * CELL + GAP, rows * CELL + HEAD);
    let side_by_side = maps.len().min(COLUMNS) as f64;
    let below = maps.len().div_ceil(COLUMNS) as f64 * map_height;
    let longest = notes.iter().map(|note| note.chars().count()).max();
    let width = (30.0 + side_by_side * map_width)
        .max(640.0)
        .max(48.0 + 6.4 * longest.unwrap_or(0) as f64);
    let height = 96.0 + below + 18.0 * notes.len() as f64;
    let mut svg = Svg::new(width, height, title);
    heading(&mut svg, (24.0, 28.0), title);
    // The scale: label of 0, eleven shades, label of 1. Numbers are printed below if 1 is not the
    // last shade.
    let cells = maps
        .iter()
        .flat_map(|(_, map)| map.iter().flatten().copied());
    let (least, most) = covering((0.0, 1.0), cells);
    let part_of = |value: f64| (value - least) / (most - least);
    let (words, shade) = (6.2, 16.0);
    let start = 24.0 + words * scale[0].chars().count() as f64 + 10.0;
    svg.text((24.0, 56.0), 12.0, Ink::Text, Anchor::Start, "", scale[0]);
    for step in 0..=10 {
        let part = f64::from(step) / 10.0;
        let place = (start + shade * f64::from(step), 44.0);
        svg.shade(place, (shade, 16.0), &color(part));
    }
    let end = (start + shade * 11.0 + 10.0, 56.0);
    svg.text(end, 12.0, Ink::Text, Anchor::Start, "", scale[1]);
    if (least, most) != (0.0, 1.0) {
        for value in [least, 0.0, 1.0, most] {
            let place = start + shade * (0.5 + 10.0 * part_of(value));
            svg.line((place, 60.0), (place, 64.0), Ink::Muted, 1.0, "");
        }
        for value in [least, most] {
            let place = (start + shade * (0.5 + 10.0 * part_of(value)), 76.0);
            svg.text(
                place,
                11.0,
                Ink::Text,
                Anchor::Middle,
                "",
                &format!("{value:.2}"),
            );
        }
    }
    for (index, (name, map)) in maps.iter().enumerate() {
        let x0 = 24.0 + (index % COLUMNS) as f64 * map_width;
        let y0 = 108.0 + (index / COLUMNS) as f64 * map_height;
        svg.text(
            (x0 + 4.0, y0 - 12.0),
            13.0,
            Ink::Text,
            Anchor::Start,
            "",
            name,
        );
        for (row, cells) in map.iter().enumerate() {
            for (column, value) in cells.iter().enumerate() {
                let place = (x0 + column as f64 * CELL, y0 + row as f64 * CELL);
                let part = part_of(*value);
                let fill = if part.is_finite() {
                    color(part)
                } else {
                    NOTHING.to_owned()
                };
                svg.shade(place, (CELL - 2.0, CELL - 2.0), &fill);
                // The shades are the same in both color schemes, and so are the numbers on them.
                let ink = if part < 0.5 {
                    "style=\"fill:#ffffff\""
                } else {
                    "style=\"fill:#1f2933\""
                };
                let middle = (place.0 + CELL / 2.0 - 1.0, place.1 + CELL / 2.0 + 4.0);
                svg.text(
                    middle,
                    12.0,
                    Ink::Text,
                    Anchor::Middle,
                    ink,
                    &format!("{value:.2}"),
                );
            }
        }
        // The access point, in the corner.
        svg.shade((x0 - 9.0, y0 - 9.0), (9.0, 9.0), NOTHING);
    }
    for (index, note) in notes.iter().enumerate() {
        let y = height - 12.0 - 18.0 * (notes.len() - 1 - index) as f64;
        svg.text((24.0, y), 12.0, Ink::Text, Anchor::Start, "", note);
    }
    svg.finish()
}

/// From dark blue for 0 to pale yellow for 1, the ends of the scale.
fn color(part: f64) -> String {
    let mix = |from: f64, to: f64| (from + (to - from) * part).round();
    let (red, green, blue) = (mix(20.0, 255.0), mix(40.0, 240.0), mix(90.0, 190.0));
    format!("rgb({red},{green},{blue})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_has_its_number_and_the_scale_its_labels() {
        let map = vec![vec![0.25, 1.5], vec![0.0, 1.0]];
        let svg = maps(
            "t",
            ["never", "always"],
            &[("m".to_owned(), map)],
            &["note"],
        );
        for text in [">0.25<", ">1.50<", ">never<", ">always<", ">note<", ">m<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        // The scale covers 1.5: all values have different shades.
        let shades = [0.0, 0.25, 1.0, 1.5].map(|value| format!("fill=\"{}\"", color(value / 1.5)));
        for shade in &shades {
            assert!(svg.contains(shade), "{shade}: {svg}");
        }
        // Background, scale, cells, access point.
        assert_eq!(svg.matches("<rect").count(), 1 + 11 + 4 + 1);
        let none = maps("none", ["0", "1"], &[], &[]);
        assert!(
            none.ends_with("</svg>\n") && !none.contains("NaN"),
            "{none}"
        );
    }
}
