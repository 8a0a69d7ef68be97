//! What a path may be used for, as whoever owns its link decided.

use core::time::Duration;

/// When a path gets work, from the words in which people think of their links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Whenever there is something to send.
    #[default]
    Primary,
    /// When more waits than the primary paths deliver soon, or none of them delivers.
    Secondary,
    /// While no other path delivers.
    Backup,
    /// Never: the path carries confirmations and control frames, and no stream's bytes.
    Never,
}

impl Priority {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Primary, Self::Secondary, Self::Backup, Self::Never];

    /// The word for it in configuration files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::Backup => "backup",
            Self::Never => "never",
        }
    }

    /// The priority of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.name() == name)
    }

    /// Its number in a POLICY frame.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The priority of that number.
    pub fn by_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }
}

/// What one end may send over a path. A path of which nothing is said is primary, without any bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathPolicy {
    /// When it gets work.
    pub priority: Priority,
    /// Its bytes cost money: what another path carries is not raced over it ([`Pick::Race`](crate::scheduler::Pick::Race)).
    /// What another path has failed to deliver still is, and a scheduler that is made to send everything twice does so.
    pub metered: bool,
    /// It is treated as a backup while a byte takes this much longer over it than over the fastest other path.
    pub max_added_latency: Option<Duration>,
}

/// What an end is told of a path by the other one, in a POLICY frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerPolicy {
    /// What it may send over the path.
    pub policy: PathPolicy,
    /// The most that it may send over the path, in bytes per second; the carrier keeps to it, the engine only tells
    /// ([`Event::PathLimited`](crate::Event::PathLimited)).
    pub rate: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_priority_has_one_name_and_one_number() {
        for priority in Priority::ALL {
            assert_eq!(Priority::by_name(priority.name()), Some(priority));
            assert_eq!(Priority::by_code(priority.code()), Some(priority));
        }
        assert_eq!(Priority::by_name("always"), None);
        assert_eq!(Priority::by_code(4), None);
    }
}
