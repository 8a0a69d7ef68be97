//! A single link as a scenario: its results do not depend on the rest of the row, so all rows with
//! the same link share its runs.

use std::path::Path;

use toml::{Table, Value};

use crate::config::LinkSpec;
use crate::results::ALONE;
use crate::scenario::{Problem, Scenario, Workload};
use sumlink_settings::units::{format_duration, format_rate};

/// A link of a row and the scenario that contains only this link.
#[derive(Clone, Debug)]
pub(crate) struct SingleLink {
    /// Name in the row; in the scenario it is [`LINK`].
    pub(crate) name: String,
    pub(crate) scenario: Scenario,
}

/// Name of the link in its own scenario, regardless of its name in the rows.
const LINK: &str = "link";

/// Keys of a scenario that do not affect a run.
const NEUTRAL_KEYS: [&str; 5] = ["name", "about", "clean", "seeds", "systems"];

/// Digest of everything that a run of the scenario depends on; its name and description do not
/// count.
pub(super) fn content(table: &Table, scenario: &Scenario) -> Result<String, toml::ser::Error> {
    let mut table = table.clone();
    table.retain(|key, _| !NEUTRAL_KEYS.contains(&key));
    Ok(scenario.sha256_with(&toml::to_string(&table)?))
}

/// A scenario for each link of `scenario` alone. Empty where the links cannot be separated: links
/// that share the air, and custom programs that may read the link's name.
///
/// `table` is the text that the scenario was parsed from; relative paths in it start at `file`.
pub(super) fn single_links(
    table: &Table,
    file: &Path,
    scenario: &Scenario,
) -> Result<Vec<SingleLink>, Vec<Problem>> {
    let is_command = matches!(
        scenario.workload,
        Workload::Command { .. } | Workload::Video(_)
    );
    if is_command || scenario.has_coupled_links() {
        return Ok(Vec::new());
    }
    let links = (0..).zip(scenario.links());
    let single = links.map(|(place, link)| single_link(table, file, scenario, place, link));
    single.collect()
}

fn single_link(
    table: &Table,
    file: &Path,
    scenario: &Scenario,
    place: i64,
    link: &LinkSpec,
) -> Result<SingleLink, Vec<Problem>> {
    let mut table = table.clone();
    table.retain(|key, _| !NEUTRAL_KEYS.contains(&key));
    let text = |text: &str| Value::String(text.to_owned());
    keep_blocks(&mut table, "link", "name", &link.name);
    keep_blocks(&mut table, "event", "link", &link.name);
    let profiled = blocks(&mut table, "link").filter(|block| block.contains_key("profile"));
    for own in profiled {
        // The link keeps the random sequence of its place in the row.
        own.entry("place").or_insert(Value::Integer(place));
    }
    if scenario.rival.as_ref() == Some(&link.name) {
        table.insert("rival".to_owned(), text(LINK));
    } else {
        table.remove("rival");
    }
    let alone = Value::Array(vec![text(ALONE)]);
    table.insert("systems".to_owned(), alone);
    let read = |table: &Table| {
        let text = toml::to_string(table).map_err(|error| {
            vec![Problem {
                file: file.to_path_buf(),
                line: 1,
                reason: error.to_string(),
            }]
        })?;
        Scenario::parse(file, &text)
    };
    table.insert("name".to_owned(), text(ALONE));
    let digest = read(&table)?.sha256;
    table.insert("name".to_owned(), text(&name(scenario, link, &digest)));
    Ok(SingleLink {
        name: link.name.clone(),
        scenario: read(&table)?,
    })
}

/// Blocks of that kind.
fn blocks<'a>(table: &'a mut Table, kind: &str) -> impl Iterator<Item = &'a mut Table> + use<'a> {
    let blocks = table.get_mut(kind).and_then(Value::as_array_mut);
    blocks.into_iter().flatten().filter_map(Value::as_table_mut)
}

/// Keeps the blocks of one link and gives them its new name.
fn keep_blocks(table: &mut Table, kind: &str, key: &str, link: &str) {
    if let Some(all) = table.get_mut(kind).and_then(Value::as_array_mut) {
        all.retain(|block| block.get(key).and_then(Value::as_str) == Some(link));
    }
    for block in blocks(table, kind) {
        block.insert(key.to_owned(), Value::String(LINK.to_owned()));
    }
}

