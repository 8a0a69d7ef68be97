//! Frames and other spans on a time axis.

use super::{Anchor, Ink, Svg, heading, short, ticks};

/// Kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A received frame.
    Heard,
    /// A lost frame.
    Lost,
    /// An event.
    Event,
    /// Sweep of the access point in a beacon interval.
    Bti,
    /// Contention.
    Abft,
    /// Announcements.
    Ati,
    /// Data.
    Dti,
}

impl Mark {
    /// In the order of the legend.
    const ALL: [Self; 7] = [
        Self::Bti,
        Self::Abft,
        Self::Ati,
        Self::Dti,
        Self::Heard,
        Self::Lost,
        Self::Event,
    ];

    fn style(self) -> (&'static str, &'static str) {
        match self {
            Self::Heard => ("#00876a", "frame that was heard"),
            Self::Lost => ("#c3c9d0", "frame that was lost"),
            Self::Event => ("#00876a", "takes part in an A-BFT"),
            Self::Bti => ("#0072b2", "BTI: the access point sweeps"),
            Self::Abft => ("#d55e00", "A-BFT: stations sweep"),
            Self::Ati => ("#6b7280", "ATI: schedule"),
            Self::Dti => ("#dbe6ee", "DTI: data"),
        }
    }
}

/// A named row of spans, each with start, length and kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Label of the row.
    pub name: String,
    /// Start, length, kind.
    pub spans: Vec<(f64, f64, Mark)>,
}

/// Rows in panels over one time axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Label of the axis.
    pub x: String,
    /// End of the axis; it starts at 0.
    pub end: f64,
    /// Panels with their titles.
    pub panels: Vec<(String, Vec<Row>)>,
}

/// Pixels: left and right end of rows, and their height.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 930.0;
const ROW: f64 = 17.0;

/// Charts one below the other, each with its axis, under one legend.
pub fn frames(title: &str, charts: &[Chart]) -> String {
    let high = |chart: &Chart| {
        let rows: usize = chart.panels.iter().map(|panel| panel.1.len()).sum();
        rows as f64 * ROW + chart.panels.len() as f64 * 46.0 + 58.0
    };
    let height = 70.0 + charts.iter().map(high).sum::<f64>();
    let mut svg = Svg::new(960.0, height, title);
    heading(&mut svg, (24.0, 28.0), title);
    let used = |mark: &Mark| {
        let rows = charts.iter().flat_map(|chart| &chart.panels);
        let mut spans = rows.flat_map(|panel| &panel.1).flat_map(|row| &row.spans);
        spans.any(|span| span.2 == *mark)
    };
    let mut x = 24.0;
    for (fill, name) in Mark::ALL.into_iter().filter(used).map(Mark::style) {
        svg.shade((x, 42.0), (12.0, 12.0), fill);
        svg.text((x + 17.0, 52.0), 11.0, Ink::Text, Anchor::Start, "", name);
        x += 34.0 + 6.0 * name.chars().count() as f64;
    }
    let mut y = 68.0;
    for chart in charts {
        y = draw(&mut svg, chart, y);
    }
    svg.finish()
}

/// Draws a chart below `y`; returns its lower end.
fn draw(svg: &mut Svg, chart: &Chart, mut y: f64) -> f64 {
    let at = |value: f64| LEFT + (RIGHT - LEFT) * value / chart.end;
    for (name, rows) in &chart.panels {
        let bold = "font-weight=\"600\"";
        svg.text((24.0, y + 14.0), 13.0, Ink::Text, Anchor::Start, bold, name);
        y += 26.0;
        for row in rows {
            svg.text(
                (LEFT - 10.0, y + 12.0),
                11.0,
                Ink::Text,
                Anchor::End,
                "",
                &row.name,
            );
            let under = y + ROW - 1.0;
            svg.line((LEFT, under), (RIGHT, under), Ink::Grid, 1.0, "");
            for (start, length, mark) in &row.spans {
                let wide = (at(start + length) - at(*start) - 0.4).max(1.2);
                let place = (at(*start), y + 2.0);
                svg.shade(place, (wide, ROW - 5.0), mark.style().0);
            }
            y += ROW;
        }
        y += 20.0;
    }
    for tick in ticks((0.0, chart.end), 8.0) {
        let place = at(tick);
        svg.line((place, y - 14.0), (place, y - 8.0), Ink::Muted, 1.0, "");
        svg.text(
            (place, y + 6.0),
            12.0,
            Ink::Text,
            Anchor::Middle,
            "",
            &short(tick),
        );
    }
    let middle = ((LEFT + RIGHT) / 2.0, y + 26.0);
    svg.text(middle, 13.0, Ink::Text, Anchor::Middle, "", &chart.x);
    y + 58.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_their_spans_and_the_legend_lists_the_used_kinds() {
        let row = |mark| Row {
            name: "1.0 m".to_owned(),
            spans: vec![(0.0, 0.5, mark), (1.0, 0.5, Mark::Lost)],
        };
        let chart = Chart {
            x: "ms".to_owned(),
            end: 2.0,
            panels: vec![("p".to_owned(), vec![row(Mark::Heard), row(Mark::Lost)])],
        };
        let svg = frames("t", &[chart]);
        // Background, legend, spans.
        assert_eq!(svg.matches("<rect").count(), 1 + 2 + 4, "{svg}");
        assert!(svg.contains("that was heard") && !svg.contains("BTI"));
        assert!(!svg.contains("NaN") && svg.ends_with("</svg>\n"));
    }
}
