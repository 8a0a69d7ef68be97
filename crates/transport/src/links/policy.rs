//! Per-link policies of a client: priority, direction, rate limits and data caps.
//!
//! A [`LinkPolicy`] comes from the configuration or is set at run time
//! ([`Client::set_link_policy`](crate::Client::set_link_policy)). A session turns it into limits on
//! what this side sends over each path of the link, and into terms that it sends to the server.

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

/// The directions in which a link carries stream data. Acknowledgments always travel both ways.
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

/// How a link is used after it has reached its daily or monthly data cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beyond {
    /// As a backup: only while no other link delivers.
    #[default]
    Backup,
    /// Not at all until the next day or month begins.
    Never,
    /// At this rate, in bit/s, in each direction.
    Limit(u64),
}

/// How a link may be used. The default allows everything without limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkPolicy {
    /// A name for people; only displayed.
    pub label: String,
    /// The priority of the link. The default is primary, or secondary for a metered link.
    #[serde(with = "words::priority")]
    pub priority: Option<Priority>,
    /// Data over the link costs money: it carries no duplicates and is secondary unless `priority`
    /// says otherwise.
    pub metered: bool,
    /// The directions in which it carries stream data.
    pub direction: Direction,
    /// Limit on the client's sending rate over the link, in bit/s.
    pub send_limit: Option<u64>,
    /// Limit on the server's sending rate over the link, in bit/s.
    pub receive_limit: Option<u64>,
    /// The link is a backup while its latency exceeds that of the fastest other link by more than
    /// this.
    #[serde(with = "words::duration")]
    pub max_added_latency: Option<Duration>,
    /// Daily data cap, in bytes of both directions together.
    pub cap_day: Option<u64>,
    /// Monthly data cap, in bytes of both directions together.
    pub cap_month: Option<u64>,
    /// The day of the month on which the monthly cap restarts, 1 to 31; the last day in shorter
    /// months.
    pub reset_day: u8,
    /// How the link is used after it has reached a cap.
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

/// A policy value outside its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// `reset_day` is not a day of a month.
    #[error("reset_day must be from 1 to 31, not {0}")]
    ResetDay(u8),
    /// A rate limit too low for the acknowledgments of a carrier.
    #[error("a limit must be at least {least} bit/s, not {0}", least = LinkPolicy::MIN_LIMIT)]
    Limit(u64),
    /// A label that is too long or contains control characters.
    #[error(
        "a label has at most {most} characters and no control characters",
        most = LinkPolicy::LONGEST_LABEL
    )]
    Label,
    /// A latency bound above 60 s.
    #[error("max_added_latency must be at most 60s")]
    Latency,
}

impl LinkPolicy {
    /// The lowest rate limit, in bit/s.
    pub const MIN_LIMIT: u64 = 8_000;

    /// Maximum length of a label, in characters.
    pub const LONGEST_LABEL: usize = 64;

    /// Checks that all values are in range.
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
        if let Some(limit) = limits.find(|limit| *limit < Self::MIN_LIMIT) {
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

    /// Whether the link's usage must survive restarts.
    pub fn has_cap(&self) -> bool {
        self.cap_day.is_some() || self.cap_month.is_some()
    }

    /// The link's priority; `used_up` says that it has reached a data cap.
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

    /// The terms of each path when the link has `paths` paths.
    pub(crate) fn terms(&self, used_up: bool, paths: usize) -> Terms {
        let priority = self.priority(used_up);
        let bound = match self.beyond {
            Beyond::Limit(limit) if used_up => Some(limit),
            _ => None,
        };
        // Each path gets an equal share, in bytes per second.
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

/// The effect of a link's policy on one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Limits on what this side sends over the path.
    pub(crate) own: PathPolicy,
    /// Limit on this side's sending rate, in bytes per second.
    pub(crate) send_rate: Option<u64>,
    /// The terms sent to the server.
    pub(crate) peer: PeerPolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metered_link_is_secondary_by_default() {
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
    fn the_action_beyond_a_cap_never_raises_the_priority() {
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
    fn a_closed_direction_blocks_its_sender() {
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
    fn values_out_of_range_are_refused() {
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
    fn a_policy_survives_json() {
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
