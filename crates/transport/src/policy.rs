//! What a client's links may be used for, in the words of those who pay for them: priorities, directions, limits and
//! caps.
//!
//! A [`LinkPolicy`] comes from the configuration, or from whoever changes it at run time
//! ([`Client::set_link_policy`](crate::Client::set_link_policy)). What becomes of it for a session is what this side may
//! send over each path of the link, and what the server is told.

mod calendar;
mod policies;
mod store;
mod words;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sumlink_engine::{PathPolicy, PeerPolicy, Priority};

pub use calendar::Usage;
pub(crate) use policies::Policies;
pub use policies::{LinkReport, Source};
pub use store::StateError;
pub(crate) use store::check as check_state;
pub use words::{parse_beyond, parse_direction, parse_priority};

/// Which way a link carries streams' bytes. Confirmations go both ways in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both ways.
    #[default]
    Both,
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What becomes of a link that has moved what it may in a day or a month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beyond {
    /// It works while no other link delivers.
    #[default]
    Backup,
    /// It is not used until the next day or month begins.
    Never,
    /// It goes on at this rate, in bit/s, each way.
    Limit(u64),
}

/// What a link may be used for. The default is everything, without any bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkPolicy {
    /// What people call it; only shown.
    pub label: String,
    /// When it gets work; without it primary, and secondary where it is metered.
    #[serde(with = "words::priority")]
    pub priority: Option<Priority>,
    /// Its bytes cost money: nothing is raced over it, and it is secondary unless its priority says otherwise.
    pub metered: bool,
    /// Which way it carries streams' bytes.
    pub direction: Direction,
    /// The most that the client sends over it, in bit/s.
    pub send_limit: Option<u64>,
    /// The most that the server sends over it, in bit/s.
    pub receive_limit: Option<u64>,
    /// It is a backup while it is slower than the fastest other link by more than this.
    #[serde(with = "words::duration")]
    pub max_added_latency: Option<Duration>,
    /// What it may move in a day, in bytes of both directions.
    pub cap_day: Option<u64>,
    /// What it may move in a month, in bytes of both directions.
    pub cap_month: Option<u64>,
    /// The day on which its month begins, 1 to 31; the last of a month that has no such day.
    pub reset_day: u8,
    /// What becomes of it beyond a cap.
    pub beyond: Beyond,
}

impl Default for LinkPolicy {
    fn default() -> Self {
        Self {
            label: String::new(),
            priority: None,
            metered: false,
            direction: Direction::Both,
            send_limit: None,
            receive_limit: None,
            max_added_latency: None,
            cap_day: None,
            cap_month: None,
            reset_day: 1,
            beyond: Beyond::Backup,
        }
    }
}

/// A policy that cannot be meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// No month has this day.
    #[error("reset_day must be from 1 to 31, not {0}")]
    ResetDay(u8),
    /// A carrier under so tight a limit does not even get its confirmations through.
    #[error("a limit must be at least {least} bit/s, not {0}", least = LinkPolicy::LEAST_LIMIT)]
    Limit(u64),
    /// Longer than anybody wants to read.
    #[error("a label has at most {most} characters and no control characters", most = LinkPolicy::LONGEST_LABEL)]
    Label,
    /// Longer than anything waits.
    #[error("max_added_latency must be at most 60s")]
    Latency,
}

impl LinkPolicy {
    /// The least limit, in bit/s.
    pub const LEAST_LIMIT: u64 = 8_000;

    /// Most characters of a label.
    pub const LONGEST_LABEL: usize = 64;

    /// Whether the values make sense.
    pub fn check(&self) -> Result<(), PolicyError> {
        if !(1..=31).contains(&self.reset_day) {
            return Err(PolicyError::ResetDay(self.reset_day));
        }
        let beyond = match self.beyond {
            Beyond::Limit(limit) => Some(limit),
            Beyond::Backup | Beyond::Never => None,
        };
        let mut limits = [self.send_limit, self.receive_limit, beyond]
            .into_iter()
            .flatten();
        if let Some(limit) = limits.find(|limit| *limit < Self::LEAST_LIMIT) {
            return Err(PolicyError::Limit(limit));
        }
        let printable = self.label.chars().all(|c| !c.is_control());
        if !printable || self.label.chars().count() > Self::LONGEST_LABEL {
            return Err(PolicyError::Label);
        }
        match self.max_added_latency {
            Some(latency) if latency > Duration::from_secs(60) => Err(PolicyError::Latency),
            _ => Ok(()),
        }
    }

    /// Whether what it moves has to be remembered over restarts.
    pub fn has_cap(&self) -> bool {
        self.cap_day.is_some() || self.cap_month.is_some()
    }

    /// When the link gets work, `used_up` if it has moved what it may.
    pub fn priority(&self, used_up: bool) -> Priority {
        let own = match (self.priority, self.metered) {
            (Some(priority), _) => priority,
            (None, true) => Priority::Secondary,
            (None, false) => Priority::Primary,
        };
        match self.beyond {
            Beyond::Backup if used_up => own.max(Priority::Backup),
            Beyond::Never if used_up => Priority::Never,
            _ => own,
        }
    }

