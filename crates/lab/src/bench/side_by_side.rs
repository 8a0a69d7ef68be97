//! Compares all systems over all rows: their share of the sum of the links, and how often they are
//! slower than the best link.

use std::fmt::Write;

use super::Lines;
use super::bar::Quantity;
use super::line::{Judged, Line};
use crate::results::{Spread, quantile, sorted};
use sumlink_plot::{Across, Anchor, Axis, Ink, Inked, Palette, Shown, Svg, short};

/// A deficit of more than 10 % is beyond the random variation of most runs.
const NOISE_MARGIN: f64 = 0.9;

/// All systems in order of appearance, with their figures in the first line of each row.
pub(super) struct SideBySide<'a>(Vec<(&'a str, Shares)>);

/// A system's figures over the rows.
#[derive(Default)]
struct Shares {
    rows: usize,
    sum: Vec<f64>,
    best: Vec<f64>,
}

impl<'a> SideBySide<'a> {
    pub(super) fn new(lines: &'a Lines) -> Self {
        let mut all = Self(Vec::new());
        for line in lines.iter().flat_map(|group| firsts(group)) {
            let before: Vec<usize> = all.0.iter().map(|(_, shares)| shares.figures()).collect();
            for judged in &line.judged {
                all.note(&line.system, judged, judged.beside_others);
                for (name, value) in &judged.others {
                    all.note(name, judged, *value);
                }
            }
            for (index, (_, shares)) in all.0.iter_mut().enumerate() {
                shares.rows +=
                    usize::from(shares.figures() > before.get(index).copied().unwrap_or(0));
            }
        }
        all
    }

    fn note(&mut self, system: &'a str, judged: &Judged, value: Option<f64>) {
        let quantity = judged.bar.quantity;
        let (Some(value), Quantity::Sum | Quantity::Best) = (value, quantity) else {
            return;
        };
        let index = self.0.iter().position(|(known, _)| *known == system);
        let index = index.unwrap_or_else(|| {
            self.0.push((system, Shares::default()));
            self.0.len() - 1
        });
        let shares = &mut self.0[index].1;
        match quantity {
            Quantity::Sum => shares.sum.push(value),
            _ => shares.best.push(value),
        }
    }

    /// Whether fewer than two systems have figures.
    pub(super) fn is_empty(&self) -> bool {
        self.0.len() < 2
    }

    /// The table, with a link to the chart `picture`.
    pub(super) fn table(&self, picture: &str) -> String {
        let mut text = format!(
            "\n## Side by side\n\n\
             The first line of each row, with one download (for `simultaneous` one over each \
             link), relative to the links measured alone: to their sum, and to the best of \
             them. Not every row has both figures. Rows that a system does not support, in \
             which it failed or was refused, or that were not run are not counted for it. All \
             systems of a row are compared over the seeds that each of them has.\n\n\
             ![side by side]({picture})\n\n\
             | system | rows | of the sum: median | least | of the best link: least | rows below \
             the best link | by more than a tenth |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n"
        );
        for (name, Shares { rows, sum, best }) in &self.0 {
            let spread = |values: &[f64]| Spread::of(values.iter().copied());
            let cell =
                |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.3}"));
            let below = |bound: f64| best.iter().filter(|share| **share < bound).count();
            let slower = match best.len() {
                0 => "– | –".to_owned(),
                all => format!("{} of {all} | {}", below(1.0), below(NOISE_MARGIN)),
            };
            let _ = writeln!(
                text,
                "| {name} | {rows} | {} | {} | {} | {slower} |",
                cell(spread(sum).map(|spread| spread.median)),
                cell(spread(sum).map(|spread| spread.min)),
                cell(spread(best).map(|spread| spread.min)),
            );
        }
        text
    }

    /// The chart: one line for each system, with a mark for each row at its goodput relative to the
    /// best link. It has the systems with the largest median; the table has all.
    pub(super) fn picture(&self, palette: &Palette) -> String {
        const WIDTH: f64 = 860.0;
        const PLOT: (f64, f64) = (210.0, 830.0);
        const LINE: f64 = 22.0;
        const HEAD: f64 = 46.0;
        let candidates = self.0.iter().filter(|(_, shares)| !shares.best.is_empty());
        let candidates = candidates
            .map(|(name, shares)| (*name, quantile(&sorted(shares.best.iter().copied()), 0.5)));
        let shown = Shown::of(&candidates.collect::<Vec<_>>());
        let all = || self.0.iter().filter(|(name, _)| shown.has(name));
        let bottom = HEAD + LINE * all().count() as f64;
        let title = "side by side: goodput over that of the best link alone, a mark for each row \
                     (right of 1 is faster)";
        let mut svg = Svg::new(WIDTH, bottom + 24.0, title);
        let bold = "font-weight=\"600\"";
        svg.text((8.0, 18.0), 13.0, Ink::Text, Anchor::Start, bold, title);
        let values = all().flat_map(|(_, shares)| &shares.best);
        let x = Axis::logarithmic(values.copied().chain([1.0]), PLOT);
        for tick in &x.ticks {
            let at = x.at(*tick);
            svg.line((at, HEAD - 6.0), (at, bottom), Ink::Grid, 1.0, "");
            let place = (at, HEAD - 12.0);
            svg.text(place, 10.0, Ink::Muted, Anchor::Middle, "", &short(*tick));
        }
        svg.line(
            (x.at(1.0), HEAD - 6.0),
            (x.at(1.0), bottom),
            Ink::Text,
            1.5,
            "",
        );
        for (index, (name, shares)) in all().enumerate() {
            let middle = HEAD + LINE * (index as f64 + 0.5);
            let place = (PLOT.0 - 10.0, middle + 3.5);
            svg.text(place, 10.5, Ink::Text, Anchor::End, "", name);
            let style = palette.style(name);
            for share in shares
                .best
                .iter()
                .filter(|share| x.beyond(**share).is_none())
            {
                svg.marker((x.at(*share), middle), 3.2, style, false);
            }
            // Zero has no place on a logarithmic axis.
            let all = shares.best.iter();
            let all: Vec<Inked> = all.map(|share| (*share, Ink::Color(style.color))).collect();
            svg.beyond(&x, Across::Y(middle), &all, short);
        }
        if let Some(note) = shown.note() {
            let place = (PLOT.0 - 10.0, bottom + 16.0);
            svg.text(place, 10.5, Ink::Muted, Anchor::End, "", &note);
        }
        svg.finish()
    }
}

