//! Changes of a link at run time.

use std::time::Duration;

use serde::Serialize;
use sumlink_link::{Change, Jitter, LinkState, Loss, LossScript, Policer, QueueLimit, Trace};

use super::Direction;
use super::syntax::{
    parse_burst, parse_jitter, parse_loss, parse_policer, parse_queue, read_trace,
};
use crate::error::LinkError;
use sumlink_settings::units::{parse_duration, parse_rate};

const KEYS_OF_SET: &str = "rate, trace, burst, policer, delay, jitter, loss, queue, state, \
                           address, connections; down.KEY or up.KEY for one direction";

/// The state of a link as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceState {
    /// It carries packets.
    Up,
    /// The interfaces have no carrier, as with a pulled cable.
    Down,
    /// The carrier is on, but no packet gets through.
    Blackhole,
    /// The client's end has a carrier but no address, as after an expired lease.
    Unaddressed,
    /// The interfaces do not exist, as with a removed adapter.
    Removed,
}

impl InterfaceState {
    /// The model's name of the state.
    pub fn link_state(self) -> LinkState {
        match self {
            Self::Up => LinkState::Up,
            Self::Blackhole => LinkState::Blackhole,
            Self::Down | Self::Unaddressed | Self::Removed => LinkState::Down,
        }
    }

    /// The word for it, as `sumlink-lab set` reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Blackhole => "blackhole",
            Self::Unaddressed => "unaddressed",
            Self::Removed => "removed",
        }
    }
}

/// Treatment of the connections that a link's middlebox tracks; later connections pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// Their packets are dropped, as by an address translator that has lost its mappings.
    Forgotten,
    /// Senders of their packets get a reset.
    Reset,
}

impl Fate {
    /// The word for it, as `sumlink-lab set` reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forgotten => "forgotten",
            Self::Reset => "reset",
        }
    }

    /// The treatment with that name.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        [Self::Forgotten, Self::Reset]
            .into_iter()
            .find(|fate| fate.name() == text)
            .ok_or_else(|| format!("'{text}' is none of forgotten, reset"))
    }
}

/// One property of a link with its new value.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Bits per second.
    Rate(u64),
    /// Bytes that a constant rate sends at once after idle time; 0 for none.
    Burst(u64),
    /// The policer in front of the queue, with a full bucket; `None` removes it.
    Policer(Option<Policer>),
    /// Delivery opportunities in place of a constant rate, starting at the time of the change.
    Trace(Trace),
    /// One-way delay.
    Delay(Duration),
    /// Variation of the delay from packet to packet.
    Jitter(Jitter),
    /// Selection of the lost packets. The times of a script count from the beginning of the run.
    Loss(Loss),
    /// Limit of the queue.
    Queue(QueueLimit),
    /// The state, of both directions.
    State(InterfaceState),
    /// The client's end gets a different address and loses its current one.
    NewAddress,
    /// Treatment of existing connections, in both directions.
    Connections(Fate),
}

impl Setting {
    /// The setting for a change of the model, as profiles produce it; `None` for kinds that the
    /// laboratory's links do not have. A state applies to both directions.
    pub fn of(change: Change) -> Option<Self> {
        Some(match change {
            Change::Rate(rate) => Self::Rate(rate),
            Change::Burst(bytes) => Self::Burst(bytes),
            Change::Policer(policer) => Self::Policer(policer),
            Change::Trace(trace) => Self::Trace(trace),
            Change::Delay(delay) => Self::Delay(delay),
            Change::Jitter(jitter) => Self::Jitter(jitter),
            Change::Loss(loss) => Self::Loss(loss),
            Change::Queue(queue) => Self::Queue(queue),
            Change::State(LinkState::Up) => Self::State(InterfaceState::Up),
            Change::State(LinkState::Down) => Self::State(InterfaceState::Down),
            Change::State(LinkState::Blackhole) => Self::State(InterfaceState::Blackhole),
            _ => return None,
        })
    }

