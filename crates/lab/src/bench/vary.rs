//! Makes the scenario of a variant from a scenario file and the keys of a row.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use crate::scenario::{Problem, Scenario};

use super::alone::{self, SingleLink};

/// Sources of a row's scenarios; each overrides the previous one.
pub(super) struct Ingredients<'a> {
    /// The group's file.
    pub(super) file: &'a Path,
    /// The file of the base scenario.
    pub(super) base: Option<&'a Path>,
    /// The group's keys for all rows.
    pub(super) group: Option<&'a Table>,
    /// The row's keys.
    pub(super) row: &'a Table,
    /// The systems that always run.
    pub(super) systems: Vec<String>,
}

/// A row in one direction with one congestion control.
#[derive(Clone, Debug)]
pub(crate) struct Variant {
    pub(crate) scenario: Scenario,
    /// Digest of the scenario without its name: rows of the same content share their runs.
    pub(crate) content: String,
    /// A scenario for each link alone; empty where the links cannot be separated.
    pub(crate) links: Vec<SingleLink>,
}

/// A problem of a row.
#[derive(Debug)]
pub(super) enum RowProblem {
    /// In the base scenario's file.
    Elsewhere(Problem),
    /// In the scenario made from it.
    Here(String),
}

/// Keys of a row that are not keys of a scenario.
const OWN: [&str; 9] = [
    "name", "base", "bars", "cause", "causes", "judged", "quick", "only", "set",
];

/// The row's variant with that direction and congestion control; `name` becomes the scenario's
/// name.
pub(super) fn variant(
    of: &Ingredients<'_>,
    name: &str,
    direction: &str,
    congestion: &str,
) -> Result<Variant, Vec<RowProblem>> {
    let here = |reason: String| vec![RowProblem::Here(reason)];
    let mut table = match of.base {
        None => Table::new(),
        Some(base) => load(base)?,
    };
    for (key, value) in of.group.into_iter().flatten() {
        table.insert(key.clone(), value.clone());
    }
    let own = of
        .row
        .iter()
        .filter(|(key, _)| !OWN.contains(&key.as_str()));
    for (key, value) in own {
        table.insert(key.clone(), value.clone());
    }
    only(&mut table, of.row).map_err(here)?;
    set(&mut table, of.row).map_err(here)?;
    if direction == "up" {
        mirror(&mut table).map_err(here)?;
    }
    let texts = |texts: &[String]| texts.iter().cloned().map(Value::String).collect();
    let fixed = [
        ("name", Value::String(name.to_owned())),
        ("direction", Value::String(direction.to_owned())),
        ("congestion", Value::String(congestion.to_owned())),
        ("systems", Value::Array(texts(&of.systems))),
    ];
    for (key, value) in fixed {
        table.insert(key.to_owned(), value);
    }
    let text = toml::to_string(&table).map_err(|error| here(error.to_string()))?;
    // Relative paths start at the file that contains them.
    let file = of.base.unwrap_or(of.file);
    let scenario = Scenario::parse(file, &text).map_err(all_here)?;
    let content = alone::content(&table, &scenario).map_err(|error| here(error.to_string()))?;
    Ok(Variant {
        content,
        links: alone::single_links(&table, file, &scenario).map_err(all_here)?,
        scenario,
    })
}

fn all_here(problems: Vec<Problem>) -> Vec<RowProblem> {
    let reasons = problems
        .into_iter()
        .map(|problem| RowProblem::Here(problem.reason));
    reasons.collect()
}

fn load(base: &Path) -> Result<Table, Vec<RowProblem>> {
    let here = |reason: String| vec![RowProblem::Here(reason)];
    let text = fs::read_to_string(base).map_err(|e| here(format!("{}: {e}", base.display())))?;
    // Problems of the file itself are reported with its line numbers.
    Scenario::parse(base, &text).map_err(|problems| {
        problems
            .into_iter()
            .map(RowProblem::Elsewhere)
            .collect::<Vec<_>>()
    })?;
    text.parse::<Table>()
        .map_err(|error| here(error.to_string()))
}

/// The links of a scenario.
fn links(table: &mut Table) -> impl Iterator<Item = &mut Table> {
    let blocks = table.get_mut("link").and_then(Value::as_array_mut);
    blocks.into_iter().flatten().filter_map(Value::as_table_mut)
}

