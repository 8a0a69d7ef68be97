//! Why lines fall short, where that is known: `cause` of a row, `causes` of some of its lines.

use crate::scenario::{Document, Section, text_of};

use super::judge::Verdict;

/// What a row says of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Causes {
    all: Vec<Cause>,
}

#[derive(Clone, Debug)]
struct Cause {
    /// The lines that it is about: those with this direction, this congestion control, or both; without words, all.
    words: Vec<String>,
    text: String,
}

impl Causes {
    /// Reads the two keys; `variants` are the row's, such as `up, bbr`.
    pub(super) fn read(
        document: &mut Document<'_>,
        block: &mut Section<'_, '_>,
        variants: &[String],
    ) -> Self {
        let of_row = block.text(document, "cause").map(|at| Cause {
            words: Vec::new(),
            text: at.value,
        });
        let mut all: Vec<Cause> = of_row.into_iter().collect();
        let Some(value) = block.value("causes") else {
            return Self { all };
        };
        let Some(table) = value.get_ref().as_table() else {
            let reason = "causes: write [row.causes] and below it \"up, bbr\" = \"...\"";
            document.problem(&value.span(), reason);
            return Self { all };
        };
        for (key, value) in table {
            let cause = text_of(document, value, "causes").map(|text| Cause {
                words: words(key.get_ref()).map(str::to_owned).collect(),
                text: text.value,
            });
            let fits = |cause: &Cause| variants.iter().any(|variant| cause.is_about(variant));
            match cause {
                Some(cause) if cause.words.is_empty() || !fits(&cause) => {
                    let reason = format!(
                        "causes: the row has no line '{}' (lines: {})",
                        key.get_ref(),
                        variants.join("; ")
                    );
                    document.problem(&key.span(), reason);
                }
                cause => all.extend(cause),
            }
        }
        Self { all }
    }

    /// Why a line falls short: what says most about which lines it means counts.
    pub(super) fn of(&self, variant: &str) -> Option<&str> {
        self.closest(variant).map(|cause| cause.text.as_str())
    }

    /// The causes that explain nothing any more: every line that they are given for passes.
    pub(super) fn stale<'a>(&'a self, lines: &[(&str, Verdict)]) -> Vec<&'a str> {
        let is_stale = |cause: &&Cause| {
            let given_for = |variant: &str| {
                let closest = self.closest(variant);
                closest.is_some_and(|closest| std::ptr::eq(closest, *cause))
            };
            let mut of_lines = lines.iter().filter(|line| given_for(line.0)).peekable();
            of_lines.peek().is_some() && of_lines.all(|line| line.1 == Verdict::Pass)
        };
        let stale = self.all.iter().filter(is_stale);
        stale.map(|cause| cause.text.as_str()).collect()
    }

    fn closest(&self, variant: &str) -> Option<&Cause> {
        let about = self.all.iter().filter(|cause| cause.is_about(variant));
        about.max_by_key(|cause| cause.words.len())
    }
}

impl Cause {
    fn is_about(&self, variant: &str) -> bool {
        let of_variant = |word: &String| words(variant).any(|other| other == word);
        self.words.iter().all(of_variant)
    }
}

/// Of `up, bbr`.
fn words(variant: &str) -> impl Iterator<Item = &str> {
    let words = variant.split(',').map(str::trim);
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::matrix;

    const ROW: &str = "name = \"g\"\nbars = [\"sum >= 0.95\"]\ndirections = [\"down\", \"up\"]\n\
        congestion = [\"cubic\", \"bbr\"]\n[[row]]\nname = \"r\"\nduration = \"3s\"\ncause = \"of all\"\n\
        [[row.link]]\nname = \"a\"\nrate = \"1mbit\"\n\
        [row.causes]\n\"up\" = \"of uploads\"\n\"up, bbr\" = \"of one\"\n";

    #[test]
    fn the_closest_cause_counts() {
        let group = matrix::read(Path::new("m.toml"), ROW).unwrap();
        let causes = &group.rows[0].causes;
        let of = ["down, cubic", "down, bbr", "up, cubic", "up, bbr"].map(|v| causes.of(v));
        let expected = ["of all", "of all", "of uploads", "of one"].map(Some);
        assert_eq!(of, expected);
        assert_eq!(Causes::default().of("up, bbr"), None);
    }

    #[test]
    fn a_cause_is_stale_when_all_of_its_lines_pass() {
        let group = matrix::read(Path::new("m.toml"), ROW).unwrap();
        let stale = |verdicts: [Verdict; 4]| {
            let names = ["down, cubic", "down, bbr", "up, cubic", "up, bbr"];
            let lines: Vec<_> = names.into_iter().zip(verdicts).collect();
            group.rows[0].causes.stale(&lines)
        };
        use Verdict::{NotRun, Pass, Short};
        assert_eq!(stale([Pass, Pass, Short, Pass]), ["of all", "of one"]);
        // Nobody knows about a line that was not run.
        assert_eq!(stale([Pass, NotRun, Pass, Short]), ["of uploads"]);
        assert!(stale([NotRun; 4]).is_empty());
    }

    #[test]
    fn a_cause_of_no_line_is_a_mistake() {
        for (from, to) in [("\"up, bbr\"", "\"up, reno\""), ("\"up, bbr\"", "\"\"")] {
            let found = matrix::read(Path::new("m.toml"), &ROW.replace(from, to)).unwrap_err();
            let told = found[0].to_string();
            assert!(
                told.contains("m.toml:14: causes: the row has no line"),
                "{told}"
            );
        }
    }
}