    /// The change of the model; times in it count from `zero`. `None` for addresses and
    /// connections, which the model does not contain.
    pub fn to_change(&self, zero: Duration) -> Option<Change> {
        Some(match self.clone() {
            Self::Rate(rate) => Change::Rate(rate),
            Self::Burst(bytes) => Change::Burst(bytes),
            Self::Policer(policer) => Change::Policer(policer),
            Self::Trace(trace) => Change::Trace(trace),
            Self::Delay(delay) => Change::Delay(delay),
            Self::Jitter(jitter) => Change::Jitter(jitter),
            Self::Loss(Loss::Script(script)) => Change::Loss(Loss::Script(shift(script, zero))),
            Self::Loss(loss) => Change::Loss(loss),
            Self::Queue(queue) => Change::Queue(queue),
            Self::State(state) => Change::State(state.link_state()),
            Self::NewAddress | Self::Connections(_) => return None,
        })
    }
}

fn shift(script: LossScript, by: Duration) -> LossScript {
    let later = |time: Duration| time.saturating_add(by);
    LossScript {
        times: script
            .times
            .into_iter()
            .map(|window| later(window.start)..later(window.end))
            .collect(),
        ..script
    }
}

/// A change to a running link, as `sumlink-lab set` and the control socket read it: `loss=5%`,
/// `down.rate=10mbit`, `state=blackhole`.
///
/// | setting | meaning |
/// | --- | --- |
/// | `rate=20mbit` | a constant rate; `0` blocks all packets |
/// | `trace=FILE` | delivery opportunities in Mahimahi's format: see [`Trace`] |
/// | `burst=32kB` | with a constant rate: bytes sent at once after idle time (tbf's bucket); `0B` for none |
/// | `policer=10mbit:32kB` | drops packets beyond a token bucket of that rate and size; `none` removes it |
/// | `delay=10ms` | one way |
/// | `jitter=2ms` | uniform between -2 and +2 ms; packets keep their order |
/// | `jitter=normal:2ms` | normal with that standard deviation, truncated at three of them |
/// | `jitter=2ms:reorder`, `jitter=normal:2ms:reorder` | the same; packets may overtake each other |
/// | `loss=5%` | each packet, independently |
/// | `loss=burst:5%:8` | 5 % of all packets, in bursts of 8 packets on average (Gilbert) |
/// | `loss=gilbert:P:R` | states good and bad: from good to bad with probability P before a packet, back with R; everything is lost in the bad one |
/// | `loss=gilbert:P:R:GOOD:BAD` | Gilbert-Elliott: the probability of loss in each state |
/// | `loss=script:7+20-29+1s-1.5s` | packet 7, packets 20 to 29 (counted from 0), and all packets from 1 s until before 1.5 s |
/// | `queue=50ms`, `queue=64KiB` | drop-tail; the bytes that the link sends in that time, or a number of bytes |
/// | `state=up`, `down`, `blackhole`, `unaddressed`, `removed` | both directions |
/// | `address=new` | the client's end gets a different address in place of its current one |
/// | `connections=forgotten`, `connections=reset` | packets of existing connections are dropped, or answered with a reset; new connections pass |
#[derive(Clone, Debug, PartialEq)]
pub struct LinkChange {
    /// The affected direction; both if `None`.
    pub direction: Option<Direction>,
    /// The new value.
    pub setting: Setting,
}

impl LinkChange {
    /// Parses a `key=value` for the link called `link`. A trace's file is read at once.
    pub fn parse_for(link: &str, text: &str) -> Result<Self, LinkError> {
        Self::parse(link, text, KEYS_OF_SET)
    }

    /// A new state.
    pub fn state(state: InterfaceState) -> Self {
        Self {
            direction: None,
            setting: Setting::State(state),
        }
    }

    /// The affected directions.
    pub fn directions(&self) -> impl Iterator<Item = Direction> + use<> {
        let only = self.direction;
        Direction::BOTH
            .into_iter()
            .filter(move |d| only.is_none_or(|only| only == *d))
    }

