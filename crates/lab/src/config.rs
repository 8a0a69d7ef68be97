//! What the links are like, and how they change while they run.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;
use sumlink_link::{LinkConfig, LinkState, QueueLimit};

use crate::error::LinkError;
use crate::units::{
    format_duration, format_percentage, format_rate, parse_duration, parse_percentage, parse_rate,
    parse_size,
};

/// The highest rate of one direction of a link, in bit/s: what one thread carries packet by packet with
/// both ends on the same machine.
pub const MAX_RATE: u64 = 2_500_000_000;

/// The most links of one laboratory.
pub const MAX_LINKS: usize = 64;

const KEYS: &str = "rate, delay, loss, queue; down.KEY or up.KEY for one direction";
const KEYS_OF_SET: &str = "rate, delay, loss, queue, state; down.KEY or up.KEY for one direction";

/// Which way packets travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

impl Direction {
    /// Both, in the order in which everything here keeps them.
    pub const BOTH: [Self; 2] = [Self::Up, Self::Down];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// One direction of an emulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Bits per second, at most [`MAX_RATE`]; 0 lets nothing pass.
    pub rate: u64,
    /// One-way delay.
    pub delay: Duration,
    /// Probability of loss, 0.0..=1.0.
    pub loss: f64,
    /// What the queue holds.
    pub queue: QueueLimit,
}

impl Shape {
    pub(crate) fn link_config(&self, seed: u64) -> LinkConfig {
        LinkConfig {
            rate: self.rate,
            delay: self.delay,
            loss: self.loss,
            queue: self.queue,
            seed,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = match self.queue {
            QueueLimit::Bytes(bytes) => format!("{bytes}B"),
            QueueLimit::Time(time) => format_duration(time),
        };
        write!(
            f,
            "rate={},delay={},loss={},queue={queue}",
            format_rate(self.rate),
            format_duration(self.delay),
            format_percentage(self.loss),
        )
    }
}

/// An emulated link, as written on the command line:
/// `NAME:rate=60mbit,delay=10ms,loss=0%,queue=50ms`.
///
/// `rate` must be given. Without `delay` and `loss` there is none, without `queue` it holds 50 ms. A key
/// with `up.` or `down.` before it holds for that direction only; the last one counts.
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
        let shape = Shape {
            rate: 0,
            delay: Duration::ZERO,
            loss: 0.0,
            queue: QueueLimit::Time(Duration::from_millis(50)),
        };
        let mut shapes = [shape.clone(), shape];
        let mut has_rate = [false; 2];
        for setting in settings.split(',').filter(|s| !s.trim().is_empty()) {
            let change = LinkChange::parse(name, setting, KEYS)?;
            for direction in change.directions() {
                let shape = &mut shapes[direction.index()];
                match change.setting {
                    Setting::Rate(rate) => {
                        shape.rate = rate;
                        has_rate[direction.index()] = true;
                    }
                    Setting::Delay(delay) => shape.delay = delay,
                    Setting::Loss(loss) => shape.loss = loss,
                    Setting::Queue(queue) => shape.queue = queue,
                    Setting::State(_) => {
                        return Err(LinkError::UnknownKey {
                            link: name.to_owned(),
                            key: "state".to_owned(),
                            known: KEYS,
                        });
                    }
                }
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

/// The state of a link as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceState {
    /// It carries packets.
    Up,
    /// The interfaces have no carrier, as when a cable is pulled.
    Down,
    /// The carrier is up and nothing gets through.
    Blackhole,
    /// The interfaces do not exist, as when an adapter is pulled.
    Removed,
}

impl InterfaceState {
    pub(crate) fn link_state(self) -> LinkState {
        match self {
            Self::Up => LinkState::Up,
            Self::Blackhole => LinkState::Blackhole,
            Self::Down | Self::Removed => LinkState::Down,
        }
    }

    /// The word for it, as `lab set` reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Blackhole => "blackhole",
            Self::Removed => "removed",
        }
    }
}

/// One property of a link with its new value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// Bits per second.
    Rate(u64),
    /// One-way delay.
    Delay(Duration),
    /// Probability of loss, 0.0..=1.0.
    Loss(f64),
    /// What the queue holds.
    Queue(QueueLimit),
    /// The state, of both directions.
    State(InterfaceState),
}

/// A change to a running link, as `lab set` and the control socket read it: `loss=5%`,
/// `down.rate=10mbit`, `state=blackhole`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkChange {
    /// The direction it holds for; both when not given.
    pub direction: Option<Direction>,
    /// What changes.
    pub setting: Setting,
}

impl LinkChange {
    /// Reads a `key=value` for the link called `link`.
    pub fn parse_for(link: &str, text: &str) -> Result<Self, LinkError> {
        Self::parse(link, text, KEYS_OF_SET)
    }

    /// The directions that the change holds for.
    pub fn directions(&self) -> impl Iterator<Item = Direction> + use<> {
        let only = self.direction;
        Direction::BOTH
            .into_iter()
            .filter(move |d| only.is_none_or(|only| only == *d))
    }

