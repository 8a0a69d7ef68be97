//! The file as a whole: its own keys, then every block.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use crate::edge::Hosts;
use crate::lan::{LanConfig, ReversePath, parse_topology};
use crate::system::{self, System, parse_selector};
use sumlink_settings::units::{parse_duration, parse_size};

use super::document::Document;
use super::names::Names;
use super::section::{Section, keep};
use super::{Scenario, Traffic, event, link, sha256_of, shared, spell, workload};
use crate::problem::Problem;

/// Maximum duration of a run, which catches mistyped units.
const LONGEST: Duration = Duration::from_secs(3600);
/// Maximum number of seeds.
const MAX_SEEDS: u64 = 1000;

/// Reads a scenario; the error lists all problems.
pub(crate) fn read(file: &Path, text: &str) -> Result<Scenario, Vec<Problem>> {
    super::load::parse(file, text, "the scenario", |document, root| {
        read_root(document, root, file, text)
    })
}

/// `None` if a required part is missing.
fn read_root(
    document: &mut Document<'_>,
    root: &mut Section<'_, '_>,
    file: &Path,
    text: &str,
) -> Option<Scenario> {
    let name = root.parsed(document, "name", parse_name);
    if !root.has("name") {
        root.missing(document, "name", "name = \"wifi-wigig\"");
    }
    let about = root.text(document, "about").map(|about| about.value);
    let clean = root.parsed(document, "clean", parse_name);
    let duration = root.parsed(document, "duration", parse_duration);
    if !root.has("duration") {
        root.missing(document, "duration", "duration = \"10s\"");
    }
    if let Some(at) = duration
        .as_ref()
        .filter(|at| at.value < Duration::from_secs(1) || at.value > LONGEST)
    {
        document.problem(&at.span, "duration: a run must take from 1s to 1h");
    }
    let warmup = root.parsed(document, "warmup", parse_duration);
    if let (Some(warmup), Some(duration)) = (&warmup, &duration)
        && warmup.value >= duration.value
    {
        document.problem(
            &warmup.span,
            "warmup: it is part of the duration, so no time would be left to measure",
        );
    }
    let traffic = root.parsed(document, "direction", Traffic::parse);
    let seeds = root.integer(document, "seeds", 1..MAX_SEEDS + 1);
    let gso = root.boolean(document, "gso").unwrap_or(false);
    let unshaped = root.boolean(document, "unshaped").unwrap_or(false);
    let lan = read_lan(document, root);
    let congestion = root.parsed(document, "congestion", parse_control);
    let systems = read_systems(document, root);
    let selector = root.parsed(document, "selector", parse_selector);
    let hosts = root.parsed(document, "hosts", Hosts::parse);
    let receive_buffer = root.parsed(document, "receive_buffer", parse_receive_buffer);
    let workload = match root.value("workload") {
        None => Some((workload::Workload::Bulk, workload::Classes::default())),
        Some(value) => Section::of(document, value, "[workload]")
            .and_then(|section| workload::read(document, section)),
    };

    let links = link::read_all(document, root, gso, unshaped);
    let known = Names::new(document, root);
    let rival = root
        .text(document, "rival")
        .and_then(|name| known.find(document, &name));
    let traffic = traffic.map_or(Traffic::Down, |at| at.value);
    let length = duration.as_ref().map(|at| at.value);
    let events = event::read_all(document, root, &known, &links, length, gso);
    let groups = root.blocks(document, "group").into_iter();
    let groups = groups.filter_map(|block| shared::read_group(document, block, &known, traffic));
    let groups: Vec<_> = groups.collect();
    let radios = root.blocks(document, "radio").into_iter();
    let radios = radios.filter_map(|block| shared::read_radio(document, block, &known));
    let radios: Vec<_> = radios.collect();
    let interferers = root.blocks(document, "interferer").into_iter();
    let interferers =
        interferers.filter_map(|block| shared::read_interferer(document, block, &known, traffic));
    let interferers: Vec<_> = interferers.collect();
    let spells = root.blocks(document, "spell").into_iter();
    let spells: Vec<_> = spells
        .filter_map(|block| spell::read(document, block, &known))
        .collect();

    let shapes = ["event", "group", "radio", "interferer", "gso"];
    if unshaped && shapes.iter().any(|key| root.has(key)) {
        let reason = "unshaped: nothing is emulated, so links cannot change, share resources or \
                      use super-packets";
        document.problem(&root.span(), reason);
    }

    if lan.is_some() && root.has("rival") {
        let reason = "rival: the hosts of a LAN do not choose links: remove it, or the topology";
        document.problem(&root.span(), reason);
    }
    if let Some((workload, _)) = &workload
        && workload.needs_lan()
        && lan.is_none()
    {
        let kind = workload.kind();
        let reason = format!("a workload of kind {kind} needs topology = \"lan\"");
        document.problem(&root.span(), reason);
    }

    if matches!(workload, Some((workload::Workload::Curl, _))) && traffic != Traffic::Down {
        document.problem(
            &root.span(),
            "a workload of kind curl has direction = \"down\" only",
        );
    }

    let mut parts = vec![text.as_bytes().to_vec()];
    for link in &links {
        parts.extend(link.traces.iter().map(|text| text.clone().into_bytes()));
    }
    let (workload, classes) = workload?;
    let scenario = Scenario {
        file: file.to_path_buf(),
        text: text.to_owned(),
        sha256: sha256_of(parts.iter().map(Vec::as_slice)),
        name: name?.value,
        about: about.unwrap_or_default(),
        duration: duration?.value,
        warmup: warmup.map_or(Duration::ZERO, |at| at.value),
        traffic,
        clean: clean.map(|at| at.value),
        gso,
        unshaped,
        lan,
        seeds: seeds.map_or(5, |at| at.value),
        congestion: congestion.map_or_else(|| "cubic".to_owned(), |at| at.value),
        systems,
        selector: selector.map(|at| at.value),
        hosts: hosts.map_or_else(Hosts::default, |at| at.value),
        receive_buffer: receive_buffer.map(|at| at.value),
        workload,
        classes,
        rival,
        spells,
        links,
        events,
        groups,
        radios,
        interferers,
    };
    scenario.check_emulated(document);
    Some(scenario)
}