fn name_of(link: &Table) -> &str {
    link.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// `only = ["wifi"]`: the other links are left out.
fn only(table: &mut Table, row: &Table) -> Result<(), String> {
    let Some(value) = row.get("only") else {
        return Ok(());
    };
    let wanted = || {
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    };
    let unknown = wanted().find(|name| !links(table).any(|link| name_of(link) == *name));
    if unknown.is_some() || wanted().next().is_none() {
        let name = unknown.unwrap_or_default();
        return Err(format!(
            "only: unknown link '{name}'; expected names of links"
        ));
    }
    if let Some(blocks) = table.get_mut("link").and_then(Value::as_array_mut) {
        blocks.retain(|block| {
            let name = block.as_table().map_or("", name_of);
            wanted().any(|wanted| wanted == name)
        });
    }
    Ok(())
}

/// `set.wifi.loss = "5%"`: overrides a setting of one link.
fn set(table: &mut Table, row: &Table) -> Result<(), String> {
    let Some(value) = row.get("set") else {
        return Ok(());
    };
    let of_links = value.as_table().into_iter().flatten();
    for (name, settings) in of_links {
        let link = links(table).find(|link| name_of(link) == name);
        let (Some(link), Some(settings)) = (link, settings.as_table()) else {
            return Err(format!(
                "set: unknown link '{name}'; expected set.LINK.SETTING"
            ));
        };
        for (key, value) in settings {
            link.insert(key.clone(), value.clone());
        }
    }
    Ok(())
}

/// Swaps the directions of every link and event, so that uploads meet the conditions of downloads.
fn mirror(table: &mut Table) -> Result<(), String> {
    for key in ["group", "radio", "interferer"] {
        if table.contains_key(key) {
            return Err(format!(
                "[[{key}]] cannot be mirrored: remove \"up\" from directions"
            ));
        }
    }
    for key in ["link", "event"] {
        let blocks = table.get_mut(key).and_then(Value::as_array_mut);
        for block in blocks.into_iter().flatten().filter_map(Value::as_table_mut) {
            exchange(block);
            for (_, setting) in block.iter_mut() {
                if let Some(ways) = setting.as_table_mut() {
                    exchange(ways);
                }
            }
        }
    }
    Ok(())
}

fn exchange(ways: &mut Table) {
    let (down, up) = (ways.remove("down"), ways.remove("up"));
    ways.extend(down.map(|value| ("up".to_owned(), value)));
    ways.extend(up.map(|value| ("down".to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "name = \"base\"\nduration = \"9s\"\n[[link]]\nname = \"wifi\"\n\
                        rate = \"1mbit\"\n\
                        [[link]]\nname = \"lte\"\ndown = \"8mbit\"\nup = \"2mbit\"\n";

    fn vary(row: &str, direction: &str) -> Result<Scenario, String> {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("base.toml");
        fs::write(&base, BASE).unwrap();
        let ingredients = Ingredients {
            file: Path::new("m.toml"),
            base: Some(&base),
            group: None,
            row: &row.parse().unwrap(),
            systems: vec!["alone".to_owned()],
        };
        let variant = variant(&ingredients, "x", direction, "bbr");
        let variant = variant.map_err(|wrong| format!("{wrong:?}"))?;
        assert_eq!(variant.links.len(), variant.scenario.links().count());
        Ok(variant.scenario)
    }

    #[test]
    fn a_row_overrides_the_keys_that_it_names() {
        let scenario = vary(
            "name = \"r\"\nset.wifi.loss = \"5%\"\nwarmup = \"1s\"",
            "down",
        )
        .unwrap();
        assert_eq!(
            (scenario.name.as_str(), scenario.congestion.as_str()),
            ("x", "bbr")
        );
        assert_eq!(scenario.duration.as_secs(), 9);
        let shown: Vec<_> = scenario.links().map(ToString::to_string).collect();
        assert!(
            shown[0].contains("loss=5%") && shown[1].contains("loss=0%"),
            "{shown:?}"
        );
    }

    #[test]
    fn links_can_be_omitted_and_mirrored() {
        let scenario = vary("only = [\"lte\"]", "up").unwrap();
        let rates: Vec<_> = scenario
            .links()
            .map(|l| l.shapes.clone().map(|s| s.rate))
            .collect();
        assert_eq!(rates, [[8_000_000, 2_000_000]]);
        let error = vary("only = [\"eth\"]", "up").unwrap_err();
        assert!(error.contains("unknown link 'eth'"), "{error}");
        let error = vary("set.eth.loss = \"5%\"", "up").unwrap_err();
        assert!(error.contains("unknown link 'eth'"), "{error}");
        let group = "[[group]]\nlinks = [\"wifi\", \"lte\"]\ntheta = 1.0";
        assert!(vary(group, "up").unwrap_err().contains("be mirrored"));
    }

    #[test]
    fn the_same_row_is_the_same_text() {
        let digest = || {
            vary("name = \"r\"\nwarmup = \"1s\"", "down")
                .unwrap()
                .sha256
        };
        assert_eq!(digest(), digest());
    }
}
