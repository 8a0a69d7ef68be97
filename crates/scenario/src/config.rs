//! Properties of the links, and changes to them at run time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use sumlink_link::{Jitter, LinkConfig, Loss, Policer, QueueLimit, Trace};

use crate::error::LinkError;
use sumlink_settings::units::{format_duration, format_rate};

mod change;
mod check;
mod groups;
mod syntax;

pub use change::{Fate, InterfaceState, LinkChange, PlannedChange, Setting};
pub(crate) use change::{parse_address, parse_state};
pub(crate) use check::check_name;
pub use check::{MAX_LINKS, MAX_RATE, MAX_RATE_GSO, check_links};
pub use check::{check_rate, find_link};
pub(crate) use check::{check_rates, load_warning};
pub use groups::{CouplingGroup, InterfererSpec, RadioSpec, members};
pub(crate) use syntax::{
    MAX_TRACE, parse_burst, parse_jitter, parse_loss, parse_policer, parse_queue,
};

/// Settings for creating a link, for messages and help.
const KEYS: &str = "rate or trace, burst, policer, delay, jitter, loss, queue; down.KEY or up.KEY \
                    for one direction";

/// Direction in which packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    /// Both, in the order used throughout.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    /// 0 for up, 1 for down.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One direction of an emulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Bits per second, at most [`MAX_RATE`], or [`MAX_RATE_GSO`] with segmentation offload; 0
    /// blocks all packets. With a trace this is its mean rate.
    pub rate: u64,
    /// Bytes that a constant rate sends at once after idle time, as a token bucket filter (tbf)
    /// does; 0 for none.
    pub burst: u64,
    /// A token-bucket policer in front of the queue.
    pub policer: Option<Policer>,
    /// Delivery opportunities in place of a constant rate.
    pub trace: Option<Trace>,
    /// One-way delay.
    pub delay: Duration,
    /// Variation of the delay from packet to packet.
    pub jitter: Jitter,
    /// Selection of the lost packets.
    pub loss: Loss,
    /// Limit of the queue.
    pub queue: QueueLimit,
}

impl Shape {
    /// The given rate and a queue of 50 ms; no delay and no loss.
    pub fn of_rate(rate: u64) -> Self {
        Self {
            rate,
            burst: 0,
            policer: None,
            trace: None,
            delay: Duration::ZERO,
            jitter: Jitter::NONE,
            loss: Loss::NONE,
            queue: QueueLimit::Time(Duration::from_millis(50)),
        }
    }

    /// The sustainable rate in bits per second: the rate, or the policer's if that is lower.
    pub fn long_term_rate(&self) -> u64 {
        self.policer
            .map_or(self.rate, |policer| self.rate.min(policer.rate))
    }

    /// Changes one property. States, addresses and connections do not belong to a single direction
    /// and are ignored.
    pub fn set(&mut self, setting: &Setting) {
        match setting.clone() {
            Setting::Rate(rate) => (self.rate, self.trace) = (rate, None),
            Setting::Burst(bytes) => self.burst = bytes,
            Setting::Policer(policer) => self.policer = policer,
            Setting::Trace(trace) => (self.rate, self.trace) = (trace.mean_rate(), Some(trace)),
            Setting::Delay(delay) => self.delay = delay,
            Setting::Jitter(jitter) => self.jitter = jitter,
            Setting::Loss(loss) => self.loss = loss,
            Setting::Queue(queue) => self.queue = queue,
            Setting::State(_) | Setting::NewAddress | Setting::Connections(_) => {}
        }
    }

    /// The model's link before [`Shape::rest`] is applied to it. The network sets its seed.
    pub fn link_config(&self) -> LinkConfig {
        LinkConfig {
            rate: self.rate,
            delay: self.delay,
            loss: 0.0,
            queue: self.queue,
            seed: 0,
        }
    }

    /// Settings that [`Shape::link_config`] does not cover; they restart when a run begins.
    pub fn rest(&self) -> impl Iterator<Item = Setting> + use<> {
        let trace = self.trace.clone().map(Setting::Trace);
        let others = [
            Setting::Burst(self.burst),
            Setting::Policer(self.policer),
            Setting::Jitter(self.jitter),
            Setting::Loss(self.loss.clone()),
        ];
        trace.into_iter().chain(others)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = match self.queue {
            QueueLimit::Bytes(bytes) => format!("{bytes}B"),
            QueueLimit::Time(time) => format_duration(time),
        };
        match &self.trace {
            None => write!(f, "rate={}", format_rate(self.rate))?,
            Some(trace) => write!(
                f,
                "trace of {} in {}",
                format_rate(self.rate),
                format_duration(trace.period())
            )?,
        }
        if self.burst != 0 {
            write!(f, ",burst={}B", self.burst)?;
        }
        if self.policer.is_some() {
            write!(f, ",policer={}", syntax::format_policer(self.policer))?;
        }
        write!(f, ",delay={}", format_duration(self.delay))?;
        if self.jitter != Jitter::NONE {
            write!(f, ",jitter={}", syntax::format_jitter(self.jitter))?;
        }
        write!(f, ",loss={},queue={queue}", syntax::format_loss(&self.loss))
    }
}