/// A readable name that ends in the digest: `alone-50mbit-20ms-down-cubic-0123456789`.
fn name(scenario: &Scenario, link: &LinkSpec, digest: &str) -> String {
    let way = scenario.traffic.directions()[0];
    let shape = &link.shapes[way.index()];
    let rate = match shape.rate {
        0 => "varying".to_owned(),
        rate => format_rate(rate),
    };
    let about = format!(
        "{ALONE}-{rate}-{}-{}-{}-{}",
        format_duration(shape.delay),
        scenario.traffic.name(),
        scenario.congestion,
        &digest[..10]
    );
    about.replace('.', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "name = \"n\"\nabout = \"x\"\nduration = \"5s\"\nrival = \"lte\"\n\
                       [[link]]\nname = \"wifi\"\nrate = \"50mbit\"\ndelay = \"20ms\"\n\
                       [[link]]\nname = \"lte\"\nprofile = \"lte\"\n\
                       [[event]]\nat = \"1s\"\nlink = \"wifi\"\nrate = \"1mbit\"\n\
                       [[event]]\nat = \"2s\"\nlink = \"lte\"\nloss = \"1%\"\n";

    fn read(text: &str) -> (Table, Scenario) {
        let scenario = Scenario::parse(Path::new("s.toml"), text).unwrap();
        (text.parse().unwrap(), scenario)
    }

    fn singles(text: &str) -> Vec<SingleLink> {
        let (table, scenario) = read(text);
        single_links(&table, Path::new("s.toml"), &scenario).unwrap()
    }

    fn digests(text: &str) -> Vec<String> {
        singles(text)
            .into_iter()
            .map(|s| s.scenario.sha256)
            .collect()
    }

    #[test]
    fn a_link_applies_only_its_own_settings() {
        let [wifi, lte] = singles(TWO).try_into().unwrap();
        assert_eq!((wifi.name.as_str(), lte.name.as_str()), ("wifi", "lte"));
        assert!(
            wifi.scenario
                .name
                .starts_with("alone-50mbit-20ms-down-cubic-")
        );
        assert!(
            lte.scenario
                .name
                .starts_with("alone-varying-0ns-down-cubic-")
        );
        let events = |single: &SingleLink| -> Vec<_> {
            let events = &single.scenario.events;
            events
                .iter()
                .map(|e| (e.at.as_secs(), e.link.clone()))
                .collect()
        };
        assert_eq!(events(&wifi), [(1, LINK.to_owned())]);
        assert_eq!(events(&lte), [(2, LINK.to_owned())]);
        assert_eq!(
            (wifi.scenario.rival, lte.scenario.rival.as_deref()),
            (None, Some(LINK))
        );
        // The link is the second in the row and varies as it does there.
        let whole = read(TWO).1.lab_config(3);
        let own = singles(TWO).remove(1).scenario.lab_config(3);
        let of = |timeline: &[crate::config::PlannedChange], link: &str| -> Vec<_> {
            let of_link = timeline.iter().filter(|planned| planned.link == link);
            of_link
                .map(|planned| (planned.at, planned.change.clone()))
                .collect()
        };
        assert_eq!(of(&own.timeline, LINK), of(&whole.timeline, "lte"));
    }

    #[test]
    fn the_content_is_independent_of_names() {
        let renamed = TWO
            .replace("\"wifi\"", "\"first\"")
            .replace("\"n\"", "\"other\"")
            .replace("\"x\"", "\"another description\"");
        assert_eq!(digests(&renamed), digests(TWO));
        // A change of the other link does not affect this one.
        let other = TWO.replace("profile = \"lte\"", "rate = \"1mbit\"");
        assert_eq!(digests(&other)[0], digests(TWO)[0]);
        assert_ne!(digests(&other)[1], digests(TWO)[1]);
        for (from, to) in [
            ("duration = \"5s\"", "duration = \"6s\""),
            ("delay = \"20ms\"", "delay = \"21ms\""),
            ("at = \"1s\"", "at = \"3s\""),
            ("rival = \"lte\"", "rival = \"wifi\""),
            (
                "duration = \"5s\"",
                "duration = \"5s\"\ncongestion = \"bbr\"",
            ),
            ("duration = \"5s\"", "duration = \"5s\"\ndirection = \"up\""),
        ] {
            assert_ne!(digests(&TWO.replace(from, to))[0], digests(TWO)[0], "{to}");
        }
    }

    #[test]
    fn coupled_links_have_no_scenarios_of_single_links() {
        let group = "[[group]]\nlinks = [\"wifi\", \"lte\"]\n";
        assert!(singles(&format!("{TWO}{group}")).is_empty());
        let shared = "[[interferer]]\nlinks = [\"wifi\"]\noccupancy = \"30%\"\n";
        assert!(singles(&format!("{TWO}{shared}")).is_empty());
    }

    #[test]
    fn the_content_of_a_scenario_excludes_its_name() {
        let content = |text: &str| {
            let (table, scenario) = read(text);
            super::content(&table, &scenario).unwrap()
        };
        assert_eq!(content(&TWO.replace("\"n\"", "\"m\"")), content(TWO));
        assert_ne!(content(&TWO.replace("50mbit", "51mbit")), content(TWO));
    }
}
