//! Whether a laboratory can be started.

use std::time::Duration;

use crate::config::{InterfaceState, PlannedChange, Setting, check_links, check_rate, check_rates};
use crate::error::LinkError;
use crate::lan::INTERFACES;
use crate::model;
use crate::plan::LabConfig;
use sumlink_settings::units::format_duration;

impl LabConfig {
    /// Checks everything that can be checked before a laboratory is started.
    pub fn check(&self) -> Result<(), LinkError> {
        check_links(&self.links)?;
        check_rates(&self.links, self.gso)?;
        if self.lan.is_some()
            && let Some(link) = self
                .links
                .iter()
                .find(|link| INTERFACES.contains(&&*link.name))
        {
            return Err(LinkError::ReservedName(link.name.clone()));
        }
        if self.sample_interval < Duration::from_millis(1) {
            return Err(LinkError::Samples(format_duration(self.sample_interval)));
        }
        for PlannedChange { link, change, .. } in &self.timeline {
            if change.setting == Setting::State(InterfaceState::Removed) {
                return Err(LinkError::CannotPlan { link: link.clone() });
            }
            check_rate(link, &change.setting, self.gso)?;
        }
        model::check(self)
    }
}
