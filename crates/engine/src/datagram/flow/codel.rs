//! CoDel (RFC 8289, section 5): drops single datagrams, ever more often, while the queue does not
//! drain within an interval.
//!
//! Two things differ, because this queue belongs to one flow and may become long in its slow start:
//!
//! - A queue that has half of its limit counts as standing at once. The sender learns of a drop
//!   only after a round trip, and would fill the rest meanwhile.
//! - The first drops wait for the reaction to the drop before. A datagram that was queued before
//!   that shows nothing about it, and its loss would have no effect: a sender reduces its window
//!   once in a round trip (RFC 9002, section 7.3.2), and the round trip includes this queue. RFC
//!   8289 assumes that the queue adds little to it.

use std::time::Duration;

use super::rules::Rules;
use crate::Instant;

/// A queue of less than this many bytes never counts as standing: one large packet.
const LARGEST_PACKET: usize = 1500;

/// A queue that has this part of its limit counts as standing at once.
const URGENT_PART: usize = 2;

/// Drops that wait for the reaction to the one before. A sender that does not react to them is
/// treated as RFC 8289 says.
const PATIENT_DROPS: u32 = 3;

/// Counts of recent drops are resumed within this many intervals.
const MEMORY: u32 = 16;

/// CoDel's state for one queue.
#[derive(Debug, Default)]
pub(super) struct Codel {
    /// When the queue will have been above the target for an interval.
    above_until: Option<Instant>,
    is_dropping: bool,
    drop_next: Instant,
    dropped_at: Option<Instant>,
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
        // Whether it was queued after the sender can have reacted to the last drop.
        let is_news = self
            .dropped_at
            .is_none_or(|at| now.saturating_sub(sojourn) >= at + interval);
        if self.is_dropping {
            let is_patient = self.count < PATIENT_DROPS;
            if !is_standing {
                self.is_dropping = false;
            } else if now >= self.drop_next && (is_news || !is_patient) {
                self.count = self.count.saturating_add(1);
                let from = if is_patient { now } else { self.drop_next };
                self.drop_next = self.next(from, interval);
                self.dropped_at = Some(now);
                return true;
            }
            return false;
        }
        if !is_standing || !is_news {
            return false;
        }
        self.is_dropping = true;
        let recent = self.count.saturating_sub(self.last_count);
        let is_recent = now.saturating_sub(self.drop_next) < MEMORY * interval;
        self.count = if recent > 1 && is_recent { recent } else { 1 };
        self.last_count = self.count;
        self.drop_next = self.next(now, interval);
        self.dropped_at = Some(now);
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
            self.above_until = Some(now);
            return true;
        }
        if sojourn < rules.target || bytes <= rules.standing.max(LARGEST_PACKET) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram::QueueLimits;

    const MS: Duration = Duration::from_millis(1);
    const INTERVAL: Duration = Duration::from_millis(100);
    const RULES: Rules = Rules {
        limits: QueueLimits {
            bytes: 1 << 20,
            sojourn: Duration::from_secs(1),
        },
        interval: Some(INTERVAL),
        target: Duration::from_millis(20),
        standing: 0,
    };

    /// The times of all drops in milliseconds, with a datagram every millisecond from 1 s on that
    /// has waited for `sojourn` and leaves `bytes` in the queue.
    fn drops(
        codel: &mut Codel,
        duration_ms: u64,
        sojourn: impl Fn(u64) -> Duration,
        bytes: usize,
    ) -> Vec<u64> {
        let times = 0..duration_ms;
        let is_dropped = |ms: &u64| {
            let now = Instant::from_millis(1000 + *ms);
            codel.drops(sojourn(*ms), bytes, &RULES, INTERVAL, now)
        };
        times.filter(is_dropped).collect()
    }

    #[test]
    fn a_standing_queue_has_one_drop_after_an_interval() {
        let mut codel = Codel::default();
        assert_eq!(drops(&mut codel, 150, |_| 30 * MS, 100_000), [100]);
        let short = drops(&mut Codel::default(), 5000, |_| 19 * MS, 100_000);
        assert!(short.is_empty(), "below the target");
    }

    #[test]
    fn half_of_the_limit_is_not_waited_for() {
        let half = RULES.limits.bytes / 2;
        assert_eq!(drops(&mut Codel::default(), 50, |_| 5 * MS, half), [0]);
        assert!(drops(&mut Codel::default(), 50, |_| 5 * MS, half - 1).is_empty());
    }

    #[test]
    fn the_first_drops_wait_for_an_effect_and_the_others_do_not() {
        // The datagrams queued after a drop and the sender's reaction leave 100 + 200 ms later.
        let times = drops(&mut Codel::default(), 3000, |_| 200 * MS, 100_000);
        assert_eq!(times[..3], [100, 400, 700]);
        assert_eq!(times[3], 700 + 58, "100 ms by the square root of three");
        assert!(times.len() > 40, "{times:?}");
        assert!(times.windows(2).skip(4).all(|two| two[1] - two[0] <= 50));
    }

    #[test]
    fn a_reaction_ends_the_drops() {
        let falls = |ms: u64| match ms {
            0..300 => 200 * MS,
            _ => 10 * MS,
        };
        assert_eq!(drops(&mut Codel::default(), 3000, falls, 100_000), [100]);
    }
}
