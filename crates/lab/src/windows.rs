//! A chart of congestion windows: window and threshold of each flow over time, and below them the
//! round-trip time.

use sumlink_plot::{
    Across, Anchor, Axis, Ink, MAX_SERIES, Svg, draw_panel, more, short, shortened, thinned,
};

/// The samples of one flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowFlow {
    /// The flow's name, shown as a heading.
    pub name: String,
    /// In ascending order of time.
    pub points: Vec<WindowPoint>,
}

/// A sample of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowPoint {
    /// Seconds since a time that all flows share.
    pub time: f64,
    /// Congestion window in packets.
    pub cwnd: f64,
    /// Slow start threshold in packets; `None` until it is set.
    pub ssthresh: Option<f64>,
    /// Smoothed round-trip time in seconds.
    pub srtt: f64,
}

/// Maximum number of flows in a chart; those with the most points are drawn.
pub const MAX_FLOWS: usize = MAX_SERIES;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 58.0;
/// Heights of a flow's heading, of its two panels, and of the gaps below them.
const HEADING: f64 = 26.0;
const WINDOW: f64 = 150.0;
const GAP: f64 = 14.0;
const RTT: f64 = 80.0;
const BELOW: f64 = 34.0;
const FLOW: f64 = HEADING + WINDOW + GAP + RTT + BELOW;

const CWND: Ink = Ink::Color(2);
const SSTHRESH: Ink = Ink::Color(3);
const SRTT: Ink = Ink::Color(4);

/// Draws flows below each other with the same time axis, as an SVG document.
pub fn draw_windows(title: &str, flows: &[WindowFlow]) -> String {
    let mut drawn: Vec<&WindowFlow> = flows.iter().collect();
    drawn.sort_by_key(|flow| std::cmp::Reverse(flow.points.len()));
    drawn.truncate(MAX_FLOWS);
    // In the order of their start.
    drawn.sort_by(|a, b| first(a).total_cmp(&first(b)));
    let end = drawn.iter().filter_map(|flow| flow.points.last());
    let end = end.map(|point| point.time).fold(0.0, f64::max);
    let left_out = flows.len() - drawn.len();
    let note = match (flows.len(), left_out) {
        (0, _) => "no acknowledgments were seen".to_owned(),
        (_, left_out) => more(left_out).map_or_else(String::new, |more| {
            format!("{MAX_FLOWS} flows with the most acknowledgments, {more}")
        }),
    };

    let height = TOP + FLOW * drawn.len() as f64 + 8.0;
    let mut svg = Svg::new(WIDTH, height, title);
    let bold = "font-weight=\"600\"";
    svg.text(
        (LEFT, 24.0),
        15.0,
        Ink::Text,
        Anchor::Start,
        bold,
        &shortened(title, 100),
    );
    legend(&mut svg);
    svg.text((RIGHT, 44.0), 11.0, Ink::Muted, Anchor::End, "", &note);
    let time = Axis::exact(end, (LEFT, RIGHT), 10.0);
    for (index, flow) in drawn.iter().enumerate() {
        let top = TOP + FLOW * index as f64;
        draw_flow(&mut svg, flow, &time, top);
    }
    svg.finish()
}

fn first(flow: &WindowFlow) -> f64 {
    flow.points.first().map_or(f64::MAX, |point| point.time)
}

fn legend(svg: &mut Svg) {
    let mut x = LEFT;
    for (name, ink, dash) in [
        ("cwnd", CWND, ""),
        ("ssthresh", SSTHRESH, DASH),
        ("srtt", SRTT, ""),
    ] {
        svg.line((x, 40.0), (x + 22.0, 40.0), ink, 2.0, dash);
        svg.text((x + 28.0, 44.0), 11.0, Ink::Text, Anchor::Start, "", name);
        x += 100.0;
    }
}

const DASH: &str = "6 3";

