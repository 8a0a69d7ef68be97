//! `[[event]]`: what happens to links, and when.

use crate::config::{Direction, InterfaceState, LinkChange, PlannedChange, Setting, parse_state};
use crate::units::parse_duration;

use super::link::{Names, Place, each_way, parse, rate_setting, read_settings};
use super::table::{Document, Section};

/// The changes of one event and where it stands.
pub(crate) struct Event {
    pub(crate) changes: Vec<PlannedChange>,
    pub(crate) span: Place,
}

/// Reads a block `[[event]]`.
pub(crate) fn read(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
    names: &Names,
    gso: bool,
) -> Option<Event> {
    let at = section.parsed(document, "at", parse_duration);
    let link = section.text(document, "link");
    for (key, example) in [("at", "at = \"3s\""), ("link", "link = \"NAME\"")] {
        if !section.has(key) {
            section.missing(document, key, example);
        }
    }
    let link = link.and_then(|name| names.find(document, &name));
    let label = link.clone().unwrap_or_default();
    let rate = each_way(document, &mut section, "rate", |document, value| {
        parse(document, value, |text| rate_setting(&label, text, gso))
    });
    let settings = read_settings(document, &mut section);
    let all = std::iter::once(rate).chain(settings);
    let mut changes: Vec<LinkChange> = all.flat_map(collect).collect();
    let state = section.parsed(document, "state", |text| match parse_state(&label, text) {
        Ok(InterfaceState::Removed) => {
            Err("an event cannot remove interfaces: use down or blackhole".to_owned())
        }
        other => other.map_err(|error| error.to_string()),
    });
    changes.extend(state.map(|at| LinkChange::state(at.value)));
    let keys = ["rate", "delay", "jitter", "loss", "queue", "state"];
    if !keys.into_iter().any(|key| section.has(key)) {
        section.missing(
            document,
            "change",
            "rate, delay, jitter, loss, queue or state",
        );
    }
    let span = section.span();
    section.finish(document);
    let (at, link) = (at?.value, link?);
    let changes = changes.into_iter().map(|change| PlannedChange {
        at,
        link: link.clone(),
        change,
    });
    Some(Event {
        changes: changes.collect(),
        span,
    })
}

/// One change where both directions get the same, else one for each.
fn collect(settings: [Option<Setting>; 2]) -> Vec<LinkChange> {
    let of = |direction: Option<Direction>, setting| LinkChange { direction, setting };
    match settings {
        [Some(up), Some(down)] if up == down => vec![of(None, up)],
        [up, down] => [(Direction::Up, up), (Direction::Down, down)]
            .into_iter()
            .filter_map(|(direction, setting)| Some(of(Some(direction), setting?)))
            .collect(),
    }
}
