//! Learns the class of a flow from the datagrams that this side sends.
//!
//! A flow begins as interactive, because most are short. A first burst of large datagrams is the
//! sign of a transfer: its losses are repaired before the class is known. The flow is evaluated in
//! intervals of one second in which it sent something:
//!
//! | class | observation in an interval |
//! | --- | --- |
//! | conversational | 10 to 110 datagrams, all of at most 300 bytes, without a pause of 200 ms |
//! | background | at least 128 KiB |
//! | interactive | anything else |
//!
//! A class is adopted when two intervals in a row agree. Speech has 50 datagrams a second and most
//! games have 20 to 64. The acknowledgments of a slow download may look the same; they are few, and
//! the limits on copies bound what the mistake costs.

use std::time::Duration;

use crate::{Class, Instant};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// An interval of this length had a pause in which nothing can be observed.
const LONGEST: Duration = Duration::from_millis(1500);

/// Number of intervals that must agree.
const AGREEING: u32 = 2;

/// Largest datagram of a call, in bytes.
const CALL_SIZE: usize = 300;

/// Least and most datagrams of a call in an interval.
const CALL_COUNT: std::ops::RangeInclusive<u32> = 10..=110;

/// Longest pause of a call.
const CALL_PAUSE: Duration = Duration::from_millis(200);

/// Bytes of bulk in an interval.
const BULK: usize = 128 << 10;

/// A datagram of at least this many bytes may belong to a transfer.
const LARGE: usize = 1000;

/// Large datagrams within a window that make a burst: fewer than the first window of QUIC (RFC
/// 9002, section 7.2).
const BURST: u32 = 8;

/// Length of the window.
const BURST_WINDOW: Duration = Duration::from_millis(100);

/// The first burst after a pause counts as the beginning of a transfer for this long, in which the
/// class is learned.
const BURST_MEMORY: Duration = Duration::from_secs(3);

/// Learns the class of the datagrams that this side sends in a flow.
#[derive(Debug)]
pub(in crate::datagram) struct Learner {
    class: Class,
    /// The class of the latest intervals, and how many in a row agree on it.
    candidate: (Class, u32),
    /// Start of the interval, and the latest datagram.
    since: Instant,
    last: Instant,
    count: u32,
    bytes: usize,
    largest: usize,
    longest_pause: Duration,
    /// Large datagrams in the present window, and its start.
    large: (u32, Instant),
    /// When the first burst after a pause was complete.
    burst_at: Option<Instant>,
}

impl Learner {
    pub(in crate::datagram) fn new(now: Instant) -> Self {
        Self {
            class: Class::Interactive,
            candidate: (Class::Interactive, 0),
            since: now,
            last: now,
            count: 0,
            bytes: 0,
            largest: 0,
            longest_pause: Duration::ZERO,
            large: (0, now),
            burst_at: None,
        }
    }

    /// The class that the flow has now.
    pub(in crate::datagram) fn class(&self) -> Class {
        self.class
    }

    /// Whether a transfer may have begun, although the class is not learned yet.
    pub(in crate::datagram) fn begins_bulk(&self, now: Instant) -> bool {
        let is_recent = |at| now.saturating_sub(at) < BURST_MEMORY;
        self.class == Class::Interactive && self.burst_at.is_some_and(is_recent)
    }

    /// This side sends a datagram.
    pub(in crate::datagram) fn sent(&mut self, len: usize, now: Instant) {
        let took = now.saturating_sub(self.since);
        if took >= INTERVAL {
            if took <= LONGEST {
                self.conclude();
            }
            self.since = now;
            (self.count, self.bytes, self.largest) = (0, 0, 0);
            self.longest_pause = Duration::ZERO;
        }
        let pause = now.saturating_sub(self.last);
        if pause > LONGEST {
            self.burst_at = None;
        }
        self.longest_pause = self.longest_pause.max(pause);
        self.last = now;
        self.count += 1;
        self.bytes += len;
        self.largest = self.largest.max(len);
        if len >= LARGE {
            self.note_large(now);
        }
    }

