//! Turns of a card at its hotspots, weighted by throughput.

use core::time::Duration;

use super::{Radio, Schedule};

/// Weight of the newest round in the averages, as in the paper's B_gbl.
const BETA: f64 = 0.125;
/// Share of a round that is divided equally: a hotspot without traffic is visited, too.
const EQUAL: f64 = 0.1;

/// The turns of one card.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    round: Duration,
    switching: Duration,
    current: usize,
    ends: Duration,
    /// Bytes of each hotspot in this round.
    moved: Vec<u64>,
    /// Average bytes of each hotspot in a round.
    average: Vec<f64>,
}

impl Weights {
    /// For schedules without weights it has no turns.
    pub(super) fn new(radio: &Radio, hotspots: usize) -> Self {
        let round = match radio.schedule {
            Schedule::Weighted { round } => round,
            _ => Duration::ZERO,
        };
        let mut weights = Self {
            round,
            switching: radio.switching,
            current: 0,
            ends: Duration::ZERO,
            moved: vec![0; hotspots],
            average: vec![0.0; hotspots],
        };
        weights.ends = weights.length(0);
        weights
    }

    /// A packet of a hotspot was carried.
    pub(super) fn moved(&mut self, hotspot: usize, bytes: u64) {
        self.moved[hotspot] += bytes;
    }

    /// End of the current turn.
    pub(super) fn ends(&self) -> Duration {
        self.ends
    }

    /// Begins the next turn if the current one is over: its hotspot, and its beginning.
    pub(super) fn next_turn(&mut self, now: Duration) -> Option<(usize, Duration)> {
        if now < self.ends {
            return None;
        }
        self.current = (self.current + 1) % self.moved.len();
        if self.current == 0 {
            for (average, moved) in self.average.iter_mut().zip(&mut self.moved) {
                let bytes = std::mem::take(moved) as f64;
                *average += BETA * (bytes - *average);
            }
        }
        let begins = self.ends;
        self.ends += self.length(self.current);
        Some((self.current, begins))
    }

    /// Length of a hotspot's turn, its switching included.
    pub(super) fn length(&self, hotspot: usize) -> Duration {
        let count = self.average.len() as f64;
        let sum: f64 = self.average.iter().sum();
        let share = match sum > 0.0 {
            true => EQUAL / count + (1.0 - EQUAL) * self.average[hotspot] / sum,
            false => 1.0 / count,
        };
        let switching = self.switching * self.average.len() as u32;
        self.switching + self.round.saturating_sub(switching).mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn weights() -> Weights {
        let radio = Radio {
            rate: 40_000_000,
            switching: 2 * MS,
            card_queue: 1 << 18,
            hotspot_buffer: 1 << 18,
            schedule: Schedule::Weighted { round: 44 * MS },
        };
        Weights::new(&radio, 2)
    }

    #[test]
    fn turns_follow_the_bytes_and_fill_the_round() {
        let mut weights = weights();
        assert_eq!(weights.length(0), 22 * MS);
        let mut turns = Vec::new();
        for _ in 0..200 {
            weights.moved(weights.current, [3000, 1000][weights.current]);
            turns.extend(weights.next_turn(weights.ends()));
        }
        // 40 ms without the switching: 2 ms each, and 36 ms by three to one.
        assert_eq!((weights.length(0), weights.length(1)), (31 * MS, 13 * MS));
        let begins: Vec<_> = turns.iter().map(|(_, begins)| *begins).collect();
        assert_eq!(begins[199] - begins[197], 44 * MS);
    }

    #[test]
    fn a_silent_hotspot_is_still_visited_and_regains_its_share() {
        let mut weights = weights();
        let mut run = |bytes: [u64; 2]| {
            for _ in 0..400 {
                weights.moved(weights.current, bytes[weights.current]);
                weights.next_turn(weights.ends());
            }
            weights.length(1)
        };
        let silent = run([1000, 0]);
        assert!((silent.as_secs_f64() - 0.004).abs() < 1e-6, "{silent:?}");
        let loud = run([1000, 1000]);
        assert!((loud.as_secs_f64() - 0.022).abs() < 1e-6, "{loud:?}");
    }
}
