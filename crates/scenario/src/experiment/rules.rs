//! `[80211ad]`, `[80211ay]`, `[80211-thesis]`, `[jpoc-thesis]` and `[jpoc]` of an experiment:
//! settings of its access schemes. Defaults are those of the named scheme.

use std::collections::BTreeMap;
use std::ops::Range;

use sumlink_mmwave::cell::{Access, Jpoc, SCHEMES};
use sumlink_mmwave::mac::slotted::Slotted;

use crate::scenario::{Document, Section};

/// Keys that an experiment of a kind sets itself.
const VARIED: [(&str, &str); 5] = [
    ("overhead", "slots"),
    ("overhead", "failure"),
    ("good-beams", "good_beams"),
    ("good-beams", "learning"),
    ("gamma", "gamma_db"),
];

/// Settings by scheme, for those with a section in the file of an experiment of that kind.
pub(super) fn read(
    document: &mut Document<'_>,
    root: &mut Section<'_, '_>,
    kind: &str,
) -> BTreeMap<&'static str, Access> {
    let mut rules = BTreeMap::new();
    for scheme in SCHEMES {
        let (Some(value), Some(access)) = (root.value(scheme), Access::named(scheme)) else {
            continue;
        };
        let title = format!("[{scheme}]");
        let Some(mut section) = Section::of(document, value, &title) else {
            continue;
        };
        for (of, key) in VARIED {
            if of == kind {
                varied(document, &mut section, kind, key);
            }
        }
        let access = match access {
            Access::Slotted(named) => {
                let most = limits(scheme);
                Access::Slotted(slotted(document, &mut section, named, most))
            }
            Access::Jpoc(named) => Access::Jpoc(jpoc(document, &mut section, named)),
        };
        section.finish(document);
        rules.insert(scheme, access);
    }
    rules
}

/// Limits for the slots of an A-BFT and the frames of a slot: the range of the standards' fields
/// (802.11-2016, 9.4.1.39: three and four bits), times the multiplier of 802.11ay; the thesis'
/// baseline follows no standard.
fn limits(scheme: &str) -> (Range<u64>, Range<u64>) {
    match scheme {
        "80211ad" => (1..9, 1..17),
        "80211ay" => (1..33, 1..17),
        _ => (1..4097, 1..257),
    }
}

fn slotted(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    mut rules: Slotted,
    (slots, frames): (Range<u64>, Range<u64>),
) -> Slotted {
    for (key, range, to) in [
        ("slots", slots, &mut rules.slots),
        ("frames_per_slot", frames, &mut rules.frames_per_slot),
        ("channels", 1..9, &mut rules.channels),
        ("retry_limit", 0..256, &mut rules.retry_limit),
        ("backoff", 1..256, &mut rules.backoff),
    ] {
        if let Some(at) = section.integer(document, key, range) {
            *to = at.value as u32;
        }
    }
    rules
}

fn jpoc(document: &mut Document<'_>, section: &mut Section<'_, '_>, mut rules: Jpoc) -> Jpoc {
    if let Some(at) = section.number(document, "gamma_db") {
        rules.gamma_db = Some(at.value);
    }
    let target = &mut rules.target;
    for (key, to) in [
        ("margin_db", &mut rules.margin_db),
        ("ramp_db", &mut rules.ramp_db),
        ("learning", &mut target.learning),
        ("good_beams", &mut target.good_beams),
        ("failure", &mut target.failure),
    ] {
        if let Some(at) = section.number(document, key) {
            *to = at.value;
        }
    }
    for (key, to) in [
        ("initial", &mut target.initial),
        ("minimum", &mut target.minimum),
        ("maximum", &mut target.maximum),
    ] {
        if let Some(at) = section.integer(document, key, 1..1025) {
            *to = at.value as u32;
        }
    }
    rules
}

/// Reports a key that an experiment of this kind sets itself.
fn varied(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    kind: &str,
    key: &'static str,
) {
    if let Some(value) = section.value(key) {
        let reason =
            format!("`{key}` cannot be set in an experiment of kind \"{kind}\": remove it");
        document.problem(&value.span(), reason);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::experiment::File;

    fn parse(
        kind: &str,
        text: &str,
    ) -> Result<BTreeMap<&'static str, Access>, Vec<(usize, String)>> {
        let varied = match kind {
            "good-beams" => "good_beams = [2]",
            "gamma" => "gamma_db = [2]",
            _ => "stations = [2]",
        };
        let text = format!("name = \"e\"\nkind = \"{kind}\"\n{varied}\n{text}");
        match File::parse(Path::new("e.toml"), &text) {
            Ok(File::Cells(read)) => Ok(read.rules),
            Ok(File::Bond(_)) => panic!("no cells"),
            Err(problems) => Err(problems.into_iter().map(|p| (p.line, p.reason)).collect()),
        }
    }

    #[test]
    fn missing_settings_are_those_of_the_named_scheme() {
        let text = "[80211ad]\nframes_per_slot = 8\nretry_limit = 2\n[jpoc]\ngamma_db = 10\n\
                    good_beams = 6\nlearning = 0\nramp_db = 1\n";
        let rules = parse("stations", text).unwrap();
        let expected = Slotted {
            frames_per_slot: 8,
            retry_limit: 2,
            ..Slotted::AD
        };
        assert_eq!(rules["80211ad"], Access::Slotted(expected));
        let Access::Jpoc(jpoc) = rules["jpoc"] else {
            panic!("{rules:?}");
        };
        assert_eq!((jpoc.gamma_db, jpoc.target.good_beams), (Some(10.0), 6.0));
        assert_eq!((jpoc.target.learning, jpoc.ramp_db), (0.0, 1.0));
        assert_eq!(jpoc.target.failure, Jpoc::THESIS.target.failure);
        assert_eq!(rules.len(), 2);
        assert!(parse("stations", "").unwrap().is_empty());
    }

    #[test]
    fn values_outside_the_standards_are_refused_with_their_line() {
        for (kind, text, line, hint) in [
            (
                "stations",
                "[80211ad]\nframes_per_slot = 36\n",
                5,
                "from 1 to 16",
            ),
            ("stations", "[80211ad]\nslots = 9\n", 5, "from 1 to 8"),
            ("stations", "[80211ay]\nslots = 0\n", 5, "from 1 to 32"),
            ("stations", "[jpoc]\nslots = 8\n", 5, "no key 'slots'"),
            (
                "overhead",
                "[80211ad]\nslots = 4\n",
                5,
                "of kind \"overhead\"",
            ),
            (
                "overhead",
                "[jpoc]\nfailure = 0.2\n",
                5,
                "of kind \"overhead\"",
            ),
            (
                "good-beams",
                "[jpoc]\nlearning = 0.1\n",
                5,
                "of kind \"good-beams\"",
            ),
            ("gamma", "[jpoc]\ngamma_db = 4\n", 5, "of kind \"gamma\""),
        ] {
            let problems = parse(kind, text).unwrap_err();
            let is_it = |(at, reason): &(usize, String)| *at == line && reason.contains(hint);
            assert!(problems.iter().any(is_it), "{text}: {problems:?}");
        }
    }
}
