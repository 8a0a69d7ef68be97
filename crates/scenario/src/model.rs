//! Builds the network of the link model from a laboratory's description.

use std::time::Duration;

use sumlink_link::{Hotspot, LinkId, ModelError, Network, Packet};

use crate::config::{Direction, LinkSpec, find_link};
use crate::error::LinkError;
use crate::plan::LabConfig;
use crate::timeline::Action;

/// A network in its initial state.
#[derive(Debug)]
pub struct Model<P> {
    /// The model of every direction of every link.
    pub network: Network<P>,
    /// Both directions of each link, by [`Direction::index`].
    pub ids: Vec<[LinkId; 2]>,
    /// Scheduled actions, with their times since the beginning.
    pub actions: Vec<(Duration, Action)>,
}

/// Returns the first problem of a description that cannot be modeled.
pub(crate) fn check(config: &LabConfig) -> Result<(), LinkError> {
    Model::<Vec<u8>>::build(config).map(drop)
}

impl<P: Packet> Model<P> {
    /// Builds the network, or returns the first problem of the description.
    pub fn build(config: &LabConfig) -> Result<Self, LinkError> {
        let mut network = Network::new(config.seed);
        let mut ids = Vec::new();
        for link in &config.links {
            let mut add = |direction: Direction| {
                let shape = &link.shapes[direction.index()];
                let id = network.add(shape.link_config());
                for change in shape
                    .rest()
                    .filter_map(|setting| setting.to_change(Duration::ZERO))
                {
                    network.set(Duration::ZERO, id, change);
                }
                id
            };
            ids.push([add(Direction::Up), add(Direction::Down)]);
        }
        let mut actions = Vec::new();
        for planned in &config.timeline {
            let link = find_link(&config.links, &planned.link)?;
            actions.push((planned.at, Action::Link(link, planned.change.clone())));
        }
        let mut model = Self {
            network,
            ids,
            actions,
        };
        model.add_groups(config)?;
        Ok(model)
    }

    fn add_groups(&mut self, config: &LabConfig) -> Result<(), LinkError> {
        let links = &config.links;
        let bad = |kind: &str, i: usize| {
            let group = format!("{kind} {}", i + 1);
            move |error| LinkError::BadGroup {
                group,
                reason: explain(error, links),
            }
        };
        for (i, group) in config.groups.iter().enumerate() {
            let members = self.members(links, &group.members)?;
            self.network
                .couple(&members, group.air.clone())
                .map_err(bad("coupling group", i))?;
        }
        for (i, spec) in config.interferers.iter().enumerate() {
            let members = self.members(links, &spec.members)?;
            let id = self
                .network
                .interfere(&members, spec.interferer)
                .map_err(bad("interferer", i))?;
            for (at, interferer) in &spec.changes {
                // Validated here, so that later changes cannot fail.
                for tried in [*interferer, spec.interferer] {
                    self.network
                        .set_interferer(Duration::ZERO, id, tried)
                        .map_err(bad("interferer", i))?;
                }
                self.actions
                    .push((*at, Action::Interferer(id, *interferer)));
            }
        }
        for (i, spec) in config.radios.iter().enumerate() {
            let hotspot = |name: &String| {
                let [up, down] = self.ids[find_link(links, name)?];
                Ok(Hotspot { up, down })
            };
            let hotspots: Vec<_> = spec
                .links
                .iter()
                .map(hotspot)
                .collect::<Result<_, LinkError>>()?;
            self.network
                .radio(&hotspots, spec.radio.clone())
                .map_err(bad("radio", i))?;
        }
        Ok(())
    }

    fn members(
        &self,
        links: &[LinkSpec],
        members: &[(String, Direction)],
    ) -> Result<Vec<LinkId>, LinkError> {
        let id = |(name, direction): &(String, Direction)| {
            Ok(self.ids[find_link(links, name)?][direction.index()])
        };
        members.iter().map(id).collect()
    }
}

/// Replaces the model's link numbers by names; the model numbers each direction separately.
fn explain(error: ModelError, links: &[LinkSpec]) -> String {
    match error {
        ModelError::InTwoGroups { link, groups } => {
            let name = links.get(link / 2).map_or("?", |spec| spec.name.as_str());
            format!("link '{name}' is in two {groups}; list it once, in one of them")
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use sumlink_link::{Air, Interferer, Radio, Schedule};

    use super::*;
    use crate::config::{CouplingGroup, InterfererSpec, RadioSpec, members};

    fn config() -> LabConfig {
        let links = ["a:rate=1mbit", "b:rate=2mbit"];
        LabConfig::new(links.map(|link| link.parse().unwrap()).to_vec())
    }

    fn reason(config: &LabConfig) -> String {
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn groups_are_built() {
        let mut config = config();
        config.groups.push(CouplingGroup {
            members: members(Direction::Down, ["a", "b"]),
            air: Air::pair(0.9, 0.14).unwrap(),
        });
        config.interferers.push(InterfererSpec {
            members: members(Direction::Up, ["b"]),
            interferer: Interferer::NONE,
            changes: vec![(Duration::from_secs(1), Interferer::NONE)],
        });
        let model = Model::<Vec<u8>>::build(&config).unwrap();
        assert_eq!((model.network.len(), model.actions.len()), (4, 1));
    }

    #[test]
    fn mistakes_name_the_group_and_the_link() {
        let air = Air::pair(0.9, 0.14).unwrap();
        let group = |links: &[&str]| CouplingGroup {
            members: members(Direction::Down, links.iter().copied()),
            air: air.clone(),
        };
        let mut twice = config();
        twice.groups = vec![group(&["a", "b"]), group(&["b", "a"])];
        assert_eq!(
            reason(&twice),
            "coupling group 2: link 'b' is in two coupling groups; list it once, in one of them"
        );
        let mut other = config();
        other.groups = vec![group(&["a", "lte"])];
        assert_eq!(reason(&other), "there is no link 'lte' (links: a, b)");
        let mut short = config();
        short.groups = vec![group(&["a"])];
        assert!(reason(&short).starts_with("coupling group 1: the list of coupled links has 1"));
        let mut radio = config();
        radio.radios.push(RadioSpec {
            links: vec!["a".into(), "b".into()],
            radio: Radio {
                rate: 54_000_000,
                switching: Duration::from_millis(5),
                card_queue: 100_000,
                hotspot_buffer: 100_000,
                schedule: Schedule::Fixed(vec![Duration::from_millis(50)]),
            },
        });
        assert!(reason(&radio).starts_with("radio 1: the schedule of a radio has 1 entries"));
        let mut interferer = config();
        interferer.interferers.push(InterfererSpec {
            members: members(Direction::Up, ["a"]),
            interferer: Interferer::NONE,
            changes: vec![(
                Duration::ZERO,
                Interferer {
                    occupancy: 2.0,
                    ..Interferer::NONE
                },
            )],
        });
        assert!(
            reason(&interferer).starts_with("interferer 1: the occupancy of an interferer is 2")
        );
    }
}