    fn note_large(&mut self, now: Instant) {
        if now.saturating_sub(self.large.1) > BURST_WINDOW {
            self.large = (0, now);
        }
        self.large.0 += 1;
        if self.large.0 >= BURST {
            self.burst_at.get_or_insert(now);
        }
    }

    fn conclude(&mut self) {
        let is_call = CALL_COUNT.contains(&self.count)
            && self.largest <= CALL_SIZE
            && self.longest_pause <= CALL_PAUSE;
        let class = match is_call {
            true => Class::Conversational,
            false if self.bytes >= BULK => Class::Background,
            false => Class::Interactive,
        };
        let agreeing = match self.candidate {
            (candidate, agreeing) if candidate == class => agreeing + 1,
            _ => 1,
        };
        self.candidate = (class, agreeing);
        if agreeing >= AGREEING {
            self.class = class;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram of `len` bytes in each interval of `every`, for `seconds`.
    fn steady(learner: &mut Learner, now: &mut Instant, len: usize, every: Duration, seconds: u64) {
        let end = *now + Duration::from_secs(seconds);
        while *now < end {
            learner.sent(len, *now);
            *now += every;
        }
    }

    #[test]
    fn calls_games_and_bulk_are_recognized() {
        let ms = Duration::from_millis;
        for (len, every, class) in [
            (200, ms(20), Class::Conversational),
            (120, ms(50), Class::Conversational),
            (90, ms(16), Class::Conversational),
            (1200, ms(20), Class::Interactive),
            (100, ms(5), Class::Interactive),
            (100, ms(250), Class::Interactive),
            (1200, ms(1), Class::Background),
        ] {
            let (mut learner, mut now) = (Learner::new(Instant::ZERO), Instant::ZERO);
            assert_eq!(learner.class(), Class::Interactive);
            steady(&mut learner, &mut now, len, every, 5);
            assert_eq!(learner.class(), class, "{len} bytes every {every:?}");
        }
    }

    #[test]
    fn a_pause_in_speech_changes_nothing_and_a_change_of_traffic_does() {
        let ms = Duration::from_millis;
        let (mut learner, mut now) = (Learner::new(Instant::ZERO), Instant::ZERO);
        steady(&mut learner, &mut now, 200, ms(20), 5);
        now += Duration::from_secs(20);
        steady(&mut learner, &mut now, 200, ms(20), 1);
        assert_eq!(learner.class(), Class::Conversational);
        steady(&mut learner, &mut now, 1200, ms(1), 4);
        assert_eq!(learner.class(), Class::Background);
    }

    #[test]
    fn a_transfer_is_recognized_by_its_first_burst() {
        let mut learner = Learner::new(Instant::ZERO);
        let now = Instant::from_millis(1);
        for _ in 1..BURST {
            learner.sent(1200, now);
        }
        assert!(!learner.begins_bulk(now));
        learner.sent(1200, now);
        assert!(learner.begins_bulk(now));
        assert!(!learner.begins_bulk(now + BURST_MEMORY));
    }

    #[test]
    fn video_with_large_frames_is_no_transfer_for_long() {
        let (mut learner, mut now) = (Learner::new(Instant::ZERO), Instant::ZERO);
        for second in 0..6 {
            for frame in 0..30 {
                // 0.9 Mbit/s with a key frame in each second.
                let packets = if frame == 0 { 12 } else { 3 };
                for _ in 0..packets {
                    learner.sent(1100, now);
                }
                now += Duration::from_millis(33);
            }
            assert_eq!(learner.begins_bulk(now), second < 3, "{second} s");
        }
        now += 2 * LONGEST;
        learner.sent(1100, now);
        assert!(!learner.begins_bulk(now));
    }

    #[test]
    fn calls_games_and_slow_video_are_no_transfers() {
        let ms = Duration::from_millis;
        for (len, every) in [(200, ms(20)), (900, ms(5)), (1200, ms(20))] {
            let (mut learner, mut now) = (Learner::new(Instant::ZERO), Instant::ZERO);
            steady(&mut learner, &mut now, len, every, 1);
            assert!(!learner.begins_bulk(now), "{len} bytes every {every:?}");
        }
    }
}
