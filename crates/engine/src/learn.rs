//! Learns the class of a stream from its traffic.
//!
//! Each side learns how to treat the bytes that it sends, from the bytes of both directions. The
//! result is not sent over the wire. A stream begins as interactive, because most objects are
//! small. It is evaluated in intervals of one second in which bytes moved:
//!
//! | class | observation in an interval |
//! | --- | --- |
//! | conversational | both ways in 7 of its 10 parts or more, up to 32 KiB each, never behind |
//! | streaming | sent in 5 parts or more, 32 KiB to 8 MiB, 8 times the received, never behind |
//! | background | at least 16 KiB sent, and the sender is behind at every write |
//! | interactive | anything else |
//!
//! The sender is behind at a write that finds unsent bytes, that is cut short because the send
//! buffer is full, or that follows a write which filled the buffer. "Never behind" means at most at
//! a tenth of the writes. A class is adopted when three intervals in a row agree, so that a single
//! pause or burst changes nothing. Only bulk is detected sooner: when 2 MiB went one way without an
//! answer or a pause of half a second, and the sender was behind at half of the writes.

use std::time::Duration;

use crate::{Class, Instant};

/// The class of a stream before it has sent anything.
pub(crate) const FIRST: Class = Class::Interactive;

/// Length of an evaluation interval, and the number of parts in which movement is recorded.
const INTERVAL: Duration = Duration::from_secs(1);
const PART: Duration = Duration::from_millis(100);

/// Number of intervals that must agree.
const AGREEING: u32 = 3;

/// A run of bytes ends with an answer or with a pause of this length.
const PAUSE: Duration = Duration::from_millis(500);

/// A longer run is bulk.
const BULK_RUN: u64 = 2 << 20;

/// Learns the class of one stream.
#[derive(Debug)]
pub(crate) struct Learner {
    class: Class,
    /// The class of the latest intervals, and how many in a row agree on it.
    candidate: (Class, u32),
    /// The traffic has determined the class at least once.
    is_sure: bool,
    /// Start of the current interval.
    since: Instant,
    sent: Direction,
    received: Direction,
    /// Writes in the interval, and the number of them at which the sender was behind.
    writes: u32,
    behind: u32,
    /// Bytes sent since the last answer or pause.
    run: u64,
    last: Instant,
}

/// One direction in an interval.
#[derive(Debug, Default)]
struct Direction {
    bytes: u64,
    /// One bit for each part in which bytes moved.
    parts: u16,
}

impl Direction {
    fn add(&mut self, bytes: u64, part: u32) {
        self.bytes += bytes;
        self.parts |= 1 << part;
    }

    fn active_parts(&self) -> u32 {
        self.parts.count_ones()
    }
}

