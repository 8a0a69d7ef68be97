//! A-BFT of 802.11ad and 802.11ay: slots that clients choose at random, without carrier sensing.
//!
//! A slot has room for `frames_per_slot` (FSS) sector sweep frames and a feedback. A client with
//! more sectors continues in another slot, drawn among the rest of this A-BFT, or else in the next
//! one. An attempt fails if its sweep ends without feedback in any slot. The client then retries in
//! one of the remaining slots. After more than `retry_limit` consecutive failures it sits out some
//! A-BFTs, a number drawn from 0 to `backoff - 1`.

use sumlink_link::Random;

use super::air::Hearing;
use super::{Trained, Transmission};
use crate::error::{MmwaveError, within};
use crate::phy;

/// The client that the access point answers in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// The only client that it heard; none if it heard several.
    Only,
    /// The client that it heard best.
    Strongest,
}

/// Durations of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// SSW and SSW-FBCK of 802.11ad.
    Dmg,
    /// Those of 802.11ay.
    Edmg,
    /// Short SSW of 802.11ay.
    Short,
}

impl Frames {
    /// Microseconds of a sweep frame and of a feedback.
    pub fn durations_us(self) -> (f64, f64) {
        let dmg = |octets| phy::control_us(octets).expect("the standard's lengths are in range");
        match self {
            Self::Dmg => (dmg(phy::SSW_OCTETS), dmg(phy::FEEDBACK_OCTETS)),
            Self::Edmg => (phy::EDMG_SSW_US, phy::EDMG_FEEDBACK_US),
            Self::Short => (phy::SHORT_SSW_US, phy::EDMG_FEEDBACK_US),
        }
    }
}

/// Rules of a slotted A-BFT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slotted {
    /// Slots of an A-BFT, including all multipliers.
    pub slots: u32,
    /// Sweep frames per slot (FSS).
    pub frames_per_slot: u32,
    /// Channels with simultaneous A-BFTs (802.11ay).
    pub channels: u32,
    /// Type of frames.
    pub frames: Frames,
    /// The client that the access point answers.
    pub feedback: Feedback,
    /// Whether a failed sweep is retried in the same A-BFT.
    pub retry: bool,
    /// Consecutive failures before a client sits out (dot11RSSRetryLimit).
    pub retry_limit: u32,
    /// Upper limit, exclusive, of the A-BFTs that it sits out (dot11RSSBackoff).
    pub backoff: u32,
}

impl Slotted {
    /// The maximum of 802.11ad: 8 slots of 16 frames.
    pub const AD: Self = Self {
        slots: 8,
        frames_per_slot: 16,
        channels: 1,
        frames: Frames::Dmg,
        feedback: Feedback::Only,
        retry: true,
        retry_limit: 8,
        backoff: 8,
    };

    /// The maximum of 802.11ay: the multiplier makes 8 slots 32, on two channels, with short
    /// frames.
    pub const AY: Self = Self {
        slots: 32,
        channels: 2,
        frames: Frames::Short,
        ..Self::AD
    };

    /// The thesis' baseline: 8 slots of 36 frames, more than the standard allows, a sweep in one
    /// slot, one attempt per A-BFT, no back-off; the best-heard client of a slot is answered
    /// (sections 3.1 and 3.3.2).
    pub const THESIS: Self = Self {
        frames_per_slot: 36,
        feedback: Feedback::Strongest,
        retry: false,
        retry_limit: u32::MAX,
        backoff: 1,
        ..Self::AD
    };

    /// The same rules with another number of slots.
    pub fn with_slots(self, slots: u32) -> Self {
        Self { slots, ..self }
    }

    /// Checks the values.
    ///
    /// # Errors
    ///
    /// No slots, frames, channels or back-off, or implausibly many.
    pub fn checked(self) -> Result<Self, MmwaveError> {
        let counts = [
            ("slots of an A-BFT", self.slots, 4096.0),
            ("frames of a slot", self.frames_per_slot, 256.0),
            ("channels of an A-BFT", self.channels, 8.0),
            ("back-off in A-BFTs", self.backoff, f64::from(u32::MAX)),
        ];
        for (what, value, most) in counts {
            within(
                what,
                f64::from(value),
                (1.0, most),
                "1 or more, within plausible limits",
            )?;
        }
        Ok(self)
    }

    /// aSSSlotTime in microseconds: propagation, the frames of a sweep, the feedback, and the gaps
    /// between them.
    pub fn slot_us(&self) -> f64 {
        let (ssw, feedback) = self.frames.durations_us();
        let frames = f64::from(self.frames_per_slot);
        let sweep = frames * ssw + (frames - 1.0) * phy::SBIFS_US;
        (phy::AIR_US + sweep + feedback + 2.0 * phy::MBIFS_US).ceil()
    }

    /// A sweep frame in microseconds, without the gap behind it.
    pub fn frame_us(&self) -> f64 {
        self.frames.durations_us().0
    }

    /// Duration of an A-BFT in microseconds.
    pub fn duration_us(&self) -> f64 {
        f64::from(self.slots) * self.slot_us()
    }

    /// Mini-slots of an A-BFT: sweep frames that fit on one channel.
    pub fn mini_slots(&self) -> u32 {
        self.slots * self.frames_per_slot
    }
}

/// State of a client's sweep across A-BFTs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sweep {
    next_sector: usize,
    /// The best sector with feedback in this sweep.
    best: Option<Trained>,
    failures: u32,
    /// A-BFTs to sit out.
    backoff: u32,
}

