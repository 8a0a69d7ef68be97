//! From a scenario to a laboratory, and what the emulator cannot do of it.

use crate::config::LinkSpec;
use crate::laboratory::LabConfig;

use super::Scenario;
use super::table::Document;

impl Scenario {
    /// Notes everything that the emulator does not do: nothing that a file says is ignored.
    pub(super) fn check_emulated(&self, document: &mut Document<'_>) {
        let mut unable = |span: &std::ops::Range<usize>, what: &str| {
            document.problem(span, format!("{what}: the emulator cannot do that yet"));
        };
        for profile in self.links.iter().filter_map(|link| link.profile.as_ref()) {
            unable(&profile.span, "profile");
        }
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
            timeline: self.events.clone(),
            sample_interval: self.interval(),
            ..LabConfig::new(self.links().cloned().collect())
        }
    }
}
