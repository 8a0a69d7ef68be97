//! `[[spell]]`: times in which the bulk transfer that is bound to a link runs.

use std::time::Duration;

use sumlink_settings::units::parse_duration;

use super::document::Document;
use super::names::Names;
use super::section::Section;

/// A time in which a program bound to a link (`alone`, `simultaneous`) sends; outside of a link's
/// spells it does not. Links without spells send always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spell {
    /// Name of the link.
    pub link: String,
    /// Begin and end since the start of the run.
    pub from: Duration,
    /// See `from`.
    pub until: Duration,
}

/// Reads one block.
pub(super) fn read(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
    names: &Names,
) -> Option<Spell> {
    for (key, example) in [
        ("link", "link = \"NAME\""),
        ("from", "from = \"30s\""),
        ("until", "until = \"65s\""),
    ] {
        if !section.has(key) {
            section.missing(document, key, example);
        }
    }
    let link = section.text(document, "link");
    let link = link.and_then(|name| names.find(document, &name));
    let from = section.parsed(document, "from", parse_duration);
    let until = section.parsed(document, "until", parse_duration);
    if let (Some(from), Some(until)) = (&from, &until)
        && from.value >= until.value
    {
        document.problem(&until.span, "until: a spell must end after it begins");
    }
    section.finish(document);
    Some(Spell {
        link: link?,
        from: from?.value,
        until: until?.value,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::scenario::Scenario;

    fn message(block: &str) -> String {
        let text = format!(
            "name = \"a\"\nduration = \"10s\"\n[[link]]\nname = \"wifi\"\nrate = \"6mbit\"\n[[spell]]\n{block}"
        );
        let found = Scenario::parse(Path::new("s.toml"), &text);
        found.map_or_else(
            |problems| problems.iter().map(ToString::to_string).collect(),
            |found| format!("{:?}", found.spells),
        )
    }

    #[test]
    fn a_spell_names_a_link_and_ends_after_it_begins() {
        let good = message("link = \"wifi\"\nfrom = \"2s\"\nuntil = \"4s\"\n");
        assert_eq!(good, "[Spell { link: \"wifi\", from: 2s, until: 4s }]");
        let early = message("link = \"wifi\"\nfrom = \"4s\"\nuntil = \"4s\"\n");
        assert!(
            early.contains("a spell must end after it begins"),
            "{early}"
        );
        let unknown = message("link = \"lte\"\nfrom = \"2s\"\nuntil = \"4s\"\n");
        assert!(unknown.contains("there is no link 'lte'"), "{unknown}");
        let open = message("link = \"wifi\"\nfrom = \"2s\"\n");
        assert!(open.contains("until"), "{open}");
    }
}
