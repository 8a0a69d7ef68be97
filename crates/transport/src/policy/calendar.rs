//! What a link has moved in its present day and month, by the local calendar: providers count by it.

use chrono::{Datelike, Days, NaiveDate};
use serde::{Deserialize, Serialize};

use super::LinkPolicy;

/// What a link has moved, in bytes of both directions with the headers of TCP and IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The day that `day_bytes` is of.
    pub day: NaiveDate,
    /// Bytes moved on it.
    pub day_bytes: u64,
    /// The day on which the month of `month_bytes` began.
    pub month: NaiveDate,
    /// Bytes moved since.
    pub month_bytes: u64,
}

impl Usage {
    /// Nothing moved yet.
    pub(super) fn new(today: NaiveDate, reset_day: u8) -> Self {
        Self {
            day: today,
            day_bytes: 0,
            month: month_start(today, reset_day),
            month_bytes: 0,
        }
    }

    /// As of today: what was moved in a day or month that is over does not count any more.
    ///
    /// A clock that goes back begins no new period: a link would get its cap once more. A reset day that was changed
    /// keeps what was counted since the new month's beginning at the earliest.
    pub(super) fn as_of(mut self, today: NaiveDate, reset_day: u8) -> Self {
        if today > self.day {
            (self.day, self.day_bytes) = (today, 0);
        }
        let month = month_start(today, reset_day);
        if month > self.month {
            (self.month, self.month_bytes) = (month, 0);
        }
        self
    }

    pub(super) fn add(&mut self, bytes: u64) {
        self.day_bytes = self.day_bytes.saturating_add(bytes);
        self.month_bytes = self.month_bytes.saturating_add(bytes);
    }

    /// The day on which a link with this policy may be used again, if it has moved what it may: the later one of both
    /// caps.
    pub(super) fn used_up_until(&self, policy: &LinkPolicy) -> Option<NaiveDate> {
        let over = |cap: Option<u64>, bytes| cap.is_some_and(|cap| bytes >= cap);
        let day = over(policy.cap_day, self.day_bytes).then(|| self.day + Days::new(1));
        let month = over(policy.cap_month, self.month_bytes)
            .then(|| next_month_start(self.month, policy.reset_day));
        day.max(month)
    }
}

/// The newest day, today or before, on which a month begins.
fn month_start(today: NaiveDate, reset_day: u8) -> NaiveDate {
    let this = begin_in(today.year(), today.month(), reset_day);
    match this <= today {
        true => this,
        false => {
            let before = first_of(today) - Days::new(1);
            begin_in(before.year(), before.month(), reset_day)
        }
    }
}

/// The day on which the month after the one that began on `start` begins.
fn next_month_start(start: NaiveDate, reset_day: u8) -> NaiveDate {
    let (year, month) = match start.month() {
        12 => (start.year() + 1, 1),
        month => (start.year(), month + 1),
    };
    let this = begin_in(start.year(), start.month(), reset_day);
    // The reset day may have been changed to one that is still to come in this month.
    match this > start {
        true => this,
        false => begin_in(year, month, reset_day),
    }
}

fn first_of(day: NaiveDate) -> NaiveDate {
    day - Days::new(u64::from(day.day0()))
}

/// The reset day in a month, or the month's last one.
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
    fn a_month_begins_on_its_day_or_on_the_last_one_there_is() {
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
    fn what_was_moved_before_does_not_count_in_a_new_day_and_month() {
        let mut usage = Usage::new(day("2026-11-22"), 1);
        usage.add(10);
        usage = usage.as_of(day("2026-11-23"), 1);
        usage.add(5);
        assert_eq!((usage.day_bytes, usage.month_bytes), (5, 15));
        let later = usage.as_of(day("2026-12-01"), 1);
        assert_eq!((later.day_bytes, later.month_bytes), (0, 0));
        // A clock that is set back gives nothing back.
        assert_eq!(usage.as_of(day("2026-10-01"), 1), usage);
    }

    #[test]
    fn a_link_that_is_used_up_is_so_until_the_later_one_of_its_periods_ends() {
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
