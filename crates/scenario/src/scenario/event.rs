//! `[[event]]`: scheduled changes of links.

use std::time::Duration;

use crate::config::{
    Direction, Fate, InterfaceState, LinkChange, PlannedChange, Setting, parse_address, parse_state,
};
use sumlink_settings::units::parse_duration;

use super::document::Document;
use super::each_way::each_way;
use super::link::{Link, Place, SETTING_KEYS, parse, read_settings};
use super::names::Names;
use super::rate::rate_setting;
use super::section::Section;

/// The changes of one event and its position in the file.
struct Event {
    changes: Vec<PlannedChange>,
    span: Place,
}

/// Reads all blocks `[[event]]`; changes that are not possible or would be undone are problems.
pub(super) fn read_all(
    document: &mut Document<'_>,
    root: &mut Section<'_, '_>,
    known: &Names,
    links: &[Link],
    duration: Option<Duration>,
    gso: bool,
) -> Vec<PlannedChange> {
    let mut events = Vec::new();
    for block in root.blocks(document, "event") {
        let Some(event) = read(document, block, known, gso) else {
            continue;
        };
        let too_late =
            |change: &PlannedChange| duration.is_some_and(|duration| change.at >= duration);
        if event.changes.iter().any(too_late) {
            document.problem(
                &event.span,
                "at: the run is over by then, so the event would have no effect",
            );
        }
        let has_profile = |name: &str| {
            let link = links.iter().find(|link| link.spec.name == name);
            link.is_some_and(|link| link.profile.is_some())
        };
        let sets_rate = |planned: &PlannedChange| {
            let setting = &planned.change.setting;
            matches!(setting, Setting::Rate(_)) && has_profile(&planned.link)
        };
        if event.changes.iter().any(sets_rate) {
            let reason = "rate: the link's profile sets its rate and would override this";
            document.problem(&event.span, reason);
        }
        events.extend(event.changes);
    }
    events
}

/// Reads a block `[[event]]`.
fn read(
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
    let address = section.parsed(document, "address", parse_address);
    let fate = section.parsed(document, "connections", |text| {
        Fate::parse(text).map(Setting::Connections)
    });
    let whole = address.into_iter().chain(fate);
    changes.extend(whole.map(|at| LinkChange {
        direction: None,
        setting: at.value,
    }));
    let others = ["rate", "state", "address", "connections"];
    if !SETTING_KEYS
        .into_iter()
        .chain(others)
        .any(|key| section.has(key))
    {
        section.missing(
            document,
            "change",
            "rate, burst, policer, delay, jitter, loss, queue, state, address or connections",
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

/// One change if both directions get the same setting, otherwise one for each.
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
