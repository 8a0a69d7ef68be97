//! Tells the ends of an edge node what their links carry while that changes, as a cell knows it of its own radio.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::json;

use crate::config::Direction;
use crate::error::LabError;
use crate::laboratory::LinkWatch;

use super::sumlink::request;

/// How often the links are looked at. A profile changes its rate every 100 ms.
const LOOK: Duration = Duration::from_millis(10);

/// An end, and which way it sends.
pub(super) struct End {
    pub(super) control: PathBuf,
    pub(super) way: Direction,
}

/// A thread that looks at the links; dropping it ends the thread.
pub(crate) struct Rates {
    /// Nothing is ever sent: that it is gone ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Rates {
    /// Follows the links of these names, which have been configured with `known`; an end is told `share` percent.
    pub(super) fn follow(
        watch: LinkWatch,
        names: Vec<String>,
        known: Vec<[u64; 2]>,
        ends: [End; 2],
        share: u64,
    ) -> Result<Self, LabError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let work = move || {
            let mut known = known;
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let Ok(rates) = watch.rates() else {
                    return;
                };
                for (number, name) in names.iter().enumerate() {
                    for end in &ends {
                        let (rate, before) = (
                            rates[number][end.way.index()],
                            &mut known[number][end.way.index()],
                        );
                        if rate != *before && tell(end, name, rate * share / 100) {
                            *before = rate;
                        }
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("rates".to_owned()).spawn(work);
        let thread = thread.map_err(|error| LabError::system("starting a thread", error))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Whether the end has taken it; one that is just busy is told again.
fn tell(end: &End, link: &str, rate: u64) -> bool {
    let asked = json!({ "cmd": "rate", "name": link, "rate_bps": rate });
    let answer = request(&end.control, &asked);
    answer.is_some_and(|answer| answer["rate_bps"] == rate)
}

impl Drop for Rates {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
