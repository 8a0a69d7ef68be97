//! The window that a receiver offers: Linux lets it grow as the program reads (dynamic right-sizing), in two steps. What
//! the buffer may become follows what was read in a round trip (`tcp_rcv_space_adjust`), and the window follows that with
//! every segment that arrives (`tcp_grow_window`). Early in a connection it is this that holds a sender back, and breaks
//! the train of acknowledgements by which slow start would end.

use crate::clock::Nanos;

/// Window of a receive buffer of `tcp_rmem[1]`, 128 KiB: the kernel counts half of a buffer as the data's.
const INITIAL: u64 = 64 * 1024;
/// Segments that a new connection is thought to bring in a round trip (TCP_INIT_CWND).
const FIRST_FLIGHT: u64 = 10;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The most that the window may ever be.
    most: u64,
    /// The most that it may be for now (`window_clamp`).
    clamp: u64,
    /// What is offered (`rcv_ssthresh`).
    offered: u64,
    /// Bytes that the program read in a round trip, at most so far (`rcvq_space.space`).
    space: u64,
    /// When the present measurement began, and after how many bytes.
    since: Nanos,
    from: u64,
    /// The round-trip time as the receiver sees it (`rcv_rtt_est`); 0 before the first sample.
    rtt: Nanos,
    last_echo: Nanos,
    segment: u64,
}

impl Window {
    /// For segments of `segment` bytes; in the end up to `most`.
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

    /// What is offered.
    pub(super) fn offered(&self) -> u64 {
        self.offered
    }

    /// A segment with so many bytes has arrived that answers what was sent at `echo`.
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

    /// The program has read everything before `offset`.
    pub(super) fn read(&mut self, offset: u64, now: Nanos) {
        if self.rtt == 0 || now.saturating_sub(self.since) < self.rtt {
            return;
        }
        let copied = offset - self.from;
        if copied > self.space {
            // Twice as much, and as much more as it has become since the last time.
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
    fn the_window_keeps_ahead_of_a_sender_that_doubles_but_for_the_first_round_trips() {
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
        // As measured with Linux 6.18, which reaches 104 and 239 in these round trips.
        assert_eq!(offered[..3], [45, 45, 105]);
        assert!((200..300).contains(&offered[3]), "{offered:?}");
        assert!(offered[7] > 1280, "{offered:?}");
    }

    #[test]
    fn it_has_an_end() {
        let mut window = Window::new(200_000, 1000);
        for n in 1..10_000 {
            let now = (n / 30 + 10) * MILLISECOND;
            window.arrive(1000, now - 10 * MILLISECOND, now);
            window.read(n * 1000, now);
        }
        assert_eq!(window.offered(), 200_000);
    }
}
