//! A run, one beacon interval at a time.

use core::time::Duration;

use sumlink_link::Random;

use super::ap::Ap;
use super::client::Client;
use super::outcome::{IntervalOutcome, Outcome, Service, StationOutcome};
use super::{Access, Blockage, Cell, purpose};
use crate::error::MmwaveError;

/// Runs a scheme in a cell for the configured number of beacon intervals. The same seed blocks the
/// same clients in the same intervals under every scheme.
///
/// # Errors
///
/// Invalid settings of the scheme; an A-BFT longer than the beacon interval.
pub fn run(cell: &Cell, access: &Access, seed: u64) -> Result<Outcome, MmwaveError> {
    let mut runner = Runner::new(cell, access, seed)?;
    let steps = 0..cell.config.intervals;
    let intervals = steps.map(|_| runner.step()).collect::<Result<_, _>>()?;
    Ok(Outcome {
        stations: runner.finish(),
        intervals,
    })
}

/// A run advanced by the caller, one beacon interval at a time.
pub struct Runner<'a> {
    cell: &'a Cell,
    ap: Ap,
    clients: Vec<Client<'a>>,
    access: Random,
    blockage: Random,
    number: usize,
}

impl<'a> Runner<'a> {
    /// Starts at time 0 without trained sectors.
    ///
    /// # Errors
    ///
    /// Invalid settings of the scheme.
    pub fn new(cell: &'a Cell, access: &Access, seed: u64) -> Result<Self, MmwaveError> {
        let random = Random::new(seed);
        let sectors = cell.stations.iter().map(|one| one.device.sectors());
        let ap = Ap::new(access, sectors.max().unwrap_or(0))?;
        let clients = cell.stations.iter().enumerate();
        let clients =
            clients.map(|(index, station)| Client::new(station, index, &cell.config, &random));
        Ok(Self {
            cell,
            ap,
            clients: clients.collect::<Result<_, _>>()?,
            access: random.split(purpose::ACCESS),
            blockage: random.split(purpose::BLOCKAGE),
            number: 0,
        })
    }

    /// Runs the next beacon interval.
    ///
    /// # Errors
    ///
    /// An A-BFT longer than the beacon interval.
    pub fn step(&mut self) -> Result<IntervalOutcome, MmwaveError> {
        let (cell, config) = (self.cell, &self.cell.config);
        let now = Duration::from_secs_f64(config.interval.length_us * 1e-6 * self.number as f64);
        // Clients are at their initial positions in the first interval.
        let later_s = match self.number {
            0 => 0.0,
            _ => config.interval.length_us * 1e-6,
        };
        for client in &mut self.clients {
            client.advance(cell, later_s)?;
        }
        let each = self.clients.iter_mut().enumerate();
        let contenders = each.filter_map(|(index, one)| one.contends(cell, now).then_some(index));
        let contenders: Vec<usize> = contenders.collect();
        let mut interval =
            self.ap
                .contend(cell, &mut self.clients, &contenders, &mut self.access)?;
        for index in &contenders {
            let trained = interval.trained.contains(index);
            self.clients[*index].after_contention(trained, self.number, now);
        }
        interval.contenders = contenders;
        interval.sharing = self.clients.iter().filter(|one| one.is_trained()).count();
        interval.parts = config.interval.divide(
            self.ap.duration_us(interval.mini_slots),
            interval.sharing,
            self.ap.bits(),
        )?;
        let part_s = interval.parts.data_us * 1e-6 / interval.sharing.max(1) as f64;
        for client in &mut self.clients {
            // Drawn for every client in every interval, so that all schemes see the same blockages.
            let chance = self.blockage.next_f64();
            let blocked = match config.blockage {
                // A standing client keeps the SNR with which it was heard; a walking one may leave
                // its sector.
                Blockage::Probability(p) => chance < p || (client.walks() && client.below_data()),
                Blockage::ModelA { .. } => client.below_data(),
            };
            client.send(part_s, blocked);
        }
        self.number += 1;
        Ok(interval)
    }

    /// A client's service in the last beacon interval, by its index in [`Cell::stations`]; `None`
    /// before the first one.
    pub fn service(&self, station: usize) -> Service {
        self.clients[station].service()
    }

    /// Results of the clients with data so far.
    pub fn finish(self) -> Vec<StationOutcome> {
        let with_data = self.clients.into_iter().filter(|one| one.wants_data);
        with_data.map(Client::finish).collect()
    }
}
