//! A client with its quota and its usage.

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use sumlink_settings::units;
use sumlink_transport::PublicKey;
use sumlink_transport::policy::{Beyond, LinkPolicy, Usage};

use crate::Now;

/// A client of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Unique name, as [`check_name`] allows it.
    pub name: String,
    /// Unique public key.
    pub key: PublicKey,
    /// When it joined, in seconds since 1970.
    pub created: u64,
    /// Whether it may not connect for now.
    pub disabled: bool,
    /// When it may no longer connect, in seconds since 1970.
    pub expires: Option<u64>,
    /// Its monthly quota.
    pub quota: Option<Quota>,
    /// Its usage.
    pub traffic: Traffic,
}

/// A monthly quota of bytes, both directions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Bytes in a month.
    pub bytes: u64,
    /// The day on which the month begins, 1 to 31; the last day in shorter months.
    pub reset_day: u8,
    /// The action beyond it: [`Beyond::Never`] blocks the client, [`Beyond::Limit`] limits its
    /// rate, and `None` leaves that to the server's configuration.
    pub beyond: Option<Beyond>,
}

/// Bytes on the client's links, with the headers of TCP, UDP and IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Sent to the client since it joined.
    pub sent: u64,
    /// Received from it since it joined.
    pub received: u64,
    /// Sent in the present day and month.
    pub sent_now: Usage,
    /// Received in the present day and month.
    pub received_now: Usage,
}

/// A change of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It may not connect, or may connect again.
    Disabled(bool),
    /// It has this quota from now on, or none.
    Quota(Option<Quota>),
    /// It may not connect from this time on, in seconds since 1970.
    Expires(Option<u64>),
}

/// Whether a client may connect now, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Connect.
    Good,
    /// Not connect: it is disabled.
    Disabled,
    /// Not connect: its time is over.
    Expired,
    /// Its quota is used up until this day.
    UsedUp(NaiveDate),
}

impl Traffic {
    /// Nothing yet.
    pub fn new(today: NaiveDate, reset_day: u8) -> Self {
        Self {
            sent: 0,
            received: 0,
            sent_now: Usage::new(today, reset_day),
            received_now: Usage::new(today, reset_day),
        }
    }

    /// The usage as of `today`. A clock that moves back refunds nothing; see [`Usage::as_of`].
    #[must_use]
    pub fn as_of(mut self, today: NaiveDate, reset_day: u8) -> Self {
        self.sent_now = self.sent_now.as_of(today, reset_day);
        self.received_now = self.received_now.as_of(today, reset_day);
        self
    }

    fn add(&mut self, sent: u64, received: u64) {
        self.sent = self.sent.saturating_add(sent);
        self.received = self.received.saturating_add(received);
        self.sent_now.add(sent);
        self.received_now.add(received);
    }
}

impl Client {
    /// The day on which its month begins.
    pub fn reset_day(&self) -> u8 {
        self.quota.map_or(1, |quota| quota.reset_day)
    }

    /// Makes a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Disabled(disabled) => self.disabled = *disabled,
            Change::Quota(quota) => self.quota = *quota,
            Change::Expires(expires) => self.expires = *expires,
        }
    }

    /// Adds bytes to its usage.
    pub fn count(&mut self, sent: u64, received: u64, day: NaiveDate) {
        self.traffic = self.traffic.as_of(day, self.reset_day());
        self.traffic.add(sent, received);
    }

    /// Bytes of the present month: sent to the client, and received from it.
    pub fn month(&self, now: Now) -> (u64, u64) {
        let traffic = self.traffic.as_of(now.today, self.reset_day());
        (
            traffic.sent_now.month_bytes,
            traffic.received_now.month_bytes,
        )
    }

    /// Whether it may connect now.
    pub fn standing(&self, now: Now) -> Standing {
        if self.disabled {
            return Standing::Disabled;
        }
        if self.expires.is_some_and(|expires| expires <= now.seconds) {
            return Standing::Expired;
        }
        let Some(quota) = &self.quota else {
            return Standing::Good;
        };
        let (sent, received) = self.month(now);
        if sent.saturating_add(received) < quota.bytes {
            return Standing::Good;
        }
        let month = self.traffic.as_of(now.today, quota.reset_day).sent_now;
        Standing::UsedUp(month.next_month(quota.reset_day))
    }
}

/// A name that no client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a client's name has 1 to 64 letters, digits, `.`, `_` and `-`, and no `-` first")]
pub struct NameError;