    fn parse(link: &str, text: &str, known: &'static str) -> Result<Self, LinkError> {
        let (whole_key, value) = text
            .trim()
            .split_once('=')
            .ok_or_else(|| LinkError::NotASetting(text.trim().to_owned()))?;
        let (direction, key) = match whole_key.split_once('.') {
            None => (None, whole_key),
            Some(("up", key)) => (Some(Direction::Up), key),
            Some(("down", key)) => (Some(Direction::Down), key),
            Some(_) => (None, ""),
        };
        let bad = |source| LinkError::BadValue {
            link: link.to_owned(),
            key: whole_key.to_owned(),
            source: Box::new(source),
        };
        let setting = match key {
            "rate" => Setting::Rate(check_rate(link, parse_rate(value).map_err(bad)?)?),
            "delay" => Setting::Delay(parse_duration(value).map_err(bad)?),
            "loss" => Setting::Loss(parse_percentage(value).map_err(bad)?),
            "queue" => Setting::Queue(parse_queue(value).map_err(bad)?),
            "state" if direction.is_none() => Setting::State(parse_state(link, value)?),
            _ => {
                return Err(LinkError::UnknownKey {
                    link: link.to_owned(),
                    key: whole_key.to_owned(),
                    known,
                });
            }
        };
        Ok(Self { direction, setting })
    }
}

/// Checks what no single link can know: how many there are, and that no two share a name.
pub fn check_links(links: &[LinkSpec]) -> Result<(), LinkError> {
    if links.is_empty() || links.len() > MAX_LINKS {
        return Err(LinkError::Count(links.len()));
    }
    let mut names = HashSet::new();
    for link in links {
        check_name(&link.name)?;
        if !names.insert(&link.name) {
            return Err(LinkError::DuplicateName(link.name.clone()));
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), LinkError> {
    let plausible = name.len() <= 15
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        && name != "lo";
    if plausible {
        Ok(())
    } else {
        Err(LinkError::BadName(name.to_owned()))
    }
}

fn check_rate(link: &str, rate: u64) -> Result<u64, LinkError> {
    if rate <= MAX_RATE {
        return Ok(rate);
    }
    Err(LinkError::TooFast {
        link: link.to_owned(),
        rate: format_rate(rate),
        limit: format_rate(MAX_RATE),
    })
}

/// A queue is limited in time (`50ms`) or in bytes (`64KiB`).
fn parse_queue(text: &str) -> Result<QueueLimit, crate::units::UnitError> {
    if text.trim().to_ascii_lowercase().ends_with('b') {
        return parse_size(text).map(QueueLimit::Bytes);
    }
    parse_duration(text).map(QueueLimit::Time)
}

fn parse_state(link: &str, text: &str) -> Result<InterfaceState, LinkError> {
    use InterfaceState::{Blackhole, Down, Removed, Up};
    [Up, Down, Blackhole, Removed]
        .into_iter()
        .find(|state| state.name() == text)
        .ok_or_else(|| LinkError::UnknownState {
            link: link.to_owned(),
            state: text.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<LinkSpec>().unwrap_err().to_string()
    }

    #[test]
    fn a_link_is_read_and_written() {
        let link: LinkSpec = "wifi:rate=60mbit,delay=10ms,loss=5%,queue=50ms"
            .parse()
            .unwrap();
        assert_eq!(link.shapes[0].rate, 60_000_000);
        assert_eq!(link.shapes[1].loss, 0.05);
        assert_eq!(
            link.to_string(),
            "wifi:rate=60mbit,delay=10ms,loss=5%,queue=50ms"
        );
        assert_eq!(link.to_string().parse::<LinkSpec>().unwrap(), link);
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
        assert_eq!(
            error("wifi:rate=8gbit"),
            "link 'wifi': 8gbit is more than the emulator carries packet by packet; ask for at most 2.5gbit"
        );
        let twice = [
            "a:rate=1mbit".parse().unwrap(),
            "a:rate=2mbit".parse().unwrap(),
        ];
        assert_eq!(
            check_links(&twice),
            Err(LinkError::DuplicateName("a".to_owned()))
        );
        assert_eq!(check_links(&[]), Err(LinkError::Count(0)));
    }

    #[test]
    fn changes_are_read() {
        let change = LinkChange::parse_for("wifi", "down.loss=1%").unwrap();
        assert_eq!(change.directions().collect::<Vec<_>>(), [Direction::Down]);
        assert_eq!(change.setting, Setting::Loss(0.01));
        let change = LinkChange::parse_for("wifi", "state=blackhole").unwrap();
        assert_eq!(change.setting, Setting::State(InterfaceState::Blackhole));
        assert!(LinkChange::parse_for("wifi", "state=asleep").is_err());
        assert!(LinkChange::parse_for("wifi", "up.state=down").is_err());
    }
}
