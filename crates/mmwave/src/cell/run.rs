//! Beacon interval by beacon interval.

use core::time::Duration;
use std::collections::BTreeMap;

use sumlink_link::Random;

use super::outcome::{IntervalOutcome, Outcome, StationOutcome};
use super::{Access, Blockage, Cell, Jpoc, Station, purpose};
use crate::budget::{Sweeps, pair_db};
use crate::channel::Channel;
use crate::channel::blocking::Blockers;
use crate::error::MmwaveError;
use crate::jpoc::control::Controller;
use crate::jpoc::power::{Announcement, signalling_bits};
use crate::mac::slotted::{self, Slotted, Sweep};
use crate::mac::trigger::{Behaviour, Trigger};
use crate::mac::{Trained, mini};
use crate::phy;
use crate::units::{CENTRE_GHZ, wavelength};

/// A client during a run.
struct Client<'a> {
    station: &'a Station,
    wants_data: bool,
    sweep: Sweep,
    trigger: Trigger,
    /// SNR in dB of its data, if it has a trained sector.
    link: Option<f64>,
    /// The access point's sector and its own.
    pair: (usize, usize),
    /// Data SNRs of its sectors over the channel without blockers, as far as they were needed.
    known: BTreeMap<usize, f64>,
    blockers: Option<Blockers>,
    /// What blockers leave of the channel.
    now: Option<(Channel, Sweeps)>,
    gap: usize,
    outcome: StationOutcome,
}

/// The part of the access point that decides.
enum Ap {
    Slotted(Slotted),
    Jpoc(Jpoc, Controller),
}

/// Runs a scheme in a cell. The same seed blocks the same clients in the same intervals, whatever the scheme.
///
/// # Errors
///
/// Settings of the scheme that cannot work; an A-BFT longer than the beacon interval.
pub fn run(cell: &Cell, access: &Access, seed: u64) -> Result<Outcome, MmwaveError> {
    let config = &cell.config;
    let random = Random::new(seed);
    let mut access_random = random.split(purpose::ACCESS);
    let mut blockage = random.split(purpose::BLOCKAGE);
    let most_sectors = cell
        .stations
        .iter()
        .map(|one| one.device.sectors())
        .max()
        .unwrap_or(0);
    let mut ap = match access {
        Access::Slotted(rules) => Ap::Slotted(rules.checked()?),
        Access::Jpoc(jpoc) => Ap::Jpoc(
            *jpoc,
            Controller::new(jpoc.target.for_sectors(most_sectors))?,
        ),
    };
    let mut clients = Vec::with_capacity(cell.stations.len());
    for (index, station) in cell.stations.iter().enumerate() {
        clients.push(Client::new(station, index, config, &random)?);
    }
    let mut outcome = Outcome::default();
    for number in 0..config.intervals {
        let now = Duration::from_secs_f64(config.interval.length_us * 1e-6 * number as f64);
        // Blockers move on before anybody sweeps.
        for client in &mut clients {
            client.move_blockers(cell)?;
        }
        let contenders: Vec<usize> = (0..clients.len())
            .filter(|index| {
                let client = &clients[*index];
                let without = client.wants_data && client.link.is_none();
                client.trigger.wants(now, without)
            })
            .collect();
        let mut interval = ap.contend(cell, &mut clients, &contenders, &mut access_random)?;
        for index in &contenders {
            let trained = interval.trained.contains(index);
            clients[*index].after_contention(trained, number, now);
        }
        interval.contenders = contenders;
        interval.sharing = clients
            .iter()
            .filter(|client| client.link.is_some())
            .count();
        interval.parts = config.interval.divide(
            ap.duration_us(interval.mini_slots),
            interval.sharing,
            ap.bits(),
        )?;
        let part_s = interval.parts.data_us * 1e-6 / interval.sharing.max(1) as f64;
        for client in &mut clients {
            // Drawn for everybody in every interval, so that schemes see the same blockages.
            let chance = blockage.next_f64();
            let blocked = match config.blockage {
                Blockage::Probability(p) => chance < p,
                Blockage::ModelA { .. } => client.below_data(),
            };
            client.send(part_s, blocked);
        }
        outcome.intervals.push(interval);
    }
    let with_data = clients.into_iter().filter(|client| client.wants_data);
    outcome.stations = with_data.map(Client::finish).collect();
    Ok(outcome)
}

