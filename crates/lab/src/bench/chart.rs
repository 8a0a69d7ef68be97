//! A group of the matrix as a picture: for each line the first bar's figure, its spread, the bound, and the others.

use crate::plot::{Anchor, Axis, Ink, Palette, Svg, short, shortened};

use super::bar::Quantity;
use super::judge::{Judged, Line, Verdict};
use super::matrix::Group;

const WIDTH: f64 = 860.0;
const PLOT: (f64, f64) = (300.0, 770.0);
const LINE: f64 = 20.0;
const HEAD: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;
const LEGEND_COLUMN: f64 = 210.0;

/// The pictures, by the names of their files: one for each kind of figure, of the lines that have one.
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
    let values = bars.iter().flat_map(|(_, judged)| {
        let others = judged.others.iter().filter_map(|(_, value)| *value);
        let own = judged.spread.as_ref().map(|spread| spread.max);
        others.chain(own).chain([judged.bar.bound])
    });
    let bound = bars
        .iter()
        .map(|(_, judged)| judged.bar.bound)
        .fold(0.0, f64::max);
    // A single absurd value of an alternative must not flatten everything else; a rate is none.
    let reach = match quantity {
        Quantity::Goodput => f64::INFINITY,
        _ => bound.max(1.0) * 3.0,
    };
    let largest = values.fold(0.0, f64::max).min(reach);
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
    // What the others are beside, where it has more seeds than they.
    let beside = |judged: &Judged| {
        let median = judged.spread.as_ref().map(|spread| spread.median);
        let has_others = judged.others.iter().any(|(_, value)| value.is_some());
        (judged.beside_others).filter(|value| has_others && Some(*value) != median)
    };
    let is_beside = bars.iter().any(|(_, judged)| beside(judged).is_some());
    let fixed = 2 + usize::from(is_beside);
    let legend = (others.len() + fixed).div_ceil(4) as f64 * LEGEND_LINE;
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
    let x = Axis::from_zero(largest * factor, PLOT, 6.0);
    let at_value = |value: f64| x.at(value * factor);
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
    let judged = super::tables::under_test(lines);
    let own = palette.style(lines.first().map_or(judged, |line| &line.system));
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
            let ink = Ink::Colour(own.colour);
            let end = at_value(spread.median);
            svg.rect((PLOT.0, top + 5.0), (end - PLOT.0, LINE - 10.0), ink);
            svg.line(
                (at_value(spread.min), middle),
                (at_value(spread.max), middle),
                Ink::Text,
                1.2,
                "",
            );
        }
        for (name, value) in &judged.others {
            if let Some(value) = value {
                svg.marker((at_value(*value), middle), 3.2, palette.style(name), false);
            }
        }
        if let Some(value) = beside(judged) {
            svg.marker((at_value(value), middle), 4.2, own, true);
        }
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
        let column = (index % 4) as f64 * LEGEND_COLUMN;
        (
            16.0 + column,
            bottom + 24.0 + LEGEND_LINE * (index / 4) as f64,
        )
    };
    // A word behind a sample of what it means.
    let say = |svg: &mut Svg, (left, y): (f64, f64), word: &str| {
        let at = (left + 10.0, y + 4.0);
        svg.text(at, 11.0, Ink::Text, Anchor::Start, "", word);
    };
    let (left, y) = place(0);
    svg.rect((left - 4.0, y - 4.0), (8.0, 8.0), Ink::Colour(own.colour));
    say(&mut svg, (left, y), judged);
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
    Some(svg.finish())
}