    /// What it means for each of so many paths over the link.
    pub(crate) fn terms(&self, used_up: bool, paths: usize) -> Terms {
        let priority = self.priority(used_up);
        let bound = match self.beyond {
            Beyond::Limit(limit) if used_up => Some(limit),
            _ => None,
        };
        // Each path gets an equal part; in bytes.
        let rate = |limit: Option<u64>| {
            let limits = limit.into_iter().chain(bound);
            limits
                .min()
                .map(|limit| (limit / 8 / paths.max(1) as u64).max(1))
        };
        let way = |carries| PathPolicy {
            priority: match carries {
                true => priority,
                false => Priority::Never,
            },
            metered: self.metered,
            max_added_latency: self.max_added_latency,
        };
        Terms {
            own: way(self.direction != Direction::Down),
            send_rate: rate(self.send_limit),
            peer: PeerPolicy {
                policy: way(self.direction != Direction::Up),
                rate: rate(self.receive_limit),
            },
        }
    }
}

/// What a policy means for one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// What this side may send over it.
    pub(crate) own: PathPolicy,
    /// The most of it, in bytes per second.
    pub(crate) send_rate: Option<u64>,
    /// What the server is told.
    pub(crate) peer: PeerPolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metered_link_is_secondary_unless_its_owner_says_otherwise() {
        let mut policy = LinkPolicy {
            metered: true,
            ..LinkPolicy::default()
        };
        assert_eq!(policy.priority(false), Priority::Secondary);
        policy.priority = Some(Priority::Primary);
        assert_eq!(policy.priority(false), Priority::Primary);
        assert!(policy.terms(false, 1).own.metered);
    }

    #[test]
    fn beyond_a_cap_a_link_is_what_its_owner_said_and_never_more_than_before() {
        let of = |priority, beyond| LinkPolicy {
            priority: Some(priority),
            beyond,
            ..LinkPolicy::default()
        };
        for (priority, beyond, expected) in [
            (Priority::Primary, Beyond::Backup, Priority::Backup),
            (Priority::Never, Beyond::Backup, Priority::Never),
            (Priority::Backup, Beyond::Never, Priority::Never),
            (
                Priority::Secondary,
                Beyond::Limit(64_000),
                Priority::Secondary,
            ),
        ] {
            assert_eq!(of(priority, beyond).priority(true), expected);
            assert_eq!(of(priority, beyond).priority(false), priority);
        }
        let slow = of(Priority::Primary, Beyond::Limit(64_000));
        assert_eq!(slow.terms(false, 1).send_rate, None);
        assert_eq!(slow.terms(true, 1).send_rate, Some(8_000));
        assert_eq!(slow.terms(true, 1).peer.rate, Some(8_000));
    }

    #[test]
    fn a_direction_is_closed_for_who_sends_that_way() {
        let of = |direction| {
            let policy = LinkPolicy {
                direction,
                ..LinkPolicy::default()
            };
            let terms = policy.terms(false, 1);
            (terms.own.priority, terms.peer.policy.priority)
        };
        let (open, closed) = (Priority::Primary, Priority::Never);
        assert_eq!(of(Direction::Both), (open, open));
        assert_eq!(of(Direction::Up), (open, closed));
        assert_eq!(of(Direction::Down), (closed, open));
    }

    #[test]
    fn the_paths_of_a_link_share_its_limits() {
        let policy = LinkPolicy {
            send_limit: Some(8_000_000),
            receive_limit: Some(16_000_000),
            ..LinkPolicy::default()
        };
        let terms = policy.terms(false, 4);
        assert_eq!(terms.send_rate, Some(250_000));
        assert_eq!(terms.peer.rate, Some(500_000));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let wrong = |change: fn(&mut LinkPolicy)| {
            let mut policy = LinkPolicy::default();
            change(&mut policy);
            policy.check().unwrap_err().to_string()
        };
        assert!(wrong(|p| p.reset_day = 0).contains("1 to 31"));
        assert!(wrong(|p| p.send_limit = Some(7_999)).contains("at least 8000"));
        assert!(wrong(|p| p.beyond = Beyond::Limit(1)).contains("at least 8000"));
        assert!(wrong(|p| p.label = "a\nb".to_owned()).contains("control character"));
        assert!(wrong(|p| p.max_added_latency = Some(Duration::from_secs(61))).contains("60s"));
        LinkPolicy::default().check().unwrap();
    }

    #[test]
    fn a_policy_comes_back_from_json_as_it_was() {
        let policy = LinkPolicy {
            label: "5G".to_owned(),
            priority: Some(Priority::Secondary),
            metered: true,
            direction: Direction::Down,
            send_limit: Some(1_000_000),
            max_added_latency: Some(Duration::from_micros(1500)),
            cap_day: Some(1 << 30),
            beyond: Beyond::Limit(64_000),
            ..LinkPolicy::default()
        };
        let text = serde_json::to_string(&policy).unwrap();
        assert!(text.contains("\"priority\":\"secondary\""), "{text}");
        assert_eq!(serde_json::from_str::<LinkPolicy>(&text).unwrap(), policy);
        assert_eq!(
            serde_json::from_str::<LinkPolicy>("{}").unwrap(),
            LinkPolicy::default()
        );
        let unknown = serde_json::from_str::<LinkPolicy>(r#"{"priority":"always"}"#);
        assert!(unknown.unwrap_err().to_string().contains("primary"));
    }
}
