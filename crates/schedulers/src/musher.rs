//! MuSher: two paths share each round of segments by a ratio, and a change of the throughput starts
//! a search for a new ratio.
//!
//! Source: Saha, Aggarwal, Pathak, Koutsonikolas and Widmer, "MuSher: An agile multipath-TCP
//! scheduler for dual-band 802.11ad/ac wireless LANs", MobiCom 2019, with the constants of the
//! authors' kernel module. Of each round of 100 segments one path sends r percent and the other one
//! the rest. A path that has used its quota waits for the other one, even if that is full. The
//! search raises r by 5 as long as the throughput grows, or else lowers it, and takes the last step
//! back.
//!
//! The module's thresholds are for links of 2 Gbit/s together (802.11ad and ac); they are scaled by
//! the throughput here. Two faults of it are not repeated: taking back the first step to the left
//! returns to the start of the search, and r stays within its bounds. The ratio begins at one half.
//!
//! It supports two paths. A third one is refused when it joins. A single path, for instance after
//! the other has failed, carries everything.

use std::time::Duration;

use sumlink_engine::scheduler::rounds::{Full, Rounds};
use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View, lowest_unsent};
use sumlink_engine::{Instant, Path, PathId};

/// MuSher.
#[derive(Debug)]
pub struct Musher {
    rounds: Rounds,
    /// Percentage of each round that goes over the first of the two paths.
    ratio: u64,
    meter: Meter,
    /// The reference for the throughput, once it is known.
    reference: Reference,
    search: Option<Search>,
    /// Time at which the latest search began.
    searched: Option<Instant>,
}

/// Measures throughput and send buffers between two samples.
#[derive(Debug, Default)]
struct Meter {
    /// Time of the last sample, and the bytes that the peer had acknowledged by then.
    since: Option<(Instant, u64)>,
    /// Bytes in the send buffers, summed over all looks.
    buffered: u64,
    looks: u64,
}

/// One sample: bytes per second, and the mean of the bytes in both send buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sample {
    rate: f64,
    buffer: f64,
}

/// The mean of the first samples, and the number of later ones in a row that deviate from it.
#[derive(Debug, Default)]
struct Reference {
    sum: Sample,
    count: u32,
    /// Samples in a row with a rate that deviates too far, and with a buffer too far below.
    off_rate: u32,
    off_buffer: u32,
}

/// A search for a better ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Search {
    state: State,
    /// The ratio at which it began.
    initial: u64,
    /// The throughput before the last step.
    before: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Measures, then steps to the right.
    TryRight,
    /// The first step to the right has been made.
    Right,
    /// Measures, then steps to the left.
    TryLeft,
    /// The first step to the left has been made.
    Left,
    /// The throughput has grown: one more step the same way.
    Climb { right: bool },
}

const RATIO: std::ops::RangeInclusive<u64> = 5..=95;
const STEP: u64 = 5;

/// Segments in a round: one for each percent.
const ROUND: u64 = 100;

/// Sampling interval of the throughput, normally and while searching.
const INTERVAL: Duration = Duration::from_millis(100);
const SEARCH_INTERVAL: Duration = Duration::from_millis(200);

/// Samples that form a reference, and deviating samples that start a search.
const SAMPLES: u32 = 5;

/// Shortest time between the starts of two searches.
const PAUSE: Duration = Duration::from_secs(3);

/// The throughput for which the thresholds of the authors' module, used below, were chosen: 2
/// Gbit/s.
const SCALE: f64 = 2e9 / 8.0;

/// A change of the throughput by this much (200 Mbit/s), or send buffers this far below, starts a
/// search. During a search, growth by the last value (5 Mbit/s) counts as growth.
const RATE_CHANGE: f64 = 200e6 / 8.0;
const BUFFER_FALL: f64 = 75e3;
const RATE_GAIN: f64 = 5e6 / 8.0;