fn draw_flow(svg: &mut Svg, flow: &WindowFlow, time: &Axis, top: f64) {
    let name = shortened(&flow.name, 110);
    svg.text(
        (LEFT, top + 16.0),
        12.0,
        Ink::Text,
        Anchor::Start,
        "",
        &name,
    );
    let largest = |of: fn(&WindowPoint) -> f64| flow.points.iter().map(of).fold(0.0, f64::max);

    let panel = (top + HEADING, top + HEADING + WINDOW);
    let cwnd = largest(|point| point.cwnd);
    // A threshold far above the window would flatten the window's line: arrows mark it.
    let values = flow.points.iter();
    let values = values
        .flat_map(|point| [Some(point.cwnd), point.ssthresh])
        .flatten();
    let limits = (0.0, 2.0 * cwnd);
    let packets = Axis::limited(values, limits, (panel.1, panel.0), 5.0);
    draw_panel(svg, time, &packets, panel, "packets");
    for points in runs(flow, |point| point.ssthresh) {
        for (is_beyond, part) in parts(&points, &packets) {
            if is_beyond {
                let most = part.iter().map(|point| point.1).fold(0.0, f64::max);
                let (from, to) = (time.at(part[0].0), time.at(part[part.len() - 1].0));
                svg.line((from, panel.0), (to, panel.0), SSTHRESH, 1.4, DASH);
                svg.beyond(&packets, Across::X(from), &[(most, SSTHRESH)], short);
            } else {
                svg.polyline(&thinned(part, time, &packets), SSTHRESH, 1.4, DASH);
            }
        }
    }
    for points in runs(flow, |point| Some(point.cwnd)) {
        svg.polyline(&thinned(&points, time, &packets), CWND, 1.4, "");
    }

    let panel = (panel.1 + GAP, panel.1 + GAP + RTT);
    let delay = Axis::from_zero(largest(|point| point.srtt) * 1e3, (panel.1, panel.0), 3.0);
    draw_panel(svg, time, &delay, panel, "ms");
    for points in runs(flow, |point| Some(point.srtt * 1e3)) {
        svg.polyline(&thinned(&points, time, &delay), SRTT, 1.4, "");
    }
    for tick in &time.ticks {
        let x = time.at(*tick);
        svg.text(
            (x, panel.1 + 14.0),
            10.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &short(*tick),
        );
    }
    svg.text(
        (RIGHT, panel.1 + 28.0),
        10.0,
        Ink::Muted,
        Anchor::End,
        "",
        "seconds",
    );
}

/// Alternating parts of a line on the axis and beyond it.
fn parts<'a>(
    points: &'a [(f64, f64)],
    axis: &Axis,
) -> impl Iterator<Item = (bool, &'a [(f64, f64)])> {
    let is_beyond = |point: &(f64, f64)| axis.beyond(point.1).is_some();
    let parts = points.chunk_by(move |a, b| is_beyond(a) == is_beyond(b));
    parts.map(move |part| (is_beyond(&part[0]), part))
}

/// Lines of one value, interrupted where it has none.
fn runs(flow: &WindowFlow, value: impl Fn(&WindowPoint) -> Option<f64>) -> Vec<Vec<(f64, f64)>> {
    let parts = flow.points.split(|point| value(point).is_none());
    parts
        .map(|part| {
            let points = part.iter();
            points
                .filter_map(|point| Some((point.time, value(point)?)))
                .collect::<Vec<_>>()
        })
        .filter(|part| !part.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(name: &str, start: f64, count: usize) -> WindowFlow {
        let point = |n: usize| WindowPoint {
            time: start + n as f64 / 100.0,
            cwnd: 10.0 + (n % 50) as f64,
            ssthresh: (n > 20).then_some(30.0),
            srtt: 0.02 + (n % 7) as f64 / 1e3,
        };
        WindowFlow {
            name: name.to_owned(),
            points: (0..count).map(point).collect(),
        }
    }

    #[test]
    fn each_flow_has_its_window_its_threshold_and_its_round_trip() {
        let picture = draw_windows(
            "two <flows>",
            &[flow("late", 1.0, 300), flow("early", 0.0, 400)],
        );
        let document = roxmltree::Document::parse(&picture).expect("well-formed");
        let lines = |class: &str| {
            let found = document.descendants().filter(|node| {
                node.has_tag_name("polyline")
                    && node.attribute("class").is_some_and(|name| name == class)
            });
            found.count()
        };
        assert_eq!([lines("s-c2"), lines("s-c3"), lines("s-c4")], [2, 2, 2]);
        assert!(picture.find("early") < picture.find("late"));
        assert!(picture.contains("two &lt;flows&gt;"));
    }

    #[test]
    fn a_threshold_far_above_the_window_has_an_arrow_and_its_number() {
        let mut flow = flow("one", 0.0, 100);
        for point in &mut flow.points[40..60] {
            point.ssthresh = Some(5000.0);
        }
        let picture = draw_windows("t", &[flow]);
        assert_eq!(picture.matches("data-beyond").count(), 1, "{picture}");
        assert!(
            picture.contains(">5000<") && picture.contains("<polygon"),
            "{picture}"
        );
        // The window fills its panel all the same.
        assert!(!picture.contains(">1000<"), "{picture}");
    }

    #[test]
    fn the_number_of_flows_is_limited_and_their_absence_reported() {
        let flows: Vec<WindowFlow> = (0..20)
            .map(|n| flow(&format!("flow {n}"), 0.0, 10 + n))
            .collect();
        let picture = draw_windows("many", &flows);
        let note = "6 flows with the most acknowledgments, and 14 more in the table";
        assert!(picture.contains(note), "{picture}");
        assert!(!picture.contains("flow 13<") && picture.contains("flow 14<"));
        assert!(draw_windows("none", &[]).contains("no acknowledgments were seen"));
    }
}
