//! The pause of the emulator's thread between two rounds.

use std::time::Duration;

/// Pause after a round that moved packets, so that a busy link's packets are handled in batches; a
/// wake-up for each costs twice the CPU time. Delays packets by at most this time.
const QUANTUM: Duration = Duration::from_micros(40);

/// Pause between super-packets while links are busy at high rates. Packets that leave a link in the
/// same round are joined, and cost both ends (TCP's receiver and its acknowledgments included) as
/// much as a single packet. docs/notes/laboratory.md lists the gain and its price. Network cards
/// and Wi-Fi, which aggregates frames, delay packets as long.
const COARSE: Duration = Duration::from_micros(200);

/// Packets in a busy round: about 800 Mbit/s over all links, and less once the pauses are longer.
const BUSY: u64 = 8;

/// Busy rounds before the longer pause, about 4 ms: longer than an object whose completion time,
/// not rate, is measured.
const ROUNDS: u32 = 32;

/// Number of busy rounds that a calm round cancels. At most twice [`ROUNDS`] are counted: bulk
/// traffic has calm rounds in between, and a few of them end the longer pause when it is over.
const CALM: u32 = 4;
const MAX: u32 = 2 * ROUNDS;

/// Chooses the pause from the traffic of the previous rounds.
#[derive(Debug)]
pub(super) struct Pace {
    /// Whether interfaces accept super-packets: without them, larger batches bring no gain.
    offload: bool,
    /// Busy rounds, reduced by calm ones.
    busy: u32,
}

impl Pace {
    pub(super) fn new(offload: bool) -> Self {
        Self { offload, busy: 0 }
    }

    /// The pause after a round that handed over this number of packets.
    pub(super) fn after(&mut self, packets: u64) -> Duration {
        self.busy = match packets {
            BUSY.. => (self.busy + 1).min(MAX),
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
            assert_eq!(
                pace.after(0),
                longest,
                "bulk traffic has calm rounds in between"
            );
            for _ in 0..ROUNDS / CALM {
                pace.after(0);
            }
            assert_eq!(pace.after(BUSY), QUANTUM, "the bulk traffic has ended");
        }
    }
}