impl Default for Musher {
    fn default() -> Self {
        Self {
            rounds: Rounds::default(),
            ratio: 50,
            meter: Meter::default(),
            reference: Reference::default(),
            search: None,
            searched: None,
        }
    }
}

impl Scheduler for Musher {
    fn name(&self) -> &'static str {
        "musher"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        let mut active = view.active_paths();
        let (Some(first), Some(second)) = (active.next(), active.next()) else {
            return lowest_unsent(view, budget);
        };
        if let Some(sample) = self.meter.look([first, second], self.interval(), view.now) {
            self.note(sample, view.now);
        }
        let (first, ratio) = (first.id(), self.ratio);
        let quota = |path: &Path| {
            // MuSher: of 100 segments r go over the first path, 100 - r over the other
            let segments = if path.id() == first {
                ratio
            } else {
                ROUND - ratio
            };
            segments * path.mss()
        };
        self.rounds.pick(asking, budget, view, Full::Wait, quota)
    }

    fn paths_changed(&mut self) {
        self.rounds.reset();
        self.meter = Meter::default();
        self.reference = Reference::default();
        self.search = None;
    }

    fn max_paths(&self) -> Option<usize> {
        Some(2)
    }

    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Nothing
    }
}

impl Musher {
    fn interval(&self) -> Duration {
        match self.search {
            Some(_) => SEARCH_INTERVAL,
            None => INTERVAL,
        }
    }

    fn note(&mut self, sample: Sample, now: Instant) {
        if let Some(search) = self.search {
            self.search = search.step(sample.rate, &mut self.ratio);
        } else if self.reference.deviates(sample) {
            self.reference = Reference::default();
            if self.searched.is_none_or(|at| now >= at + PAUSE) {
                self.searched = Some(now);
                self.search = Some(Search {
                    state: State::TryRight,
                    initial: self.ratio,
                    before: 0.0,
                });
            }
        }
    }
}

impl Meter {
    /// Observes both paths; returns a sample when one is due.
    fn look(&mut self, paths: [&Path; 2], interval: Duration, now: Instant) -> Option<Sample> {
        let confirmed = paths.iter().map(|path| path.confirmed()).sum::<u64>();
        self.looks += 1;
        self.buffered += paths
            .iter()
            .map(|path| path.sample().in_flight + path.sample().unsent)
            .sum::<u64>();
        let (since, before) = *self.since.get_or_insert((now, confirmed));
        let time = now.saturating_sub(since);
        if time < interval {
            return None;
        }
        let sample = Sample {
            rate: (confirmed - before) as f64 / time.as_secs_f64(),
            buffer: self.buffered as f64 / self.looks as f64,
        };
        *self = Self {
            since: Some((now, confirmed)),
            ..Self::default()
        };
        Some(sample)
    }
}

impl Reference {
    /// Records a sample; returns whether enough of them in a row deviate from the reference.
    fn deviates(&mut self, sample: Sample) -> bool {
        if self.count < SAMPLES {
            self.count += 1;
            self.sum.rate += sample.rate;
            self.sum.buffer += sample.buffer;
            return false;
        }
        let count = f64::from(SAMPLES);
        let (rate, buffer) = (self.sum.rate / count, self.sum.buffer / count);
        let scale = rate / SCALE;
        // MuSher, the module's trigger: |throughput - reference| > 200 Mbit/s, else reference
        // buffer - buffer > 75 kB, five samples in a row
        if (sample.rate - rate).abs() > RATE_CHANGE * scale {
            (self.off_rate, self.off_buffer) = (self.off_rate + 1, 0);
        } else if buffer - sample.buffer > BUFFER_FALL * scale {
            (self.off_rate, self.off_buffer) = (0, self.off_buffer + 1);
        } else {
            (self.off_rate, self.off_buffer) = (0, 0);
        }
        self.off_rate.max(self.off_buffer) >= SAMPLES
    }
}

