//! Text forms of policy values, for the command line, configuration files and JSON.

use sumlink_engine::Priority;

use super::{Beyond, Direction};

/// Parses a priority.
pub fn parse_priority(text: &str) -> Result<Priority, String> {
    Priority::by_name(text).ok_or_else(|| {
        let names = Priority::ALL.map(Priority::name).join(", ");
        format!("`{text}` is not a priority: write one of {names}")
    })
}

/// Parses a direction.
pub fn parse_direction(text: &str) -> Result<Direction, String> {
    match text {
        "both" => Ok(Direction::Both),
        "up" => Ok(Direction::Up),
        "down" => Ok(Direction::Down),
        _ => Err(format!(
            "`{text}` is not a direction: write one of both, up (to the server), down"
        )),
    }
}

/// Parses the action beyond a cap; `rate` parses a rate in bit/s.
pub fn parse_beyond(
    text: &str,
    rate: impl FnOnce(&str) -> Result<u64, String>,
) -> Result<Beyond, String> {
    match text {
        "backup" => Ok(Beyond::Backup),
        "never" => Ok(Beyond::Never),
        _ => rate(text).map(Beyond::Limit).map_err(|_| {
            format!("`{text}` is not an action beyond a cap: write backup, never, or a rate such as 1mbit")
        }),
    }
}

impl Direction {
    /// The text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Serializes a priority as its name.
pub(super) mod priority {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use sumlink_engine::Priority;

    pub(crate) fn serialize<S: Serializer>(
        priority: &Option<Priority>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        priority.map(Priority::name).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Priority>, D::Error> {
        let name = Option::<String>::deserialize(from)?;
        name.map(|name| super::parse_priority(&name).map_err(D::Error::custom))
            .transpose()
    }
}

/// Serializes a duration in microseconds.
pub(super) mod duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_micros() as u64).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_micros))
    }
}
