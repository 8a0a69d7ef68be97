//! `profile = "mmwave"`: a link into a cell of 60 GHz Wi-Fi.

use std::ops::Range;

use sumlink_mmwave::cell::{Access, Blockage, SCHEMES};
use sumlink_mmwave::mobility::Walk;
use sumlink_mmwave::wigig::{MAX_PERIODS, WigigLink};

use super::document::Document;
use super::section::{Section, keep};
use sumlink_settings::units::parse_percentage;

/// Name of the profile implemented by `sumlink-mmwave`.
pub(super) const NAME: &str = "mmwave";
/// The keys specific to this profile.
pub(super) const KEYS: [&str; 10] = [
    "access", "stations", "chatty", "distance", "blockage", "blockers", "speed", "pause",
    "turning", "periods",
];

/// Reads `access`, `stations`, and the other keys of the cell.
pub(super) fn read(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
) -> Option<WigigLink> {
    let named = |name: &str| {
        let known = SCHEMES.join(", ");
        Access::named(name).ok_or_else(|| format!("'{name}' is none of {known}"))
    };
    let access = section.parsed(document, "access", named);
    let stations = section.integer(document, "stations", 0..STATIONS_END);
    for (key, example) in [
        ("access", "access = \"jpoc\""),
        ("stations", "stations = 8, those that compete with this one"),
    ] {
        if !section.has(key) {
            section.missing(document, key, example);
        }
    }
    let chatty = section.integer(document, "chatty", 0..STATIONS_END);
    let distance = section.number(document, "distance");
    let blockage = section.parsed(document, "blockage", parse_percentage);
    let blockers = section.number(document, "blockers");
    let speed = section.number(document, "speed");
    let pause = section.number(document, "pause");
    let turning = section.number(document, "turning");
    let periods = section.integer(document, "periods", 1..u64::from(MAX_PERIODS) + 1);
    if let (Some(_), Some(blockers)) = (&blockage, &blockers) {
        let reason = "blockage and blockers contradict each other: remove one";
        document.problem(&blockers.span, reason);
    }
    let (access, stations) = (access?.value, stations?);
    let mut link = WigigLink::new(access, stations.value as usize);
    // One at a time, so that each problem has its own line.
    let mut right = true;
    let mut check =
        |document: &mut Document<'_>, span: &Range<usize>, key: &str, link: &WigigLink| {
            right &= keep(document, span, key, link.check()).is_some();
        };
    check(document, &stations.span, "stations", &link);
    if let Some(at) = chatty {
        link.chatty = at.value as usize;
        check(document, &at.span, "chatty", &link);
    }
    if let Some(at) = distance {
        link.distance = Some(at.value);
        check(document, &at.span, "distance", &link);
    }
    if let Some(at) = blockage {
        link.blockage = Blockage::Probability(at.value);
        check(document, &at.span, "blockage", &link);
    } else if let Some(at) = blockers {
        link.blockage = Blockage::ModelA { meters: at.value };
        check(document, &at.span, "blockers", &link);
    }
    let mut walk = Walk::PEDESTRIAN;
    if let Some(at) = pause {
        walk.pause = at.value;
        if speed.is_none() {
            section.missing(document, "speed", "speed = 1.4, which pause needs");
        }
        right &= keep(document, &at.span, "pause", walk.checked()).is_some();
    }
    if let Some(at) = speed {
        walk.speed = at.value;
        right &= keep(document, &at.span, "speed", walk.checked()).is_some();
        link.walk = Some(walk);
    }
    if let Some(at) = turning {
        walk.turning = at.value;
        walk.speed = link.walk.map_or(0.0, |walk| walk.speed);
        right &= keep(document, &at.span, "turning", walk.checked()).is_some();
        link.walk = Some(walk);
    }
    if let Some(at) = periods {
        link.periods = at.value as u32;
    }
    right.then_some(link)
}

/// One more than the maximum number of stations of a kind.
const STATIONS_END: u64 = 1024;
