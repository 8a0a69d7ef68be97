//! The charts of a group: for each line the first bar's figure, its spread, the bound and the other
//! systems.

use sumlink_plot::{Across, Anchor, Axis, Ink, Inked, Palette, Shown, Svg, short, shortened};

use super::bar::Quantity;
use super::line::{Judged, Line, Verdict};
use super::matrix::Group;
use crate::results::{quantile, sorted};

const WIDTH: f64 = 860.0;
const PLOT: (f64, f64) = (300.0, 770.0);
const LINE: f64 = 20.0;
const HEAD: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;
const LEGEND_COLUMN: f64 = 210.0;
const LEGEND_COLUMNS: usize = 4;
/// Width of a sample with its margins, and of a character of a label: an upper limit for most text.
const LEGEND_SAMPLE: f64 = 24.0;
const CHARACTER: f64 = 6.2;
/// The axis ends at this multiple of the largest bound, and as far on the other side of 0; arrows
/// mark values beyond it.
const REACH: f64 = 3.0;

/// The charts by file name: one for each quantity, with the lines that have a bar for it.
pub(super) fn draw(group: &Group, lines: &[&Line], palette: &Palette) -> Vec<(String, String)> {
    let mut kinds: Vec<Quantity> = Vec::new();
    for judged in lines.iter().flat_map(|line| line.first()) {
        if !kinds.contains(&judged.bar.quantity) {
            kinds.push(judged.bar.quantity);
        }
    }
    let pictures = kinds
        .into_iter()
        .enumerate()
        .filter_map(|(index, quantity)| {
            let name = match index {
                0 => format!("{}.svg", group.name),
                _ => format!("{}-{}.svg", group.name, index + 1),
            };
            Some((name, picture(group, lines, quantity, palette)?))
        });
    pictures.collect()
}