impl Learner {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            class: FIRST,
            candidate: (FIRST, 0),
            is_sure: false,
            since: now,
            sent: Direction::default(),
            received: Direction::default(),
            writes: 0,
            behind: 0,
            run: 0,
            last: now,
        }
    }

    /// The class that the stream currently has.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Whether the traffic has determined the class. Until then the class is only the first one.
    pub(crate) fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// The program has written `bytes`. The paths are behind if earlier bytes are still unsent, if
    /// the program wanted to write more, or if its previous write filled the send buffer.
    pub(crate) fn wrote(&mut self, bytes: u64, is_behind: bool, now: Instant) {
        let part = self.part(now);
        if now.saturating_sub(self.last) >= PAUSE {
            self.run = 0;
        }
        self.last = now;
        self.sent.add(bytes, part);
        self.writes += 1;
        self.behind += u32::from(is_behind);
        self.run += bytes;
        if self.run >= BULK_RUN && 2 * self.behind >= self.writes {
            self.class = Class::Background;
            self.candidate = (Class::Background, AGREEING);
            self.is_sure = true;
        }
    }

    /// The peer's program has written `bytes`.
    pub(crate) fn received(&mut self, bytes: u64, now: Instant) {
        let part = self.part(now);
        self.received.add(bytes, part);
        self.run = 0;
    }

    /// Returns the current part of the interval, and ends the interval when it is over.
    fn part(&mut self, now: Instant) -> u32 {
        if now >= self.since + INTERVAL {
            self.conclude();
            self.since = now;
            self.sent = Direction::default();
            self.received = Direction::default();
            (self.writes, self.behind) = (0, 0);
        }
        (now.saturating_sub(self.since).as_millis() / PART.as_millis()) as u32
    }

    fn conclude(&mut self) {
        let seen = self.seen();
        let (candidate, times) = &mut self.candidate;
        *times = if *candidate == seen { *times + 1 } else { 1 };
        *candidate = seen;
        if *times >= AGREEING {
            self.class = seen;
            self.is_sure = true;
        }
    }

    /// The class that the interval suggests.
    fn seen(&self) -> Class {
        let (sent, received) = (&self.sent, &self.received);
        let keeps_up = 10 * self.behind <= self.writes;
        let talks =
            |direction: &Direction| direction.active_parts() >= 7 && direction.bytes <= 32 << 10;
        let streams = sent.active_parts() >= 5
            && (32 << 10..=8 << 20).contains(&sent.bytes)
            && sent.bytes / 8 >= received.bytes;
        if keeps_up && talks(sent) && talks(received) {
            Class::Conversational
        } else if keeps_up && streams {
            Class::Streaming
        } else if sent.bytes >= 16 << 10 && self.behind == self.writes {
            Class::Background
        } else {
            Class::Interactive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for `seconds` in steps of 20 ms. Each step returns the bytes written, unsent and
    /// received.
    fn run(
        learner: &mut Learner,
        from: &mut Instant,
        seconds: u64,
        mut step: impl FnMut(u64) -> (u64, u64, u64),
    ) {
        for index in 0..seconds * 50 {
            *from += Duration::from_millis(20);
            let (written, unsent, received) = step(index);
            if written > 0 {
                learner.wrote(written, unsent > 0, *from);
            }
            if received > 0 {
                learner.received(received, *from);
            }
        }
    }

    fn learned(step: impl FnMut(u64) -> (u64, u64, u64)) -> Class {
        let mut now = Instant::from_secs(9);
        let mut learner = Learner::new(now);
        assert_eq!(learner.class(), Class::Interactive);
        run(&mut learner, &mut now, 6, step);
        learner.class()
    }

    #[test]
    fn classifies_speech_video_requests_and_files() {
        // 160 bytes every 20 ms both ways: G.711.
        assert_eq!(learned(|_| (160, 0, 160)), Class::Conversational);
        // 25 frames a second at 20 Mbit/s.
        assert_eq!(
            learned(|index| (if index % 2 == 0 { 100_000 } else { 0 }, 0, 0)),
            Class::Streaming
        );
        // A page of 300 KB every second, requested with 500 bytes.
        assert_eq!(
            learned(|index| match index % 50 {
                0 => (0, 0, 500),
                1 => (30_000, 0, 0),
                2..=10 => (30_000, 50_000, 0),
                _ => (0, 0, 0),
            }),
            Class::Interactive
        );
        // Keystrokes in a terminal, a few per second.
        assert_eq!(
            learned(|index| if index % 13 == 0 {
                (1, 0, 40)
            } else {
                (0, 0, 0)
            }),
            Class::Interactive
        );
        assert_eq!(learned(|_| (100_000, 1 << 20, 0)), Class::Background);
    }

    #[test]
    fn detects_bulk_after_two_mebibytes() {
        let mut now = Instant::from_secs(9);
        let mut learner = Learner::new(now);
        run(&mut learner, &mut now, 1, |index| {
            let unsent = if index == 0 { 0 } else { 60_000 };
            (if index < 30 { 64 << 10 } else { 0 }, unsent, 0)
        });
        assert_eq!(learner.class(), Class::Interactive, "just below the limit");
        assert!(!learner.is_sure());
        let mut learner = Learner::new(now);
        run(&mut learner, &mut now, 1, |_| (64 << 10, 60_000, 0));
        assert_eq!(learner.class(), Class::Background);
        assert!(learner.is_sure());
    }

    #[test]
    fn class_changes_only_after_a_lasting_change() {
        let mut now = Instant::from_secs(9);
        let mut learner = Learner::new(now);
        let talk = |_| (160, 0, 160);
        run(&mut learner, &mut now, 6, talk);
        assert_eq!(learner.class(), Class::Conversational);
        run(&mut learner, &mut now, 1, |_| (3_000, 0, 100));
        run(&mut learner, &mut now, 2, talk);
        assert_eq!(learner.class(), Class::Conversational, "one burst");
        now += Duration::from_secs(30);
        run(&mut learner, &mut now, 1, talk);
        assert_eq!(learner.class(), Class::Conversational, "a pause");
        run(&mut learner, &mut now, 3, |_| (100_000, 1 << 20, 0));
        assert_eq!(learner.class(), Class::Background, "now it sends a file");
        run(&mut learner, &mut now, 5, talk);
        assert_eq!(
            learner.class(),
            Class::Conversational,
            "and carries speech again"
        );
    }
}
