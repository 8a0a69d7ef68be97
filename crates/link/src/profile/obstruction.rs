//! Obstructions of a radio: their duration and the remaining rate.

use super::wander::{Law, Rates};
use super::{Profile, STEP};
use crate::random::Random;

/// Obstructions of a radio, step by step.
pub(super) struct Obstruction {
    rate_laws: [Rates; 2],
    durations: Option<(f64, ObstructionTime)>,
    /// Whether a change retrains the beams.
    trains: bool,
    blocked: bool,
    /// Seconds until the next change.
    left: f64,
    /// Steps until the beams are trained.
    training: u64,
    random: Random,
}

impl Obstruction {
    pub(super) fn new(profile: Profile, mut random: Random) -> Self {
        let durations = durations(profile);
        Self {
            rate_laws: rate_laws(profile),
            left: durations.map_or(f64::INFINITY, |(free, _)| free * random.next_exponential()),
            durations,
            trains: profile == Profile::MmwaveMobile,
            blocked: false,
            training: 0,
            random,
        }
    }

    /// The rates of the next step.
    pub(super) fn next(&mut self) -> Rates {
        if self.left <= 0.0
            && let Some((free, spell)) = self.durations
        {
            self.blocked = !self.blocked;
            self.left = if self.blocked {
                spell.draw(&mut self.random)
            } else {
                free * self.random.next_exponential()
            };
            if self.trains {
                self.training = 1 + self.random.next_u64() % 5;
            }
        }
        self.left -= STEP.as_secs_f64();
        if self.training > 0 {
            self.training -= 1;
            return OUTAGE;
        }
        self.rate_laws[usize::from(self.blocked)]
    }
}

/// The rates without and with an obstruction.
fn rate_laws(profile: Profile) -> [Rates; 2] {
    let normal = |mean, deviation, bounds| Rates {
        law: Law::Normal { mean, deviation },
        bounds,
    };
    let log_normal = |median, deviation, bounds| Rates {
        law: Law::LogNormal { median, deviation },
        bounds,
    };
    match profile {
        Profile::MmwaveLos => [normal(1_780.0, 380.0, (1_000.0, 2_070.0)); 2],
        Profile::MmwaveNlos => [normal(1_220.0, 330.0, (690.0, 1_720.0)); 2],
        Profile::MmwaveMobile => [
            normal(680.0, 180.0, (380.0, 930.0)),
            normal(170.0, 130.0, (20.0, 480.0)),
        ],
        Profile::Train => [normal(1.7, 1.15, (0.45, 3.9)); 2],
        Profile::Lte => [log_normal(4.3, 0.85, (0.4, 11.3)), OUTAGE],
        Profile::Wifi => [
            log_normal(100.0, 0.25, (40.0, 160.0)),
            log_normal(30.0, 0.25, (10.0, 60.0)),
        ],
    }
}

/// Mean seconds without an obstruction, and the duration of an obstruction.
fn durations(profile: Profile) -> Option<(f64, ObstructionTime)> {
    match profile {
        Profile::MmwaveLos | Profile::MmwaveNlos | Profile::Train => None,
        Profile::MmwaveMobile => Some((14.0, ObstructionTime::Exponential(6.0))),
        Profile::Lte => Some((120.0, ObstructionTime::Uniform(0.2, 1.7))),
        Profile::Wifi => Some((14.0, ObstructionTime::Exponential(1.0))),
    }
}

/// An outage.
const OUTAGE: Rates = Rates {
    law: Law::Normal {
        mean: 0.0,
        deviation: 0.0,
    },
    bounds: (0.0, 0.0),
};

/// Duration of an obstruction, in seconds.
#[derive(Clone, Copy, Debug)]
enum ObstructionTime {
    /// Exponential with this mean.
    Exponential(f64),
    /// Uniform between these two.
    Uniform(f64, f64),
}

impl ObstructionTime {
    fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Exponential(mean) => mean * random.next_exponential(),
            Self::Uniform(from, to) => from + (to - from) * random.next_f64(),
        }
    }
}