/// Checks a client's name.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let is_valid = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let length = name.chars().count();
    match (1..=64).contains(&length) && name.chars().all(is_valid) && !name.starts_with('-') {
        true => Ok(()),
        false => Err(NameError),
    }
}

/// Parses the bytes of a quota: `100GB` or `100GB/month`.
pub fn parse_quota(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/month").unwrap_or(text);
    match units::parse_size(size) {
        // SQLite's integers end there.
        Ok(bytes) if (1..=i64::MAX as u64).contains(&bytes) => Ok(bytes),
        _ => Err(format!(
            "`{text}` is not a quota: write a size for a month, such as 100GB/month"
        )),
    }
}

/// Parses the action beyond a quota: `block`, or a rate such as `1mbit`.
pub fn parse_beyond(text: &str) -> Result<Beyond, String> {
    let beyond = match text {
        "block" => return Ok(Beyond::Never),
        rate => units::parse_rate(rate).ok().map(Beyond::Limit),
    };
    match beyond {
        Some(Beyond::Limit(rate)) if rate >= LinkPolicy::MIN_LIMIT => Ok(Beyond::Limit(rate)),
        _ => Err(format!(
            "`{text}` is not an action beyond a quota: write block, or a rate of at least 8kbit"
        )),
    }
}

/// The text that [`parse_beyond`] reads back.
pub fn format_beyond(beyond: Beyond) -> String {
    match beyond {
        Beyond::Limit(rate) => units::format_rate(rate),
        _ => "block".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(today: &str) -> Now {
        Now {
            seconds: 1000,
            today: today.parse().unwrap(),
        }
    }

    fn client(quota: Option<u64>) -> Client {
        let now = now("2026-11-20");
        Client {
            name: "laptop".to_owned(),
            key: PublicKey::from_bytes([9; 32]).unwrap(),
            created: now.seconds,
            disabled: false,
            expires: None,
            quota: quota.map(|bytes| Quota {
                bytes,
                reset_day: 15,
                beyond: None,
            }),
            traffic: Traffic::new(now.today, 15),
        }
    }

    #[test]
    fn a_quota_counts_both_directions_until_its_day() {
        let mut client = client(Some(100));
        client.count(60, 39, now("2026-11-20").today);
        assert_eq!(client.standing(now("2026-11-20")), Standing::Good);
        client.count(0, 1, now("2026-12-01").today);
        let until = Standing::UsedUp("2026-12-15".parse().unwrap());
        assert_eq!(client.standing(now("2026-12-01")), until);
        assert_eq!(client.standing(now("2026-12-14")), until);
        assert_eq!(client.standing(now("2026-12-15")), Standing::Good);
        assert_eq!((client.traffic.sent, client.traffic.received), (60, 40));
    }

    #[test]
    fn a_clock_that_moves_back_refunds_no_quota() {
        for past in ["1970-01-01", "2026-10-01", "2026-11-19"] {
            let mut client = client(Some(100));
            client.count(50, 50, now("2026-11-20").today);
            for today in [past, "2026-11-20", past, "2026-11-20"] {
                client.count(0, 0, now(today).today);
                let standing = client.standing(now(today));
                assert!(matches!(standing, Standing::UsedUp(_)), "{past} {today}");
            }
        }
    }

    #[test]
    fn a_disabled_or_expired_client_may_not_connect() {
        let mut client = client(None);
        client.expires = Some(1001);
        assert_eq!(client.standing(now("2026-11-20")), Standing::Good);
        client.expires = Some(1000);
        assert_eq!(client.standing(now("2026-11-20")), Standing::Expired);
        client.disabled = true;
        assert_eq!(client.standing(now("2026-11-20")), Standing::Disabled);
    }

    #[test]
    fn names_and_values_are_checked() {
        let long = "n".repeat(64);
        for name in ["laptop", "büro-2", "a.b_c", &long] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "-v", "a b", "a\nb", "a/b", &format!("{long}n")] {
            assert_eq!(check_name(name), Err(NameError), "{name}");
        }
        assert_eq!(parse_quota("100GB/month"), Ok(100_000_000_000));
        assert_eq!(parse_quota("1KiB"), Ok(1024));
        for wrong in ["0", "100", "1GB/day", "16777215TiB", "-1GB"] {
            assert!(parse_quota(wrong).is_err(), "{wrong}");
        }
        for text in ["block", "8kbit", "1.5mbit"] {
            assert_eq!(format_beyond(parse_beyond(text).unwrap()), text);
        }
        for wrong in ["backup", "never", "1bit", "0"] {
            assert!(parse_beyond(wrong).is_err(), "{wrong}");
        }
    }
}
