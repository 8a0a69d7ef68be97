//! Links that vary like real radios: generators of timelines.
//!
//! A profile with a seed and a duration gives the same timeline everywhere and contains no
//! recording. The recordings below served to fit the generators and to check them coarsely: mean
//! and quantiles of the throughput of whole seconds, in Mbit/s. The generated figures are from 200
//! seeds of 100 s each. The test `table_figures` prints them with `--nocapture`.
//!
//! | profile | | mean | 5 % | 50 % | 95 % | recording |
//! | --- | --- | --- | --- | --- | --- | --- |
//! | `mmwave-los` | recorded | 1721 | 1206 | 1772 | 2055 | 5Gophers v1.0, mmWave, reflections, 73 s clear |
//! | | generated | 1733 | 1173 | 1778 | 2070 | |
//! | `mmwave-nlos` | recorded | 1219 | 713 | 1269 | 1636 | the same, 24 s blocked by a person or hand |
//! | | generated | 1229 | 745 | 1233 | 1694 | |
//! | `mmwave-mobile` | recorded | 523 | 52 | 545 | 860 | 5Gophers v1.0, on foot, the 288 s on 5G |
//! | | generated | 527 | 63 | 577 | 909 | |
//! | `train` | recorded | 1.84 | 0.47 | 1.67 | 3.73 | three commuter trains in Norway (3G), 923 s |
//! | | generated | 1.75 | 0.45 | 1.66 | 3.59 | |
//! | `lte` | recorded | 5.03 | 1.08 | 4.34 | 11.11 | Mahimahi's Verizon LTE, downlink, 140 s |
//! | | generated | 5.19 | 1.09 | 4.31 | 11.30 | |
//! | `wifi` | recorded | | | | | none available: the figures are assumptions |
//! | | generated | 97.9 | 50.8 | 97.0 | 147.7 | |
//!
//! Within a second the rate changes every 100 ms. The recordings measure TCP throughput, not the
//! capacity of the radio. Delays, jitter and the length of outages are assumptions too, because the
//! recordings do not contain them. The profiles have no loss, because radios repeat lost frames.

mod obstruction;
mod wander;

use core::fmt;
use core::time::Duration;
use std::str::FromStr;

use crate::random::Random;
use crate::{Change, Jitter, Trace, TraceError};
use obstruction::Obstruction;
use wander::Wander;

/// Changes with their times, in order, starting at 0. See [`Network::set`](crate::Network::set).
pub type Timeline = Vec<(Duration, Change)>;

/// A kind of time-varying link. The names are those of [`Profile::name`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// 60 GHz or 5G mmWave with a clear line of sight.
    MmwaveLos,
    /// The same with a person in the line of sight: only reflections carry the signal.
    MmwaveNlos,
    /// Line of sight (14 s on average) and no line of sight (6 s) in turn, as for a client on foot.
    /// Each change retrains the beams, and the link carries nothing for 100 to 500 ms.
    MmwaveMobile,
    /// A commuter train on a 3G network.
    Train,
    /// LTE in a city, with a gap of 0.2 to 1.7 s about every two minutes.
    Lte,
    /// Wi-Fi among other networks, which take most of the air for about 1 s every 15 s.
    Wifi,
}

/// The profile does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown profile \"{name}\"; known: mmwave-los, mmwave-nlos, mmwave-mobile, train, lte, wifi"
)]
pub struct UnknownProfile {
    /// The requested name, truncated if long.
    pub name: String,
}

/// Time between two rates.
const STEP: Duration = Duration::from_millis(100);

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 6] = [
        Self::MmwaveLos,
        Self::MmwaveNlos,
        Self::MmwaveMobile,
        Self::Train,
        Self::Lte,
        Self::Wifi,
    ];

    /// Its name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::MmwaveLos => "mmwave-los",
            Self::MmwaveNlos => "mmwave-nlos",
            Self::MmwaveMobile => "mmwave-mobile",
            Self::Train => "train",
            Self::Lte => "lte",
            Self::Wifi => "wifi",
        }
    }

    /// Changes of one direction of such a link from 0 to `duration`.
    ///
    /// Use the same seed for both directions of a link, so that radio events affect both; [`scale`]
    /// gives the other direction its own rate.
    pub fn timeline(self, seed: u64, duration: Duration) -> Timeline {
        let (delay, jitter) = self.delay();
        let mut timeline = vec![
            (Duration::ZERO, Change::Delay(delay)),
            (Duration::ZERO, Change::Jitter(Jitter::uniform(jitter))),
        ];
        let mut last = None;
        for (at, rate) in self.rates(seed, duration) {
            if last != Some(rate) {
                timeline.push((at, Change::Rate(rate)));
                last = Some(rate);
            }
        }
        timeline
    }

    /// The rates only, as delivery opportunities.
    pub fn trace(self, seed: u64, duration: Duration) -> Result<Trace, TraceError> {
        Trace::from_rates(&self.rates(seed, duration), duration)
    }

    /// Bits per second, in steps.
    fn rates(self, seed: u64, duration: Duration) -> Vec<(Duration, u64)> {
        let random = Random::new(seed).split(self as u64);
        let mut wander = Wander::new(STEP, self.memory(), random.split(1));
        let mut obstruction = Obstruction::new(self, random.split(2));
        let mut rates = Vec::new();
        let mut at = Duration::ZERO;
        while at < duration {
            let mbit = obstruction.next().at(wander.next());
            rates.push((at, (mbit * 1e6).round() as u64));
            at += STEP;
        }
        rates
    }

    /// One-way delay and its variation.
    fn delay(self) -> (Duration, Duration) {
        let (delay, jitter) = match self {
            Self::MmwaveLos | Self::MmwaveNlos | Self::MmwaveMobile => (2, 1),
            Self::Train => (50, 20),
            Self::Lte => (25, 8),
            Self::Wifi => (2, 1),
        };
        (Duration::from_millis(delay), Duration::from_millis(jitter))
    }

    /// Correlation time of the rate.
    fn memory(self) -> Duration {
        Duration::from_secs(match self {
            Self::MmwaveLos | Self::MmwaveNlos | Self::MmwaveMobile | Self::Wifi => 4,
            Self::Lte => 6,
            Self::Train => 8,
        })
    }
}

