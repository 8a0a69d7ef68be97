//! `[[link]]`: the initial properties of a link.

use std::collections::HashSet;
use std::ops::Range;

use sumlink_link::Jitter;
use toml::Spanned;
use toml::de::DeValue;

use crate::config::{
    LinkSpec, MAX_LINKS, Setting, Shape, check_name, parse_burst, parse_jitter, parse_loss,
    parse_policer, parse_queue,
};
use sumlink_settings::units::parse_duration;

use super::document::Document;
use super::each_way::each_way;
use super::profile::{self, ProfileUse};
use super::rate::{RATE_KEYS, read_rates};
use super::section::{Section, text_of};

/// A link as a scenario describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) spec: LinkSpec,
    /// Its behavior over time.
    pub(crate) profile: Option<ProfileUse>,
    /// Contents of the traces that it names, for the scenario's digest.
    pub(crate) traces: Vec<String>,
}

/// Reads all blocks `[[link]]`.
pub(super) fn read_all(
    document: &mut Document<'_>,
    root: &mut Section<'_, '_>,
    gso: bool,
    unshaped: bool,
) -> Vec<Link> {
    let blocks = root.blocks(document, "link");
    if blocks.is_empty() || blocks.len() > MAX_LINKS {
        document.problem(
            &root.span(),
            format!(
                "{} links: a laboratory has 1 to {MAX_LINKS}; each is a block [[link]] with name \
                 and rate",
                blocks.len()
            ),
        );
    }
    let mut names = HashSet::new();
    let mut links = Vec::new();
    for block in blocks {
        let span = block.span();
        if let Some(link) = read(document, block, gso, unshaped) {
            let name = &link.spec.name;
            if !names.insert(name.clone()) {
                document.problem(&span, format!("there are two links called '{name}'"));
            }
            links.push(link);
        }
    }
    links
}

/// Reads a block `[[link]]`.
fn read(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
    gso: bool,
    unshaped: bool,
) -> Option<Link> {
    let name = section.parsed(document, "name", |text| {
        check_name(text).map(|()| text.to_owned())
    });
    if !section.has("name") {
        section.missing(document, "name", "name = \"wifi\"");
    }
    let label = name.as_ref().map_or("", |name| &name.value).to_owned();
    let mut traces = Vec::new();
    let rates = read_rates(document, &mut section, &label, gso, &mut traces);
    let settings = read_settings(document, &mut section);
    let profile = profile::read(document, &mut section, &label, gso);
    let has_rate = RATE_KEYS.into_iter().any(|key| section.has(key));
    if unshaped {
        let has_other = section.has("profile") || SETTING_KEYS.iter().any(|key| section.has(key));
        if has_rate || has_other {
            let reason = "[[link]]: with unshaped = true a link is as fast as the machine, and has \
                          no key but name";
            document.problem(&section.span(), reason);
        }
    } else if section.has("burst") && (section.has("trace") || section.has("profile")) {
        let reason = "[[link]]: burst needs a constant rate";
        document.problem(&section.span(), reason);
    } else if has_rate == section.has("profile") {
        let reason = "[[link]]: set one of rate, down and up, trace, or profile";
        document.problem(&section.span(), reason);
    }
    section.finish(document);
    let rates = match (rates, &profile) {
        (Some(rates), _) => rates,
        // The profile sets the rate at once.
        (None, Some(_)) => [Setting::Rate(0), Setting::Rate(0)],
        // Not used.
        (None, None) if unshaped => [Setting::Rate(0), Setting::Rate(0)],
        (None, None) => return None,
    };
    let mut shapes = [Shape::of_rate(0), Shape::of_rate(0)];
    for (way, shape) in shapes.iter_mut().enumerate() {
        shape.jitter = Jitter::NONE;
        shape.set(&rates[way]);
        for setting in settings.iter().filter_map(|both| both[way].as_ref()) {
            shape.set(setting);
        }
    }
    Some(Link {
        spec: LinkSpec {
            name: name?.value,
            shapes,
        },
        profile,
        traces,
    })
}

/// The keys of [`read_settings`].
pub(crate) const SETTING_KEYS: [&str; 6] = ["burst", "policer", "delay", "jitter", "loss", "queue"];

/// Reads the settings other than the rate, which events may change as well: [`SETTING_KEYS`].
pub(crate) fn read_settings(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> [[Option<Setting>; 2]; 6] {
    [
        each_way(document, section, "burst", |document, value| {
            parse(document, value, |text| {
                parse_burst(text).map(Setting::Burst)
            })
        }),
        each_way(document, section, "policer", |document, value| {
            parse(document, value, |text| {
                parse_policer(text).map(Setting::Policer)
            })
        }),
        each_way(document, section, "delay", |document, value| {
            parse(document, value, |text| {
                parse_duration(text).map(Setting::Delay)
            })
        }),
        each_way(document, section, "jitter", |document, value| {
            parse(document, value, |text| {
                parse_jitter(text).map(Setting::Jitter)
            })
        }),
        each_way(document, section, "loss", |document, value| {
            parse(document, value, |text| parse_loss(text).map(Setting::Loss))
        }),
        each_way(document, section, "queue", |document, value| {
            parse(document, value, |text| {
                parse_queue(text).map(Setting::Queue)
            })
        }),
    ]
}

/// Parses a text value.
pub(crate) fn parse<T, E: std::fmt::Display>(
    document: &mut Document<'_>,
    value: &Spanned<DeValue<'_>>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = text_of(document, value, "the value")?;
    parse(&text.value)
        .map_err(|error| document.problem(&text.span, error))
        .ok()
}

/// Position in the file, for problems found by the emulator.
pub(crate) type Place = Range<usize>;
