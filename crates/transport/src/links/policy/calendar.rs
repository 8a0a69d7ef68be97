//! Data usage of a link per day and month, by the local calendar, as providers count it.

use chrono::{Datelike, Days, NaiveDate};
use serde::{Deserialize, Serialize};

use super::LinkPolicy;

/// Data usage of a link, in bytes of both directions including the TCP and IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The day that `day_bytes` covers.
    pub day: NaiveDate,
    /// Bytes moved on that day.
    pub day_bytes: u64,
    /// The first day of the month that `month_bytes` covers.
    pub month: NaiveDate,
    /// Bytes moved in that month.
    pub month_bytes: u64,
    /// The day counter before the last change of the date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day_before: Option<Earlier>,
    /// The month counter before the last change of the month.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub month_before: Option<Earlier>,
}

/// The previous period. A clock that jumped returns to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earlier {
    /// Its first day.
    pub start: NaiveDate,
    /// Bytes moved in it.
    pub bytes: u64,
    /// The bytes already counted in the current period when the clock entered it.
    pub present: u64,
}

/// Longest plausible gap between two readings of the clock, in days. A clock that jumps further
/// forward was not set before.
const LONGEST_SLEEP: i64 = 366;

/// The start of a period, its byte count, and the previous period.
struct Period<'a> {
    start: &'a mut NaiveDate,
    bytes: &'a mut u64,
    before: &'a mut Option<Earlier>,
}

impl Period<'_> {
    /// Moves to the period that begins at `start` according to the clock.
    ///
    /// A clock that moves forward begins a new period. A clock that moves back was wrong before or
    /// is wrong now, and it is unknown which. Nothing is refunded then, because a link would get
    /// its cap twice, and no counter stays in a future that may be years away. The earlier period
    /// keeps its own bytes and adds the bytes of the wrong period: either the period that the clock
    /// has just left, or one before the clock was set.
    fn turn_to(self, start: NaiveDate) {
        let (left, bytes) = (*self.start, *self.bytes);
        if start == left {
            return;
        }
        let again = self.before.filter(|before| before.start == start);
        let was_wrong = start < left || (start - left).num_days() > LONGEST_SLEEP;
        *self.bytes = match again {
            Some(again) if was_wrong => {
                let moved = bytes.saturating_sub(again.present);
                again.bytes.saturating_add(moved)
            }
            Some(again) => again.bytes,
            None if start > left => 0,
            None => bytes,
        };
        *self.before = Some(Earlier {
            start: left,
            bytes,
            present: *self.bytes,
        });
        *self.start = start;
    }
}

impl Usage {
    /// A counter at zero; months begin on `reset_day` (1 to 31), or on the last day of shorter
    /// ones.
    pub fn new(today: NaiveDate, reset_day: u8) -> Self {
        Self {
            day: today,
            day_bytes: 0,
            month: month_start(today, reset_day),
            month_bytes: 0,
            day_before: None,
            month_before: None,
        }
    }

    /// The usage as of `today`: days and months that are over no longer count.
    ///
    /// If the reset day is changed, the count goes on until that day comes next: how much of it
    /// belongs to the new month is unknown, and a change must not grant a cap twice.
    #[must_use]
    pub fn as_of(mut self, today: NaiveDate, reset_day: u8) -> Self {
        let day = Period {
            start: &mut self.day,
            bytes: &mut self.day_bytes,
            before: &mut self.day_before,
        };
        day.turn_to(today);
        let start = month_start(today, reset_day);
        let was_changed = begin_in(self.month.year(), self.month.month(), reset_day) != self.month;
        let old_end = next_month_start(self.month, self.month.day() as u8);
        if was_changed && self.month < start && start < old_end {
            self.month = start;
            self.month_before = None;
        }
        let month = Period {
            start: &mut self.month,
            bytes: &mut self.month_bytes,
            before: &mut self.month_before,
        };
        month.turn_to(start);
        self
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: u64) {
        self.day_bytes = self.day_bytes.saturating_add(bytes);
        self.month_bytes = self.month_bytes.saturating_add(bytes);
    }

    /// The first day of the month after the one that `month_bytes` covers.
    pub fn next_month(&self, reset_day: u8) -> NaiveDate {
        next_month_start(self.month, reset_day)
    }

