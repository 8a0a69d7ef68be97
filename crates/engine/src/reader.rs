//! How far ahead of a stream's reader its peer may send, derived from the reader's rate.
//!
//! As in the receive-buffer tuning of kernels, twice the bytes read in a round trip suffice on one
//! path: one part is in flight while the credit for the other part returns. Over unequal paths a
//! prompt reader gets a third round. A round is a round trip of the slowest path, which determines
//! how far ahead the others have to work.
//!
//! A burst out of a full buffer is faster than any path, so a round counts at most the bytes that
//! arrived in a recent round. The credit ahead of a reader stays within three bandwidth-delay
//! products plus a constant, or within two if the reader leaves bytes unread. While the rate grows,
//! the limit is six.
//!
//! For a reader that has read everything the best round counts, even if it then had nothing to read
//! for a long time. For one that leaves bytes unread the latest rounds count.

use std::time::Duration;

use crate::Instant;

/// The round trip of the slowest path that delivers: the longest time from a grant of credit until
/// its bytes can be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    /// Smoothed, with the queue that the sender fills.
    pub(crate) smoothed: Duration,
    /// The minimum, without that queue.
    pub(crate) minimum: Duration,
}

impl Trip {
    /// A round trip without a queue.
    pub(crate) fn idle(rtt: Duration) -> Self {
        Self {
            smoothed: rtt,
            minimum: rtt,
        }
    }

    /// The part of a round that is not a queue, with half a minimum round trip for changes; from 0
    /// to 1.
    fn without_queue(self) -> f64 {
        let smoothed = self.smoothed.as_secs_f64().max(1e-6);
        (1.5 * self.minimum.as_secs_f64() / smoothed).min(1.0)
    }
}

/// Initial credit of a new stream in bytes, so that objects need not wait a round trip for more.
/// [`crate::share`] bounds the unread bytes of many streams.
pub(crate) const FIRST: u64 = 768 * 1024;

/// Credit beyond two rounds for a reader that has read everything. It is less than [`FIRST`], since
/// the bytes read may still wait in a pipe and a socket for a program that has stopped reading.
const PROMPT: u64 = 512 * 1024;

/// The same for a reader that leaves bytes unread.
const SLOW: u64 = 256 * 1024;

/// Until a reader has taken this much, its rate is unknown: a pipe and a socket accept as much for
/// a program that does not read.
const ABSORBED: u64 = 320 * 1024;

/// Rounds of credit for a reader that leaves bytes unread ...
const ROUNDS: u64 = 2;

/// ... for one that has read everything: a path with a high delay in the direction of the data
/// carries bytes from far ahead, and repairing their gaps takes another round ...
const PROMPT_ROUNDS: u64 = 3;

/// ... and while each round brings more than any before it, since the peer's window may double
/// meanwhile.
const ROUNDS_OF_GROWTH: u64 = 6;

/// Number of rounds of which the best one counts for a reader that leaves bytes unread, so that
/// shorter pauses change nothing.
const LAST: usize = 4;

/// Decay of the best round per round, as a fraction: it halves in approximately 20 rounds.
const DECAY: (u64, u64) = (31, 32);

/// Statistics of a stream's reader.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Start of the current round, and its earliest end; none before the first byte.
    round: Option<(Instant, Instant)>,
    /// The part of a round that is not a queue.
    without_queue: f64,
    /// Bytes read in the round, and bytes that arrived in it.
    read: u64,
    arrived: u64,
    /// Bytes read in the latest rounds, the newest first.
    last: [u64; LAST],
    /// The most bytes read in a round, and the most that arrived in one; both decay.
    max_read: u64,
    max_arrived: u64,
    /// The last round brought more than any before it.
    has_grown: bool,
}

impl Reader {
    /// New bytes of the stream have arrived; `trip` is called when a round begins.
    pub(crate) fn note_arrival(&mut self, bytes: u64, now: Instant, trip: impl FnOnce() -> Trip) {
        self.end_rounds(now, trip);
        self.arrived += bytes;
    }

    /// Bytes have been read or dropped.
    pub(crate) fn note_read(&mut self, bytes: u64, now: Instant, trip: impl FnOnce() -> Trip) {
        self.end_rounds(now, trip);
        self.read += bytes;
    }