    pub(super) fn parse(link: &str, text: &str, known: &'static str) -> Result<Self, LinkError> {
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
        let wrong = |reason: String| LinkError::BadModel {
            link: link.to_owned(),
            key: whole_key.to_owned(),
            reason,
        };
        let setting = match key {
            "rate" => Setting::Rate(parse_rate(value).map_err(bad)?),
            "trace" => Setting::Trace(read_trace(value).map_err(wrong)?),
            "burst" => Setting::Burst(parse_burst(value).map_err(bad)?),
            "policer" => Setting::Policer(parse_policer(value).map_err(wrong)?),
            "delay" => Setting::Delay(parse_duration(value).map_err(bad)?),
            "jitter" => Setting::Jitter(parse_jitter(value).map_err(bad)?),
            "loss" => Setting::Loss(parse_loss(value).map_err(wrong)?),
            "queue" => Setting::Queue(parse_queue(value).map_err(bad)?),
            "state" if direction.is_none() => Setting::State(parse_state(link, value)?),
            "address" if direction.is_none() => parse_address(value).map_err(wrong)?,
            "connections" if direction.is_none() => {
                Setting::Connections(Fate::parse(value).map_err(wrong)?)
            }
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

/// A change that the emulator makes at a scheduled time.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedChange {
    /// Time since the beginning of the run.
    pub at: Duration,
    /// The link's name.
    pub link: String,
    /// The change. [`InterfaceState::Removed`] cannot be scheduled.
    pub change: LinkChange,
}

pub(crate) fn parse_state(link: &str, text: &str) -> Result<InterfaceState, LinkError> {
    use InterfaceState::{Blackhole, Down, Removed, Unaddressed, Up};
    [Up, Down, Blackhole, Unaddressed, Removed]
        .into_iter()
        .find(|state| state.name() == text)
        .ok_or_else(|| LinkError::UnknownState {
            link: link.to_owned(),
            state: text.to_owned(),
        })
}

/// Parses the only value for an address: `new`.
pub(crate) fn parse_address(text: &str) -> Result<Setting, String> {
    match text {
        "new" => Ok(Setting::NewAddress),
        _ => Err(format!("'{text}' is not 'new'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read() {
        let change = LinkChange::parse_for("wifi", "down.loss=1%").unwrap();
        assert_eq!(change.directions().collect::<Vec<_>>(), [Direction::Down]);
        assert_eq!(change.setting, Setting::Loss(Loss::Independent(0.01)));
        let change = LinkChange::parse_for("wifi", "state=blackhole").unwrap();
        assert_eq!(change.setting, Setting::State(InterfaceState::Blackhole));
        assert!(LinkChange::parse_for("wifi", "state=asleep").is_err());
        assert!(LinkChange::parse_for("wifi", "up.state=down").is_err());
        let setting = |text: &str| LinkChange::parse_for("wifi", text).unwrap().setting;
        assert_eq!(
            setting("connections=reset"),
            Setting::Connections(Fate::Reset)
        );
        assert_eq!(setting("address=new"), Setting::NewAddress);
        assert_eq!(setting("burst=32kB"), Setting::Burst(32_000));
        let policer = Policer {
            rate: 10_000_000,
            burst: 64_000,
        };
        assert_eq!(
            setting("policer=10mbit:64kB"),
            Setting::Policer(Some(policer))
        );
        assert_eq!(setting("policer=none"), Setting::Policer(None));
        for wrong in [
            "burst=50ms",
            "policer=10mbit",
            "policer=10mbit:1kB",
            "policer=64kB:10mbit",
            "address=10.0.0.1",
            "connections=gone",
            "up.connections=reset",
        ] {
            assert!(LinkChange::parse_for("wifi", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_script_counts_from_the_beginning() {
        let change = LinkChange::parse_for("wifi", "loss=script:7+1s-2s").unwrap();
        let Some(Change::Loss(Loss::Script(script))) =
            change.setting.to_change(Duration::from_secs(10))
        else {
            panic!("not a script");
        };
        assert_eq!(script.packets.first(), Some(&(7..8)));
        assert_eq!(
            script.times.first(),
            Some(&(Duration::from_secs(11)..Duration::from_secs(12)))
        );
    }
}