/// An emulated link, as written on the command line:
/// `NAME:rate=60mbit,delay=10ms,jitter=1ms,loss=0%,queue=50ms`, or with `trace=FILE` in place of
/// the rate.
///
/// Either `rate` or `trace` is required. The defaults are no `burst`, `policer`, `delay`, `jitter`
/// or `loss`, and a `queue` of 50 ms. A key with the prefix `up.` or `down.` applies to that
/// direction only; the last one wins. [`LinkChange`] describes the format of the values.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// The interface's name in both namespaces.
    pub name: String,
    /// Client to server, then server to client.
    pub shapes: [Shape; 2],
}

impl FromStr for LinkSpec {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        check_name(name)?;
        let mut shapes = [Shape::of_rate(0), Shape::of_rate(0)];
        let mut has_rate = [false; 2];
        for setting in settings.split(',').filter(|s| !s.trim().is_empty()) {
            let change = LinkChange::parse(name, setting, KEYS)?;
            let of_running = match change.setting {
                Setting::State(_) => Some("state"),
                Setting::NewAddress => Some("address"),
                Setting::Connections(_) => Some("connections"),
                _ => None,
            };
            if let Some(key) = of_running {
                return Err(LinkError::UnknownKey {
                    link: name.to_owned(),
                    key: key.to_owned(),
                    known: KEYS,
                });
            }
            for direction in change.directions() {
                shapes[direction.index()].set(&change.setting);
                has_rate[direction.index()] |=
                    matches!(change.setting, Setting::Rate(_) | Setting::Trace(_));
            }
        }
        if has_rate != [true; 2] {
            return Err(LinkError::Missing {
                link: name.to_owned(),
                key: "rate",
                example: "60mbit",
            });
        }
        Ok(Self {
            name: name.to_owned(),
            shapes,
        })
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [up, down] = &self.shapes;
        if up == down {
            write!(f, "{}:{up}", self.name)
        } else {
            write!(f, "{} (up {up}; down {down})", self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<LinkSpec>().unwrap_err().to_string()
    }

    #[test]
    fn a_link_is_read_and_written() {
        for text in [
            "wifi:rate=60mbit,delay=10ms,loss=5%,queue=50ms",
            "wifi:rate=60mbit,burst=32000B,policer=10mbit:64000B,delay=10ms,loss=0%,queue=50ms",
            "wifi:rate=60mbit,delay=10ms,jitter=normal:2ms:reorder,loss=script:7+20-29,queue=1000B",
        ] {
            let link: LinkSpec = text.parse().unwrap();
            assert_eq!(link.shapes[0].rate, 60_000_000);
            assert_eq!(link.to_string(), text);
        }
    }

    #[test]
    fn directions_may_differ() {
        let link: LinkSpec = "lte:rate=40mbit,up.rate=5mbit,queue=64KiB".parse().unwrap();
        assert_eq!(
            link.shapes.each_ref().map(|s| s.rate),
            [5_000_000, 40_000_000]
        );
        assert_eq!(link.shapes[0].queue, QueueLimit::Bytes(65_536));
    }

    #[test]
    fn a_trace_is_a_rate() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "1\n2\n").unwrap();
        let text = format!("lte:up.rate=5mbit,down.trace={}", file.path().display());
        let link: LinkSpec = text.parse().unwrap();
        assert_eq!(link.shapes[1].rate, 12_000_000);
        assert_eq!(link.shapes[1].trace.as_ref().unwrap().opportunities(), 2);
        std::fs::write(&file, "1\n2\n3\n4\n5\n6\n7 eight\n").unwrap();
        let line = error(&text);
        assert!(
            line.contains("down.trace") && line.contains("line 7"),
            "{line}"
        );
        assert!(error("lte:trace=/nowhere/at/all").contains("/nowhere/at/all: No such file"));
    }

    #[test]
    fn every_mistake_gets_its_line() {
        assert!(error("wifi").contains("has no rate"));
        assert!(error("wifi:up.rate=1mbit").contains("has no rate"));
        assert!(error("lo:rate=1mbit").contains("cannot be a link's name"));
        assert!(error("a-name-far-too-long:rate=1mbit").contains("cannot be a link's name"));
        assert!(error("../x:rate=1mbit").contains("cannot be a link's name"));
        assert!(error("wifi:rate").contains("not a setting"));
        assert!(error("wifi:speed=1mbit").contains("unknown setting 'speed'"));
        assert!(error("wifi:side.rate=1mbit").contains("unknown setting 'side.rate'"));
        assert!(error("wifi:rate=1mbit,state=down").contains("unknown setting 'state'"));
        assert!(error("wifi:rate=1").contains("has no unit"));
    }
}