    /// Bytes that the peer may send beyond the `read` bytes that were read since the stream began;
    /// `is_prompt` if none wait to be read.
    pub(crate) fn window(&self, read: u64, is_prompt: bool) -> u64 {
        let arrives = match read < ABSORBED {
            true => 0,
            false => self.max_arrived.max(self.arrived),
        };
        let (base, round, rounds) = if is_prompt {
            let grows = self.has_grown || exceeds(self.counted(), self.max_read);
            let rounds = if grows {
                ROUNDS_OF_GROWTH
            } else {
                PROMPT_ROUNDS
            };
            (PROMPT, self.max_read.max(self.read), rounds)
        } else {
            let last = self.last.into_iter().max().unwrap_or(0);
            // Such a reader is served from its buffer: filling queues as well gains nothing.
            let last = last.max(self.read) as f64 * self.without_queue;
            (SLOW, last as u64, ROUNDS)
        };
        base.saturating_add(round.min(arrives).saturating_mul(rounds))
    }

    /// The part of the bytes read in the current round that counts.
    fn counted(&self) -> u64 {
        self.read.min(self.max_arrived.max(self.arrived))
    }

    /// Ends the round if it is over.
    fn end_rounds(&mut self, now: Instant, trip: impl FnOnce() -> Trip) {
        let Some((began, ends)) = self.round else {
            self.begin_round(now, trip());
            return;
        };
        if now < ends {
            return;
        }
        // Bytes of a period longer than a round are divided among its rounds.
        let rounds = (now - began).as_secs_f64() / (ends - began).as_secs_f64().max(1e-6);
        let each = |bytes: u64| (bytes as f64 / rounds) as u64;
        let (left, of) = DECAY;
        self.max_arrived = (self.max_arrived / of * left).max(each(self.arrived));
        let read = each(self.read);
        let whole = (rounds as usize).clamp(1, LAST);
        self.last.rotate_right(whole);
        self.last[..whole].fill(read);
        let counts = read.min(self.max_arrived);
        self.has_grown = exceeds(counts, self.max_read);
        self.max_read = (self.max_read / of * left).max(counts);
        (self.read, self.arrived) = (0, 0);
        self.begin_round(now, trip());
    }

    fn begin_round(&mut self, now: Instant, trip: Trip) {
        self.round = Some((now, now + trip.smoothed));
        self.without_queue = trip.without_queue();
    }
}

