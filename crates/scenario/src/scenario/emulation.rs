//! Makes a laboratory from a scenario, and checks the limits of the emulator.

use std::ops::Range;

use sumlink_link::Interferer;
use sumlink_mmwave::wigig::Step;

use crate::config::{CouplingGroup, InterfererSpec, LinkSpec, PlannedChange, RadioSpec, members};
use crate::plan::LabConfig;

use super::Scenario;
use super::document::Document;
use super::shared::{Group, SharedInterferer, SharedRadio};

impl Scenario {
    /// Reports problems that only the emulator can detect, at their position in the file.
    pub(super) fn check_emulated(&self, document: &mut Document<'_>) {
        let whole = || LabConfig::new(self.links().cloned().collect());
        // One group at a time, so that each problem has its own line.
        for group in &self.groups {
            let config = LabConfig {
                groups: group.specs().collect(),
                ..whole()
            };
            self.report(document, &group.span, config);
        }
        for shared_interferer in &self.interferers {
            let config = LabConfig {
                interferers: shared_interferer.specs().collect(),
                ..whole()
            };
            self.report(document, &shared_interferer.span, config);
        }
        for radio in &self.radios {
            let config = LabConfig {
                radios: vec![radio.spec()],
                ..whole()
            };
            self.report(document, &radio.span, config);
        }
        // Problems that only the whole description shows, such as a link in two groups.
        if document.is_right() {
            self.report(document, &(0..0), self.lab_config(1));
        }
    }

    fn report(&self, document: &mut Document<'_>, span: &Range<usize>, mut config: LabConfig) {
        config.gso = self.gso;
        if let Err(error) = config.check() {
            document.problem(span, error);
        }
    }

    /// The links in their initial state.
    pub fn links(&self) -> impl Iterator<Item = &LinkSpec> {
        self.links.iter().map(|link| &link.spec)
    }

    /// The laboratory that the scenario describes.
    pub fn lab_config(&self, seed: u64) -> LabConfig {
        let timeline = self.timeline(seed);
        // A profile's initial state also applies before the run, while systems connect.
        let links = self.links.iter().map(|link| {
            let mut spec = link.spec.clone();
            if link.profile.is_some() {
                let name = spec.name.clone();
                let first = |c: &&PlannedChange| c.at.is_zero() && c.link == name;
                for planned in timeline.iter().filter(first) {
                    for direction in planned.change.directions() {
                        spec.shapes[direction.index()].set(&planned.change.setting);
                    }
                }
            }
            spec
        });
        let links = links.collect();
        let config = LabConfig {
            congestion: self.congestion.clone(),
            seed,
            gso: self.gso,
            unshaped: self.unshaped,
            lan: self.lan,
            sample_interval: self.interval(),
            groups: self.groups.iter().flat_map(Group::specs).collect(),
            interferers: self
                .interferers
                .iter()
                .flat_map(SharedInterferer::specs)
                .collect(),
            radios: self.radios.iter().map(SharedRadio::spec).collect(),
            ..LabConfig::new(links)
        };
        LabConfig { timeline, ..config }
    }

    /// The schedule of the first link with profile `mmwave`, for each beacon interval of a run;
    /// `None` if there is none. The rates do not include `scale`.
    pub fn wigig_schedule(&self, seed: u64) -> Option<Vec<Step>> {
        let mut links = (0u64..).zip(&self.links);
        links.find_map(|(number, link)| {
            let profile = link.profile.as_ref()?;
            let own = profile.seed(number, seed);
            profile.wigig()?.schedule(own, self.duration).ok()
        })
    }

    /// The events of the file and of the links' profiles.
    fn timeline(&self, seed: u64) -> Vec<PlannedChange> {
        let mut timeline = Vec::new();
        for (number, link) in (0u64..).zip(&self.links) {
            if let Some(profile) = &link.profile {
                let own = profile.seed(number, seed);
                timeline.extend(profile.changes(&link.spec.name, own, self.duration));
            }
        }
        timeline.extend(self.events.iter().cloned());
        timeline
    }
}

impl Group {
    /// One group for each direction: opposite directions do not share the air.
    fn specs(&self) -> impl Iterator<Item = CouplingGroup> {
        self.directions.iter().map(|direction| CouplingGroup {
            members: members(*direction, self.links.iter().map(String::as_str)),
            air: self.air.clone(),
        })
    }
}

