//! What a path may be used for, as the owner of its link decided.

use core::time::Duration;

/// When a path carries data, in the terms in which users think of their links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Whenever data is waiting.
    #[default]
    Primary,
    /// When more data waits than the primary paths deliver soon, or none of them delivers.
    Secondary,
    /// While no other path delivers.
    Backup,
    /// Never: the path carries acknowledgments and control frames, but no stream data.
    Never,
}

impl Priority {
    /// All priorities, in the order of their codes.
    pub const ALL: [Self; 4] = [Self::Primary, Self::Secondary, Self::Backup, Self::Never];

    /// The name in configuration files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Secondary => "secondary",
            Self::Backup => "backup",
            Self::Never => "never",
        }
    }

    /// The priority with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|priority| priority.name() == name)
    }

    /// Its number in a POLICY frame.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The priority with this number.
    pub fn by_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.code() == code)
    }
}

/// What one end may send over a path. The default is primary, without any limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathPolicy {
    /// When the path carries data.
    pub priority: Priority,
    /// The link's bytes cost money, so data that another path carries is not raced over it
    /// ([`Pick::Race`](crate::scheduler::Pick::Race)). Two exceptions remain: data that another
    /// path has failed to deliver, and schedulers that send everything twice.
    pub metered: bool,
    /// The path is treated as a backup while a byte takes this much longer over it than over the
    /// fastest other path.
    pub max_added_latency: Option<Duration>,
}

/// The policy for a path that one end sends to the other in a POLICY frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerPolicy {
    /// What it may send over the path.
    pub policy: PathPolicy,
    /// The highest rate that it may send over the path, in bytes per second. The carrier enforces
    /// it; the engine only reports it ([`Event::PathLimited`](crate::Event::PathLimited)).
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