fn picture(
    group: &Group,
    lines: &[&Line],
    quantity: Quantity,
    palette: &Palette,
) -> Option<String> {
    let of_kind =
        |judged: &&Judged| judged.bar.quantity == quantity && judged.verdict != Verdict::NotRun;
    let bars: Vec<(&Line, &Judged)> = lines
        .iter()
        .flat_map(|line| line.first().filter(of_kind).map(|judged| (*line, judged)))
        .collect();
    bars.iter().find(|(_, judged)| judged.spread.is_some())?;
    let bound = bars
        .iter()
        .map(|(_, judged)| judged.bar.bound)
        .fold(0.0, f64::max);
    // One extreme value of an alternative must not flatten the chart; rates need no limit.
    let reach = match quantity {
        Quantity::Goodput => f64::INFINITY,
        _ => bound.max(1.0) * REACH,
    };
    let (factor, unit) = quantity.axis();
    let mut others: Vec<&str> = Vec::new();
    for (name, _) in bars
        .iter()
        .flat_map(|(_, judged)| &judged.others)
        .filter(|o| o.1.is_some())
    {
        if !others.contains(&name.as_str()) {
            others.push(name);
        }
    }
    let judged_name = super::tables::under_test(lines);
    let shown = shown(judged_name, &others, &bars, quantity);
    others.retain(|name| shown.has(name));
    // The figure over the seeds of the other systems, where the judged system has more seeds.
    let beside = |judged: &Judged| {
        let median = judged.spread.as_ref().map(|spread| spread.median);
        let has_others = judged.others.iter().any(|(_, value)| value.is_some());
        (judged.beside_others).filter(|value| has_others && Some(*value) != median)
    };
    let values = bars.iter().flat_map(|(_, judged)| {
        let of_shown = judged.others.iter().filter(|(name, _)| shown.has(name));
        let others = of_shown.filter_map(|(_, value)| *value);
        let own = judged.spread.iter();
        let own = own.flat_map(|spread| [spread.min, spread.median, spread.max]);
        others
            .chain(own)
            .chain(beside(judged))
            .chain([judged.bar.bound])
    });
    let values = values.map(|value| value * factor);
    let limits = (-reach * factor, reach * factor);
    let is_beside = bars.iter().any(|(_, judged)| beside(judged).is_some());
    let fixed = 2 + usize::from(is_beside);
    let more = shown.note();
    let mut labels = vec![judged_name, "the bar"];
    labels.extend(is_beside.then_some("in the others' seeds"));
    labels.extend(others.iter().copied());
    labels.extend(more.as_deref());
    let (cells, legend_lines) = legend_cells(&labels);
    let legend = legend_lines as f64 * LEGEND_LINE;
    let bottom = HEAD + LINE * bars.len() as f64;
    let height = bottom + 34.0 + legend;
    let better = if quantity.more_is_better() {
        "more"
    } else {
        "less"
    };
    let unit = unit.map_or_else(String::new, |unit| format!(", {unit}"));
    let title = format!(
        "{}: {}{unit} ({better} is better)",
        group.name,
        quantity.name()
    );
    let mut svg = Svg::new(WIDTH, height, &title);
    svg.text(
        (8.0, 18.0),
        13.0,
        Ink::Text,
        Anchor::Start,
        "font-weight=\"600\"",
        &title,
    );
    let x = Axis::limited(values, limits, PLOT, 6.0);
    let at_value = |value: f64| x.at(value * factor);
    // End of a shape that continues as an arrow.
    let up_to = |value: f64| x.up_to(value * factor);
    let is_beyond = |value: f64| x.beyond(value * factor).is_some();
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line((at, HEAD - 6.0), (at, bottom), Ink::Grid, 1.0, "");
        svg.text(
            (at, HEAD - 12.0),
            10.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &short(*tick),
        );
    }
    let own = palette.style(lines.first().map_or(judged_name, |line| &line.system));
    for (index, (line, judged)) in bars.iter().enumerate() {
        let top = HEAD + LINE * index as f64;
        let middle = top + LINE / 2.0;
        let size = judged.size.map_or_else(String::new, |size| {
            format!(", {}", super::tables::size(size))
        });
        let label = shortened(&format!("{} ({}){size}", line.row, line.variant), 50);
        svg.text(
            (PLOT.0 - 8.0, middle + 3.5),
            10.5,
            Ink::Text,
            Anchor::End,
            "",
            &label,
        );
        if let Some(spread) = &judged.spread {
            let ink = Ink::Color(own.color);
            let (zero, end) = (at_value(0.0), up_to(spread.median));
            let left = zero.min(end);
            svg.rect((left, top + 5.0), (zero.max(end) - left, LINE - 10.0), ink);
            let (from, to) = (up_to(spread.min), up_to(spread.max));
            svg.line((from, middle), (to, middle), Ink::Text, 1.2, "");
        }
        let own_values = judged.spread.iter();
        let own_values = own_values.flat_map(|spread| [spread.median, spread.min, spread.max]);
        let mut out: Vec<Inked> = Vec::new();
        let mut note = |value: f64, ink: Ink| {
            let known = out.iter().any(|(other, _)| *other == value * factor);
            if is_beyond(value) && !known {
                out.push((value * factor, ink));
            }
        };
        own_values
            .chain(beside(judged))
            .for_each(|value| note(value, Ink::Text));
        for (name, value) in judged.others.iter().filter(|(name, _)| shown.has(name)) {
            let Some(value) = value else { continue };
            let style = palette.style(name);
            if is_beyond(*value) {
                note(*value, Ink::Color(style.color));
            } else {
                svg.marker((at_value(*value), middle), 3.2, style, false);
            }
        }
        if let Some(value) = beside(judged).filter(|value| !is_beyond(*value)) {
            svg.marker((at_value(value), middle), 4.2, own, true);
        }
        svg.beyond(&x, Across::Y(middle), &out, short);
        let at = at_value(judged.bar.bound);
        svg.line((at, top + 1.0), (at, top + LINE - 1.0), Ink::Text, 2.0, "");
        let word = match judged.verdict {
            Verdict::Pass => "",
            other => other.word(),
        };
        svg.text(
            (PLOT.1 + 6.0, middle + 3.5),
            9.5,
            Ink::Text,
            Anchor::Start,
            "",
            word,
        );
    }
    let place = |index: usize| {
        let (column, line) = cells[index];
        (
            16.0 + LEGEND_COLUMN * column as f64,
            bottom + 24.0 + LEGEND_LINE * line as f64,
        )
    };
    // A legend entry: a sample with its label behind it.
    let say = |svg: &mut Svg, (left, y): (f64, f64), word: &str| {
        let at = (left + 10.0, y + 4.0);
        svg.text(at, 11.0, Ink::Text, Anchor::Start, "", word);
    };
    let (left, y) = place(0);
    svg.rect((left - 4.0, y - 4.0), (8.0, 8.0), Ink::Color(own.color));
    say(&mut svg, (left, y), judged_name);
    let (left, y) = place(1);
    svg.line((left, y - 6.0), (left, y + 6.0), Ink::Text, 2.0, "");
    say(&mut svg, (left, y), "the bar");
    if is_beside {
        let (left, y) = place(2);
        svg.marker((left, y), 4.2, own, true);
        say(&mut svg, (left, y), "in the others' seeds");
    }
    for (index, name) in others.iter().enumerate() {
        let (left, y) = place(index + fixed);
        svg.marker((left, y), 3.2, palette.style(name), false);
        say(&mut svg, (left, y), name);
    }
    if let Some(note) = &more {
        let (left, y) = place(labels.len() - 1);
        let at = (left - 4.0, y + 4.0);
        svg.text(at, 11.0, Ink::Muted, Anchor::Start, "", note);
    }
    Some(svg.finish())
}

