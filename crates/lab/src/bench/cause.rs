//! Known causes of missed bars: `cause` of a row, `causes` of some of its lines, and `causes` of a
//! group.

use std::cmp::Reverse;

use crate::scenario::{Document, Section, text_of};

use super::bar::Quantity;
use super::line::{Line, Verdict};

/// The causes that a row gives for its lines, and those of its group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    all: Vec<Cause>,
}

#[derive(Clone, Debug)]
struct Cause {
    /// Applies to lines with this direction, this congestion control, or both; empty means all
    /// lines.
    words: Vec<String>,
    /// Applies to lines that miss only bars of these quantities; empty means any quantity.
    quantities: Vec<String>,
    /// Given by the row, not by its group.
    is_own: bool,
    text: String,
}

impl Causes {
    /// Reads the keys of a row; `variants` are its lines, such as `up, bbr`. The group's causes
    /// apply where the row gives none.
    pub(super) fn read(
        document: &mut Document<'_>,
        block: &mut Section<'_, '_>,
        variants: &[String],
        of_group: &Self,
    ) -> Self {
        let of_row = block.text(document, "cause").map(|at| Cause {
            words: Vec::new(),
            quantities: Vec::new(),
            is_own: true,
            text: at.value,
        });
        let mut all: Vec<Cause> = of_row.into_iter().collect();
        all.extend(read_table(document, block, variants, true));
        all.extend(of_group.all.iter().cloned());
        Self { all }
    }

    /// Reads `causes` of a group.
    pub(super) fn of_group(
        document: &mut Document<'_>,
        root: &mut Section<'_, '_>,
        variants: &[String],
    ) -> Self {
        let all = read_table(document, root, variants, false);
        Self { all }
    }

    /// The cause of a line's missed bars: the row's causes take precedence over the group's, then
    /// the most specific one applies.
    ///
    /// Where no single cause covers all missed quantities, each quantity gets its own.
    pub(super) fn of(&self, line: &Line) -> Option<String> {
        let mut short = line.short();
        short.dedup();
        if let Some(cause) = self.closest(line, &short) {
            return Some(cause.text.clone());
        }
        let causes = short
            .chunks(1)
            .map(|word| (&word[0], self.closest(line, word)));
        let causes: Vec<_> = causes.collect();
        let known = causes.iter().any(|(_, cause)| cause.is_some());
        let parts = causes.iter().map(|(word, cause)| {
            let text = cause.map_or("the cause is not known yet", |cause| &cause.text);
            format!("{word}: {text}")
        });
        known.then(|| parts.collect::<Vec<_>>().join("; "))
    }

    /// Outdated causes of the row: every line that they apply to passes.
    pub(super) fn stale(&self, lines: &[&Line]) -> Vec<&str> {
        let own = self.all.iter().filter(|cause| cause.is_own);
        let stale = own.filter(|cause| {
            let given_for = |line: &&&&Line| {
                let closest = self.closest(line, &cause.quantities);
                closest.is_some_and(|closest| std::ptr::eq(closest, *cause))
            };
            let mut of_lines = lines.iter().filter(|line| given_for(&line)).peekable();
            of_lines.peek().is_some() && of_lines.all(|line| line.verdict() == Verdict::Pass)
        });
        stale.map(|cause| cause.text.as_str()).collect()
    }

    fn closest(&self, line: &Line, short: &[String]) -> Option<&Cause> {
        let is_about = |cause: &&Cause| cause.is_about(&line.variant) && cause.explains(short);
        let about = self.all.iter().filter(is_about);
        about.max_by_key(|cause| {
            // An empty list means all quantities.
            let quantities = match cause.quantities.len() {
                0 => usize::MAX,
                some => some,
            };
            (cause.is_own, cause.words.len(), Reverse(quantities))
        })
    }
}

impl Cause {
    fn is_about(&self, variant: &str) -> bool {
        let of_variant = |word: &String| words(variant).any(|other| other == word);
        self.words.iter().all(of_variant)
    }

