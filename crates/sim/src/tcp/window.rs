//! The receive window. Linux grows it as the program reads (dynamic right-sizing), in two steps.
//!
//! The limit of the buffer follows the bytes read in a round trip (`tcp_rcv_space_adjust`), and the
//! window approaches that limit with every arriving segment (`tcp_grow_window`). Early in a
//! connection this window limits the sender, which interrupts the train of acknowledgments that
//! would end slow start.

use crate::clock::Nanos;

/// Window of a receive buffer of `tcp_rmem[1]`, 128 KiB: the kernel reserves half of a buffer for
/// data.
const INITIAL: u64 = 64 * 1024;
/// Segments that a new connection is expected to receive in its first round trip (TCP_INIT_CWND).
const FIRST_FLIGHT: u64 = 10;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// Upper bound of the window.
    most: u64,
    /// Current limit of the window (`window_clamp`).
    clamp: u64,
    /// The offered window (`rcv_ssthresh`).
    offered: u64,
    /// Most bytes that the program has read in a round trip so far (`rcvq_space.space`).
    space: u64,
    /// Start time of the current measurement, and bytes read before it.
    since: Nanos,
    from: u64,
    /// The receiver's estimate of the round-trip time (`rcv_rtt_est`); 0 before the first sample.
    rtt: Nanos,
    last_echo: Nanos,
    segment: u64,
}

impl Window {
    /// Creates a window for segments of `segment` bytes that can grow to `most` bytes.
    pub(super) fn new(most: u64, segment: u64) -> Self {
        let initial = INITIAL.min(most);
        Self {
            most,
            clamp: initial,
            offered: initial / segment * segment,
            space: FIRST_FLIGHT * segment,
            since: 0,
            from: 0,
            rtt: 0,
            last_echo: 0,
            segment,
        }
    }

    /// The offered window.
    pub(super) fn offered(&self) -> u64 {
        self.offered
    }

    /// A segment of `bytes` bytes arrived; it answers a packet sent at `echo`.
    pub(super) fn arrive(&mut self, bytes: u64, echo: Nanos, now: Nanos) {
        if echo > self.last_echo && bytes >= self.segment {
            self.last_echo = echo;
            let sample = now.saturating_sub(echo).max(1);
            self.rtt = match self.rtt {
                0 => sample,
                rtt => rtt - rtt / 8 + sample / 8,
            };
        }
        if self.offered < self.clamp {
            let room = self.clamp - self.offered;
            self.offered += room.min(2 * bytes.max(self.segment));
        }
    }

    /// The program has read all bytes before `offset`.
    pub(super) fn read(&mut self, offset: u64, now: Nanos) {
        if self.rtt == 0 || now.saturating_sub(self.since) < self.rtt {
            return;
        }
        let copied = offset - self.from;
        if copied > self.space {
            // Twice the bytes read, plus their growth since the last measurement.
            let (new, old) = (u128::from(copied), u128::from(self.space));
            let window = 2 * new + 2 * (2 * new * (new - old) / old);
            self.clamp = self.clamp.max(window.min(u128::from(self.most)) as u64);
            self.space = copied;
        }
        (self.since, self.from) = (now, offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLISECOND;

    #[test]
    fn the_window_outgrows_slow_start_after_the_first_round_trips() {
        let (segment, rtt) = (1448, 100 * MILLISECOND);
        let mut window = Window::new(16 << 20, segment);
        let (mut read, mut now) = (0, rtt);
        let mut offered = Vec::new();
        for round in 0..8u64 {
            let flight = (10 << round).min(window.offered() / segment);
            for number in 0..flight {
                window.arrive(segment, now - rtt, now + number);
                read += segment;
                window.read(read, now + number);
            }
            now += rtt;
            offered.push(window.offered() / segment);
        }
        // Close to Linux 6.18, which reaches 104 and 239 in these round trips (measured).
        assert_eq!(offered[..3], [45, 45, 105]);
        assert!((200..300).contains(&offered[3]), "{offered:?}");
        assert!(offered[7] > 1280, "{offered:?}");
    }

    #[test]
    fn the_window_is_bounded() {
        let mut window = Window::new(200_000, 1000);
        for n in 1..10_000 {
            let now = (n / 30 + 10) * MILLISECOND;
            window.arrive(1000, now - 10 * MILLISECOND, now);
            window.read(n * 1000, now);
        }
        assert_eq!(window.offered(), 200_000);
    }
}