/// The column and line of each legend entry, and the number of lines. A long label takes several
/// columns.
fn legend_cells(labels: &[&str]) -> (Vec<(usize, usize)>, usize) {
    let (mut column, mut line) = (0, 0);
    let mut cells = Vec::new();
    for label in labels {
        let width = LEGEND_SAMPLE + CHARACTER * label.chars().count() as f64;
        let columns = ((width / LEGEND_COLUMN).ceil() as usize).clamp(1, LEGEND_COLUMNS);
        if column + columns > LEGEND_COLUMNS {
            (column, line) = (0, line + 1);
        }
        cells.push((column, line));
        column += columns;
    }
    (cells, line + 1)
}

/// The systems of a chart: the system under test, and the others by their median over the lines.
fn shown<'a>(
    judged: &'a str,
    others: &[&'a str],
    bars: &[(&Line, &Judged)],
    quantity: Quantity,
) -> Shown<'a> {
    let merit = |name: &str| {
        let values = bars.iter().filter_map(|(_, judged)| {
            let (_, value) = judged.others.iter().find(|(other, _)| other == name)?;
            *value
        });
        let median = quantile(&sorted(values), 0.5)?;
        Some(if quantity.more_is_better() {
            median
        } else {
            -median
        })
    };
    let others = others.iter().map(|name| (*name, merit(name)));
    let candidates = std::iter::once((judged, Some(f64::INFINITY))).chain(others);
    Shown::of(&candidates.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::side_by_side::tests;

    #[test]
    fn a_long_label_of_the_legend_takes_the_columns_that_it_needs() {
        let long = "sumlink:fbdt:capture=socks:from=gateway";
        let (cells, lines) = legend_cells(&["under test", "the bar", "mptcp", long, "noq"]);
        assert_eq!(cells, [(0, 0), (1, 0), (2, 0), (0, 1), (2, 1)]);
        assert_eq!(lines, 2);
        let (cells, lines) = legend_cells(&["x"; 8]);
        assert_eq!((cells[7], lines), ((3, 1), 2));
    }

    #[test]
    fn a_value_far_beyond_the_bar_has_an_arrow_and_its_number() {
        // The links sum up to 100 Mbit/s: the axis ends at three times the bar, or slightly above.
        let (line, _) = tests::line(
            0,
            &[("sumlink:fbdt", 96.0), ("mptcp", 3478.0), ("noq", 60.0)],
        );
        let palette = Palette::new(["mptcp", "noq", "sumlink:fbdt"]);
        let pictures = draw(&tests::group(), &[&line], &palette);
        let svg = roxmltree::Document::parse(&pictures[0].1).unwrap();
        let beyond = svg
            .descendants()
            .filter(|node| node.has_attribute("data-beyond"));
        let beyond: Vec<_> = beyond.filter_map(|node| node.text()).collect();
        assert_eq!(beyond, ["34.8"]);
        let places = svg.descendants().filter_map(|node| node.attribute("cx"));
        let places: Vec<f64> = places.map(|x| x.parse().unwrap()).collect();
        // One for noq, two in the legend.
        assert_eq!(places.len(), 3, "{places:?}");
        assert!(places.iter().all(|x| *x < PLOT.1), "{places:?}");
    }

    #[test]
    fn of_ten_systems_the_best_six_are_drawn_and_the_others_counted() {
        let (mut line, _) = tests::line(0, &[("sumlink:fbdt", 96.0), ("mptcp", 60.0)]);
        let names: Vec<String> = (0..9).map(|n| format!("system-{n}")).collect();
        for judged in &mut line.judged {
            judged.others = names
                .iter()
                .enumerate()
                .map(|(n, name)| (name.clone(), Some(0.1 * n as f64)))
                .collect();
        }
        let palette = Palette::new(names.iter().map(String::as_str).chain(["sumlink:fbdt"]));
        let svg = &draw(&tests::group(), &[&line], &palette)[0].1;
        for (n, name) in names.iter().enumerate() {
            assert_eq!(svg.contains(&format!(">{name}<")), n >= 4, "{name}: {svg}");
        }
        assert!(svg.contains(">sumlink:fbdt<"), "{svg}");
        assert!(svg.contains(">and 4 more in the table<"), "{svg}");
    }
}
