//! How long the emulator's thread rests between two rounds.

use std::time::Duration;

/// Pause after a round in which something happened, so that the packets of a busy link are carried
/// several at a time; a wake-up for each costs twice the CPU time. Packets are at most so much later.
const QUANTUM: Duration = Duration::from_micros(40);

/// The same between super-packets while links are busy at high rates. What comes out of a link in one round is joined, and costs
/// both ends, TCP's receiver and its acknowledgements included, as much as a single packet does (docs/laboratory.md has what that
/// gives and what it costs). Network cards, and Wi-Fi, which sends frames together, make packets as late.
const COARSE: Duration = Duration::from_micros(200);

/// So many packets in a round: some 800 Mbit/s, all links together, and less once the pauses are longer ...
const BUSY: u64 = 8;

/// ... in so many rounds, some 4 ms: more than an object has whose time is measured rather than its rate.
const ROUNDS: u32 = 32;

/// A calm round makes up for so many busy ones, and no more than twice as many as it takes are remembered: bulk has calm rounds in
/// between, and when it is over a few of them end it.
const CALM: u32 = 4;
const MOST: u32 = 2 * ROUNDS;

/// Chooses the pause by what the rounds before were like.
#[derive(Debug)]
pub(super) struct Pace {
    /// Whether interfaces take super-packets: others gain nothing from more packets at once.
    offload: bool,
    /// Busy rounds, less what calm ones made up for.
    busy: u32,
}

impl Pace {
    pub(super) fn new(offload: bool) -> Self {
        Self { offload, busy: 0 }
    }

    /// A round has handed over so many packets: the pause before the next one.
    pub(super) fn after(&mut self, packets: u64) -> Duration {
        self.busy = match packets {
            BUSY.. => (self.busy + 1).min(MOST),
            _ => self.busy.saturating_sub(CALM),
        };
        match self.offload && self.busy > ROUNDS {
            true => COARSE,
            false => QUANTUM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_longer_only_after_many_busy_rounds_of_super_packets() {
        for (offload, longest) in [(true, COARSE), (false, QUANTUM)] {
            let mut pace = Pace::new(offload);
            for _ in 0..ROUNDS {
                assert_eq!(pace.after(BUSY), QUANTUM);
            }
            assert_eq!(pace.after(BUSY), longest);
            assert_eq!(pace.after(BUSY - 1), QUANTUM);
            for _ in 0..100 * ROUNDS {
                pace.after(100 * BUSY);
            }
            assert_eq!(pace.after(0), longest, "bulk has calm rounds in between");
            for _ in 0..ROUNDS / CALM {
                pace.after(0);
            }
            assert_eq!(pace.after(BUSY), QUANTUM, "and it ends");
        }
    }
}