impl SharedInterferer {
    /// One interferer for each direction, present from one time to another.
    fn specs(&self) -> impl Iterator<Item = InterfererSpec> {
        let mut changes = Vec::new();
        if !self.from.is_zero() {
            changes.push((self.from, self.interferer));
        }
        changes.extend(self.until.map(|until| (until, Interferer::NONE)));
        self.directions.iter().map(move |direction| InterfererSpec {
            members: members(*direction, self.links.iter().map(String::as_str)),
            interferer: if self.from.is_zero() {
                self.interferer
            } else {
                Interferer::NONE
            },
            changes: changes.clone(),
        })
    }
}

impl SharedRadio {
    fn spec(&self) -> RadioSpec {
        RadioSpec {
            links: self.links.clone(),
            radio: self.radio.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Direction, Setting};
    use crate::scenario::read::read;

    #[test]
    fn a_profile_becomes_changes_of_both_directions() {
        let text = "name = \"a\"\nduration = \"5s\"\n[[link]]\nname = \"cell\"\nprofile = \"lte\"\n\
                    scale = { down = 1.0, up = 0.5 }\ndelay = \"7ms\"\n";
        let scenario = read(Path::new("s.toml"), text).unwrap();
        let config = scenario.lab_config(1);
        config.check().unwrap();
        let first_rate = |direction| {
            let of_direction = |c: &&PlannedChange| c.change.direction == Some(direction);
            let mut changes = config.timeline.iter().filter(of_direction);
            changes.find_map(|change| match change.change.setting {
                Setting::Rate(rate) => Some(rate as f64),
                _ => None,
            })
        };
        let (down, up) = (
            first_rate(Direction::Down).unwrap(),
            first_rate(Direction::Up).unwrap(),
        );
        assert!((up / down - 0.5).abs() < 0.01, "{down} {up}");
        assert_eq!(
            config.links[0].shapes[Direction::Down.index()].rate as f64,
            down
        );
        let is_delay = |c: &PlannedChange| matches!(c.change.setting, Setting::Delay(_));
        assert!(!config.timeline.iter().any(is_delay));
        assert_ne!(config.timeline, scenario.lab_config(2).timeline);
    }

    #[test]
    fn a_profile_with_place_is_independent_of_its_position() {
        let first = "[[link]]\nname = \"a\"\nrate = \"1mbit\"\n";
        let timeline = |links: &str| {
            let text = format!("name = \"a\"\nduration = \"5s\"\n{links}");
            let scenario = read(Path::new("s.toml"), &text).unwrap();
            scenario.lab_config(1).timeline
        };
        let cell = "[[link]]\nname = \"cell\"\nprofile = \"lte\"\n";
        let second = timeline(&format!("{first}{cell}"));
        assert_ne!(timeline(cell), second);
        assert_eq!(timeline(&format!("{cell}place = 1\n")), second);
        let text = format!("name = \"a\"\nduration = \"5s\"\n{first}place = 1\n");
        let wrong = read(Path::new("s.toml"), &text).unwrap_err();
        assert!(
            wrong[0].reason.contains("which scale and place need"),
            "{wrong:?}"
        );
    }

    #[test]
    fn shared_resources_reach_the_emulator_or_are_reported() {
        let links = "name = \"a\"\nduration = \"5s\"\n[[link]]\nname = \"x\"\nrate = \"1mbit\"\n\
                     [[link]]\nname = \"y\"\nrate = \"1mbit\"\n";
        let group = "[[group]]\nlinks = [\"x\", \"y\"]\ndeferral = [[0, 0.9], [0.1, 0]]\n";
        let shared_interferer =
            "[[interferer]]\nlinks = [\"y\"]\noccupancy = \"30%\"\nfrom = \"1s\"\nuntil = \"2s\"\n";
        let radio = "[[radio]]\nlinks = [\"x\", \"y\"]\nrate = \"10mbit\"\nswitching = \"1ms\"\n\
                     turn = \"20ms\"\n";
        let read_with = |blocks: &str| read(Path::new("s.toml"), &format!("{links}{blocks}"));
        let config = read_with(&format!("{group}{shared_interferer}"))
            .unwrap()
            .lab_config(1);
        assert_eq!(config.groups.len(), 1);
        assert_eq!(config.interferers[0].interferer, Interferer::NONE);
        assert_eq!(config.interferers[0].changes.len(), 2);
        assert_eq!(read_with(radio).unwrap().lab_config(1).radios.len(), 1);
        let twice = read_with(&format!("{group}{group}")).unwrap_err();
        assert_eq!(twice.len(), 1, "{twice:?}");
        let wrong = read_with(&group.replace("0.9", "1.9")).unwrap_err();
        assert_eq!(wrong[0].line, 9, "{wrong:?}");
    }
}