    /// The day on which a link that has reached a cap of this policy may be used again; the later
    /// one if both caps are reached.
    pub(super) fn used_up_until(&self, policy: &LinkPolicy) -> Option<NaiveDate> {
        let over = |cap: Option<u64>, bytes| cap.is_some_and(|cap| bytes >= cap);
        let day = over(policy.cap_day, self.day_bytes).then(|| day_after(self.day));
        let month =
            over(policy.cap_month, self.month_bytes).then(|| self.next_month(policy.reset_day));
        day.max(month)
    }
}

/// The latest day, up to and including today, on which a month begins.
fn month_start(today: NaiveDate, reset_day: u8) -> NaiveDate {
    let this = begin_in(today.year(), today.month(), reset_day);
    match this <= today {
        true => this,
        false => {
            let before = first_of(today).checked_sub_days(Days::new(1));
            before.map_or(today, |day| begin_in(day.year(), day.month(), reset_day))
        }
    }
}

/// The first day of the month after the one that began on `start`.
fn next_month_start(start: NaiveDate, reset_day: u8) -> NaiveDate {
    let (year, month) = match start.month() {
        12 => (start.year() + 1, 1),
        month => (start.year(), month + 1),
    };
    let this = begin_in(start.year(), start.month(), reset_day);
    // The reset day may have been changed to a later day of this month.
    match this > start {
        true => this,
        false => begin_in(year, month, reset_day),
    }
}

fn first_of(day: NaiveDate) -> NaiveDate {
    day.with_day(1).unwrap_or(day)
}

/// The next day; the last representable day is returned unchanged.
fn day_after(day: NaiveDate) -> NaiveDate {
    day.checked_add_days(Days::new(1)).unwrap_or(day)
}