/// `topology = "lan"` with the settings of its gateway.
fn read_lan(document: &mut Document<'_>, root: &mut Section<'_, '_>) -> Option<LanConfig> {
    let topology = root.parsed(document, "topology", parse_topology);
    let rp_filter = root.parsed(document, "rp_filter", ReversePath::parse);
    let has_lan = topology.is_some_and(|at| at.value);
    if let Some(at) = rp_filter.as_ref().filter(|_| !has_lan) {
        document.problem(&at.span, "rp_filter: is a setting of topology = \"lan\"");
    }
    has_lan.then(|| LanConfig {
        rp_filter: rp_filter.map_or(ReversePath::Off, |at| at.value),
    })
}

fn read_systems(document: &mut Document<'_>, root: &mut Section<'_, '_>) -> Vec<String> {
    let Some(listed) = root.texts(document, "systems") else {
        return system::DEFAULT.map(str::to_owned).to_vec();
    };
    let mut names = Vec::new();
    for at in listed {
        if names.contains(&at.value) {
            document.problem(&at.span, format!("systems: '{}' appears twice", at.value));
        } else if keep(
            document,
            &at.span,
            "systems",
            System::parse(&at.value).map(drop),
        )
        .is_some()
        {
            names.push(at.value);
        }
    }
    names
}

/// Parses a scenario's name, which is also used as a directory name.
pub fn parse_name(text: &str) -> Result<String, String> {
    let plausible = (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if plausible {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{text}' cannot be a scenario's name: use 1 to 64 letters, digits, '-' or '_', \
             starting with a letter or digit"
        ))
    }
}

/// Valid sizes of a receive buffer: from the kernel's least (`tcp_rmem`) to the laboratory's limit.
const RECEIVE_BUFFER: RangeInclusive<u64> = 4 << 10..=32 << 20;

fn parse_receive_buffer(text: &str) -> Result<u64, String> {
    let size = parse_size(text).map_err(|error| error.to_string())?;
    match RECEIVE_BUFFER.contains(&size) {
        true => Ok(size),
        false => Err(format!("'{text}': a receive buffer is from 4KiB to 32MiB")),
    }
}

/// Parses a name in the kernel's format (TCP_CA_NAME_MAX is 16 with its NUL).
pub fn parse_congestion(text: &str) -> Result<String, String> {
    let plausible = (1..=15).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    if plausible {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{text}' cannot be the name of a congestion control; sumlink cc list lists those that \
             there are"
        ))
    }
}

