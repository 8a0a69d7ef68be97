//! The laboratory that a scenario describes: links, shared resources, and scheduled changes.

use std::time::Duration;

use crate::config::{
    CouplingGroup, InterfererSpec, LinkSpec, PlannedChange, RadioSpec, Setting, load_warning,
};
use crate::lan::LanConfig;

/// The description of a laboratory.
#[derive(Clone, Debug)]
pub struct LabConfig {
    /// The links, 1..=[`MAX_LINKS`](crate::config::MAX_LINKS), with unique names.
    pub links: Vec<LinkSpec>,
    /// TCP congestion control of every connection in the namespaces.
    pub congestion: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// Segmentation offload: programs hand over up to 64 KiB at once, which the emulator segments
    /// into packets. Allows rates up to [`MAX_RATE_GSO`](crate::config::MAX_RATE_GSO), but saves
    /// programs work that real interfaces may not save.
    pub gso: bool,
    /// No emulator: each link is a pair of veth interfaces, as fast as the machine, and cannot be
    /// changed. The links' shapes are ignored.
    pub unshaped: bool,
    /// A LAN host behind the client, which is its gateway, and an internet host behind the server.
    /// Without it the programs run on the client and on the server.
    pub lan: Option<LanConfig>,
    /// Scheduled changes since the beginning of the run, in any order.
    pub timeline: Vec<PlannedChange>,
    /// Links that share the air.
    pub groups: Vec<CouplingGroup>,
    /// Interferers on the channels of links.
    pub interferers: Vec<InterfererSpec>,
    /// Links behind one radio.
    pub radios: Vec<RadioSpec>,
    /// Length of each interval of a time series, at least 1 ms.
    pub sample_interval: Duration,
}

impl LabConfig {
    /// CUBIC, seed 1, packet by packet, no LAN, no scheduled changes, samples of 100 ms.
    pub fn new(links: Vec<LinkSpec>) -> Self {
        Self {
            links,
            congestion: "cubic".to_owned(),
            seed: 1,
            gso: false,
            unshaped: false,
            lan: None,
            timeline: Vec::new(),
            groups: Vec::new(),
            interferers: Vec::new(),
            radios: Vec::new(),
            sample_interval: Duration::from_millis(100),
        }
    }

    /// The shortest one-way delay of any link at any time, in any direction.
    pub fn shortest_delay(&self) -> Duration {
        let shapes = self.links.iter().flat_map(|link| &link.shapes);
        let planned = self.timeline.iter().filter_map(|planned| {
            let Setting::Delay(delay) = planned.change.setting else {
                return None;
            };
            Some(delay)
        });
        let delays = shapes.map(|shape| shape.delay).chain(planned);
        delays.min().unwrap_or_default()
    }

    /// Reduces the one-way delay of every link by a part that precedes all links.
    pub fn shorten(&mut self, by: Duration) {
        for shape in self.links.iter_mut().flat_map(|link| &mut link.shapes) {
            shape.delay = shape.delay.saturating_sub(by);
        }
        for planned in &mut self.timeline {
            if let Setting::Delay(delay) = &mut planned.change.setting {
                *delay = delay.saturating_sub(by);
            }
        }
    }

    /// The part of the description that is emulated.
    pub fn emulated(&self) -> Self {
        if self.unshaped {
            Self {
                sample_interval: self.sample_interval,
                lan: self.lan,
                ..Self::new(Vec::new())
            }
        } else {
            self.clone()
        }
    }

    /// A warning if the links together exceed the emulator's capacity, in which case
    /// [`Health`](crate::health::Health) objects to figures measured at full load.
    pub fn warning(&self) -> Option<String> {
        load_warning(&self.links, self.gso)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LinkChange;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_shared_delay_must_not_exceed_the_shortest_delay() {
        let links = ["a:rate=1mbit,delay=20ms", "b:rate=1mbit,delay=30ms"];
        let mut config = LabConfig::new(links.map(|link| link.parse().unwrap()).to_vec());
        assert_eq!(config.shortest_delay(), 20 * MS);
        config.timeline.push(PlannedChange {
            at: MS,
            link: "b".to_owned(),
            change: LinkChange::parse_for("b", "down.delay=8ms").unwrap(),
        });
        assert_eq!(config.shortest_delay(), 8 * MS);
        config.shorten(8 * MS);
        let delays = config.links.iter().map(|link| link.shapes[0].delay);
        assert!(delays.eq([12 * MS, 22 * MS]));
        assert_eq!(
            config.timeline[0].change.setting,
            Setting::Delay(Duration::ZERO)
        );
    }
}
