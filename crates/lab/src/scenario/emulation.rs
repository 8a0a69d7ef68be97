//! From a scenario to a laboratory, and what the emulator cannot do of it.

use std::time::Duration;

use sumlink_link::Change;
use sumlink_link::profile::scale;

use crate::config::{Direction, LinkChange, LinkSpec, MAX_LINKS, PlannedChange, Setting};
use crate::laboratory::LabConfig;

use super::Scenario;
use super::link::ProfileUse;
use super::table::Document;

impl Scenario {
    /// Notes everything that the emulator does not do: nothing that a file says is ignored.
    pub(super) fn check_emulated(&self, document: &mut Document<'_>) {
        let mut unable = |span: &std::ops::Range<usize>, what: &str| {
            document.problem(span, format!("{what}: the emulator cannot do that yet"));
        };
        for group in &self.groups {
            unable(&group.span, "[[group]]");
        }
        for radio in &self.radios {
            unable(&radio.span, "[[radio]]");
        }
        for stranger in &self.interferers {
            unable(&stranger.span, "[[interferer]]");
        }
    }

    /// The links as they are at the start.
    pub fn links(&self) -> impl Iterator<Item = &LinkSpec> {
        self.links.iter().map(|link| &link.spec)
    }

    /// The laboratory that it describes.
    pub fn lab_config(&self, seed: u64) -> LabConfig {
        LabConfig {
            congestion: self.congestion.clone(),
            seed,
            gso: self.gso,
            timeline: self.timeline(seed),
            sample_interval: self.interval(),
            ..LabConfig::new(self.links().cloned().collect())
        }
    }

    /// The events of the file, and what the links' profiles do.
    fn timeline(&self, seed: u64) -> Vec<PlannedChange> {
        let mut timeline = Vec::new();
        for (number, link) in (0u64..).zip(&self.links) {
            if let Some(profile) = &link.profile {
                // Links of the same profile are not in step, and no two runs share a link's seed.
                let own = seed.wrapping_mul(MAX_LINKS as u64).wrapping_add(number);
                timeline.extend(profile.changes(&link.spec.name, own, self.duration));
            }
        }
        timeline.extend(self.events.iter().cloned());
        timeline
    }
}

impl ProfileUse {
    fn changes(
        &self,
        link: &str,
        seed: u64,
        duration: Duration,
    ) -> impl Iterator<Item = PlannedChange> {
        let keeps = |setting: &Setting| match setting {
            Setting::Delay(_) => !self.keeps_delay,
            Setting::Jitter(_) => !self.keeps_jitter,
            _ => true,
        };
        Direction::BOTH.into_iter().flat_map(move |direction| {
            let mut timeline = self.profile.timeline(seed, duration);
            scale(&mut timeline, self.scale[direction.index()]);
            let planned = timeline.into_iter().filter_map(|(at, change)| {
                let setting = setting_of(change).filter(keeps)?;
                Some(PlannedChange {
                    at,
                    link: link.to_owned(),
                    change: LinkChange {
                        direction: Some(direction),
                        setting,
                    },
                })
            });
            planned.collect::<Vec<_>>()
        })
    }
}

/// The laboratory's word for a change of the model; states are of whole links, and no profile has them.
fn setting_of(change: Change) -> Option<Setting> {
    Some(match change {
        Change::Rate(rate) => Setting::Rate(rate),
        Change::Trace(trace) => Setting::Trace(trace),
        Change::Delay(delay) => Setting::Delay(delay),
        Change::Jitter(jitter) => Setting::Jitter(jitter),
        Change::Loss(loss) => Setting::Loss(loss),
        Change::Queue(queue) => Setting::Queue(queue),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
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
        let is_delay = |c: &PlannedChange| matches!(c.change.setting, Setting::Delay(_));
        assert!(!config.timeline.iter().any(is_delay));
        assert_ne!(config.timeline, scenario.lab_config(2).timeline);
    }
}