/// Parses the name of a congestion control with settings after `@`, which its builder checks:
/// `whitehaul@budget=20ms:advertised=200`.
fn parse_control(text: &str) -> Result<String, String> {
    let Some((name, settings)) = text.split_once('@') else {
        return parse_congestion(text);
    };
    parse_congestion(name)?;
    let is_setting = |one: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let parts = one.split_once('=');
        parts.is_some_and(|(key, value)| {
            !key.is_empty() && !value.is_empty() && key.chars().chain(value.chars()).all(known)
        })
    };
    match settings.split(':').find(|one| !is_setting(one)) {
        None => Ok(text.to_owned()),
        Some(wrong) => Err(format!(
            "'{wrong}' is not a setting: write NAME@KEY=VALUE:KEY=VALUE; sumlink cc info NAME lists \
             the keys"
        )),
    }
}

#[cfg(test)]
mod tests {
    use sumlink_engine::Class;

    use super::*;

    fn problems(text: &str) -> Vec<String> {
        read(Path::new("s.toml"), text)
            .map(|_| ())
            .unwrap_err()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    const GOOD: &str =
        "name = \"a\"\nduration = \"10s\"\n[[link]]\nname = \"wifi\"\nrate = \"60mbit\"\n";

    #[test]
    fn a_receive_buffer_has_a_range() {
        let with = |size: &str| {
            GOOD.replace(
                "[[link]]",
                &format!("receive_buffer = \"{size}\"\n[[link]]"),
            )
        };
        let scenario = read(Path::new("s.toml"), &with("256KiB")).unwrap();
        assert_eq!(scenario.receive_buffer, Some(256 << 10));
        for size in ["1KiB", "64MiB"] {
            let expected = format!(
                "s.toml:3: receive_buffer: '{size}': a receive buffer is from 4KiB to 32MiB"
            );
            assert_eq!(problems(&with(size)), [expected]);
        }
    }

    #[test]
    fn missing_keys_have_defaults() {
        let scenario = read(Path::new("s.toml"), GOOD).unwrap();
        assert_eq!(scenario.seeds, 5);
        assert_eq!(scenario.congestion, "cubic");
        assert_eq!(scenario.traffic, Traffic::Down);
        assert_eq!(scenario.workload, workload::Workload::Bulk);
        assert_eq!(scenario.systems, system::DEFAULT);
    }

    #[test]
    fn every_problem_is_reported_with_its_line() {
        let text = "name = \"a b\"\nduration = \"10 parsecs\"\nspeed = 3\n\
                    systems = [\"sumlink:fbtd\"]\n\
                    [[link]]\nname = \"wifi\"\nrate = 60\n[[link]]\nname = \"lo\"\n\
                    rate = \"1mbit\"\ncolor = \"red\"\n\
                    [[event]]\nat = \"1s\"\nlink = \"wimax\"\nrate = \"0\"\n";
        let found = problems(text);
        let starts = [
            "s.toml:1: name: 'a b' cannot be",
            "s.toml:2: duration: 'parsecs' in '10 parsecs' is not a unit",
            "s.toml:3: the scenario has no key 'speed'",
            "s.toml:4: systems: ",
            "s.toml:7: rate must be a text",
            "s.toml:9: name: 'lo' cannot be a link's name",
            "s.toml:11: [[link]] has no key 'color'",
            "s.toml:14: there is no link 'wimax'",
        ];
        for start in starts {
            assert!(
                found.iter().any(|line| line.starts_with(start)),
                "{start}: {found:#?}"
            );
        }
    }

    #[test]
    fn mistakes_of_syntax_have_lines_too() {
        let found = problems("name = \"a\nduration = \"10s\"\n");
        assert!(found[0].starts_with("s.toml:1: "), "{found:?}");
    }

    #[test]
    fn impossible_settings_are_rejected() {
        let late = format!("{GOOD}[[event]]\nat = \"11s\"\nlink = \"wifi\"\nrate = \"0\"\n");
        assert!(problems(&late)[0].contains("the run is over by then"));
        let warm = format!("warmup = \"10s\"\n{GOOD}");
        assert!(problems(&warm)[0].contains("no time would be left to measure"));
        let twice = format!("{GOOD}[[link]]\nname = \"wifi\"\nrate = \"1mbit\"\n");
        assert!(problems(&twice)[0].contains("two links called 'wifi'"));
    }

    #[test]
    fn a_rival_needs_a_link_of_the_scenario() {
        let of = |rival: &str| format!("rival = \"{rival}\"\n{GOOD}");
        let scenario = read(Path::new("s.toml"), &of("wifi")).unwrap();
        assert_eq!(scenario.rival.as_deref(), Some("wifi"));
        assert!(problems(&of("lte"))[0].starts_with("s.toml:1: there is no link 'lte'"));
    }

    #[test]
    fn an_unshaped_link_has_a_name_and_nothing_else() {
        let of = |keys: &str| {
            format!(
                "name = \"a\"\nduration = \"5s\"\nunshaped = true\n[[link]]\nname = \"one\"\n{keys}"
            )
        };
        let scenario = read(Path::new("s.toml"), &of("")).unwrap();
        assert!(scenario.unshaped && scenario.lab_config(1).unshaped);
        for keys in [
            "rate = \"1mbit\"\n",
            "delay = \"1ms\"\n",
            "profile = \"lte\"\n",
        ] {
            let found = problems(&of(keys));
            assert!(found[0].contains("as fast as the machine"), "{found:?}");
        }
        let found = problems(&of(
            "[[event]]\nat = \"1s\"\nlink = \"one\"\nrate = \"0\"\n",
        ));
        assert!(found[0].contains("nothing is emulated"), "{found:?}");
    }

    #[test]
    fn a_lan_is_a_topology_with_a_gateway() {
        let of = |keys: &str| format!("{keys}{GOOD}");
        let scenario = |keys: &str| read(Path::new("s.toml"), &of(keys)).unwrap();
        assert_eq!(scenario("").lan, None);
        assert_eq!(scenario("topology = \"pair\"\n").lan, None);
        let strict = scenario("topology = \"lan\"\nrp_filter = \"strict\"\n");
        let expected = LanConfig {
            rp_filter: ReversePath::Strict,
        };
        assert_eq!(strict.lan, Some(expected));
        assert_eq!(strict.lab_config(1).lan, Some(expected));
        for (keys, reason) in [
            (
                "topology = \"ring\"\n",
                "s.toml:1: topology: 'ring' is none of pair, lan",
            ),
            (
                "rp_filter = \"loose\"\n",
                "s.toml:1: rp_filter: is a setting of topology",
            ),
            (
                "topology = \"lan\"\nrival = \"wifi\"\n",
                "s.toml:1: rival: the hosts of a LAN",
            ),
        ] {
            let found = problems(&of(keys));
            assert!(found[0].starts_with(reason), "{found:?}");
        }
    }

    #[test]
    fn questions_and_answers_have_sizes() {
        let of = |keys: &str| format!("{GOOD}[workload]\nkind = \"requests\"\n{keys}");
        let scenario = read(Path::new("s.toml"), &of("load = true\n")).unwrap();
        let expected = workload::Workload::Requests {
            request: 100,
            answer: 1000,
            gap: Duration::from_millis(50),
            load: true,
        };
        assert_eq!(scenario.workload, expected);
        assert!(problems(&of("answer = \"2MB\"\n"))[0].contains("answer: from 16B to 1MB"));
    }

    #[test]
    fn connections_may_have_a_class() {
        let of = |keys: &str| format!("{GOOD}[workload]\nkind = \"requests\"\n{keys}");
        let classes = |text: &str| read(Path::new("s.toml"), text).unwrap().classes;
        assert_eq!(classes(GOOD), workload::Classes::default());
        let both = "class = \"conversational\"\nload = true\nload_class = \"background\"\n";
        let expected = workload::Classes {
            measured: Some(Class::Conversational),
            load: Some(Class::Background),
        };
        assert_eq!(classes(&of(both)), expected);
        let found = problems(&of("class = \"bulk\"\nload_class = \"background\"\n"));
        assert!(
            found[0].starts_with("s.toml:8: class: there is no class 'bulk'"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("s.toml:9: load_class: the workload has no load"),
            "{found:?}"
        );
    }

    #[test]
    fn a_link_that_is_too_fast_is_refused_with_advice() {
        let fast = GOOD.replace("60mbit", "8000mbit");
        let found = problems(&fast);
        assert!(
            found[0].starts_with(
                "s.toml:5: rate: link 'wifi': 8gbit is more than the emulator carries"
            ),
            "{found:?}"
        );
        assert!(found[0].contains("at most 2.5gbit"));
    }
}
