//! `[[group]]`, `[[radio]]` and `[[interferer]]`: links that share the air or a radio.

use std::time::Duration;

use sumlink_link::{Air, Interferer, Radio, Schedule};

use crate::config::Direction;
use sumlink_settings::units::{parse_duration, parse_percentage, parse_rate, parse_size};

use super::Traffic;
use super::document::Document;
use super::link::Place;
use super::names::Names;
use super::section::{Section, keep, number_of};

/// Links that hear each other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) links: Vec<String>,
    pub(crate) directions: &'static [Direction],
    pub(crate) air: Air,
    pub(crate) span: Place,
}

/// Links that are hotspots behind one card.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SharedRadio {
    pub(crate) links: Vec<String>,
    pub(crate) radio: Radio,
    pub(crate) span: Place,
}

/// An interferer on the channel of links.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SharedInterferer {
    pub(crate) links: Vec<String>,
    pub(crate) directions: &'static [Direction],
    pub(crate) interferer: Interferer,
    /// When it is present; without an end, until the end of the run.
    pub(crate) from: Duration,
    pub(crate) until: Option<Duration>,
    pub(crate) span: Place,
}

/// The affected directions of the links: those of the traffic by default.
fn directions(
    document: &mut Document<'_>,
    section: &mut Section<'_, '_>,
    traffic: Traffic,
) -> &'static [Direction] {
    let named = section.parsed(document, "direction", Traffic::parse);
    named.map_or(traffic, |at| at.value).directions()
}

/// Reads a block `[[group]]`.
pub(crate) fn read_group(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
    names: &Names,
    traffic: Traffic,
) -> Option<Group> {
    let links = names.find_all(document, &mut section, 2);
    let directions = directions(document, &mut section, traffic);
    let theta = section.number(document, "theta");
    let transmission = section.parsed(document, "transmission", parse_duration);
    let deferral = section.value("deferral");
    let span = section.span();
    section.finish(document);
    let links = links?;
    let count = links.len();
    let rows = match deferral {
        // All links defer to each other: carrier sense without exception.
        None => vec![vec![1.0; count]; count],
        Some(value) => {
            let rows: Option<Vec<Vec<f64>>> = match number_of(value) {
                Some(same) => Some(vec![vec![same; count]; count]),
                None => value.get_ref().as_array().and_then(|rows| {
                    let row = |row: &toml::Spanned<toml::de::DeValue<'_>>| {
                        row.get_ref().as_array()?.iter().map(number_of).collect()
                    };
                    rows.iter().map(row).collect()
                }),
            };
            let square =
                rows.filter(|rows| rows.len() == count && rows.iter().all(|r| r.len() == count));
            if square.is_none() {
                let reason = format!(
                    "deferral must be one number, or {count} rows of {count} numbers in the order \
                     of links"
                );
                document.problem(&value.span(), reason);
            }
            square?
        }
    };
    let air = Air::new(
        vec![theta.map_or(Air::THETA, |at| at.value); count],
        rows,
        transmission.map_or(Air::TRANSMISSION, |at| at.value),
    );
    Some(Group {
        links,
        directions,
        air: keep(document, &span, "[[group]]", air)?,
        span,
    })
}

