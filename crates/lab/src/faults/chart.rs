//! The distribution chart of all faults: for each line the middle half, 99 of 100, each value above
//! that, and the bars.

use super::measure::quantile;
use sumlink_plot::{Across, Anchor, Axis, Ink, Inked, Style, Svg, short};

const WIDTH: f64 = 860.0;
const PLOT: (f64, f64) = (220.0, 830.0);
const LINE: f64 = 20.0;
const HEAD: f64 = 50.0;
const FOOT: f64 = 30.0;

/// A line of the chart.
pub(super) struct Row {
    pub(super) label: String,
    /// In ms.
    pub(super) values: Vec<f64>,
    pub(super) bars: Option<[f64; 2]>,
}

/// The chart as SVG.
pub(super) fn draw(title: &str, rows: &[Row]) -> String {
    let bottom = HEAD + LINE * rows.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + FOOT, title);
    let bold = "font-weight=\"600\"";
    svg.text((8.0, 18.0), 13.0, Ink::Text, Anchor::Start, bold, title);
    let bars = rows.iter().flat_map(|row| row.bars.into_iter().flatten());
    let values = rows.iter().flat_map(|row| &row.values).copied();
    let x = Axis::logarithmic(values.chain(bars).chain([1000.0]), PLOT);
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line((at, HEAD - 6.0), (at, bottom), Ink::Grid, 1.0, "");
        let label = format!("{} ms", short(*tick));
        let place = (at, HEAD - 12.0);
        svg.text(place, 10.0, Ink::Muted, Anchor::Middle, "", &label);
    }
    for (index, row) in rows.iter().enumerate() {
        draw_row(&mut svg, row, HEAD + LINE * index as f64, &x);
    }
    let legend = "thick: the middle half; thin: 99 of 100; circles: every other one; strokes: what \
                  half and 99 of 100 must reach";
    let place = (PLOT.0, bottom + 18.0);
    svg.text(place, 10.0, Ink::Muted, Anchor::Start, "", legend);
    svg.finish()
}

fn draw_row(svg: &mut Svg, row: &Row, top: f64, x: &Axis) {
    let middle = top + LINE / 2.0;
    let place = (PLOT.0 - 8.0, middle + 3.5);
    svg.text(place, 10.5, Ink::Text, Anchor::End, "", &row.label);
    for bar in row.bars.into_iter().flatten() {
        let at = x.at(bar);
        svg.line((at, top + 2.0), (at, top + LINE - 2.0), Ink::Text, 1.5, "");
    }
    let part = |share| quantile(&row.values, share);
    let (Some(low), Some(first), Some(half), Some(third), Some(high)) =
        (part(0.0), part(0.25), part(0.5), part(0.75), part(0.99))
    else {
        return;
    };
    let ink = Ink::Color(0);
    svg.line((x.at(low), middle), (x.at(high), middle), ink, 1.2, "");
    let (left, right) = (x.at(first), x.at(third));
    svg.rect((left, middle - 4.0), ((right - left).max(1.0), 8.0), ink);
    let at = x.at(half);
    svg.line((at, middle - 6.0), (at, middle + 6.0), Ink::Text, 2.0, "");
    let style = Style {
        color: 0,
        variant: 0,
    };
    for value in row.values.iter().filter(|value| **value > high) {
        svg.marker((x.at(*value), middle), 2.5, style, false);
    }
    // A gap of zero has no place on a logarithmic axis.
    let nothing = row.values.iter().find(|value| x.beyond(**value).is_some());
    let nothing: Vec<Inked> = nothing
        .map(|value| (*value, Ink::Text))
        .into_iter()
        .collect();
    svg.beyond(x, Across::Y(middle), &nothing, short);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_drawn_and_missing_values_are_omitted() {
        let row = |label: &str, values: &[f64]| Row {
            label: label.to_owned(),
            values: values.to_vec(),
            bars: Some([200.0, 500.0]),
        };
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let rows = [row("blackhole down", &values), row("reset up", &[])];
        let svg = draw("gaps", &rows);
        // The two values above 99 of 100.
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("<rect").count(), 2, "the background and a box");
        assert!(svg.contains("blackhole down") && svg.contains("reset up"));
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn gaps_of_zero_and_below_a_millisecond_are_drawn() {
        let row = Row {
            label: "reset up".to_owned(),
            values: vec![0.02, 0.0, 5.0],
            bars: None,
        };
        let svg = draw("gaps", &[row]);
        assert!(svg.contains(">0.01 ms<"), "{svg}");
        assert_eq!(svg.matches("data-beyond").count(), 1, "{svg}");
    }
}
