//! The gain of each additional link, for groups with rows of one, two, three links and so on.

use std::fmt::Write;

use super::line::Line;

/// Fewer rows than this do not show how goodput grows.
const MIN_ROWS: usize = 3;

/// A table of each link's gain divided by its goodput alone: 1 everywhere means that goodput grows
/// linearly with the links. Empty without such a series of rows.
pub(super) fn table(lines: &[&Line]) -> String {
    let mut text = String::new();
    let mut variants: Vec<&str> = Vec::new();
    for line in lines {
        if !variants.contains(&line.variant.as_str()) {
            variants.push(&line.variant);
        }
    }
    for variant in variants {
        let of_variant = lines.iter().copied();
        let series = series(of_variant.filter(|line| line.variant == variant));
        if series.len() < MIN_ROWS {
            continue;
        }
        if text.is_empty() {
            let names: Vec<&str> = series.iter().map(|(name, _)| *name).collect();
            let _ = write!(
                text,
                "\nGain of each further link, relative to its goodput alone (1 everywhere: linear \
                 in their number):\n\n\
                 | direction, CC | {} |\n| ---{} |\n",
                names.join(" | + "),
                " | ---".repeat(names.len())
            );
        }
        let shares: Vec<String> = series
            .iter()
            .map(|(_, share)| format!("{share:.2}"))
            .collect();
        let _ = writeln!(text, "| {variant} | {} |", shares.join(" | "));
    }
    text
}

/// Starting at a line with one link, the following lines with one more link each: the new link and
/// its gain.
fn series<'a>(lines: impl Iterator<Item = &'a Line>) -> Vec<(&'a str, f64)> {
    let mut series = Vec::new();
    let (mut links, mut before) = (0, 0.0);
    for line in lines {
        let Some(goodput) = line.goodput_bps else {
            break;
        };
        let [known @ .., (name, alone)] = line.alone.as_slice() else {
            break;
        };
        let is_next = known.len() == links
            && known
                .iter()
                .map(|(name, _)| name)
                .eq(series.iter().map(|(name, _)| *name));
        if !is_next || *alone <= 0.0 {
            break;
        }
        series.push((name.as_str(), (goodput - before) / alone));
        (links, before) = (links + 1, goodput);
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(row: &str, variant: &str, alone: &[(&str, f64)], goodput: f64) -> Line {
        Line {
            row: row.to_owned(),
            system: "sumlink:fbdt".to_owned(),
            variant: variant.to_owned(),
            judged: Vec::new(),
            alone: alone
                .iter()
                .map(|(name, bps)| ((*name).to_owned(), *bps))
                .collect(),
            goodput_bps: Some(goodput),
            seeds: 1,
            programs: Vec::new(),
            busy: None,
            cause: None,
        }
    }

    #[test]
    fn each_link_is_listed_with_its_gain() {
        let links = [("a", 600.0), ("b", 200.0), ("c", 100.0)];
        let lossy = [("a", 600.0), ("b", 1.0), ("c", 100.0)];
        let lines = [
            line("one", "down, cubic", &links[..1], 600.0),
            line("one", "up, cubic", &links[..1], 600.0),
            line("two", "down, cubic", &links[..2], 790.0),
            line("three", "down, cubic", &links, 840.0),
            line("lossy", "down, cubic", &lossy, 700.0),
        ];
        let text = table(&lines.iter().collect::<Vec<_>>());
        assert!(text.contains("| direction, CC | a | + b | + c |"), "{text}");
        assert!(
            text.contains("| down, cubic | 1.00 | 0.95 | 0.50 |"),
            "{text}"
        );
        assert!(
            !text.contains("up, cubic"),
            "one row is not a series: {text}"
        );
    }

    #[test]
    fn rows_that_are_no_series_have_no_table() {
        let lines = [
            line("x", "down, cubic", &[("a", 1.0), ("b", 1.0)], 2.0),
            line("y", "down, cubic", &[("a", 1.0), ("c", 1.0)], 2.0),
            line("z", "down, cubic", &[("a", 1.0)], 1.0),
        ];
        assert_eq!(table(&lines.iter().collect::<Vec<_>>()), "");
    }
}
