//! sumlink's library inside the traffic programs on both ends: no proxy, no further process.

use sumlink_scenario::system::Variant;

use crate::error::LabError;
use crate::scenario::{Scenario, Workload};
use crate::topology::Side;
use crate::traffic::{Channel, Route};

use super::{Running, Stage, System, keys};

pub(super) struct Library {
    /// Its name after `library:`.
    pub(super) variant: String,
}

impl Library {
    fn channel(&self, stage: &Stage<'_>, side: Side) -> Result<Channel, LabError> {
        Ok(Channel::Library {
            keys: keys::of(stage, side)?,
            variant: self.variant.clone(),
        })
    }
}

impl System for Library {
    fn missing(&self, scenario: &Scenario) -> Option<String> {
        let is_bulk = matches!(scenario.workload, Workload::Bulk);
        if !is_bulk {
            return Some(
                "the traffic programs support the library for bulk traffic only".to_owned(),
            );
        }
        let variant = Variant::parse(&self.variant, &[]).ok()?;
        variant.missing(scenario.links().count())
    }

    fn missing_as_gateway(&self) -> Option<String> {
        Some("the library is in the traffic programs, and a gateway has none of them".to_owned())
    }

    fn channel_of_server(&self, stage: &Stage<'_>) -> Result<Channel, LabError> {
        self.channel(stage, Side::Server)
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let route = Route {
            channel: self.channel(stage, Side::Client)?,
            ..Route::direct(stage.target())
        };
        Ok(Running::over(route))
    }
}