    /// Whether the cause covers all of these missed quantities.
    fn explains(&self, short: &[String]) -> bool {
        self.quantities.is_empty() || short.iter().all(|word| self.quantities.contains(word))
    }
}

/// Reads the table `causes`: lines and quantities, with the cause for each.
fn read_table(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    variants: &[String],
    is_own: bool,
) -> Vec<Cause> {
    let mut all = Vec::new();
    let Some(value) = section.value("causes") else {
        return all;
    };
    let Some(table) = value.get_ref().as_table() else {
        let reason = "causes: expected a table of \"up, bbr\" = \"...\"";
        document.problem(&value.span(), reason);
        return all;
    };
    for (key, value) in table {
        let is_quantity = |word: &&str| Quantity::WORDS.contains(word);
        let (quantities, lines): (Vec<&str>, Vec<&str>) =
            words(key.get_ref()).partition(is_quantity);
        let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
        let cause = text_of(document, value, "causes").map(|text| Cause {
            words: owned(lines),
            quantities: owned(quantities),
            is_own,
            text: text.value,
        });
        let says = |cause: &Cause| !cause.words.is_empty() || !cause.quantities.is_empty();
        let fits = |cause: &Cause| variants.iter().any(|variant| cause.is_about(variant));
        match cause {
            Some(cause) if !says(&cause) || !fits(&cause) => {
                let reason = format!(
                    "causes: no line matches '{}' (lines: {}; quantities: {})",
                    key.get_ref(),
                    variants.join("; "),
                    Quantity::WORDS.join(", ")
                );
                document.problem(&key.span(), reason);
            }
            cause => all.extend(cause),
        }
    }
    all
}