impl Ap {
    /// Lets clients contend, and gives those a link that were heard.
    fn contend(
        &mut self,
        cell: &Cell,
        clients: &mut [Client<'_>],
        contenders: &[usize],
        random: &mut Random,
    ) -> Result<IntervalOutcome, MmwaveError> {
        let snr: Vec<Vec<f64>> = contenders
            .iter()
            .map(|index| self.snr(cell, &clients[*index]))
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

    /// SNR of each of a client's sectors at the access point, with the power that it sends its sweep with.
    fn snr(&self, cell: &Cell, client: &Client<'_>) -> Result<Vec<f64>, MmwaveError> {
        let (device, sweeps) = (&client.station.device, client.sweeps());
        let power = match self {
            Self::Jpoc(
                Jpoc {
                    gamma_db: Some(gamma),
                    margin_db: margin,
                    ..
                },
                _,
            ) => {
                let array = cell.ap.codebook.gain_db();
                let announced =
                    Announcement::new(*gamma, cell.noise_dbm, cell.ap.power_dbm, array)?;
                let heard = sweeps.best_ap().1 + cell.ap.power_dbm;
                announced.client_dbm(heard, device.codebook.gain_db(), *margin, device.power_dbm)
            }
            _ => device.power_dbm,
        };
        Ok(sweeps.client_snr(power, cell.noise_dbm))
    }

    fn duration_us(&self, mini_slots: u32) -> f64 {
        match self {
            Self::Slotted(rules) => rules.duration_us(),
            Self::Jpoc(..) => mini::duration_us(mini_slots),
        }
    }

    fn bits(&self) -> u32 {
        match self {
            Self::Slotted(_) => 0,
            Self::Jpoc(jpoc, _) => signalling_bits(jpoc.target.maximum),
        }
    }
}

impl<'a> Client<'a> {
    fn new(
        station: &'a Station,
        index: usize,
        config: &super::CellConfig,
        random: &Random,
    ) -> Result<Self, MmwaveError> {
        let wants_data = index < config.stations;
        let behaviour = if wants_data {
            Behaviour::Stationary
        } else {
            Behaviour::Disconnected
        };
        let blockers = match config.blockage {
            Blockage::Probability(_) => None,
            Blockage::ModelA { .. } => {
                let random = random.split(purpose::BLOCKAGE).split(index as u64 + 1);
                Some(Blockers::new(None, wavelength(CENTRE_GHZ), &random)?)
            }
        };
        Ok(Self {
            station,
            wants_data,
            sweep: Sweep::default(),
            trigger: Trigger::new(
                behaviour,
                &random.split(purpose::TRIGGERS).split(index as u64),
            ),
            link: None,
            pair: (0, 0),
            known: BTreeMap::new(),
            blockers,
            now: None,
            gap: 0,
            outcome: StationOutcome::default(),
        })
    }

    fn channel(&self) -> &Channel {
        self.now
            .as_ref()
            .map_or(&self.station.channel, |now| &now.0)
    }

    fn sweeps(&self) -> &Sweeps {
        self.now.as_ref().map_or(&self.station.sweeps, |now| &now.1)
    }

    fn move_blockers(&mut self, cell: &Cell) -> Result<(), MmwaveError> {
        let (Some(blockers), Blockage::ModelA { metres }) =
            (&mut self.blockers, cell.config.blockage)
        else {
            return Ok(());
        };
        blockers.advance(metres)?;
        let passes = blockers.passes(&self.station.channel, self.station.device.pose.orientation);
        let channel = self.station.channel.attenuated(&passes);
        let sweeps = Sweeps::new(&channel, &cell.ap, &self.station.device);
        self.now = Some((channel, sweeps));
        if self.link.is_some() {
            self.link = Some(self.data_snr(cell));
        }
        Ok(())
    }

    fn data_snr(&self, cell: &Cell) -> f64 {
        let device = &self.station.device;
        let gain = pair_db(
            self.channel(),
            (&cell.ap, self.pair.0),
            (device, self.pair.1),
        );
        device.power_dbm + gain - cell.noise_dbm
    }

    /// Whether the data's SNR is below the slowest scheme of the single-carrier PHY.
    fn below_data(&self) -> bool {
        self.link.is_some_and(|snr| phy::best_mcs(snr).is_none())
    }

    fn connect(&mut self, cell: &Cell, trained: Trained) {
        if self.wants_data {
            self.pair = (self.sweeps().best_ap().0, trained.sector);
            let known = self
                .known
                .get(&trained.sector)
                .copied()
                .filter(|_| self.now.is_none());
            let snr = known.unwrap_or_else(|| self.data_snr(cell));
            self.known.insert(trained.sector, snr);
            self.link = Some(snr);
        }
    }

    fn after_contention(&mut self, trained: bool, number: usize, now: Duration) {
        self.outcome.attempts += 1;
        if trained {
            self.trigger.done(now);
            self.outcome.first.get_or_insert(number);
        } else {
            self.outcome.failures += 1;
            if !self.wants_data {
                // Who only listens does not insist.
                self.trigger.done(now);
                self.sweep = Sweep::default();
            }
        }
    }

    /// Its part of the data time.
    fn send(&mut self, part_s: f64, blocked: bool) {
        let Some(snr) = self.link else {
            self.gap += 1;
            self.outcome.longest_gap = self.outcome.longest_gap.max(self.gap);
            return;
        };
        self.outcome.allocated_s += part_s;
        if blocked {
            self.link = None;
            self.gap += 1;
            self.outcome.longest_gap = self.outcome.longest_gap.max(self.gap);
        } else {
            self.outcome.used_s += part_s;
            self.outcome.megabits += phy::rate_mbps(snr) * part_s;
            self.gap = 0;
        }
    }

    fn finish(self) -> StationOutcome {
        self.outcome
    }
}