impl Search {
    /// One step, after `rate` has been measured with the current ratio; none when the search has
    /// ended.
    fn step(self, rate: f64, ratio: &mut u64) -> Option<Self> {
        // MuSher, the search: r + 5 while the throughput grows by more than 5 Mbit/s, else r - 5;
        // then the last step back
        let grows = rate > self.before + RATE_GAIN * self.before / SCALE;
        let (right, left) = (self.initial + STEP, self.initial.saturating_sub(STEP));
        let to = |state| {
            Some(Self {
                state,
                before: rate,
                ..self
            })
        };
        match self.state {
            State::TryRight if RATIO.contains(&right) => {
                *ratio = right;
                to(State::Right)
            }
            State::Right if grows => self.climb(true, rate, ratio),
            State::TryRight | State::Right => {
                *ratio = self.initial;
                to(State::TryLeft)
            }
            State::TryLeft if RATIO.contains(&left) => {
                *ratio = left;
                to(State::Left)
            }
            State::Left if grows => self.climb(false, rate, ratio),
            State::TryLeft | State::Left => {
                *ratio = self.initial;
                None
            }
            State::Climb { right } if rate < self.before => {
                *ratio = moved(*ratio, !right);
                None
            }
            State::Climb { right } => self.climb(right, rate, ratio),
        }
    }

    fn climb(self, right: bool, rate: f64, ratio: &mut u64) -> Option<Self> {
        let next = moved(*ratio, right);
        let state = State::Climb { right };
        RATIO.contains(&next).then(|| {
            *ratio = next;
            Self {
                state,
                before: rate,
                ..self
            }
        })
    }
}

fn moved(ratio: u64, right: bool) -> u64 {
    match right {
        true => ratio + STEP,
        false => ratio.saturating_sub(STEP),
    }
}

#[cfg(test)]
mod tests {
    use sumlink_engine::PathState;
    use sumlink_engine::testing::Fixture;

    use super::*;

    const MBIT: f64 = 1e6 / 8.0;

    /// The ratios that a search tries when the throughput is `rate(ratio)`, in Mbit/s.
    fn search(initial: u64, rate: impl Fn(u64) -> f64) -> Vec<u64> {
        let mut search = Some(Search {
            state: State::TryRight,
            initial,
            before: 0.0,
        });
        let (mut ratio, mut tried) = (initial, Vec::new());
        while let Some(step) = search {
            search = step.step(rate(ratio) * MBIT, &mut ratio);
            tried.push(ratio);
            assert!(tried.len() < 100, "the search does not end");
        }
        tried
    }

    #[test]
    fn a_search_tries_right_then_left_and_undoes_the_last_step() {
        let peak = |at: u64| move |ratio: u64| 1000.0 - 10.0 * ratio.abs_diff(at) as f64;
        assert_eq!(search(50, peak(65)), [55, 60, 65, 70, 65]);
        assert_eq!(search(50, peak(40)), [55, 50, 45, 40, 35, 40]);
        assert_eq!(search(50, peak(50)), [55, 50, 45, 50]);
        assert_eq!(search(90, peak(100)), [95, 95], "the bound ends it");
        assert_eq!(search(95, peak(100)), [95, 90, 95]);
        assert_eq!(search(10, peak(0)), [15, 10, 5, 5]);
        assert_eq!(search(5, peak(0)), [10, 5, 5]);
        // 5 Mbit/s of 2 Gbit/s do not count as growth.
        assert_eq!(
            search(50, |ratio| 2000.0 + ratio as f64 / 10.0),
            [55, 50, 45, 50]
        );
    }

