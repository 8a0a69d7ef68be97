//! The chart of a scenario: the goodput of bulk traffic, and below it the delay of each picture.

use crate::results::{Outcome, Run};
use sumlink_plot::{Across, Anchor, Axis, Ink, Palette, Shown, Style, Svg, Unit, more, short};

use super::ALONE;
use super::judge::Judged;

const WIDTH: f64 = 860.0;
const PLOT: (f64, f64) = (64.0, 640.0);
const PANEL: f64 = 150.0;
const TOPS: [f64; 2] = [40.0, 244.0];
const HEIGHT: f64 = 434.0;
/// Averaging time of a rate in seconds: single pictures would make the curve a comb.
const AVERAGE_S: f64 = 1.0;
/// Minimum range of the lower panel in milliseconds: delays are between a round trip and the whole
/// run.
const DELAYS: (f64, f64) = (10.0, 10_000.0);

/// A line of both panels.
struct Line {
    name: String,
    /// Median goodput of bulk traffic, in bit/s.
    goodput_bps: Option<f64>,
    /// Whether this is the best link alone.
    is_best_alone: bool,
    style: Style,
    rate: Vec<(f64, f64)>,
    delay: Vec<(f64, f64)>,
}

/// The chart of the first seed; `None` without any run.
pub(super) fn draw(judged: &Judged<'_>) -> Option<String> {
    let mut lines = lines(judged);
    lines.first()?;
    let left_out = leave_out(&mut lines);
    let scenario = judged.scenario;
    let end = scenario.duration.as_secs_f64();
    let title = format!(
        "{}: goodput, and delay of each picture of the video, seed 1",
        scenario.name
    );
    let mut svg = Svg::new(WIDTH, HEIGHT, &title);
    let largest = lines
        .iter()
        .flat_map(|line| &line.rate)
        .map(|(_, bps)| *bps)
        .fold(0.0, f64::max);
    let unit = Unit::of_rate(largest);
    let times = lines
        .iter()
        .flat_map(|line| line.rate.iter().chain(&line.delay));
    let end = times.map(|(time, _)| *time).fold(end, f64::max);
    let x = Axis::exact(end, PLOT, 8.0);
    let place = |top: f64| (top + PANEL, top);
    let rates = Axis::from_zero(largest / unit.size, place(TOPS[0]), 5.0);
    let measured = lines.iter().flat_map(|line| &line.delay).map(|(_, ms)| *ms);
    let delays = Axis::logarithmic(measured.chain([DELAYS.0, DELAYS.1]), place(TOPS[1]));
    let heads = [
        format!("goodput, {}", unit.name),
        "capture to arrival, ms".to_owned(),
    ];
    for ((top, head), y) in TOPS.iter().zip(&heads).zip([&rates, &delays]) {
        panel(&mut svg, *top, head, &x, y);
    }
    for (index, line) in lines.iter().enumerate() {
        let ink = Ink::Color(line.style.color);
        let dash = line.style.dash();
        let points: Vec<_> = line
            .rate
            .iter()
            .map(|(t, bps)| (x.at(*t), rates.at(bps / unit.size)))
            .collect();
        svg.polyline(&points, ink, 1.5, dash);
        let points: Vec<_> = line
            .delay
            .iter()
            .map(|(t, ms)| (x.at(*t), delays.at(*ms)))
            .collect();
        svg.polyline(&points, ink, 1.2, dash);
        for (t, ms) in line
            .delay
            .iter()
            .filter(|(_, ms)| delays.beyond(*ms).is_some())
        {
            svg.beyond(&delays, Across::X(x.at(*t)), &[(*ms, ink)], short);
        }
        let y = TOPS[0] + 12.0 + 20.0 * index as f64;
        svg.line(
            (PLOT.1 + 14.0, y - 4.0),
            (PLOT.1 + 40.0, y - 4.0),
            ink,
            2.0,
            dash,
        );
        svg.text(
            (PLOT.1 + 46.0, y),
            12.0,
            Ink::Text,
            Anchor::Start,
            "",
            &line.name,
        );
    }
    if let Some(note) = more(left_out) {
        let y = TOPS[0] + 12.0 + 20.0 * lines.len() as f64;
        let place = (PLOT.1 + 14.0, y);
        svg.text(place, 12.0, Ink::Muted, Anchor::Start, "", &note);
    }
    svg.text(
        ((PLOT.0 + PLOT.1) / 2.0, HEIGHT - 6.0),
        12.0,
        Ink::Muted,
        Anchor::Middle,
        "",
        "seconds",
    );
    Some(svg.finish())
}