/// The reset day in a month, or the month's last day.
fn begin_in(year: i32, month: u32, reset_day: u8) -> NaiveDate {
    (1..=u32::from(reset_day))
        .rev()
        .find_map(|day| NaiveDate::from_ymd_opt(year, month, day))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn a_month_begins_on_its_reset_day_or_last_day() {
        for (today, reset_day, start) in [
            ("2026-11-22", 1, "2026-11-01"),
            ("2026-11-22", 22, "2026-11-22"),
            ("2026-11-22", 23, "2026-10-23"),
            ("2026-01-05", 10, "2025-12-10"),
            ("2026-03-30", 31, "2026-02-28"),
            ("2028-03-01", 31, "2028-02-29"),
            ("2026-04-30", 31, "2026-04-30"),
        ] {
            assert_eq!(month_start(day(today), reset_day), day(start), "{today}");
        }
        assert_eq!(next_month_start(day("2026-01-31"), 31), day("2026-02-28"));
        assert_eq!(next_month_start(day("2026-12-05"), 5), day("2027-01-05"));
    }

    #[test]
    fn old_usage_does_not_count_in_a_new_period() {
        let mut usage = Usage::new(day("2026-11-22"), 1);
        usage.add(10);
        usage = usage.as_of(day("2026-11-23"), 1);
        usage.add(5);
        assert_eq!((usage.day_bytes, usage.month_bytes), (5, 15));
        let later = usage.as_of(day("2026-12-01"), 1);
        assert_eq!((later.day_bytes, later.month_bytes), (0, 0));
    }

    /// Adds `bytes` with the clock at `today` and returns the usage of the day and the month.
    fn moved(usage: &mut Usage, today: &str, bytes: u64) -> (u64, u64) {
        *usage = usage.as_of(day(today), 1);
        usage.add(bytes);
        (usage.day_bytes, usage.month_bytes)
    }

    #[test]
    fn a_clock_jump_loses_no_usage_and_blocks_no_link() {
        let mut usage = Usage::new(day("2026-11-22"), 1);
        assert_eq!(moved(&mut usage, "2026-11-22", 10), (10, 10));
        for round in 1..=3 {
            // 400 days.
            moved(&mut usage, "2027-12-27", 1);
            assert_eq!(
                moved(&mut usage, "2026-11-22", 10),
                (10 + 11 * round, 10 + 11 * round)
            );
        }
        let capped = LinkPolicy {
            cap_day: Some(43),
            cap_month: Some(43),
            ..LinkPolicy::default()
        };
        assert_eq!(usage.used_up_until(&capped), Some(day("2026-12-01")));
        let tomorrow = usage.as_of(day("2026-11-23"), 1);
        assert_eq!((tomorrow.day_bytes, tomorrow.month_bytes), (0, 43));
        // The clock reaches the days that it showed too early, and they begin at zero.
        let days = ["2026-12-01", "2027-12-26", "2027-12-27"];
        let then = days
            .iter()
            .fold(tomorrow, |usage, then| usage.as_of(day(then), 1));
        assert_eq!((then.day_bytes, then.month_bytes), (0, 0));
    }

    /// A counter written while the clock was wrong, or edited by hand, is read after a restart.
    #[test]
    fn a_counter_of_the_future_counts_now() {
        let mut usage = Usage::new(day("2027-12-27"), 1);
        usage.add(1000);
        let capped = LinkPolicy {
            cap_day: Some(1000),
            cap_month: Some(1000),
            ..LinkPolicy::default()
        };
        let now = usage.as_of(day("2026-11-22"), 1);
        assert_eq!(now.used_up_until(&capped), Some(day("2026-12-01")));
        let next = now.as_of(day("2026-12-01"), 1);
        assert_eq!(next.used_up_until(&capped), None);
        let text =
            r#"{"day":"+262142-12-31","day_bytes":9,"month":"+262142-12-01","month_bytes":9}"#;
        let last: Usage = serde_json::from_str(text).unwrap();
        let capped = LinkPolicy {
            cap_day: Some(1),
            cap_month: Some(1),
            ..LinkPolicy::default()
        };
        assert!(last.used_up_until(&capped).is_some());
        let now = last.as_of(day("2026-11-22"), 1);
        assert_eq!(now.used_up_until(&capped), Some(day("2026-12-01")));
        let end = NaiveDate::MIN;
        assert_eq!(last.as_of(end, 31).day, end);
    }

    /// A machine without a battery-backed clock boots with a date in the past.
    #[test]
    fn an_unset_clock_refunds_nothing() {
        let mut usage = Usage::new(day("2026-11-22"), 1);
        usage.add(100);
        assert_eq!(moved(&mut usage, "1970-01-01", 5), (105, 105));
        assert_eq!(moved(&mut usage, "2026-11-22", 1), (106, 106));
        let text = serde_json::to_string(&usage).unwrap();
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), usage);
        assert_eq!(moved(&mut usage, "1970-01-01", 0).0, 106);
        // By then the day is over.
        assert_eq!(moved(&mut usage, "2026-11-23", 1), (1, 107));
    }

    #[test]
    fn a_changed_reset_day_keeps_the_count_until_it_comes_next() {
        let mut usage = Usage::new(day("2026-11-02"), 1);
        usage.add(48);
        for (today, reset_day, bytes) in [
            ("2026-11-30", 15, 48),
            ("2026-12-14", 15, 48),
            ("2026-12-15", 15, 0),
        ] {
            usage = usage.as_of(day(today), reset_day);
            assert_eq!(usage.month_bytes, bytes, "{today}");
        }
        usage.add(7);
        // The first of January lies in the month that began on 15 December.
        assert_eq!(usage.as_of(day("2027-01-02"), 1).month_bytes, 7);
        assert_eq!(usage.as_of(day("2027-01-02"), 20).month_bytes, 7);
        // The old month was over before the new one began.
        assert_eq!(usage.as_of(day("2027-03-02"), 1).month_bytes, 0);
    }

    #[test]
    fn a_capped_link_stays_capped_until_the_later_period_ends() {
        let mut usage = Usage::new(day("2026-11-22"), 15);
        let policy = |cap_day, cap_month| LinkPolicy {
            cap_day,
            cap_month,
            reset_day: 15,
            ..LinkPolicy::default()
        };
        usage.add(100);
        let until = |cap_day, cap_month| usage.used_up_until(&policy(cap_day, cap_month));
        assert_eq!(until(None, None), None);
        assert_eq!(until(Some(101), Some(101)), None);
        assert_eq!(until(Some(100), None), Some(day("2026-11-23")));
        assert_eq!(until(None, Some(100)), Some(day("2026-12-15")));
        assert_eq!(until(Some(1), Some(1)), Some(day("2026-12-15")));
    }
}