/// The words of a key such as `up, bbr`.
fn words(variant: &str) -> impl Iterator<Item = &str> {
    let words = variant.split(',').map(str::trim);
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::bar::Bar;
    use crate::bench::line::Judged;
    use crate::bench::matrix;

    const ROW: &str = "name = \"g\"\nbars = [\"sum >= 0.95\"]\ndirections = [\"down\", \"up\"]\n\
        congestion = [\"cubic\", \"bbr\"]\n[[row]]\nname = \"r\"\nduration = \"3s\"\n\
        cause = \"of all\"\n\
        [[row.link]]\nname = \"a\"\nrate = \"1mbit\"\n\
        [row.causes]\n\"up\" = \"of uploads\"\n\"up, bbr\" = \"of one\"\n";

    /// A line with these bars and their verdicts.
    fn line(variant: &str, bars: &[(&str, Verdict)]) -> Line {
        let judged = bars.iter().map(|(bar, verdict)| Judged {
            bar: Bar::parse(bar).unwrap(),
            size: None,
            spread: None,
            verdict: *verdict,
            reason: String::new(),
            others: Vec::new(),
            beside_others: None,
        });
        Line {
            row: "r".to_owned(),
            system: "sumlink:fbdt".to_owned(),
            variant: variant.to_owned(),
            judged: judged.collect(),
            alone: Vec::new(),
            goodput_bps: None,
            seeds: 1,
            programs: Vec::new(),
            busy: None,
            cause: None,
        }
    }

    fn short(variant: &str) -> Line {
        line(variant, &[("sum >= 0.95", Verdict::Short)])
    }

    #[test]
    fn the_most_specific_cause_applies() {
        let group = matrix::read(Path::new("m.toml"), ROW).unwrap();
        let causes = &group.rows[0].causes;
        for (variant, cause) in [
            ("down, cubic", "of all"),
            ("down, bbr", "of all"),
            ("up, cubic", "of uploads"),
            ("up, bbr", "of one"),
        ] {
            assert_eq!(causes.of(&short(variant)).as_deref(), Some(cause));
        }
        assert_eq!(Causes::default().of(&short("up, bbr")), None);
    }

    #[test]
    fn causes_of_a_group_apply_to_rows_without_causes_and_to_single_quantities() {
        let of_group = "[causes]\n\"bbr, reorder\" = \"of the group\"\n[[row]]";
        let text = ROW.replacen("[[row]]", of_group, 1);
        let text = text.replace("cause = \"of all\"\n", "");
        let group = matrix::read(Path::new("m.toml"), &text).unwrap();
        let causes = &group.rows[0].causes;
        let (passes, falls) = (Verdict::Pass, Verdict::Short);
        let of = |variant, sum, reorder| {
            let line = line(variant, &[("sum >= 0.95", sum), ("reorder <= 2", reorder)]);
            causes.of(&line)
        };
        assert_eq!(
            of("down, bbr", passes, falls).as_deref(),
            Some("of the group")
        );
        assert_eq!(
            of("down, bbr", falls, falls).as_deref(),
            Some("sum: the cause is not known yet; reorder: of the group")
        );
        assert_eq!(of("down, bbr", falls, passes), None);
        assert_eq!(of("down, cubic", passes, falls), None);
        assert_eq!(of("up, bbr", passes, falls).as_deref(), Some("of one"));
    }

    #[test]
    fn causes_for_fewer_quantities_take_precedence() {
        let of_group = "[causes]\n\"bbr\" = \"of all\"\n\"bbr, reorder\" = \"of one\"\n\
            \"bbr, reorder, sum\" = \"of two\"\n[[row]]";
        let text = ROW.replacen("[[row]]", of_group, 1);
        let text = text.replace("cause = \"of all\"\n", "");
        let group = matrix::read(Path::new("m.toml"), &text).unwrap();
        let (passes, falls) = (Verdict::Pass, Verdict::Short);
        let of = |sum, reorder| {
            let bars = [("sum >= 0.95", sum), ("reorder <= 2", reorder)];
            group.rows[0].causes.of(&line("down, bbr", &bars))
        };
        assert_eq!(of(passes, falls).as_deref(), Some("of one"));
        assert_eq!(of(falls, falls).as_deref(), Some("of two"));
        let limit = line("down, bbr", &[("within limit", falls)]);
        assert_eq!(group.rows[0].causes.of(&limit).as_deref(), Some("of all"));
    }

    #[test]
    fn a_cause_is_stale_when_all_of_its_lines_pass() {
        let group = matrix::read(Path::new("m.toml"), ROW).unwrap();
        let stale = |verdicts: [Verdict; 4]| {
            let names = ["down, cubic", "down, bbr", "up, cubic", "up, bbr"];
            let lines = names.into_iter().zip(verdicts);
            let lines: Vec<Line> = lines
                .map(|(name, verdict)| line(name, &[("sum >= 0.95", verdict)]))
                .collect();
            let stale = group.rows[0]
                .causes
                .stale(&lines.iter().collect::<Vec<_>>());
            stale.join("; ")
        };
        use Verdict::{NotRun, Pass, Short};
        assert_eq!(stale([Pass, Pass, Short, Pass]), "of all; of one");
        // A line that was not run cannot make a cause outdated.
        assert_eq!(stale([Pass, NotRun, Pass, Short]), "of uploads");
        assert_eq!(stale([NotRun; 4]), "");
    }

    #[test]
    fn a_cause_without_a_matching_line_is_an_error() {
        for (from, to) in [("\"up, bbr\"", "\"up, reno\""), ("\"up, bbr\"", "\"\"")] {
            let found = matrix::read(Path::new("m.toml"), &ROW.replace(from, to)).unwrap_err();
            let message = found[0].to_string();
            assert!(
                message.contains("m.toml:14: causes: no line matches"),
                "{message}"
            );
        }
    }

    #[test]
    fn every_quantity_has_a_word() {
        for bar in [
            "sum >= 1",
            "best >= 1",
            "left >= 1",
            "duplicates <= 2%",
            "reorder <= 2",
            "rival >= 0",
        ] {
            let word = Bar::parse(bar).unwrap().quantity.word();
            assert!(bar.starts_with(word) && Quantity::WORDS.contains(&word));
        }
    }
}
