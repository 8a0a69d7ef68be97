//! Each link alone, one after the other: the capacity available for aggregation.

use crate::error::LabError;
use crate::traffic::Route;

use super::{Evidence, Running, Stage, System, name_server};

pub(super) struct Alone;

impl System for Alone {
    fn phases(&self, links: &[String]) -> Vec<Option<String>> {
        links.iter().cloned().map(Some).collect()
    }

    fn missing_as_gateway(&self) -> Option<String> {
        None
    }

    fn carries_datagrams(&self) -> bool {
        true
    }

    fn start(&self, stage: &Stage<'_>) -> Result<Running, LabError> {
        let mut route = Route::direct(stage.target());
        route.link = stage.link.map(str::to_owned);
        if stage.lab.has_lan() {
            // A plain router: the client's ends of the other links are down.
            stage.lab.forward()?;
            route.behind_gateway = true;
            route.resolver = Some(name_server());
        }
        Ok(Running::over(route))
    }

    fn evidence(&self, _: &Stage<'_>, _: &mut Running) -> Result<Evidence, LabError> {
        Ok(Evidence {
            duplicates_bytes: Some(0),
            note: "each link alone, one after the other; the total goodput is their sum".to_owned(),
            ..Evidence::default()
        })
    }
}
