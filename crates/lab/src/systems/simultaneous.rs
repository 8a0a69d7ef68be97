//! An independent TCP connection on every link, all at once: the upper bound for an aggregating
//! system where links disturb each other.

use crate::error::LabError;
use crate::scenario::{Scenario, Workload};
use crate::traffic::Route;

use super::{Evidence, Running, Stage, System};

pub(super) struct Simultaneous;

impl System for Simultaneous {
    fn missing(&self, scenario: &Scenario) -> Option<String> {
        if let Workload::Video(_) = &scenario.workload {
            return Some("a video uses a single connection".to_owned());
        }
        if let Workload::Datagrams(_) = &scenario.workload {
            return Some("a flow of datagrams uses a single link".to_owned());
        }
        let Workload::Command { client, .. } = &scenario.workload else {
            return None;
        };
        let says_link = client.contains("{link}");
        (!says_link).then(|| {
            "the client's command has no {link}, so its copies cannot be bound to the links"
                .to_owned()
        })
    }

    fn missing_as_gateway(&self) -> Option<String> {
        Some("a LAN host does not choose links".to_owned())
    }

    fn carries_datagrams(&self) -> bool {
        true
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let routes = stage
            .links()
            .map(|link| Route {
                link: Some(link.to_owned()),
                ..Route::direct(stage.target())
            })
            .collect();
        Ok(Running {
            routes,
            entry: stage.target(),
            processes: Vec::new(),
            is_tcp: true,
            first_byte_s: None,
            _beside: Vec::new(),
        })
    }

    fn evidence(&self, _: &Stage<'_>, _: &mut Running) -> Result<Evidence, LabError> {
        Ok(Evidence {
            duplicates_bytes: Some(0),
            ..Evidence::default()
        })
    }
}
