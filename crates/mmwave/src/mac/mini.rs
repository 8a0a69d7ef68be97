//! A-BFT of JPOC, with mini-slots only. Each client sends each of its sectors in a separate
//! mini-slot, drawn at random from all of them. The access point answers all clients that it heard
//! in the ATI (section 3.2.2, figure 3.4).

use sumlink_link::Random;

use super::air::Hearing;
use super::{Trained, Transmission};
use crate::error::MmwaveError;
use crate::phy;

/// Results of an A-BFT of mini-slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MiniRound {
    /// For each contender, the best sector that was heard.
    pub trained: Vec<Option<Trained>>,
    /// Mini-slots without detectable energy (E of eq. 3.8).
    pub empty: u32,
    /// All transmissions, by mini-slot.
    pub sent: Vec<Transmission>,
}

/// Runs one A-BFT of this many mini-slots; each contender is given by the SNRs of its sectors at
/// the access point.
///
/// # Errors
///
/// A contender with more sectors than mini-slots.
pub fn contend(
    mini_slots: u32,
    hearing: &Hearing,
    contenders: &[&[f64]],
    random: &mut Random,
) -> Result<MiniRound, MmwaveError> {
    let mut at: Vec<Vec<(usize, usize)>> = vec![Vec::new(); mini_slots as usize];
    for (contender, snr) in contenders.iter().enumerate() {
        if snr.len() > at.len() {
            return Err(MmwaveError::SectorsExceedMiniSlots {
                sectors: snr.len(),
                mini_slots,
            });
        }
        for (sector, place) in distinct(snr.len(), mini_slots, random)
            .into_iter()
            .enumerate()
        {
            at[place as usize].push((contender, sector));
        }
    }
    let mut round = MiniRound {
        trained: vec![None; contenders.len()],
        ..MiniRound::default()
    };
    for (mini_slot, frames) in at.iter().enumerate() {
        let snr: Vec<f64> = frames
            .iter()
            .map(|(contender, sector)| contenders[*contender][*sector])
            .collect();
        round.empty += u32::from(hearing.empty(&snr));
        let clear = hearing.heard(&snr);
        for (order, (contender, sector)) in frames.iter().enumerate() {
            let heard = clear == Some(order);
            if heard {
                let this = Trained {
                    sector: *sector,
                    snr_db: snr[order],
                };
                round.trained[*contender] = Trained::better(round.trained[*contender], Some(this));
            }
            round.sent.push(Transmission {
                contender: *contender,
                sector: *sector,
                slot: 0,
                channel: 0,
                mini_slot: mini_slot as u32,
                heard,
            });
        }
    }
    Ok(round)
}

/// Duration of an A-BFT of this many mini-slots in microseconds: a sweep frame and a gap each, in
/// one stretch.
pub fn duration_us(mini_slots: u32) -> f64 {
    let count = f64::from(mini_slots);
    (phy::AIR_US + count * (frame_us() + phy::SBIFS_US) + phy::MBIFS_US).ceil()
}

/// A sweep frame in microseconds, without the gap behind it.
pub fn frame_us() -> f64 {
    super::slotted::Frames::Dmg.durations_us().0
}

/// `count` different numbers below `limit`, in random order (the first steps of Fisher and Yates).
fn distinct(count: usize, limit: u32, random: &mut Random) -> Vec<u32> {
    let mut all: Vec<u32> = (0..limit).collect();
    for first in 0..count {
        let other = first + super::slotted::below(limit - first as u32, random) as usize;
        all.swap(first, other);
    }
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jpoc::slots;
    use proptest::prelude::*;

    /// Clients with `good` sectors of 4 dB out of 36, the others far below.
    fn clients(count: usize, good: usize) -> Vec<Vec<f64>> {
        let one: Vec<f64> = (0..36)
            .map(|n| if n < good { 4.0 } else { -40.0 })
            .collect();
        vec![one; count]
    }

    #[test]
    fn failures_match_equation_3_6() {
        let mut random = Random::new(2);
        for (count, good, mini_slots) in [(4, 4, 36), (8, 6, 40), (16, 4, 75), (16, 6, 50)] {
            let snr = clients(count, good);
            let contenders: Vec<&[f64]> = snr.iter().map(Vec::as_slice).collect();
            let tries = 16_000 / count;
            let mut failed = 0;
            for _ in 0..tries {
                let round =
                    contend(mini_slots, &Hearing::THESIS, &contenders, &mut random).unwrap();
                failed += round.trained.iter().filter(|one| one.is_none()).count();
            }
            let share = failed as f64 / (tries * count) as f64;
            let expected = slots::failure(good as f64, count as f64, mini_slots).unwrap();
            // The equation lets sectors collide independently; in the model they choose different
            // mini-slots.
            assert!(
                (share - expected).abs() < 0.02,
                "{count} {good}: {share} {expected}"
            );
        }
    }

    #[test]
    fn colliding_frames_of_equal_strength_are_both_lost() {
        let snr = clients(2, 36);
        let contenders: Vec<&[f64]> = snr.iter().map(Vec::as_slice).collect();
        let round = contend(36, &Hearing::THESIS, &contenders, &mut Random::new(1)).unwrap();
        assert_eq!(round.trained, [None, None]);
        assert_eq!((round.empty, round.sent.len()), (0, 72));
    }

    #[test]
    fn a_sweep_that_does_not_fit_is_rejected() {
        let snr = [4.0; 36];
        let error = contend(35, &Hearing::THESIS, &[&snr], &mut Random::new(1)).unwrap_err();
        assert!(matches!(error, MmwaveError::SectorsExceedMiniSlots { .. }));
        assert!(
            contend(0, &Hearing::THESIS, &[], &mut Random::new(1))
                .unwrap()
                .sent
                .is_empty()
        );
    }

    #[test]
    fn a_mini_slot_lasts_as_long_as_a_frame_and_a_gap() {
        assert_eq!(duration_us(36), 582.0);
        assert!((duration_us(136) - duration_us(36) - 1590.9).abs() < 1.0);
    }

    proptest! {
        #[test]
        fn numbers_differ_and_stay_below(count in 0usize..40, more in 0u32..100, seed: u64) {
            let limit = count as u32 + more;
            let mut all = distinct(count, limit, &mut Random::new(seed));
            prop_assert!(all.iter().all(|n| *n < limit));
            all.sort_unstable();
            all.dedup();
            prop_assert_eq!(all.len(), count);
        }
    }
}
