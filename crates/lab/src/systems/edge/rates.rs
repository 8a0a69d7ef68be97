//! Tells both ends what their links carry while that changes, as a cell knows it of its own radio.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::config::Direction;
use crate::error::LabError;
use crate::topology::Side;

use super::super::Stage;
use super::super::sumlink::request;
use super::super::watcher::Watcher;
use super::{SHARE, control};

/// How often the links are looked at. A profile changes its rate every 100 ms.
const LOOK: Duration = Duration::from_millis(10);

/// From now on; the ends' files have what the links begin with.
pub(super) fn follow(stage: &Stage<'_>) -> Result<Watcher, LabError> {
    let links = stage.lab.links();
    let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
    let known = links
        .iter()
        .map(|link| link.shapes.each_ref().map(|shape| shape.rate));
    let mut known: Vec<[u64; 2]> = known.collect();
    let ends = [
        (Side::Server, Direction::Down),
        (Side::Client, Direction::Up),
    ];
    let ends = ends.map(|(side, way)| (control(stage, side), way.index()));
    let handle = stage.lab.handle();
    Watcher::start("rates", LOOK, move || {
        let Ok(rates) = handle.rates() else {
            return ControlFlow::Break(());
        };
        for (number, name) in names.iter().enumerate() {
            for (socket, way) in &ends {
                let (rate, before) = (rates[number][*way], &mut known[number][*way]);
                if rate != *before && tell(socket, name, rate * SHARE / 100) {
                    *before = rate;
                }
            }
        }
        ControlFlow::Continue(())
    })
}

/// Whether the end has taken it; one that is busy is told again.
fn tell(socket: &Path, link: &str, rate: u64) -> bool {
    let asked = json!({ "cmd": "rate", "name": link, "rate_bps": rate });
    request(socket, &asked).is_some_and(|answer| answer["rate_bps"] == rate)
}
