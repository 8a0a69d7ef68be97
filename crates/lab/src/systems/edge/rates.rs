//! Reports the current rates of the links to both ends when they change, as a cell knows the rate
//! of its radio.

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

/// Interval between checks of the links. A profile changes its rate every 100 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Starts the updates; the ends' files contain the initial rates.
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
    Watcher::start("rates", POLL_INTERVAL, move || {
        let Ok(rates) = handle.rates() else {
            return ControlFlow::Break(());
        };
        for (number, name) in names.iter().enumerate() {
            for (socket, way) in &ends {
                let (rate, before) = (rates[number][*way], &mut known[number][*way]);
                if rate != *before && send_rate(socket, name, rate * SHARE / 100) {
                    *before = rate;
                }
            }
        }
        ControlFlow::Continue(())
    })
}

/// Reports a rate to an end and returns whether it was accepted; a busy end is tried again later.
fn send_rate(socket: &Path, link: &str, rate: u64) -> bool {
    let asked = json!({ "cmd": "rate", "name": link, "rate_bps": rate });
    request(socket, &asked).is_some_and(|answer| answer["rate_bps"] == rate)
}