    #[test]
    fn five_deviating_samples_start_a_search_and_four_do_not() {
        let sample = |mbit: f64, buffer: f64| Sample {
            rate: mbit * MBIT,
            buffer,
        };
        let run = |samples: &[Sample]| {
            let mut reference = Reference::default();
            for _ in 0..5 {
                assert!(!reference.deviates(sample(2000.0, 500e3)));
            }
            samples.iter().filter(|s| reference.deviates(**s)).count()
        };
        let (usual, fast) = (sample(2000.0, 500e3), sample(2201.0, 500e3));
        let (slow, empty) = (sample(1799.0, 500e3), sample(2000.0, 424e3));
        assert_eq!(run(&[fast; 5]), 1);
        assert_eq!(run(&[slow; 5]), 1);
        assert_eq!(run(&[empty; 5]), 1);
        assert_eq!(run(&[sample(2199.0, 426e3); 50]), 0);
        assert_eq!(
            run(&[fast, fast, fast, fast, usual, fast, fast, fast, fast]),
            0
        );
        assert_eq!(run(&[slow, slow, slow, empty, empty, empty, empty]), 0);
        // A tenth of the throughput, at any throughput.
        let mut reference = Reference::default();
        let left =
            |reference: &mut Reference, mbit| (0..5).any(|_| reference.deviates(sample(mbit, 0.0)));
        assert!(!left(&mut reference, 10.0) && !left(&mut reference, 10.9));
        assert!(left(&mut reference, 11.1));
    }

    #[test]
    fn searches_start_at_least_three_seconds_apart() {
        let mut musher = Musher::default();
        let run = |musher: &mut Musher, mbit: f64, from: u64| {
            for i in 0..5 {
                let sample = Sample {
                    rate: mbit * MBIT,
                    buffer: 0.0,
                };
                musher.note(sample, Instant::from_millis(from + 100 * i));
            }
            musher.search.is_some()
        };
        assert!(!run(&mut musher, 100.0, 10_000));
        assert!(run(&mut musher, 200.0, 10_500));
        musher.search = None;
        assert!(!run(&mut musher, 100.0, 12_000));
        assert!(!run(&mut musher, 200.0, 12_500), "2 s after the first");
        assert!(!run(&mut musher, 100.0, 13_500));
        assert!(run(&mut musher, 200.0, 14_000));
    }

    #[test]
    fn a_path_without_quota_waits_even_for_a_full_path() {
        let (mut fixture, mut musher) =
            (Fixture::new(&[(80.0, 10), (8.0, 100)]), Musher::default());
        musher.ratio = 70;
        fixture.write(0, 1_000_000);
        fixture.change(1, |sample| sample.full = true);
        let first = 70 * 1448;
        assert_eq!(fixture.send(&mut musher, 0, 1 << 20), Some(0..first));
        assert_eq!(fixture.send(&mut musher, 0, 1 << 20), None);
        let round = 100 * 1448;
        assert_eq!(fixture.send(&mut musher, 1, 1 << 20), Some(first..round));
        assert_eq!(
            fixture.send(&mut musher, 0, 1 << 20),
            Some(round..round + first)
        );
    }

    #[test]
    fn a_single_path_carries_everything() {
        let (mut fixture, mut musher) =
            (Fixture::new(&[(80.0, 10), (8.0, 100)]), Musher::default());
        fixture.write(0, 1_000_000);
        fixture.set_state(0, PathState::Stalled);
        let sent = fixture.send(&mut musher, 1, 1 << 20);
        assert_eq!(sent, Some(0..1_000_000));
    }

    #[test]
    fn throughput_counts_acknowledged_bytes() {
        let (mut fixture, mut meter) = (Fixture::new(&[(80.0, 10), (8.0, 100)]), Meter::default());
        let look = |fixture: &Fixture, meter: &mut Meter| {
            let paths = [fixture.path(0), fixture.path(1)];
            meter.look(paths, INTERVAL, fixture.now)
        };
        assert_eq!(look(&fixture, &mut meter), None);
        fixture.change(0, |sample| sample.unsent = 3_000);
        fixture.now += INTERVAL;
        for path in [0, 1] {
            fixture.confirm(path, 50_000);
        }
        let sample = Sample {
            rate: 1e6,
            buffer: 1_500.0,
        };
        assert_eq!(look(&fixture, &mut meter), Some(sample));
    }
}