impl Shares {
    fn figures(&self) -> usize {
        self.sum.len() + self.best.len()
    }
}

/// The first line of each row of a group.
fn firsts(group: &[(Line, bool)]) -> impl Iterator<Item = &Line> {
    let mut last = "";
    group.iter().filter_map(move |(line, _)| {
        let is_first = line.row != last;
        last = &line.row;
        is_first.then_some(line)
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::quantities::Measured;
    use crate::bench::quantities::fixture::{alone, own, run, scenario};
    use crate::bench::{judge, matrix};

    /// A group of three rows.
    pub(in crate::bench) fn group() -> matrix::Group {
        let text = "name = \"g\"\nbars = [\"sum >= 0.97\", \"best >= 1\"]\n[scenario]\n\
                    duration = \"3s\"\n\
                    [[scenario.link]]\nname = \"a\"\nrate = \"1mbit\"\n[[row]]\nname = \"one\"\n\
                    [[row]]\nname = \"two\"\n\
                    [[row]]\nname = \"three\"\nbars = [\"best >= 1\"]\n";
        matrix::read(Path::new("m.toml"), text).unwrap()
    }

    /// A row with links of 80 and 20 Mbit/s, and the goodput of each system.
    pub(in crate::bench) fn line(row: usize, goodputs: &[(&str, f64)]) -> (Line, bool) {
        let group = group();
        let mut runs = vec![run("alone", 1, alone())];
        runs.extend(
            goodputs
                .iter()
                .map(|(system, mbps)| run(system, 1, own([*mbps; 3]))),
        );
        let scenario = scenario("");
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        let names = ["mptcp".to_owned(), "noq".to_owned(), "idle".to_owned()];
        (judge::judge(&group.rows[row], measured, 1, &names), true)
    }

    #[test]
    fn each_system_is_listed_with_median_and_minimum() {
        let lines = vec![vec![
            line(0, &[("sumlink:fbdt", 96.0), ("mptcp", 90.0), ("noq", 60.0)]),
            // Further lines of the same row are not counted.
            line(0, &[("sumlink:fbdt", 10.0)]),
            line(1, &[("sumlink:fbdt", 96.0), ("mptcp", 76.0)]),
            // A line without a bar for the sum.
            line(2, &[("sumlink:fbdt", 96.0)]),
        ]];
        let all = SideBySide::new(&lines);
        assert!(!all.is_empty());
        let text = all.table("s.svg");
        let rows: Vec<&str> = text
            .lines()
            .skip_while(|l| !l.starts_with("| ---"))
            .collect();
        assert_eq!(
            rows[1..],
            [
                "| sumlink:fbdt | 3 | 0.960 | 0.960 | 1.200 | 0 of 3 | 0 |",
                "| mptcp | 2 | 0.830 | 0.760 | 0.950 | 1 of 2 | 0 |",
                "| noq | 1 | 0.600 | 0.600 | 0.750 | 1 of 1 | 1 |",
            ]
        );
        let svg = all.picture(&Palette::new(["mptcp", "noq", "sumlink:fbdt"]));
        roxmltree::Document::parse(&svg).unwrap();
        assert_eq!(svg.matches("<circle").count(), 6, "{svg}");
        let alone = vec![vec![line(0, &[("sumlink:fbdt", 98.0)])]];
        assert!(SideBySide::new(&alone).is_empty());
    }

    #[test]
    fn every_share_has_a_position_and_zero_an_arrow() {
        // 0.008 of the best link, and zero.
        let figures = [("sumlink:fbdt", 96.0), ("mptcp", 0.64), ("noq", 0.0)];
        let lines = vec![vec![line(0, &figures)]];
        let svg = SideBySide::new(&lines).picture(&Palette::new(["mptcp", "noq", "sumlink:fbdt"]));
        let svg = roxmltree::Document::parse(&svg).unwrap();
        let ticks: Vec<_> = svg.descendants().filter_map(|node| node.text()).collect();
        assert!(ticks.contains(&"0.001"), "{ticks:?}");
        let marks = svg.descendants().filter(|node| node.has_tag_name("circle"));
        let places: Vec<f64> = marks
            .map(|mark| mark.attribute("cx").unwrap().parse().unwrap())
            .collect();
        assert_eq!(places.len(), 2, "{places:?}");
        assert!(
            places.iter().all(|x| (211.0..830.0).contains(x)),
            "{places:?}"
        );
        let beyond: Vec<_> = svg
            .descendants()
            .filter(|node| node.has_attribute("data-beyond"))
            .collect();
        assert_eq!(beyond.len(), 1);
        assert_eq!(beyond[0].text(), Some("0"));
    }
}
