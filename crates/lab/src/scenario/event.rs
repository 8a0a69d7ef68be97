//! `[[event]]`: what happens to links, and when.

use crate::config::{
    Direction, InterfaceState, LinkChange, PlannedChange, Setting, parse_jitter, parse_loss,
    parse_queue, parse_state,
};
use crate::units::parse_duration;

use super::link::{Names, Place, each_way, parse, rate_setting};
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
    let both = [
        each_way(document, &mut section, "rate", |document, value| {
            parse(document, value, |text| rate_setting(&label, text, gso))
        }),
        each_way(document, &mut section, "delay", |document, value| {
            parse(document, value, |text| {
                parse_duration(text).map(Setting::Delay)
            })
        }),
        each_way(document, &mut section, "jitter", |document, value| {
            parse(document, value, |text| {
                parse_jitter(text).map(Setting::Jitter)
            })
        }),
        each_way(document, &mut section, "loss", |document, value| {
            parse(document, value, |text| parse_loss(text).map(Setting::Loss))
        }),
        each_way(document, &mut section, "queue", |document, value| {
            parse(document, value, |text| {
                parse_queue(text).map(Setting::Queue)
            })
        }),
    ];
    let mut changes: Vec<LinkChange> = both.into_iter().flat_map(collect).collect();
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