/// Leaves out the lines that only the table has: the best link alone stays, then the lines with the
/// largest goodput. Returns their number.
fn leave_out(lines: &mut Vec<Line>) -> usize {
    let name = |line: &Line| match line.is_best_alone {
        true => ALONE.to_owned(),
        false => line.name.clone(),
    };
    let names: Vec<String> = lines.iter().map(name).collect();
    let merits = lines.iter().map(|line| line.goodput_bps);
    let candidates: Vec<_> = names.iter().map(String::as_str).zip(merits).collect();
    let shown = Shown::of(&candidates);
    lines.retain(|line| shown.has(&name(line)));
    shown.left_out
}

fn panel(svg: &mut Svg, top: f64, head: &str, x: &Axis, y: &Axis) {
    svg.text(
        (PLOT.0, top - 10.0),
        12.0,
        Ink::Text,
        Anchor::Start,
        "font-weight=\"600\"",
        head,
    );
    svg.rect((PLOT.0, top), (PLOT.1 - PLOT.0, PANEL), Ink::Panel);
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line((PLOT.0, at), (PLOT.1, at), Ink::Grid, 1.0, "");
        svg.text(
            (PLOT.0 - 6.0, at + 4.0),
            11.0,
            Ink::Muted,
            Anchor::End,
            "",
            &short(*tick),
        );
    }
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.text(
            (at, top + PANEL + 15.0),
            11.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &short(*tick),
        );
    }
}

fn lines(judged: &Judged<'_>) -> Vec<Line> {
    let names = judged.rows.iter().map(|row| row.system.as_str());
    let palette = Palette::new(names);
    let mut alone = 0;
    let of_links = judged.rows.iter().filter(|row| row.link.is_some());
    let best = of_links
        .filter_map(|row| row.goodput_bps)
        .fold(f64::NEG_INFINITY, f64::max);
    let rows = judged.rows.iter().map(|row| {
        let mut style = palette.style(&row.system);
        if row.system == ALONE {
            style.variant = alone;
            alone += 1;
        }
        let link = row.link.as_deref();
        Line {
            name: link.map_or_else(|| row.system.clone(), |link| format!("{link} alone")),
            goodput_bps: row.goodput_bps,
            is_best_alone: link.is_some() && row.goodput_bps == Some(best),
            style,
            rate: rate(first(&judged.bulk, &row.system), link),
            delay: delay(first(&judged.video, &row.system), link),
        }
    });
    rows.filter(|line| !line.rate.is_empty() || !line.delay.is_empty())
        .collect()
}

fn first<'a>(runs: &'a [Run], system: &str) -> Option<&'a Run> {
    runs.iter()
        .find(|run| run.seed == 1 && run.system == system)
}

fn rate(run: Option<&Run>, link: Option<&str>) -> Vec<(f64, f64)> {
    let Some(Outcome::Measured(figures)) = run.map(|run| &run.outcome) else {
        return Vec::new();
    };
    let flow = figures
        .flows
        .iter()
        .find(|flow| flow.link.as_deref() == link);
    let Some(series) = flow
        .map(|flow| &flow.goodput)
        .filter(|series| series.interval_s > 0.0)
    else {
        return Vec::new();
    };
    let width = ((AVERAGE_S / series.interval_s).round() as usize).max(1);
    let means = series.bps.chunks(width).enumerate().map(|(index, part)| {
        let time = series.start_s + (index * width) as f64 * series.interval_s + AVERAGE_S / 2.0;
        (time, part.iter().sum::<f64>() / part.len() as f64)
    });
    means.collect()
}

fn delay(run: Option<&Run>, link: Option<&str>) -> Vec<(f64, f64)> {
    let Some(Outcome::Measured(figures)) = run.map(|run| &run.outcome) else {
        return Vec::new();
    };
    let videos = figures
        .videos
        .iter()
        .filter(|video| video.link.as_deref() == link);
    let frames = videos
        .flat_map(|video| &video.all)
        .filter(|frame| frame.captured_s >= 0.0);
    frames
        .map(|frame| (frame.captured_s, (frame.arrived_s - frame.captured_s) * 1e3))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ten_lines_the_best_link_alone_and_the_best_others_stay() {
        let line = |name: &str, mbps: f64| Line {
            name: name.to_owned(),
            goodput_bps: Some(mbps * 1e6),
            is_best_alone: name == "wifi alone",
            style: Style::default(),
            rate: Vec::new(),
            delay: Vec::new(),
        };
        let mut lines = vec![line("wifi alone", 0.5), line("lte alone", 0.4)];
        lines.extend((0..8).map(|n| line(&format!("system-{n}"), f64::from(n))));
        assert_eq!(leave_out(&mut lines), 4);
        let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
        let expected = [
            "wifi alone",
            "system-3",
            "system-4",
            "system-5",
            "system-6",
            "system-7",
        ];
        assert_eq!(names, expected);
        assert_eq!(leave_out(&mut lines), 0);
    }
}