/// Reads a block `[[radio]]`.
pub(crate) fn read_radio(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
    names: &Names,
) -> Option<SharedRadio> {
    let links = names.find_all(document, &mut section, 2);
    let rate = section.parsed(document, "rate", parse_rate);
    let switching = section.parsed(document, "switching", parse_duration);
    let card_queue = section.parsed(document, "card_queue", parse_size);
    let hotspot_buffer = section.parsed(document, "hotspot_buffer", parse_size);
    for (key, example) in [
        ("rate", "rate = \"100mbit\" (of the Wi-Fi to the hotspots)"),
        ("switching", "switching = \"5ms\""),
    ] {
        if !section.has(key) {
            section.missing(document, key, example);
        }
    }
    let turns = section.texts(document, "turns");
    let turn = section.parsed(document, "turn", parse_duration);
    let listen = section.parsed(document, "listen", parse_duration);
    let round = section.parsed(document, "round", parse_duration);
    let schedules = ["turns", "turn", "round"].map(|key| section.has(key));
    if schedules.iter().filter(|given| **given).count() != 1 {
        section.missing(
            document,
            "schedule",
            "one of turns = [\"50ms\", …], one for each link, turn = \"50ms\" for stays on demand, \
             and round = \"100ms\" for turns by throughput",
        );
    }
    let span = section.span();
    section.finish(document);
    let schedule = match (turns, round) {
        (_, Some(round)) => Schedule::Weighted { round: round.value },
        (Some(turns), None) => {
            let mut parsed = Vec::new();
            for at in turns {
                let turn = parse_duration(&at.value);
                parsed.push(keep(document, &at.span, "turns", turn)?);
            }
            Schedule::Fixed(parsed)
        }
        (None, None) => Schedule::OnDemand {
            turn: turn?.value,
            listen: listen.map_or(Duration::from_millis(100), |at| at.value),
        },
    };
    Some(SharedRadio {
        links: links?,
        radio: Radio {
            rate: rate?.value,
            switching: switching?.value,
            card_queue: card_queue.map_or(BUFFER, |at| at.value),
            hotspot_buffer: hotspot_buffer.map_or(BUFFER, |at| at.value),
            schedule,
        },
        span,
    })
}

/// Default buffer of card and hotspots, in bytes.
const BUFFER: u64 = 256 << 10;

/// Reads a block `[[interferer]]`.
pub(crate) fn read_interferer(
    document: &mut Document<'_>,
    mut section: Section<'_, '_>,
    names: &Names,
    traffic: Traffic,
) -> Option<SharedInterferer> {
    let links = names.find_all(document, &mut section, 1);
    let directions = directions(document, &mut section, traffic);
    let occupancy = section.parsed(document, "occupancy", parse_percentage);
    let burst = section.parsed(document, "burst", parse_duration);
    let deferral = section.parsed(document, "deferral", parse_percentage);
    let frame_error = section.parsed(document, "frame_error", parse_percentage);
    let retries = section.integer(document, "retries", 0..256);
    let from = section.parsed(document, "from", parse_duration);
    let until = section.parsed(document, "until", parse_duration);
    if !section.has("occupancy") {
        section.missing(document, "occupancy", "occupancy = \"30%\"");
    }
    let span = section.span();
    section.finish(document);
    let none = Interferer::NONE;
    Some(SharedInterferer {
        links: links?,
        directions,
        interferer: Interferer {
            occupancy: occupancy?.value,
            burst: burst.map_or(none.burst, |at| at.value),
            deferral: deferral.map_or(none.deferral, |at| at.value),
            frame_error: frame_error.map_or(none.frame_error, |at| at.value),
            retry_limit: retries
                .and_then(|at| u32::try_from(at.value).ok())
                .unwrap_or(none.retry_limit),
        },
        from: from.map_or(Duration::ZERO, |at| at.value),
        until: until.map(|at| at.value),
        span,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Scenario;
    use super::*;

    fn radio(schedule: &str) -> Result<Radio, String> {
        let text = format!(
            "name = \"a\"\nduration = \"5s\"\n\
             [[link]]\nname = \"one\"\nrate = \"1mbit\"\n[[link]]\nname = \"two\"\nrate = \"1mbit\"\n\
             [[radio]]\nlinks = [\"one\", \"two\"]\nrate = \"20mbit\"\nswitching = \"5ms\"\n{schedule}\n"
        );
        let read = Scenario::parse(Path::new("s.toml"), &text);
        let scenario = read.map_err(|problems| problems[0].to_string())?;
        Ok(scenario.radios[0].radio.clone())
    }

    #[test]
    fn a_radio_has_exactly_one_schedule() {
        let round = Duration::from_millis(40);
        assert_eq!(
            radio("round = \"40ms\"").unwrap().schedule,
            Schedule::Weighted { round }
        );
        assert!(radio("turn = \"20ms\"").is_ok());
        assert!(radio("turns = [\"20ms\", \"20ms\"]").is_ok());
        for schedule in ["", "turn = \"20ms\"\nround = \"40ms\""] {
            let error = radio(schedule).unwrap_err();
            assert!(error.contains("schedule"), "{error}");
        }
        // Switching to both takes the whole round.
        let error = radio("round = \"10ms\"").unwrap_err();
        assert!(
            error.contains("longer than the switching to all hotspots"),
            "{error}"
        );
    }
}