/// Whether a round brought more than the best one before it, by more than chance.
fn exceeds(round: u64, best: u64) -> bool {
    round > best + best / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(40);

    /// Every `every`, `arrives` bytes arrive and `reads` bytes are read, for one second.
    fn steady(reader: &mut Reader, now: &mut Instant, every: Duration, arrives: u64, reads: u64) {
        let end = *now + Duration::from_secs(1);
        while *now < end {
            reader.note_arrival(arrives, *now, || Trip::idle(TRIP));
            reader.note_read(reads, *now, || Trip::idle(TRIP));
            *now += every;
        }
    }

    #[test]
    fn an_idle_reader_that_was_fast_keeps_its_credit() {
        let (mut reader, mut now) = (Reader::default(), Instant::from_secs(1));
        let ms = Duration::from_millis(1);
        steady(&mut reader, &mut now, ms, 10_000, 10_000);
        now += Duration::from_secs(60);
        reader.note_arrival(10, now, || Trip::idle(TRIP));
        reader.note_read(10, now, || Trip::idle(TRIP));
        let ahead = reader.window(ABSORBED, true) - PROMPT;
        assert!((3 * 350_000..3 * 420_000).contains(&ahead), "{ahead}");
        assert!(reader.window(ABSORBED, false) < SLOW + 100_000);
    }

    #[test]
    fn credit_of_a_steady_reader_is_two_rounds_at_any_read_interval() {
        for ms in [1, 10, 40, 200, 500] {
            let (mut reader, mut now) = (Reader::default(), Instant::from_secs(1));
            // 1 MB/s: 40 kB in a round.
            let bytes = ms * 1000;
            steady(
                &mut reader,
                &mut now,
                Duration::from_millis(ms),
                bytes,
                bytes,
            );
            // A reader of large pieces may have read a whole piece in the current round.
            let round = bytes.max(41_000);
            let ahead = reader.window(ABSORBED, false) - SLOW;
            assert!((40_000..=2 * round).contains(&ahead), "{ms} ms: {ahead}");
        }
    }

    #[test]
    fn a_burst_of_reads_counts_up_to_the_arrival_rate() {
        let (mut reader, mut now) = (Reader::default(), Instant::from_secs(1));
        // 100 kB arrive in each round, and every second round they are read.
        for _ in 0..20 {
            reader.note_arrival(100_000, now, || Trip::idle(TRIP));
            now += TRIP;
        }
        reader.note_read(2_000_000, now, || Trip::idle(TRIP));
        assert_eq!(reader.window(ABSORBED, false), SLOW + 200_000);
    }

    #[test]
    fn growing_rounds_leave_credit_for_a_doubling_window() {
        let (mut reader, mut now) = (Reader::default(), Instant::from_secs(1));
        let mut read = 0;
        for power in 0..10 {
            let bytes = 10_000 << power;
            assert!(reader.window(read, true) >= bytes, "{power}: {reader:?}");
            reader.note_arrival(bytes, now, || Trip::idle(TRIP));
            reader.note_read(bytes, now, || Trip::idle(TRIP));
            read += bytes;
            let ahead = reader.window(read, true).max(FIRST - read.min(FIRST));
            assert!(ahead >= 2 * bytes, "{power}: {ahead}");
            now += TRIP;
        }
        let bytes = 10_000 << 9;
        for _ in 0..2 {
            reader.note_arrival(bytes, now, || Trip::idle(TRIP));
            reader.note_read(bytes, now, || Trip::idle(TRIP));
            now += TRIP;
        }
        assert_eq!(
            reader.window(ABSORBED, true),
            PROMPT + 3 * bytes,
            "it stops growing"
        );
    }

    #[test]
    fn bytes_that_a_pipe_and_a_socket_accept_earn_no_rounds() {
        let (mut reader, now) = (Reader::default(), Instant::from_secs(1));
        reader.note_arrival(FIRST, now, || Trip::idle(TRIP));
        reader.note_read(ABSORBED, now, || Trip::idle(TRIP));
        assert_eq!(reader.window(ABSORBED - 1, true), PROMPT);
        assert_eq!(
            reader.window(ABSORBED, true),
            PROMPT + ROUNDS_OF_GROWTH * ABSORBED
        );
    }

    #[test]
    fn a_queue_gives_no_credit_to_a_reader_that_leaves_bytes_unread() {
        let windows = [1, 2, 4].map(|queue| {
            let trip = Trip {
                smoothed: queue * TRIP,
                minimum: TRIP,
            };
            let (mut reader, mut now) = (Reader::default(), Instant::from_secs(1));
            for _ in 0..200 {
                reader.note_arrival(100_000 * u64::from(queue), now, || trip);
                reader.note_read(100_000 * u64::from(queue), now, || trip);
                now += queue * TRIP;
            }
            (
                reader.window(ABSORBED, false),
                reader.window(ABSORBED, true),
            )
        });
        // 1.5 minimum round trips count at most.
        assert_eq!(
            windows.map(|(slow, _)| slow - SLOW),
            [200_000, 300_000, 300_000]
        );
        assert_eq!(
            windows.map(|(_, prompt)| prompt - PROMPT),
            [300_000, 600_000, 1_200_000]
        );
    }

    #[test]
    fn a_reader_that_stops_soon_counts_as_slow() {
        let (mut reader, mut now) = (Reader::default(), Instant::from_secs(1));
        let ms = Duration::from_millis(1);
        steady(&mut reader, &mut now, ms, 10_000, 10_000);
        assert!(reader.window(ABSORBED, false) >= SLOW + 2 * 390_000);
        now += 6 * TRIP;
        reader.note_read(10, now, || Trip::idle(TRIP));
        assert!(
            reader.window(ABSORBED, false) < SLOW + 400_000,
            "{reader:?}"
        );
    }
}
