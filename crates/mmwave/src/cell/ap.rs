//! The access point: contention rules and reception.

use sumlink_link::Random;

use super::client::Client;
use super::outcome::IntervalOutcome;
use super::{Access, Cell, Jpoc};
use crate::error::MmwaveError;
use crate::jpoc::control::Controller;
use crate::jpoc::power::{Announcement, signaling_bits};
use crate::mac::mini;
use crate::mac::slotted::{self, Slotted, Sweep};

/// The access point's decisions.
pub(super) enum Ap {
    Slotted(Slotted),
    Jpoc(Jpoc, Controller),
}

impl Ap {
    /// An access point with those rules; `max_sectors` is the largest number of sectors of a
    /// client.
    pub(super) fn new(access: &Access, max_sectors: usize) -> Result<Self, MmwaveError> {
        Ok(match access {
            Access::Slotted(rules) => Self::Slotted(rules.checked()?),
            Access::Jpoc(jpoc) => Self::Jpoc(
                *jpoc,
                Controller::new(jpoc.target.for_sectors(max_sectors))?,
            ),
        })
    }

    /// Runs a contention, and gives a link to the clients that were heard.
    pub(super) fn contend(
        &mut self,
        cell: &Cell,
        clients: &mut [Client<'_>],
        contenders: &[usize],
        random: &mut Random,
    ) -> Result<IntervalOutcome, MmwaveError> {
        let snr: Vec<Vec<f64>> = contenders
            .iter()
            .map(|index| self.snr(cell, &mut clients[*index]))
            .collect::<Result<_, _>>()?;
        let mut interval = IntervalOutcome::default();
        let (trained, sent) = match self {
            Self::Slotted(rules) => {
                let mut sweeps: Vec<Sweep> = contenders
                    .iter()
                    .map(|index| clients[*index].sweep)
                    .collect();
                let mut each: Vec<_> = sweeps
                    .iter_mut()
                    .zip(&snr)
                    .map(|(s, v)| (s, v.as_slice()))
                    .collect();
                let round = slotted::contend(rules, &cell.config.hearing, &mut each, random);
                for (index, sweep) in contenders.iter().zip(sweeps) {
                    clients[*index].sweep = sweep;
                }
                interval.mini_slots = rules.mini_slots();
                (round.trained, round.sent)
            }
            Self::Jpoc(_, control) => {
                interval.mini_slots = control.mini_slots();
                let each: Vec<&[f64]> = snr.iter().map(Vec::as_slice).collect();
                let round =
                    mini::contend(interval.mini_slots, &cell.config.hearing, &each, random)?;
                interval.estimate = Some(control.observe(round.empty)?);
                (round.trained, round.sent)
            }
        };
        for (place, index) in contenders.iter().enumerate() {
            if let Some(trained) = trained[place] {
                if let Self::Jpoc(_, control) = self {
                    control.report(clients[*index].failed());
                }
                interval.trained.push(*index);
                clients[*index].connect(cell, trained);
            }
        }
        interval.sent = sent;
        for frame in &mut interval.sent {
            frame.contender = contenders[frame.contender];
        }
        Ok(interval)
    }

    /// SNR of each of a client's sectors at the access point, at the power of its sweep.
    fn snr(&self, cell: &Cell, client: &mut Client<'_>) -> Result<Vec<f64>, MmwaveError> {
        let (max_dbm, gain_db) = (client.device.power_dbm, client.device.codebook.gain_db());
        let failed = f64::from(client.failed());
        let sweeps = client.sweeps(cell);
        let power = match self {
            Self::Jpoc(
                Jpoc {
                    gamma_db: Some(gamma),
                    margin_db,
                    ramp_db,
                    ..
                },
                _,
            ) => {
                let array = cell.ap.codebook.gain_db();
                let announced =
                    Announcement::new(*gamma, cell.noise_dbm, cell.ap.power_dbm, array)?;
                let heard = sweeps.best_ap().1 + cell.ap.power_dbm;
                let margin = margin_db + ramp_db * failed;
                announced.client_dbm(heard, gain_db, margin, max_dbm)
            }
            _ => max_dbm,
        };
        Ok(sweeps.client_snr(power, cell.noise_dbm))
    }

    /// Duration of its A-BFT with that many mini-slots.
    pub(super) fn duration_us(&self, mini_slots: u32) -> f64 {
        match self {
            Self::Slotted(rules) => rules.duration_us(),
            Self::Jpoc(..) => mini::duration_us(mini_slots),
        }
    }

    /// Bits that it adds to each beacon.
    pub(super) fn bits(&self) -> u32 {
        match self {
            Self::Slotted(_) => 0,
            Self::Jpoc(jpoc, _) => signaling_bits(jpoc.target.maximum),
        }
    }
}
