//! CoDel (RFC 8289, section 5): drops single datagrams, ever more often, while the queue does not
//! drain within an interval.

use std::time::Duration;

use super::queue::Rules;
use crate::Instant;

/// A queue of less than this many bytes never counts as standing: one large packet.
const LARGEST_PACKET: usize = 1500;

/// A queue that has this part of its limit counts as standing at once. The sender learns of a drop
/// only after a round trip, and its slow start would fill the rest meanwhile.
const URGENT_PART: usize = 2;

/// Counts of recent drops are resumed within this many intervals.
const MEMORY: u32 = 16;

/// CoDel's state for one queue.
#[derive(Debug, Default)]
pub(super) struct Codel {
    /// When the queue will have been above the target for an interval.
    above_until: Option<Instant>,
    is_dropping: bool,
    drop_next: Instant,
    count: u32,
    last_count: u32,
}

impl Codel {
    /// Whether the first datagram, which has waited for `sojourn`, must be dropped; `bytes` is the
    /// length of the whole queue.
    pub(super) fn drops(
        &mut self,
        sojourn: Duration,
        bytes: usize,
        rules: &Rules,
        interval: Duration,
        now: Instant,
    ) -> bool {
        let is_standing = self.is_standing(sojourn, bytes, rules, interval, now);
        if self.is_dropping {
            if !is_standing {
                self.is_dropping = false;
            } else if now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                self.drop_next = self.next(self.drop_next, interval);
                return true;
            }
            return false;
        }
        if !is_standing {
            return false;
        }
        self.is_dropping = true;
        let recent = self.count.saturating_sub(self.last_count);
        let is_recent = now.saturating_sub(self.drop_next) < MEMORY * interval;
        self.count = if recent > 1 && is_recent { recent } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.next(now, interval);
        true
    }

    fn is_standing(
        &mut self,
        sojourn: Duration,
        bytes: usize,
        rules: &Rules,
        interval: Duration,
        now: Instant,
    ) -> bool {
        if bytes >= rules.limits.bytes / URGENT_PART {
            return true;
        }
        if sojourn < rules.target || bytes <= LARGEST_PACKET {
            self.above_until = None;
            return false;
        }
        match self.above_until {
            Some(until) => now >= until,
            None => {
                self.above_until = Some(now + interval);
                false
            }
        }
    }

    /// The time of the next drop (RFC 8289, section 4.3).
    fn next(&self, from: Instant, interval: Duration) -> Instant {
        from + interval.div_f64(f64::from(self.count).sqrt())
    }
}