/// Multiplies every rate of a timeline, for a link that is like a profile but faster or slower.
pub fn scale(timeline: &mut Timeline, factor: f64) {
    for (_, change) in timeline {
        if let Change::Rate(rate) = change {
            *rate = (*rate as f64 * factor).round() as u64;
        }
    }
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        let found = Self::ALL.into_iter().find(|profile| profile.name() == name);
        found.ok_or_else(|| UnknownProfile {
            name: name.chars().take(40).collect(),
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Mean and 5, 50, 95 % quantiles of the whole seconds of many runs, in Mbit/s.
    fn figures(profile: Profile) -> [f64; 4] {
        let mut seconds = Vec::new();
        for seed in 0..200 {
            for second in profile.rates(seed, 100 * SECOND).chunks(10) {
                seconds.push(second.iter().map(|(_, rate)| *rate as f64).sum::<f64>() / 1e7);
            }
        }
        seconds.sort_by(f64::total_cmp);
        let quantile = |q: f64| seconds[(seconds.len() as f64 * q) as usize];
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        [mean, quantile(0.05), quantile(0.5), quantile(0.95)]
    }

    #[test]
    fn table_figures() {
        // Recorded mean, 5 %, 50 %, 95 %.
        let recorded = [
            (Profile::MmwaveLos, Some([1721.0, 1206.0, 1772.0, 2055.0])),
            (Profile::MmwaveNlos, Some([1219.0, 713.0, 1269.0, 1636.0])),
            (Profile::MmwaveMobile, Some([523.0, 52.0, 545.0, 860.0])),
            (Profile::Train, Some([1.84, 0.47, 1.67, 3.73])),
            (Profile::Lte, Some([5.03, 1.08, 4.34, 11.11])),
            (Profile::Wifi, None),
        ];
        for (profile, recorded) in recorded {
            let generated = figures(profile);
            println!("{profile}: {generated:.2?}");
            let Some(recorded) = recorded else { continue };
            // A short recording has few of the lowest seconds.
            for (i, tolerance) in [0.06, 0.35, 0.12, 0.12].into_iter().enumerate() {
                let (got, expected) = (generated[i], recorded[i]);
                assert!(
                    (got / expected - 1.0).abs() < tolerance,
                    "{profile}: {got}, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_timeline() {
        for profile in Profile::ALL {
            let timeline = profile.timeline(1, 20 * SECOND);
            assert_eq!(timeline, profile.timeline(1, 20 * SECOND));
            assert_ne!(timeline, profile.timeline(2, 20 * SECOND));
            assert!(timeline.is_sorted_by_key(|(at, _)| *at));
            assert_eq!(timeline[2].0, Duration::ZERO, "a rate from the start");
            // A longer run begins like the shorter one.
            let longer = profile.timeline(1, 30 * SECOND);
            assert_eq!(longer[..timeline.len()], timeline);
            assert_eq!(profile.name().parse(), Ok(profile));
        }
        let unknown = "x".repeat(1_000).parse::<Profile>().unwrap_err();
        assert!(unknown.to_string().len() < 200);
    }

    #[test]
    fn a_client_on_foot_has_outages() {
        let rates = Profile::MmwaveMobile.rates(1, 600 * SECOND);
        let mut outages = Vec::new();
        for (i, (_, rate)) in rates.iter().enumerate() {
            if *rate == 0 {
                if i == 0 || rates[i - 1].1 != 0 {
                    outages.push(0);
                }
                *outages.last_mut().unwrap() += 1;
            }
        }
        // A change every 10 s on average, 100 to 500 ms each.
        assert!((40..80).contains(&outages.len()), "{}", outages.len());
        assert!(outages.iter().filter(|steps| **steps <= 5).count() + 3 >= outages.len());
    }

    #[test]
    fn a_trace_carries_as_much_as_its_timeline() {
        let rates = Profile::Lte.rates(3, 60 * SECOND);
        let mean = rates.iter().map(|(_, rate)| *rate).sum::<u64>() / rates.len() as u64;
        let trace = Profile::Lte.trace(3, 60 * SECOND).unwrap();
        assert!(trace.mean_rate().abs_diff(mean) < mean / 100);
        let mut timeline = Profile::Lte.timeline(3, SECOND);
        let before = timeline.clone();
        scale(&mut timeline, 0.5);
        for ((_, change), (_, before)) in timeline.iter().zip(&before) {
            match (change, before) {
                (Change::Rate(half), Change::Rate(rate)) => assert!(rate.abs_diff(2 * half) <= 1),
                _ => assert_eq!(change, before),
            }
        }
    }
}