/// Results of an A-BFT.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// For each contender, the sector that it may use from now on.
    pub trained: Vec<Option<Trained>>,
    /// For each contender, whether it contended instead of sitting out.
    pub took_part: Vec<bool>,
    /// All transmissions, in order.
    pub sent: Vec<Transmission>,
}

/// Runs one A-BFT; each contender is given by its sweep so far and the SNRs of its sectors at the
/// access point.
pub fn contend(
    rules: &Slotted,
    hearing: &Hearing,
    contenders: &mut [(&mut Sweep, &[f64])],
    random: &mut Random,
) -> Round {
    let mut round = Round {
        trained: vec![None; contenders.len()],
        took_part: vec![true; contenders.len()],
        sent: Vec::new(),
    };
    // Next slot and channel of each contender.
    let mut next: Vec<Option<(u32, u32)>> = Vec::with_capacity(contenders.len());
    for (index, (sweep, _)) in contenders.iter_mut().enumerate() {
        if sweep.backoff > 0 {
            sweep.backoff -= 1;
            round.took_part[index] = false;
            next.push(None);
        } else {
            next.push(choose(rules, 0, random));
        }
    }
    for slot in 0..rules.slots {
        for channel in 0..rules.channels {
            let here: Vec<usize> = (0..next.len())
                .filter(|index| next[*index] == Some((slot, channel)))
                .collect();
            if here.is_empty() {
                continue;
            }
            let heard = sweep_slot(
                rules,
                hearing,
                contenders,
                &here,
                (slot, channel),
                &mut round.sent,
            );
            let answered = answer(rules.feedback, &heard);
            for (place, index) in here.iter().enumerate() {
                let (sweep, snr) = &mut contenders[*index];
                if answered == Some(place) {
                    sweep.best = Trained::better(sweep.best, heard[place]);
                }
                sweep.next_sector += rules.frames_per_slot as usize;
                if sweep.next_sector < snr.len() {
                    next[*index] = choose(rules, slot + 1, random);
                    continue;
                }
                sweep.next_sector = 0;
                next[*index] = None;
                if let Some(best) = sweep.best.take() {
                    round.trained[*index] = Some(best);
                    **sweep = Sweep::default();
                    continue;
                }
                sweep.failures = sweep.failures.saturating_add(1);
                if sweep.failures > rules.retry_limit {
                    sweep.failures = 0;
                    sweep.backoff = below(rules.backoff, random);
                } else if rules.retry {
                    next[*index] = choose(rules, slot + 1, random);
                }
            }
        }
    }
    round
}

/// Transmits the frames of a slot; records the best reception of each contender.
fn sweep_slot(
    rules: &Slotted,
    hearing: &Hearing,
    contenders: &[(&mut Sweep, &[f64])],
    here: &[usize],
    (slot, channel): (u32, u32),
    sent: &mut Vec<Transmission>,
) -> Vec<Option<Trained>> {
    let mut heard = vec![None; here.len()];
    for mini_slot in 0..rules.frames_per_slot {
        let sends = |place: &usize| {
            let (sweep, snr) = &contenders[here[*place]];
            sweep.next_sector + (mini_slot as usize) < snr.len()
        };
        let places: Vec<usize> = (0..here.len()).filter(sends).collect();
        let sector = |place: usize| contenders[here[place]].0.next_sector + mini_slot as usize;
        let snr: Vec<f64> = places
            .iter()
            .map(|place| contenders[here[*place]].1[sector(*place)])
            .collect();
        let clear = hearing.heard(&snr);
        for (order, place) in places.iter().enumerate() {
            let decoded = clear == Some(order);
            if decoded {
                let this = Trained {
                    sector: sector(*place),
                    snr_db: snr[order],
                };
                heard[*place] = Trained::better(heard[*place], Some(this));
            }
            sent.push(Transmission {
                contender: here[*place],
                sector: sector(*place),
                slot,
                channel,
                mini_slot,
                heard: decoded,
            });
        }
    }
    heard
}

fn answer(feedback: Feedback, heard: &[Option<Trained>]) -> Option<usize> {
    let mut some = heard
        .iter()
        .enumerate()
        .filter_map(|(place, one)| Some((place, (*one)?)));
    match feedback {
        Feedback::Only => {
            let (place, _) = some.next()?;
            some.next().is_none().then_some(place)
        }
        Feedback::Strongest => {
            let best = some.max_by(|a, b| a.1.snr_db.total_cmp(&b.1.snr_db));
            best.map(|(place, _)| place)
        }
    }
}

/// Draws a slot from `first` on, if any is left, and a channel.
fn choose(rules: &Slotted, first: u32, random: &mut Random) -> Option<(u32, u32)> {
    let left = rules.slots.checked_sub(first).filter(|left| *left > 0)?;
    let slot = first + below(left, random);
    let channel = if rules.channels > 1 {
        below(rules.channels, random)
    } else {
        0
    };
    Some((slot, channel))
}

/// Uniform in `0..limit`.
pub(super) fn below(limit: u32, random: &mut Random) -> u32 {
    (random.next_f64() * f64::from(limit)) as u32
}

/// Probability that one of `contenders` is alone in its slot: (1 - 1/slots)^(contenders - 1),
/// without capture and retries.
///
/// # Errors
///
/// No slot or no contender.
pub fn alone(slots: u32, contenders: u32) -> Result<f64, MmwaveError> {
    within(
        "slots of an A-BFT",
        f64::from(slots),
        (1.0, f64::MAX),
        "1 or more",
    )?;
    within(
        "contenders",
        f64::from(contenders),
        (1.0, f64::MAX),
        "1 or more",
    )?;
    Ok((1.0 - 1.0 / f64::from(slots)).powf(f64::from(contenders) - 1.0))
}

#[cfg(test)]
mod tests;
